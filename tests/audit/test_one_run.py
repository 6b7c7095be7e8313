"""The one-run audit: its theorem against published figures and simulated mechanisms, and one run of each kind."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from audit.scenes import silo
from bench import table
from bench.attacks import audit
from policies.accounting import accountant
from policies.accounting.accountant import gaussian_epsilon
from protos.messages import Tensor
from silo_agent.learning.heads.sums import pack, second_order_sums
from support.entropy import SeededEntropy


def test_the_papers_own_figure():
    """Appendix D: 75 of 100 guesses right, 1,000 canaries, delta 1e-4, 95 %: epsilon is at least .673."""
    assert audit.lower_bound(1000, 100, 75, 1e-4) == pytest.approx(0.673, abs=5e-4)


def test_without_delta_it_is_the_binomial_tail():
    assert audit.p_value(500, 40, 30, 0.7, 0.0) == pytest.approx(binom.sf(29, 40, 1 / (1 + np.exp(-0.7))))
    assert audit.lower_bound(500, 40, 20, 0.0) == 0.0
    assert audit.p_value(500, 40, 0, 0.7, 1e-5) == 1.0


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.data())
def test_more_right_guesses_prove_more_and_larger_claims_are_harder_to_refute(guesses, data):
    right = data.draw(st.integers(0, guesses - 1))
    few, more = (audit.lower_bound(1000, guesses, v, 1e-5) for v in (right, right + 1))
    assert few <= more + 1e-9
    low, high = (audit.p_value(1000, guesses, right, epsilon, 1e-5) for epsilon in (0.5, 1.5))
    assert low <= high + 1e-12
    if few:
        assert audit.p_value(1000, guesses, right, few, 1e-5) < audit.LEVEL
        assert audit.p_value(1000, guesses, right, few + 1e-6, 1e-5) >= audit.LEVEL * (1 - 1e-6)


def test_randomised_response_is_refuted_as_rarely_as_the_level_says():
    """The worst mechanism there is: every guess is right with probability e^eps / (1 + e^eps)."""
    rights = np.random.default_rng(0).binomial(200, 1 / (1 + np.exp(-1.0)), 2000)
    bounds = {int(v): audit.lower_bound(5000, 200, int(v), 0.0) for v in np.unique(rights)}
    refuted = np.mean([bounds[int(v)] > 1.0 for v in rights])
    assert 0.0 < refuted <= audit.LEVEL + 3 * (audit.LEVEL / 2000) ** 0.5


@pytest.mark.parametrize(("factor", "above"), [(1.0, False), (0.25, True)])
def test_a_gaussian_is_refuted_where_its_noise_is_too_small(factor, above):
    sigma = 2.0
    epsilon = gaussian_epsilon(1.0 / sigma, audit.DELTA)
    rng = np.random.default_rng(3)
    included = rng.random(audit.CANARIES) < 0.5
    found = audit.judged(included + rng.normal(size=audit.CANARIES) * sigma * factor, included, epsilon)
    assert (found.bound > epsilon) is above
    assert found.bound > 0.3 * epsilon


def test_guesses_are_the_extremes_and_a_guess_that_is_out_counts():
    scores = np.arange(audit.CANARIES, dtype=float)
    included = scores >= audit.CANARIES / 2
    assert audit.judged(scores, included, 1.0).right == audit.GUESSES
    assert audit.judged(-scores, included, 1.0).right == 0
    assert audit.judged(scores, np.ones_like(included), 1.0).right == audit.GUESSES // 2


def test_a_canary_is_a_patient_of_two_records_with_a_place_of_its_own():
    included = np.zeros(audit.CANARIES, bool)
    included[[3, 1003, 4999]] = True
    records = audit.canary_records(included)
    assert records.patient_count == 3
    assert records.domains.tolist() == [3, 3, 1003, 1003, 4999, 4999]
    assert np.argwhere(records.inputs).tolist() == [[0, 3], [1, 3], [2, 3], [3, 3], [4, 999], [5, 999]]


def test_the_attacker_knows_what_a_canary_adds_to_its_head():
    made = audit.canary_study()
    records = audit.canary_records(np.arange(audit.CANARIES) == 7)
    model = audit.measuring_model(made)
    sums = second_order_sums(
        model.features(records.inputs),
        records.labels,
        records.domains,
        records.weights,
        model.heads,
        family=model.family,
        pooled=False,
        clip=0.5,
    )
    block = audit._blocks(pack(*sums, model.family))
    np.testing.assert_allclose(block[7], audit.head_direction(), atol=1e-6)
    assert np.abs(np.delete(block, 7, axis=0)).max() == 0.0


@pytest.mark.parametrize(("factor", "above"), [(1.0, False), (0.25, True), (0.0, True)])
def test_one_run_on_the_real_path(factor, above):
    study = accountant.calibrate(audit.canary_study(), 1.0)
    with audit.weakened(factor):
        found = audit.audited(study, SeededEntropy(1))
    assert set(found) == {"training", "evaluation"}
    for one in found.values():
        assert 0.99 < one.epsilon <= 1.0
        assert (one.bound > one.epsilon) is above
        assert one.bound > 0.0


def test_what_leaves_is_what_was_kept_and_sealed(tmp_path):
    made = audit.canary_study()
    nobody = audit.canary_records(np.zeros(audit.CANARIES, bool))
    with silo(tmp_path, made, nobody, nobody, 1) as held:
        integers = held.contribute(Tensor.COUNTS, 0, audit.SharedModel.start(made))
        kept = held.state.release(audit.Place(made.digest, 0, 1), Tensor.COUNTS, 1)
        assert np.array_equal(kept.integers, integers)


@pytest.mark.parametrize(("name", "bounds", "met"), [
    ("as built", (0.4, 0.9), True),
    ("as built", (0.4, 1.1), False),
    ("quarter noise", (2.0, 2.0), True),
    ("no noise", (0.1, 0.1), False),
    ("half noise", (0.1, 0.1), True),
])  # fmt: skip
def test_a_bound_above_the_ledger_condemns_the_code_and_none_above_it_the_audit(name, bounds, met):
    right = {"quarter noise": 190}.get(name, 120)
    runs = [audit.AuditOutcome(1.0, right, bound) for bound in bounds]
    assert audit._figure(1.0, name, "training", runs).met is met


def test_the_table_is_printed_and_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(table, "OUT", tmp_path)
    monkeypatch.setattr(audit, "REPETITIONS", 1)
    monkeypatch.setattr(
        audit, "audited", lambda *_: dict.fromkeys(("training", "evaluation"), audit.AuditOutcome(0.9, 120, 0.1))
    )
    monkeypatch.setattr(audit, "accountant", SimpleNamespace(calibrate=lambda study, _: study))
    assert audit.main() == 1, "no noise at all was not found"
    written = json.loads((tmp_path / "audit.json").read_text())
    assert len(written["figures"]) == len(audit.CLAIMS) * len(audit.FAULTS) * 2
    assert written["details"]["1 as built training"] == [{"epsilon": 0.9, "right": 120, "bound": 0.1}]
    assert "MISSED" in capsys.readouterr().out
