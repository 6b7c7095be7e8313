"""What a release reads and how it is drawn, asked of every release: its cohort, its share of noise, its steps."""

import hashlib
import itertools
from dataclasses import replace

import numpy as np
import pytest

from policies.documents import recipes
from policies.plan import shapes
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.reader import read_records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.split import split
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.training import SEALED_NORM
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise import noised_sum as private
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.noising import SumGrid
from support.entropy import SeededEntropy
from support.local_federation import DATA_SET, HOLDOUT, write_patients
from support.studies import tiny_study

SLOPES = np.array([[7.0, -2.0], [-5.0, 4.0]])
WHOLE = {"encoder": {"sampling_rate": 1.0}}
SEALED = {"encoder": {"sampling_rate": 1.0, "sealed_steps": True, "sealing": "ring64"}}


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    file = write_patients(tmp_path_factory.mktemp("data") / "own.csv", np.random.default_rng(4), SLOPES, patients=60)
    header, *rows = file.read_text().splitlines()
    return [f"{header},ward", *(f"{row},{number % 2}" for number, row in enumerate(rows))]


def learner_of(folder, lines, **changes):
    folder.mkdir(parents=True)
    (folder / "own.csv").write_text("\n".join(lines) + "\n")
    (folder / "counts.json").write_text("[20.0, 20.0]")
    given = {"draws": FreshDraws(SeededEntropy(1)), "device": "cpu"}
    return Learner(
        tiny_study(**changes), DataSet(folder / "own.csv", Division(DATA_SET, HOLDOUT, ("patient",))), folder, **given
    )


def drawn(learner, silos=3):
    """Every release of the study's plan, as integers, from one source of randomness and the same public model."""
    study, start = learner.study, SharedModel.start(learner.study)
    model, found = replace(start, heads=np.full(start.heads.shape, 0.5)), {}
    for number, releases in enumerate(plan(study).rounds):
        for release in releases:
            place = Place(study.digest, number, 1)
            found[number, release.tensor] = learner.contribution(release, place, model, silos)
    return found


def is_held_out(line):
    """By the rule of docs/design/noise.md alone."""
    digest = hashlib.sha256(b"fedward split")
    for part in (DATA_SET.encode(), line.split(",")[0].encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return int.from_bytes(digest.digest()[:8], "big") < int(HOLDOUT * 2**64)


@pytest.mark.parametrize("changes", [WHOLE, SEALED], ids=["updates", "sealed steps"])
def test_a_release_reads_the_patients_of_its_cohort_and_no_others(tmp_path, lines, changes):
    """Without a patient of one cohort, the releases of the other are the same integers, and its own are others."""
    header, *rows = lines
    held_out = [row for row in rows if is_held_out(row)]
    training = [row for row in rows if row not in held_out]
    assert 5 < len(held_out) < len(training)
    whole = learner_of(tmp_path / "whole", lines, **changes)
    cohorts = {name: whole.cohort(name) for name in ("training", "evaluation")}
    assert {name: records.patient_count for name, records in cohorts.items()} == {
        "training": len(training),
        "evaluation": len(held_out),
    }
    assert not set(cohorts["training"].identities) & set(cohorts["evaluation"].identities)
    integers, releases = drawn(whole), {(n, r.tensor): r for n, rs in enumerate(plan(whole.study).rounds) for r in rs}
    assert {release.cohort for release in releases.values()} == set(cohorts)
    for cohort, gone in (("training", training[3]), ("evaluation", held_out[3])):
        without = [header, *(row for row in rows if row != gone)]
        others = drawn(learner_of(tmp_path / cohort, without, **changes))
        changed = {key for key, own in integers.items() if not np.array_equal(own, others[key])}
        assert changed == {key for key, release in releases.items() if release.cohort == cohort}


@pytest.mark.parametrize("changes", [WHOLE, SEALED], ids=["updates", "sealed steps"])
@pytest.mark.parametrize("sum_of", [("distributed", 4), ("distributed", 6), ("local", 4)])
def test_noise_is_shared_by_those_who_take_part_and_not_by_all_listed(tmp_path, monkeypatch, lines, changes, sum_of):
    """Six are listed; what counts is how many are in the sum. Also if the records cannot be used."""
    mode, silos = sum_of
    sigmas = []
    draw = private.discrete_gaussian
    monkeypatch.setattr(private, "discrete_gaussian", lambda *given: sigmas.append(given[1]) or draw(*given))
    listed = {"silos": [f"site-{number}" for number in range(6)], "min_silos": 4, "privacy": {"mode": mode}}
    learner = learner_of(tmp_path / "silo", lines, **listed | changes)
    study, model = learner.study, SharedModel.start(learner.study)
    carriers = silos - 1 - study.privacy.colluders if mode == "distributed" else 1
    for (number, releases), give in itertools.product(
        enumerate(plan(study).rounds), (learner.contribution, learner.noise_alone)
    ):
        for release in releases:
            sigmas.clear()
            give(release, Place(study.digest, number, 1), model, silos)
            if release.tensor == Tensor.ENCODER and not study.encoder.sealed_steps:
                assert not sigmas  # an update carries its whole noise
                continue
            step = 1 / SEALED_NORM if release.tensor == Tensor.ENCODER else SumGrid.of(study).step
            (sigma,) = sigmas
            wanted = release.noise * (1 + step * release.values**0.5) / carriers**0.5 / step
            assert sigma == pytest.approx(wanted, rel=1e-12)


OPEN = {"feddar-sa", "feddar-wa", "feddar-linear"}
"""Recipes for public data: nothing is drawn."""
RECIPES = {
    "second-order": {"encoder": {"cmi": 0.01}},
    "fedavg": {"heads": {"pooled_rounds": 2, "domain_rounds": 0}},
    "fedprox": {"encoder": {"proximal": 0.5}},
    "fedsr": {"encoder": {"cmi": 0.01, "l2r": 0.01}},
    "fedrep": {"encoder": {"head_steps": 3}},
    "perinvfl": {"data": {"environment": {"column": "ward", "values": [0, 1]}}, "personal": {"irm": 1.0}},
    "ditto": {"personal": {}},
}


@pytest.mark.parametrize("recipe", sorted(set(recipes.RECIPES) - OPEN))
def test_as_many_noised_steps_are_taken_as_are_charged(tmp_path, monkeypatch, lines, recipe):
    """Every step reads patients, whether it trains the encoder, tables or heads, and each is in the price."""
    taken, logged = [], []
    take = PrivateStep.take
    monkeypatch.setattr(PrivateStep, "take", lambda step: taken.append(step) or take(step))
    learner = learner_of(tmp_path / "silo", lines, **{"recipe": recipe} | RECIPES.get(recipe, {}))
    study, model = learner.study, SharedModel.start(learner.study)
    for number, releases in enumerate(plan(study).rounds):
        for release in releases:
            taken.clear()
            learner.contribution(release, Place(study.digest, number, 1), model, 3)
            if release.tensor == Tensor.ENCODER:
                logged.append(number)
                own = study.encoder.steps + study.encoder.head_steps
                assert len(taken) == release.count == release.cost.count == own
            else:
                assert not taken
    assert logged == [number for number in range(1, study.rounds + 1) if shapes.sums_encoder(study, number)]


def test_both_cohorts_are_those_of_the_split(tmp_path, lines):
    learner = learner_of(tmp_path / "silo", lines)
    records = read_records(tmp_path / "silo" / "own.csv", learner.study.data, ["patient"]).records
    for name, records_of in zip(("training", "evaluation"), split(records, DATA_SET, HOLDOUT), strict=True):
        assert learner.cohort(name).identities == records_of.identities
        np.testing.assert_array_equal(learner.cohort(name).labels, records_of.labels)
