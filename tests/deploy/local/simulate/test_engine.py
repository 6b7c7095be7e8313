"""A simulated run gives what a federation gives, and refuses silos that the study does not name."""

import json
from contextlib import ExitStack, closing

import numpy as np
import pytest

from deploy.local.simulate import engine
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.groups import VirtualSilo
from deploy.local.simulate.silos import Cohorts, Silo
from policies.errors import PolicyError
from policies.plan.release import plan
from silo_agent.data.reader import read_records
from silo_agent.learning.learner import Learner
from silo_agent.learning.model import kept_parts as kept
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from support import local_silos
from support.certificates import data_set_of, load, make_authority
from support.local_coordinator import LocalCoordinator
from support.local_federation import HOLDOUT
from support.made_up import MadeUp
from support.studies import tiny_study

SEALED = {"sealed_steps": True, "sampling_rate": 1.0, "sealing": "ring64", "momentum": 0.9, "schedule": "cosine"}


SHORT = {"pooled_noise": 0.0, "domain_noise": 0.0}
HEADS = SHORT | {"pooled_rounds": 2, "domain_rounds": 2}
NONE = {
    "heads": HEADS,
    "encoder": {"noise": 0.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
}
RECIPES = {
    "feddar-sa": NONE | {"encoder": {"noise": 0.0, "warm_up": 1, "every": 2}},
    "feddar-sa, together": NONE | {"recipe": "feddar-sa", "encoder": {"noise": 0.0, "together": True}},
    "feddar-wa": NONE,
    "feddar-linear": NONE
    | {
        "data": {"label": {"positive": [], "negative": [], "minimum": 0, "maximum": 1}},
        "model": {"encoder": "linear", "hidden": []},
        "encoder": {"noise": 0.0, "steps": 1, "sampling_rate": 1.0, "clip": 10.0},
        "evaluation": {"noise": 0.0, "bins": 10},
    },
    "fedavg": NONE | {"heads": HEADS | {"domain_rounds": 0}},
    "fedsr": NONE | {"encoder": {"noise": 0.0, "l2r": 0.01, "cmi": 0.01}},
    "fedprox": {"encoder": {"proximal": 1.0}},
    "ditto": {"personal": {"ditto": 0.1}},
    "multi-head-fedavg": {},
}
"""The first ones without noise, the others private."""
KEPT = {"lg-fedavg": {}, "fedper": {}, "fedrep": {"encoder": {"head_steps": 2}}, "local": {}}
"""Recipes that keep a part at the silo, all private."""


def following(recipe):
    """A study that follows a recipe of these."""
    return tiny_study(**({"recipe": recipe} | (RECIPES | KEPT)[recipe]))


def cohorts_of(study, files):
    """The cohorts that agents with these data sets draw."""
    records = {name: read_records(file, study.data, ["patient"]).records for name, file in files.items()}
    return Cohorts({name: Silo.split(own, data_set_of(name), HOLDOUT) for name, own in records.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"mode": "local"}},
        {"privacy": {"mode": "distributed"}, "heads": {"solver": "hierarchical"}},
        {"privacy": {"mode": "distributed"}, "encoder": SEALED},
        {"recipe": "feddar-linear"} | RECIPES["feddar-linear"] | {"heads": SHORT},
        RECIPES["feddar-sa, together"] | {"heads": SHORT},
        {"recipe": "fedrep", "encoder": {"head_steps": 2}},
        {"recipe": "lg-fedavg", "personal": {"epochs": 1}},
        {"recipe": "local"},
    ],
    ids=["local", "hierarchical", "sealed steps", "linear", "together", "fedrep", "lg-fedavg", "nothing shared"],
)
def test_it_gives_the_very_model_and_results_of_real_agents_with_the_same_draws(tmp_path, monkeypatch, changes):
    """The agents charge, seal, add and open; their learners alone draw from the simulation's source."""
    study = tiny_study(**changes)
    public = study.privacy.mode == "none"
    monkeypatch.setattr(
        local_silos,
        "Learner",
        lambda study, data_set, *given, draws, **named: Learner(
            study, data_set, *given, draws=FreshDraws(RepeatableEntropy(7, data_set.source.stem)), **named
        ),
    )
    authority = make_authority(tmp_path / "consortium")
    coordinator = LocalCoordinator(study, load(authority.credential("coordinator", "hub")))
    with ExitStack() as stack:
        silos = {}
        for name in study.silos:
            credential = load(authority.credential("silo", name))
            own = local_silos.LocalSilo(tmp_path / name, credential, coordinator, public=public)
            silos[name] = stack.enter_context(closing(own))
        for number in range(plan(study).last + 1):
            coordinator.run_round(number)
        files = {name: silo.data for name, silo in silos.items()}
        simulated = simulate(study, cohorts_of(study, files), seed=7)
        assert silos["south"].model(study.rounds).read_bytes() == simulated.model.to_bytes()
        published = json.loads((silos["south"].model(study.rounds).parent / "results.json").read_bytes())
    domains = [own.patients.value for own in simulated.published.by_domain]
    assert domains == [own["patients"]["value"] for own in published["by_domain"]]


QUICK = ("feddar-sa", "multi-head-fedavg")
OTHERS = ("feddar-wa", "fedavg")


@pytest.mark.parametrize(
    "recipe", [pytest.param(recipe, marks=pytest.mark.slow if recipe in OTHERS else ()) for recipe in RECIPES]
)
def test_every_recipe_moves_heads_and_encoder_and_gives_each_domain_what_the_recipe_says(files, recipe):
    study = following(recipe)
    models = []
    found = simulate(study, cohorts_of(study, files), seed=1, after_round=models.append)
    assert [model.round for model in models] == list(range(1, study.rounds + 1))
    assert models[-1].digest == found.model.digest
    start = SharedModel.start(study)
    assert found.model.round == study.rounds
    assert np.abs(found.model.heads - start.heads).max() > 1e-3
    assert not np.array_equal(found.model.encoder, start.encoder)
    assert np.array_equal(found.model.heads[0], found.model.heads[1]) == (recipe == "fedavg")
    found.model.require_reachable()


@pytest.mark.parametrize("recipe", KEPT)
def test_what_a_recipe_keeps_stays_at_the_silo_and_completes_the_shared_model(files, monkeypatch, recipe):
    study, complete = following(recipe), []
    completed = kept.completed

    def noted(model, folder, before):
        complete.append(completed(model, folder, before))
        return complete[-1]

    monkeypatch.setattr(kept, "completed", noted)
    found, start = simulate(study, cohorts_of(study, files), seed=1), SharedModel.start(study)
    own, recipe = complete[-len(study.silos) :], study.composition
    for model in own:
        assert not np.array_equal(model.encoder, start.encoder)
        assert np.abs(model.heads).max() > 1e-3
    for part, where in (("encoder", recipe.encoder), ("heads", recipe.heads)):
        shared, theirs = getattr(found.model, part), [getattr(model, part) for model in own]
        if where == "kept":
            assert np.array_equal(shared, getattr(start, part))
            assert not np.array_equal(*theirs[:2])
        else:
            assert all(np.array_equal(shared, each) for each in theirs)
    found.model.require_reachable()


def test_fedavg_trains_heads_on_raw_inputs_too(files):
    raw = {"encoder": "raw", "hidden": [], "representation": 2}
    study = tiny_study(recipe="multi-head-fedavg", model=raw)
    found = simulate(study, cohorts_of(study, files), seed=1).model
    assert not len(found.encoder)
    assert np.abs(found.heads).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("recipe", QUICK)
def test_agents_follow_the_recipes_too(tmp_path, recipe):
    """Rounds without heads, rounds of heads alone, and the solving of local heads, through charges and sealed sums."""
    study = following(recipe)
    authority = make_authority(tmp_path / "consortium")
    coordinator = LocalCoordinator(study, load(authority.credential("coordinator", "hub")))
    with ExitStack() as stack:
        silos = {}
        for name in study.silos:
            credential = load(authority.credential("silo", name))
            public = study.privacy.mode == "none"
            own = local_silos.LocalSilo(tmp_path / name, credential, coordinator, public=public)
            silos[name] = stack.enter_context(closing(own))
        for number in range(study.rounds + 2):
            coordinator.run_round(number)
        models = {silo.model(study.rounds).read_bytes() for silo in silos.values()}
    assert len(models) == 1


def test_a_seed_repeats_a_run_and_another_one_draws_other_noise(files):
    study = tiny_study()
    cohorts = cohorts_of(study, files)
    first, again, other = (simulate(study, cohorts, seed=seed) for seed in (1, 1, 2))
    assert first.model.digest == again.model.digest != other.model.digest
    assert first.exact == again.exact


def test_a_virtual_silo_trains_and_measures_on_what_it_was_given(files, tmp_path):
    study = tiny_study()
    silo = cohorts_of(study, files).silos["north"]
    learner = VirtualSilo(study, silo, tmp_path, RepeatableEntropy(1, "north"), "cpu")
    assert learner.cohort("training") is silo.training
    assert learner.cohort("evaluation") is silo.held_out


def test_personal_models_of_an_ensemble_follow_every_rounds_model_from_the_first_on(files, monkeypatch):
    study, asked = tiny_study(personal={"epochs": 1}), {}

    def noted(_study, rounds, _cohorts, **_):
        asked.update(rounds)
        return [rounds[max(rounds)]]

    monkeypatch.setattr(engine, "personal_models", noted)
    found = simulate(study, cohorts_of(study, files), seed=1, ensemble=True)
    assert [(number, model.round) for number, model in asked.items()] == [(n, n) for n in range(study.rounds + 1)]
    assert asked[0].digest == SharedModel.start(study).digest
    assert asked[study.rounds].digest == found.model.digest
    with pytest.raises(SimulationError, match="an ensemble is of the silos' own models"):
        simulate(tiny_study(), cohorts_of(study, files), seed=1, ensemble=True)


def test_only_where_silos_keep_parts_are_their_own_patients_measured_beside_the_test_records():
    drawn = MadeUp(60, 0.3).draw(tiny_study(), 1)
    assert simulate(tiny_study(), drawn, seed=1).own is None
    kept_parts = tiny_study(recipe="lg-fedavg")
    assert simulate(kept_parts, drawn, seed=1).own.together.records < 180
    assert simulate(kept_parts, Cohorts(drawn.silos), seed=1).own is None


def test_some_silos_of_a_study_may_be_absent(files, public_study):
    cohorts = cohorts_of(public_study, files)
    alone = simulate(public_study, Cohorts({"north": cohorts.silos["north"]}), seed=1)
    assert alone.together.records == len(cohorts.silos["north"].held_out)
    assert simulate(public_study, cohorts, seed=1).together.records > alone.together.records


def test_a_silo_that_the_study_does_not_name_is_refused(files):
    study = tiny_study()
    cohorts = cohorts_of(study, files)
    with pytest.raises(SimulationError, match="not elsewhere"):
        simulate(study, Cohorts({"elsewhere": cohorts.silos["north"]}), seed=1)
    with pytest.raises(SimulationError, match="not none"):
        simulate(study, Cohorts({}), seed=1)


def test_a_study_outside_the_bounds_is_refused(files):
    study = tiny_study()
    outside = study.model_copy(update={"heads": study.heads.model_copy(update={"clip": 1e-9})})
    with pytest.raises(PolicyError, match="clip"):
        simulate(outside, cohorts_of(study, files), seed=1)


def test_a_round_of_warm_up_is_a_round_of_fedavg(files):
    """The encoder after it is the same, bit for bit; the round of the heads that follows moves heads alone."""
    encoder = {"noise": 0.0, "warm_up": 1}
    warmed = tiny_study(**NONE | {"recipe": "feddar-sa", "heads": HEADS | {"domain_rounds": 0}, "encoder": encoder})
    averaged = tiny_study(**NONE | {"recipe": "fedavg", "heads": HEADS | {"pooled_rounds": 1, "domain_rounds": 0}})
    after, wanted = (simulate(study, cohorts_of(study, files), seed=1).model for study in (warmed, averaged))
    assert np.array_equal(after.encoder, wanted.encoder)
    assert not np.array_equal(after.heads, wanted.heads)
