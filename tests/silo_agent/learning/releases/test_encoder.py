"""Every recipe's encoder round, with every term: what feeds an upload is trained in the noised step or not at all."""

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.documents.recipes import RECIPES
from policies.documents.terms import TERMS
from policies.plan import shapes
from policies.plan.release import plan
from protos.messages import Place
from silo_agent.learning.device import choose_device
from silo_agent.learning.dpsgd import gradients
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.training import Training
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.encoder import EncoderUpdates, train
from silo_agent.learning.releases.whole_batches import train_plainly
from silo_agent.learning.terms.environments import Steps
from silo_agent.logs import TrainingLog
from silo_agent.storage.folders import StudyFolder
from support.entropy import SeededEntropy
from support.studies import tiny_study

OPEN = {
    "heads": {"pooled_noise": 0.0, "domain_noise": 0.0},
    "encoder": {"noise": 0.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
}
INVARIANT = {
    "recipe": "fedavg",
    "heads": {"pooled_rounds": 4, "domain_rounds": 0, "pooled_noise": 0, "domain_noise": 0},
    "encoder": {"steps": 2, "sampling_rate": 1, "noise": 0, "irm": 10.0, "irm_after": 3, "group_dro": 0.5}
    | {"schedule": "cosine", "weight_clip": 5.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
    "data": {"environment": {"column": "ward", "values": [0, 1]}},
}
LINEAR = {
    "model": {"encoder": "linear", "hidden": []},
    "data": {"label": {"column": "ill", "positive": [], "negative": [], "minimum": 0, "maximum": 1}},
    "evaluation": {"noise": 0.0, "bins": 10},
}
NEEDED = {
    "feddar-sa": OPEN,
    "feddar-wa": OPEN,
    "feddar-linear": OPEN | LINEAR | {"encoder": {"noise": 0.0, "steps": 1, "sampling_rate": 1.0}},
    "fedavg": {"heads": {"pooled_rounds": 2, "domain_rounds": 0}},
    "ditto": {"personal": {"ditto": 0.1}},
    "perinvfl": {
        "personal": {"ditto": 0.1, "irm": 1.0},
        "data": {"environment": {"column": "ward", "values": [0, 1]}},
    },
    "fedrep": {"encoder": {"head_steps": 2}},
}
EVERY = {"l2r": 0.1, "cmi": 0.1, "proximal": 1.0}
"""Every term that may act on an uploaded part."""
QUICK = {"lg-fedavg", "fedrep", "local"}
CASES = [
    pytest.param(
        name,
        terms | {"proximal": 0.0} if name == "local" else terms,
        id=f"{name}, {'every term' if terms else 'no term'}, tables {terms.get('prior')}",
        marks=() if name in QUICK and terms.get("prior") == "local" else pytest.mark.slow,
    )
    for name in RECIPES
    for terms in ({}, EVERY | {"prior": "averaged"}, EVERY | {"prior": "local"})
    if not (name in {"fedprox", "fedsr"} and not terms)
    and not (name == "feddar-linear" and terms)
    and not (name == "local" and terms.get("prior") == "averaged")
]


def a_study(name, terms):
    needed = NEEDED.get(name, {})
    encoder = {"sampling_rate": 0.5, "schedule": "cosine", "momentum": 0.5} if name != "feddar-linear" else {}
    return tiny_study(**needed | {"recipe": name, "encoder": encoder | needed.get("encoder", {}) | terms})


def a_model(study):
    """A start with heads that are not zero, so that every part has a gradient from the first step on."""
    start = SharedModel.start(study)
    return start.with_heads(np.random.default_rng(3).normal(size=start.heads.shape), 0)


def trained(study, folder, records):
    """Integers of two rounds, with what stays at the silo after each."""
    folder.mkdir()
    (folder / "counts.json").write_text(json.dumps([40.0, 40.0]))
    silo = Setting(study, folder, SeededEntropy(1), choose_device("cpu"), TrainingLog(folder / "log.jsonl"))
    model, found = a_model(study), []
    for number in range(1, study.rounds + 1):
        if shapes.sums_encoder(study, number):
            release, place = plan(study).release(number, "encoder"), Place(study.digest, number, 1)
            found.append(EncoderUpdates(silo).contribute(release, records, place, model, 3).tobytes())
    stays = [path for path in sorted(folder.iterdir()) if path.name.startswith(("kept-", "prior-"))]
    return [*found, *((path.name, path.read_bytes()) for path in stays)]


def test_the_cases_are_all_terms_that_may_act_on_an_upload():
    fields = {term.field for term in TERMS if term.part in {"encoder", "step"}}
    assert set(EVERY) == fields
    assert {case.values[0] for case in CASES} == set(RECIPES)


@pytest.mark.parametrize(("name", "terms"), CASES)
def test_nothing_of_a_record_passes_beside_the_noised_step(make_records, tmp_path, monkeypatch, name, terms):
    """With the sums of the clipped step set to zero, other patients change nothing: no integer and no kept bit.

    As they are, they do change all of it, and no record adds more than the clip, over all parts together.
    """
    study = a_study(name, terms)
    cohorts = make_records(40, inputs=2, domains=2), make_records(23, seed=9, inputs=2, domains=2)
    norms, add = [], gradients.add_integers

    def noted(totals, integers, count, *how):
        for row in range(count):
            alone = [total.clone().zero_() for total in totals]
            add(alone, [part[row : row + 1] for part in integers], 1, *how)
            norms.append(np.linalg.norm(np.concatenate([total.numpy() for total in alone])))
        add(totals, integers, count, *how)

    monkeypatch.setattr(gradients, "add_integers", noted)
    differ = [trained(study, tmp_path / f"with {n}", records) for n, records in enumerate(cohorts)]
    for one, other in zip(*differ, strict=True):
        assert (one != other) == (study.composition.shares or isinstance(one, tuple)), "one zero is summed"
    assert max(norms) <= StepGrid.fine(study.encoder.clip, study.encoder.noise).norm

    take = PrivateStep.take

    def emptied(self):
        for total in self.totals:
            total.zero_()
        take(self)

    monkeypatch.setattr(PrivateStep, "take", emptied)
    same = [trained(study, tmp_path / f"without {n}", records) for n, records in enumerate(cohorts)]
    assert same[0] == same[1]


def test_the_pull_to_the_rounds_start_acts_on_what_is_uploaded_alone(make_records, tmp_path):
    """Without records every part moves by its own noise: the uploaded encoder is drawn back, the kept heads are not."""
    uploaded, heads = [], []
    for proximal in (0.0, 0.5):
        study, folder = tiny_study(recipe="fedper", encoder={"proximal": proximal}), tmp_path / str(proximal)
        uploaded.append(trained(study, folder, make_records(0, inputs=2, domains=2))[0])
        heads.append(kept_parts.completed(a_model(study), StudyFolder(folder), 2).heads)
    assert uploaded[0] != uploaded[1]
    assert np.array_equal(*heads)


def test_a_small_domains_kept_head_stays_where_the_pooled_rounds_left_it(make_records, tmp_path):
    """As that of a shared head does (`privacy.smallest_domain`)."""
    study = tiny_study(recipe="fedper", privacy={"smallest_domain": 100})
    (tmp_path / "counts.json").write_text(json.dumps([400.0, 40.0]))
    silo = Setting(study, tmp_path, SeededEntropy(1), choose_device("cpu"), TrainingLog(tmp_path / "log.jsonl"))
    model, heads = SharedModel.start(study), {}
    for number in (1, 2):
        release, place = plan(study).release(number, "encoder"), Place(study.digest, number, 1)
        EncoderUpdates(silo).contribute(release, make_records(40, inputs=2, domains=2), place, model, 3)
        heads[number] = kept_parts.completed(model, StudyFolder(tmp_path), number + 1).heads
    assert np.array_equal(heads[1][0], heads[1][1])
    assert np.array_equal(heads[1][1], heads[2][1])
    assert not np.array_equal(heads[1][0], heads[2][0])


def test_whole_batches_are_trained_with_the_counts_weights_and_go_on_from_round_to_round(make_records, tmp_path):
    """The silo's own loop, written down again. It missed the third round, which counts among the steps all the same."""
    study = tiny_study(**INVARIANT)
    records = replace(make_records(60, inputs=2, domains=2), environments=np.arange(60) % 2)
    (tmp_path / "counts.json").write_text(json.dumps([30.0, 90.0]))
    silo = Setting(study, tmp_path, SeededEntropy(1), choose_device("cpu"), TrainingLog(tmp_path / "log.jsonl"))
    model, steps = a_model(study), Steps.start(study.encoder, 2)
    for number in (1, 2, 4):
        steps.taken = 2 * (number - 1)
        release, place = plan(study).release(number, "encoder"), Place(study.digest, number, 1)
        found = train(silo, release, records, place, model)
        wanted = train_plainly(
            study,
            Training(
                encoder=model.build_encoder(),
                heads=model.heads,
                records=records,
                release=release,
                joint=1,
                family=silo.family,
                domain_weights=np.array([2.0, 2 / 3]),
                whole=8,
                plan=study.encoder,
                first=steps.taken,
            ),
            steps=steps,
        )
        assert np.array_equal(found.vector, wanted.vector)
        assert found.vector.any()
        left = np.frombuffer(StudyFolder(tmp_path).environments(number).read_bytes(), "<f8")
        np.testing.assert_array_equal(left, [2 * number, *steps.weights])
