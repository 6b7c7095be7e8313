"""Public records say what to expect."""

import numpy as np
import pytest

from silo_agent.data.records import Records
from silo_agent.forecast.public import known_of

NUMBER = {"column": "days", "minimum": 0, "maximum": 60, "positive": [], "negative": []}


def records(count, *, slope=2.0, seed=0):
    """Patients with two records each."""
    rng = np.random.default_rng(seed)
    inputs = np.clip(0.4 * rng.normal(size=(2 * count, 8)), -1, 1).astype(np.float32)
    labels = (rng.random(2 * count) < 1 / (1 + np.exp(1.0 - slope * inputs[:, 0]))).astype(np.int64)
    domains = np.repeat(rng.random(count) < 0.75, 2).astype(np.int64)
    return Records(inputs, labels, domains, np.repeat(np.arange(count), 2), tuple(map(str, range(count))))


def test_patients_shares_prevalence_and_a_cross_validated_effect(raw_study):
    found = records(1000)
    known = known_of(raw_study(), found, 0.2)
    assert known.patients == (800,)
    assert known.shares[1] == pytest.approx(0.75, abs=0.04)
    assert known.prevalence == pytest.approx(found.labels.mean())
    assert known.effect == pytest.approx(0.7, abs=0.03)
    assert 0.01 <= known.unsure < 0.03
    assert "1,000 patients" in known.notes[0]


def test_few_patients_tell_no_effect(raw_study):
    known = known_of(raw_study(), records(60), 0.2)
    assert known.effect is None
    assert "do not tell the effect" in known.notes[0]


def test_a_number_is_explained_or_not(raw_study):
    study = raw_study(data={"label": NUMBER}, evaluation={"bins": 10})
    found = records(400)
    places = ((np.clip(found.inputs[:, 0] * 0.8, -1, 1) + 1) / 2 * 2**20).astype(np.int64)
    whole = Records(found.inputs, places, found.domains, found.patients, found.identities)
    known = known_of(study, whole, 0.2)
    assert known.prevalence is None
    assert known.effect > 0.9
    low = Records(found.inputs, places % 2, found.domains, found.patients, found.identities)
    assert known_of(study, low, 0.2).prevalence is None, "the mean of a number is no prevalence, wherever it lies"
