import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from crypto.rings.rings import RINGS, ring_of
from policies.documents import recipes
from policies.plan import shapes
from policies.plan.release import plan
from policies.refusals import Reason, Refused
from protos.messages import Place, Tensor
from silo_agent.data.errors import DataError
from silo_agent.data.outcome import targets
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.data.sources.snapshot import forget
from silo_agent.learning.dpsgd import training
from silo_agent.learning.errors import LearningError, SolutionError, SumError
from silo_agent.learning.figures import evaluation
from silo_agent.learning.figures.moments import number_quality
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws, KeyedDraws
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.personal import cross_validation
from silo_agent.learning.personal.choice import Choice
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.releases.encoder import UPDATE_STEPS
from silo_agent.learning.releases.heads import HEAD_STEP
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.folders import StudyFolder
from support.entropy import SeededEntropy
from support.local_federation import DATA_SET, HOLDOUT, LocalFederation, write_kinds, write_patients
from support.releases import contribution
from support.stores import Memory
from support.studies import tiny_study

SLOPES = np.array([[7.0, -2.0], [-5.0, 4.0]])
PERSONAL = {"epochs": 1, "batch_size": 16}
TINY_NOISE = 0.01
ALMOST_OPEN = {
    "model": {"hidden": [], "representation": 2},
    "heads": {"pooled_rounds": 2, "domain_rounds": 5, "pooled_noise": TINY_NOISE, "domain_noise": TINY_NOISE},
    "encoder": {"noise": TINY_NOISE, "learning_rate": 1e-6},
    "evaluation": {"noise": TINY_NOISE, "bins": 20},
    "privacy": {"count_noise": TINY_NOISE},
}
"""A study whose epsilon is huge and whose encoder all but stays as it starts: only the heads learn."""


def patients(folder, count, **west):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(4)
    files = {silo: folder / f"{silo}.csv" for silo in ("north", "south", "west")}
    for silo, path in files.items():
        write_patients(path, rng, SLOPES, patients=count, **(west if silo == "west" else {}))
    return files


@pytest.fixture
def learner(tmp_path):
    """The first silo of a tiny federation, with all that it needs of round 0."""
    return some_learner(tmp_path)


def quality(probabilities, labels, bins):
    return evaluation.quality(probabilities, labels, bins, family_of(probabilities.shape[1]))


def some_learner(folder, seed=9, **changes):
    federation = LocalFederation.gather(
        tiny_study(**changes), patients(folder / "data", 40), folder / "silos", seed=seed
    )
    federation.run_round(0)
    return federation.learners["north"]


DIVISION = Division(DATA_SET, HOLDOUT, ("patient",))


def bare_learner(folder, file=None, kept=None, entropy=None, **changes):
    """A silo that has not opened a sum yet."""
    return Learner(
        tiny_study(**changes),
        DataSet(file or patients(folder / "data", 40)["north"], DIVISION),
        folder,
        draws=FreshDraws(entropy or SeededEntropy(1)),
        device="cpu",
        kept=kept,
    )


def test_another_column_in_the_file_of_a_study_of_records_leaves_both_cohorts_as_they_are(tmp_path):
    narrow = patients(tmp_path / "data", 80)["north"]
    header, *rows = narrow.read_text().splitlines()
    wide = tmp_path / "wide.csv"
    wide.write_text("\n".join([f"{header},ward", *(f"{row},{place}" for place, row in enumerate(rows))]) + "\n")
    cohorts = []
    for file in (narrow, wide):
        learner = bare_learner(tmp_path, file, data={"patient": None})
        cohorts.append([learner.cohort(name).inputs[:].tolist() for name in ("training", "evaluation")])
    assert cohorts[0] == cohorts[1]
    assert all(cohorts[0])


def at(study, number):
    return Place(study.digest, number, 1)


# --- what stays at the silo moves nothing that leaves it --------------------------------------------------------------
OPEN = {
    "heads": {"pooled_noise": 0.0, "domain_noise": 0.0},
    "encoder": {"noise": 0.0},
    "evaluation": {"noise": 0.0},
    "privacy": {"mode": "none", "count_noise": 0.0},
}
RECIPES = {
    "second-order": {"encoder": {"cmi": 0.01, "prior": "local"}, "privacy": {"mode": "distributed"}},
    "feddar-sa": OPEN,
    "feddar-wa": OPEN,
    "fedavg": {"heads": {"pooled_rounds": 2, "domain_rounds": 0}},
    "multi-head-fedavg": {},
    "fedprox": {"encoder": {"proximal": 0.5}},
    "fedsr": {"encoder": {"cmi": 0.01, "l2r": 0.01}},
    "ditto": {},
    "perinvfl": {
        "data": {"environment": {"column": "ward", "values": [0, 1]}},
        "personal": {"irm": 1.0, "group_dro": 0.1},
    },
    "lg-fedavg": {},
    "fedper": {},
    "fedrep": {"encoder": {"head_steps": 2}},
    "local": {},
}
"""Every recipe that may have personal models; FedDAR's linear encoder may not."""
QUICK = {"second-order", "fedrep", "lg-fedavg"}


def test_every_recipe_with_personal_models_is_here():
    assert set(RECIPES) == set(recipes.RECIPES) - {"feddar-linear"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"recipe": name} | changes, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, changes in RECIPES.items()
    ],
)
def test_payloads_are_the_same_integers_with_the_personal_model_on_and_off(tmp_path, monkeypatch, changes):
    monkeypatch.setattr(cross_validation, "FEWEST", 10)  # so that 45 training patients are compared on
    files = with_wards(patients(tmp_path / "data", 60))
    personal = tiny_study(**changes | {"personal": PERSONAL | changes.get("personal", {})})
    # Two recipes live by their personal model; without the section their shared part is FedAvg's.
    fedavg = {"recipe": "multi-head-fedavg"} if changes["recipe"] in {"ditto", "perinvfl"} else {}
    plain = tiny_study(**changes | fedavg | {"personal": None})
    off = LocalFederation.gather(plain, files, tmp_path / "off").run()
    on = LocalFederation.gather(personal, files, tmp_path / "on").run()

    planned = {(r, Tensor(t), s) for r in range(plan(plain).last + 1) for t in plan(plain).tensors(r) for s in files}
    assert set(off.payloads) == set(on.payloads) == planned
    assert {tensor for _, tensor, _ in planned} == set(Tensor) - ({Tensor.HEADS} if plain.composition.joint else set())
    for key, integers in off.payloads.items():
        assert integers.dtype == on.payloads[key].dtype == np.int64
        assert np.array_equal(integers, on.payloads[key]), key
    for silo in files:
        assert not (tmp_path / "off" / silo / "personal.safetensors").exists()
        trained = PersonalModel.load(tmp_path / "on" / silo / "personal.safetensors")
        assert not np.array_equal(trained.network.heads.detach().numpy(), on.models[silo].heads)
        assert Choice.load(tmp_path / "on" / silo / "choice.safetensors").compared


def with_wards(files):
    """The same files with a column more, which says in which of two wards a record was made."""
    for file in files.values():
        header, *rows = file.read_text().splitlines()
        file.write_text("\n".join([f"{header},ward", *(f"{row},{i % 2}" for i, row in enumerate(rows))]) + "\n")
    return files


WARDS = {"data": {"environment": {"column": "ward", "values": [0, 1]}}}
FEDERATED = {
    "recipe": "fedavg",
    "heads": {"pooled_rounds": 3, "domain_rounds": 0, "pooled_noise": 0, "domain_noise": 0},
    "encoder": {"steps": 2, "sampling_rate": 1, "noise": 0, "irm": 10.0, "irm_after": 3, "group_dro": 0.5},
    "evaluation": {"noise": 0, "bins": 4},
    "privacy": {"mode": "none", "count_noise": 0},
    **WARDS,
}
"""Federated IRM and GroupDRO on public data."""


def test_payloads_are_the_same_integers_with_personal_invariance_on_and_off(tmp_path):
    files = with_wards(patients(tmp_path / "data", 60))
    invariant = {**PERSONAL, "irm": 10.0, "irm_after": 2, "group_dro": 0.5, "ditto": 0.1}
    off, on = (
        LocalFederation.gather(tiny_study(**WARDS, personal=personal), files, tmp_path / name).run()
        for name, personal in (("off", None), ("on", invariant))
    )
    assert set(off.payloads) == set(on.payloads)
    assert all(np.array_equal(integers, on.payloads[key]) for key, integers in off.payloads.items())
    trained = PersonalModel.load(tmp_path / "on" / "north" / "personal.safetensors")
    kept = trained.state["environments"]
    assert kept[0] > 0
    assert kept[1] != kept[2]


def test_federated_irm_goes_on_after_a_restart_with_the_environments_weights_of_the_rounds_before(tmp_path):
    files, study = with_wards(patients(tmp_path / "data", 60)), tiny_study(**FEDERATED)
    whole, halves = (LocalFederation.gather(study, files, tmp_path / name) for name in ("whole", "halves"))
    for number in range(4):
        whole.run_round(number)
        if number < 3:
            halves.run_round(number)
    kept = [StudyFolder(tmp_path / "halves" / "north").environments(number) for number in (1, 2)]
    states = [np.frombuffer(path.read_bytes(), "<f8") for path in kept]
    assert [state[0] for state in states] == [2, 4]
    assert abs(states[1][1] - 0.5) > abs(states[0][1] - 0.5) > 0
    again = LocalFederation.gather(study, files, tmp_path / "halves")
    again.models.update(halves.models)
    place, release = at(study, 3), plan(study).round(3)[0]
    for silo, learner in again.learners.items():
        learner.contribution(release, place, again.models[silo], 3)
        states = [StudyFolder(tmp_path / name / silo).environments(3).read_bytes() for name in ("whole", "halves")]
        assert states[0] == states[1]
    assert not np.array_equal(whole.models["north"].encoder, SharedModel.start(study).encoder)


def test_federated_irm_of_private_data_is_refused_when_the_study_is_read():
    with pytest.raises(Refused, match=r"study\.encoder\.irm") as caught:
        tiny_study(encoder={"irm": 1.0}, **WARDS)
    assert caught.value.reason is Reason.BATCH_STATISTICS


def test_the_shared_model_and_the_results_are_equal_bits_at_every_silo(tmp_path):
    files = patients(tmp_path / "data", 60)
    federation = LocalFederation.gather(tiny_study(personal=PERSONAL), files, tmp_path / "silos").run()
    assert len({model.to_bytes() for model in federation.models.values()}) == 1
    assert len({model.digest for model in federation.models.values()}) == 1
    assert len({(tmp_path / "silos" / silo / "results.json").read_bytes() for silo in files}) == 1
    again = LocalFederation.gather(tiny_study(personal=PERSONAL), files, tmp_path / "again").run()
    assert again.models["north"].digest == federation.models["north"].digest
    other = LocalFederation.gather(tiny_study(personal=PERSONAL), files, tmp_path / "other", seed=2).run()
    assert other.models["north"].digest != federation.models["north"].digest


# --- it learns --------------------------------------------------------------------------------------------------------
def pooled_solution(federation):
    """Newton's method to the end on everybody's records at one place, on the features of the same encoder."""
    model = federation.models["north"]
    records = [learner.cohort("training") for learner in federation.learners.values()]
    x, y, domains = (np.concatenate([getattr(r, name) for r in records]) for name in ("inputs", "labels", "domains"))
    z = np.hstack([model.features(x).numpy().astype(float), np.ones((len(x), 1))])
    return np.stack([newton(z[domains == m], y[domains == m]) for m in range(len(model.heads))])


def newton(z, y):
    head = np.zeros(z.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-z @ head))
        head -= np.linalg.solve((z * (p * (1 - p))[:, None]).T @ z, z.T @ (p - y))
    return head


def test_with_next_to_no_noise_the_heads_are_those_of_the_pooled_records(tmp_path):
    files = patients(tmp_path / "data", 300)
    federation = LocalFederation.gather(tiny_study(**ALMOST_OPEN), files, tmp_path / "silos").run()
    model = federation.models["north"]
    wanted = pooled_solution(federation)
    assert np.abs(wanted).max() > 3
    assert np.abs(model.heads - wanted).max() < 0.02 * np.abs(wanted).max()
    held_out = [learner.cohort("evaluation") for learner in federation.learners.values()]
    x, y, domains = (np.concatenate([getattr(r, name) for r in held_out]) for name in ("inputs", "labels", "domains"))
    scores = model.predict(x, domains)
    for m, published in enumerate(federation.results["north"].by_domain):
        exact = quality(scores[domains == m], y[domains == m], 20)
        assert exact.auc > 0.85
        assert published.auc.value == pytest.approx(exact.auc, abs=0.03)
        assert published.auc.low < exact.auc < published.auc.high
        for name in ("accuracy", "balanced_accuracy"):
            found = getattr(published, name)
            assert found.value == pytest.approx(getattr(exact, name), abs=0.005)
            assert found.low < getattr(exact, name) < found.high
        assert published.patients.value == pytest.approx(np.count_nonzero(domains == m), abs=1)


@pytest.mark.parametrize("west", [{"domains": (1,)}, {"label": 1}, {"domains": (0,), "label": 0}])
def test_a_silo_without_a_domain_or_with_one_class_takes_part(tmp_path, west):
    files = patients(tmp_path / "data", 200, **west)
    federation = LocalFederation.gather(tiny_study(**ALMOST_OPEN), files, tmp_path / "silos").run()
    wanted = pooled_solution(federation)
    assert np.abs(federation.models["west"].heads - wanted).max() < 0.02 * np.abs(wanted).max()
    assert all(result.auc.value > 0.6 for result in federation.results["west"].by_domain)


OPEN = {
    "model": {"hidden": [], "representation": 2},
    "heads": {"pooled_rounds": 2, "domain_rounds": 12, "pooled_noise": 0, "domain_noise": 0},
    "encoder": {"noise": 0, "max_update": 1e-9},
    "evaluation": {"noise": 0, "bins": 20},
    "privacy": {"mode": "none", "count_noise": 0, "max_patients": 2000},
}
"""A study of public data, without noise, whose encoder stays as it starts."""


def test_unnoised_heads_are_those_of_the_pooled_records(tmp_path):
    files = patients(tmp_path / "data", 1500)
    federation = LocalFederation.gather(tiny_study(**OPEN), files, tmp_path / "silos").run()
    heads, wanted = federation.models["north"].heads, pooled_solution(federation)
    assert np.abs(wanted).max() > 3
    np.testing.assert_allclose(heads, wanted, atol=1e-6 * np.abs(wanted).max())
    held_out = [learner.cohort("evaluation") for learner in federation.learners.values()]
    x, y, domains = (np.concatenate([getattr(r, name) for r in held_out]) for name in ("inputs", "labels", "domains"))
    scores = federation.models["north"].predict(x, domains)
    for m, published in enumerate(federation.results["north"].by_domain):
        exact = quality(scores[domains == m], y[domains == m], 20)
        assert published.patients.value == published.patients.low == published.patients.high == exact.records
        assert published.accuracy.value == pytest.approx(exact.accuracy, abs=1e-6)
        assert published.balanced_accuracy.value == pytest.approx(exact.balanced_accuracy, abs=1e-6)
        assert exact.accuracy > 0.75


@pytest.mark.parametrize(
    "changes", [{}, {"data": {"label": {"positive": [], "negative": [], "classes": [[0], [1], [2]]}}}]
)
def test_without_noise_few_patients_move_heads_no_further_than_they_reach(tmp_path, changes):
    """All have the same inputs: nobody lies in the other directions, and rounding must not be taken for somebody."""
    study = tiny_study(**OPEN | {"model": {"hidden": [], "representation": 8}} | changes)
    files = {}
    for silo in ("north", "south", "west"):
        files[silo] = tmp_path / f"{silo}.csv"
        rows = [f"{silo}-{i},{'ab'[i % 2]},80,7,{min(i % 5, study.data.label.count - 1)}" for i in range(40)]
        files[silo].write_text("\n".join(["patient,group,age,lactate,ill", *rows]) + "\n")
    federation = LocalFederation.gather(study, files, tmp_path / "silos")
    for number in range(5):
        federation.run_round(number)
    model = federation.models["north"]
    x = federation.learners["north"].cohort("training").inputs[:1]
    z = np.append(model.features(x).numpy(), 1.0)
    rows = model.heads[0].reshape(-1, 9)
    inside = np.outer(rows @ z, z) / (z @ z)
    assert np.linalg.norm(inside) > 0.3
    assert np.linalg.norm(rows - inside) < 0.03
    np.testing.assert_allclose(rows.mean(axis=0) if len(rows) > 1 else 0, 0, atol=1e-6)


def test_without_noise_a_second_draw_of_a_sum_is_the_same_and_the_training_log_says_zero(tmp_path):
    learner = some_learner(tmp_path, **OPEN)
    study, model = learner.study, SharedModel.start(learner.study)
    for tensor, number in ((Tensor.HEADS, 1), (Tensor.COUNTS, 0), (Tensor.METRICS, plan(study).last)):
        first, second = (contribution(learner, tensor, at(study, number), model, 3) for _ in range(2))
        assert np.array_equal(first, second)
    contribution(learner, Tensor.ENCODER, at(study, 1), model, 3)
    lines = (tmp_path / "silos" / "north" / "training.jsonl").read_text().splitlines()
    assert {json.loads(line)["tensor"] for line in lines} == set(Tensor)
    assert {json.loads(line)["noise_multiplier"] for line in lines} == {0.0}
    opened = learner.open(Tensor.METRICS, first, at(study, plan(study).last), model, 3)
    assert opened.results.noise_sd == 0.0


@pytest.mark.parametrize("tensor", Tensor)
def test_a_study_with_noise_left_out_that_slipped_through_releases_nothing(tmp_path, tensor):
    learner = some_learner(tmp_path)
    study = learner.study
    zero = {"pooled_noise": 0.0, "domain_noise": 0.0}
    learner.study = study.model_copy(
        update={
            "heads": study.heads.model_copy(update=zero),
            "encoder": study.encoder.model_copy(update={"noise": 0.0}),
            "evaluation": study.evaluation.model_copy(update={"noise": 0.0}),
            "privacy": study.privacy.model_copy(update={"count_noise": 0.0}),
        }
    )
    number = {Tensor.COUNTS: 0, Tensor.METRICS: plan(study).last}.get(tensor, 1)
    with pytest.raises(LearningError, match="noise"):
        contribution(learner, tensor, at(study, number), SharedModel.start(study), 3)


KINDS = np.array([[[8.0, 0.0], [-8.0, 4.0], [0.0, -8.0]], [[-8.0, 0.0], [8.0, 4.0], [0.0, -8.0]]])
THREE = {"data": {"label": {"positive": [], "negative": [], "classes": [[0], [1], [2]]}}}


def kinds(folder, count):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(4)
    return {s: write_kinds(folder / f"{s}.csv", rng, KINDS, patients=count) for s in ("north", "south", "west")}


def test_three_classes_are_learned_by_domain(tmp_path):
    files = kinds(tmp_path / "data", 700)
    changes = ALMOST_OPEN | THREE | {"evaluation": {"noise": 1.0, "bins": 10}, "personal": PERSONAL}
    federation = LocalFederation.gather(tiny_study(**changes), files, tmp_path / "silos").run()
    model = federation.models["north"]
    assert model.heads.shape == (2, 9)
    held_out = [learner.cohort("evaluation") for learner in federation.learners.values()]
    x, y, domains = (np.concatenate([getattr(r, name) for r in held_out]) for name in ("inputs", "labels", "domains"))
    probabilities = model.predict(x, domains)
    for m, published in enumerate(federation.results["north"].by_domain):
        exact = quality(probabilities[domains == m], y[domains == m], 10)
        # Chance is 1/3; the other domain's head is right in few cases, as two classes trade places.
        assert exact.accuracy > 0.75
        assert quality(model.predict(x, 1 - domains)[domains == m], y[domains == m], 10).accuracy < 0.5
        assert published.auc is None
        for name in ("accuracy", "balanced_accuracy"):
            found = getattr(published, name)
            assert found.low <= getattr(exact, name) <= found.high
            assert found.value == pytest.approx(getattr(exact, name), abs=0.06)
        # The heads are the pooled regression, so what is published must not deny that they are calibrated.
        assert published.calibration.low < 0.02
        assert published.calibration.value < 0.1
    written = json.loads((tmp_path / "silos" / "north" / "results.json").read_text())
    assert written["domains"] == ["a", "b"]
    assert written["by_domain"][0]["auc"] is None
    assert set(written["by_domain"][1]["accuracy"]) == {"value", "low", "high"}
    assert written["by_domain"][1]["accuracy"]["value"] == federation.results["north"].by_domain[1].accuracy.value
    personal = PersonalModel.load(tmp_path / "silos" / "north" / "personal.safetensors")
    assert personal.predict(x, domains).shape == (len(x), 3)


def test_three_classes_and_fedsrs_tables_fit_the_public_shapes(tmp_path):
    changes = THREE | {"encoder": {"cmi": 0.01, "l2r": 0.01}}
    federation = LocalFederation.gather(tiny_study(**changes), kinds(tmp_path / "data", 40), tmp_path / "silos").run()
    assert federation.models["north"].prior.shape == (2 * 3 * 2,)
    assert len({model.digest for model in federation.models.values()}) == 1


DAYS = {"data": {"label": {"positive": [], "negative": [], "minimum": 0, "maximum": 30}}}


def stays(folder, count):
    """Days in hospital by another linear law in each group, and now and then far from it."""
    rng, laws, files = np.random.default_rng(6), np.array([[3.0, 4.0], [-5.0, 2.0]]), {}
    for silo in ("north", "south", "west"):
        rows = []
        for number in range(count):
            group, x = int(rng.integers(2)), rng.uniform(-1, 1, 2)
            days = float(np.clip(11 + 3 * group + x @ laws[group] + 1.5 * rng.standard_t(4), 0, 30))
            age, lactate = np.round((60 + 60 * x[0], 5 + 5 * x[1]), 4)
            rows.append(f"{silo}-{number},{'ab'[group]},{age},{lactate},{days:.2f}")
        files[silo] = folder / f"{silo}.csv"
        files[silo].write_text("\n".join(["patient,group,age,lactate,ill", *rows]) + "\n")
    return files


def least_squares(federation):
    """The heads of the pooled records at one place, and the held-out records with their outcomes in days."""
    model = federation.models["north"]
    heads = []
    x, y, domains = (
        np.concatenate([getattr(learner.cohort("training"), name)[:] for learner in federation.learners.values()])
        for name in ("inputs", "labels", "domains")
    )
    z = np.hstack([model.features(x).numpy().astype(float), np.ones((len(x), 1))])
    for m in range(len(model.heads)):
        own = domains == m
        heads.append(np.linalg.lstsq(z[own], targets(y[own]), rcond=None)[0])
        assert np.abs(z[own] @ heads[-1]).max() < 1, "where predictions lie within the range"
    return np.stack(heads)


@pytest.mark.slow
def test_unnoised_heads_of_a_number_are_least_squares_and_its_figures_are_exact(tmp_path):
    study = tiny_study(**OPEN | DAYS | {"evaluation": {"noise": 0, "bins": 10}, "personal": PERSONAL})
    federation = LocalFederation.gather(study, stays(tmp_path, 1200), tmp_path / "silos").run()
    model = federation.models["north"]
    np.testing.assert_allclose(model.heads, least_squares(federation), atol=1e-5)
    held_out = [learner.cohort("evaluation") for learner in federation.learners.values()]
    x, y, domains = (
        np.concatenate([getattr(r, name)[:] for r in held_out]) for name in ("inputs", "labels", "domains")
    )
    for m, published in enumerate(federation.results["north"].by_domain):
        exact = number_quality(model.predict(x[domains == m], domains[domains == m]), y[domains == m], 15.0)
        assert exact.r2 > 0.4
        assert published.patients.value == pytest.approx(exact.records, abs=0.01)
        for name, within in (("mae", 0.01), ("mean_error", 0.01), ("r2", 0.01)):
            found = getattr(published, name)
            assert found.value == pytest.approx(getattr(exact, name), abs=within)
            assert found.low < found.value < found.high
    written = json.loads((tmp_path / "silos" / "north" / "results.json").read_text())
    assert set(written["by_domain"][0]) == {"mae", "r2", "mean_error", "patients"}
    personal = PersonalModel.load(tmp_path / "silos" / "north" / "personal.safetensors")
    assert personal.predict(x, domains).shape == (len(x), 1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_number_is_learned_by_domain_under_noise(tmp_path, mode):
    changes = {
        "model": {"hidden": [], "representation": 2},
        "heads": {"pooled_rounds": 2, "domain_rounds": 3, "pooled_noise": 4.0, "domain_noise": 4.0, "clip": 0.3},
        "encoder": {"learning_rate": 1e-6, "noise": 4.0},
        "evaluation": {"noise": 2.0, "bins": 10},
        "privacy": {"mode": mode, "count_noise": 4.0, "max_patients": 10_000},
    }
    federation = LocalFederation.gather(tiny_study(**changes | DAYS), stays(tmp_path, 2500), tmp_path / "silos").run()
    assert len({model.digest for model in federation.models.values()}) == 1
    model = federation.models["north"]
    held_out = [learner.cohort("evaluation") for learner in federation.learners.values()]
    x, y, domains = (
        np.concatenate([getattr(r, name)[:] for r in held_out]) for name in ("inputs", "labels", "domains")
    )
    for m, published in enumerate(federation.results["north"].by_domain):
        own = domains == m
        exact = number_quality(model.predict(x[own], domains[own]), y[own], 15.0)
        other = number_quality(model.predict(x[own], 1 - domains[own]), y[own], 15.0)
        assert exact.r2 > max(0.3, other.r2)
        assert abs(exact.mean_error) < 0.5
        for name in ("mae", "mean_error", "r2"):
            found = getattr(published, name)
            assert found.low <= getattr(exact, name) <= found.high


def test_images_are_learned_from(tmp_path):
    rng = np.random.default_rng(3)
    files = {}
    for silo in ("north", "south", "west"):
        folder = tmp_path / silo
        folder.mkdir()
        rows = ["patient,group,age,lactate,scan,ill"]
        for number in range(60):
            ill = int(rng.integers(2))
            pixels = rng.integers(0, 120, (8, 8)) + 120 * ill
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
            rows.append(f"{silo}-{number},{'ab'[number % 2]},60,5,{number}.png,{ill}")
        files[silo] = folder / "patients.csv"
        files[silo].write_text("\n".join(rows) + "\n")
    changes = ALMOST_OPEN | {
        "data": {"image": {"column": "scan", "height": 8, "width": 8}},
        "model": {"encoder": "cnn", "channels": [4], "hidden": [], "representation": 2},
        "personal": PERSONAL,
    }
    federation = LocalFederation.gather(tiny_study(**changes), files, tmp_path / "silos").run()
    assert all(result.accuracy.value > 0.9 for result in federation.results["north"].by_domain)
    assert len({model.digest for model in federation.models.values()}) == 1


def test_a_silo_without_any_patient_takes_part(tmp_path):
    files = patients(tmp_path / "data", 40)
    header = files["west"].read_text().splitlines()[0]
    files["west"].write_text(header + "\n")
    federation = LocalFederation.gather(tiny_study(personal=PERSONAL), files, tmp_path / "silos").run()
    assert len({model.digest for model in federation.models.values()}) == 1


# --- what opened sums may be ------------------------------------------------------------------------------------------
SEALINGS = pytest.mark.parametrize("sealing", RINGS)


def one_silos_bound(tensor, sealing):
    """The largest magnitude that one of three silos may add to a coordinate."""
    return UPDATE_STEPS[sealing] if tensor is Tensor.ENCODER else ring_of("ckks").limit(3)


@SEALINGS
def test_an_update_of_every_silo_of_the_largest_study_fits_the_ring(sealing):
    assert UPDATE_STEPS[sealing] <= ring_of(sealing).limit(256)


@pytest.mark.parametrize("tensor", Tensor)
@SEALINGS
def test_a_sum_beyond_what_the_roster_can_give_is_refused(tmp_path, tensor, sealing):
    learner = bare_learner(tmp_path, encoder={"sealing": sealing})
    bound = 3 * one_silos_bound(tensor, sealing)
    number = {Tensor.COUNTS: 0, Tensor.METRICS: 3}.get(tensor, 1)
    for wrong in (bound + 1, -bound - 1):
        with pytest.raises(SumError, match=f"the opened {tensor} is no sum of 3 contributions: a value exceeds the s"):
            learner.check_sum(tensor, np.array([0, wrong]), at(learner.study, number), 3)


def test_heads_are_adopted_only_where_the_silo_would_have_solved_the_same(learner):
    model, place = SharedModel.start(learner.study), at(learner.study, 1)
    total = 3 * contribution(learner, Tensor.HEADS, place, model, 3)
    solution = learner.solve(total, place, model, 3)
    adopted = learner.adopt(solution, total, place, model, 3)
    assert adopted.round == 1
    assert np.array_equal(adopted.heads.ravel(), solution * HEAD_STEP)
    close = solution + np.array([200, -200] * 3)
    assert np.array_equal(learner.adopt(close, total, place, model, 3).heads.ravel(), close * HEAD_STEP)


def with_counts(learner, *counts):
    """As if round 0 had opened these noised counts."""
    study = learner.study
    total = np.round(np.array(counts) / SumGrid.of(study).step).astype(np.int64)
    learner.open(Tensor.COUNTS, total, at(study, 0), SharedModel.start(study), 3)
    return learner


def test_a_domain_below_the_smallest_keeps_the_pooled_head_and_the_other_moves(tmp_path):
    learner = some_learner(tmp_path, privacy={"smallest_domain": 20})
    model, place = SharedModel.start(learner.study), at(learner.study, learner.study.rounds)
    assert not shapes.is_pooled(learner.study, place.round)
    total = 3 * contribution(learner, Tensor.HEADS, place, model, 3)

    def moved(*counts):
        solution = with_counts(learner, *counts).solve(total, place, model, 3)
        adopted = learner.adopt(solution, total, place, model, 3)
        return (np.abs(adopted.heads - model.heads) > HEAD_STEP).any(axis=1).tolist()

    assert moved(20.5, 19.5) == [True, False]
    assert moved(-3.0, 100.0) == [False, True]
    assert moved(20.5, 20.5) == [True, True]
    assert moved(0.0, 0.0) == [False, False]


def test_in_pooled_rounds_every_domain_moves_whatever_its_size(tmp_path):
    learner = with_counts(some_learner(tmp_path, privacy={"smallest_domain": 20}), 0.0, 0.0)
    model, place = SharedModel.start(learner.study), at(learner.study, 1)
    total = 3 * contribution(learner, Tensor.HEADS, place, model, 3)
    adopted = learner.adopt(learner.solve(total, place, model, 3), total, place, model, 3)
    assert (np.abs(adopted.heads - model.heads) > HEAD_STEP).any(axis=1).all()


def test_a_domain_below_the_smallest_is_not_reported(tmp_path):
    silent = some_learner(tmp_path / "a", privacy={"smallest_domain": 10_000})
    open_ = some_learner(tmp_path / "b", privacy={"smallest_domain": 1})
    for learner, withheld in ((silent, True), (open_, False)):
        last = at(learner.study, plan(learner.study).last)
        model = SharedModel.start(learner.study)
        total = 3 * contribution(learner, Tensor.METRICS, last, model, 3)
        total = np.maximum(total, int(5 / SumGrid.of(learner.study).step))
        for one in learner.open(Tensor.METRICS, total, last, model, 3).results.by_domain:
            assert (one.patients.value is None) == withheld


@pytest.mark.parametrize("shift", [300, -300, 2**62, 2**63 - 1, -(2**63)])
def test_altered_heads_are_not_adopted(learner, shift):
    model, place = SharedModel.start(learner.study), at(learner.study, 1)
    total = 3 * contribution(learner, Tensor.HEADS, place, model, 3)
    solution = learner.solve(total, place, model, 3)
    altered = solution.copy()
    with np.errstate(over="ignore"):
        altered[0] += np.int64(shift)
    for wrong in (altered, solution[:-1], np.concatenate([solution, solution])):
        with pytest.raises(SolutionError, match="not what the opened sums give"):
            learner.adopt(wrong, total, place, model, 3)


# --- contributions ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tensor", Tensor)
def test_a_contribution_has_the_studys_shape_and_bounds_and_one_line_in_the_training_log(learner, tmp_path, tensor):
    study = learner.study
    number = {Tensor.COUNTS: 0, Tensor.METRICS: plan(study).last}.get(tensor, 1)
    log = tmp_path / "silos" / "north" / "training.jsonl"
    log.write_text("")
    integers = contribution(learner, tensor, at(study, number), SharedModel.start(study), 3)
    assert integers.dtype == np.int64
    assert len(integers) == plan(study).release(number, tensor).values
    assert np.abs(integers).max() <= one_silos_bound(tensor, "ring32")
    (line,) = map(json.loads, log.read_text().splitlines())
    cost = plan(study).round_costs(number)[tensor]
    assert line == {
        "study": study.digest,
        "round": number,
        "attempt": 1,
        "tensor": tensor,
        "cohort": cost.cohort,
        "sampling_rate": cost.sampling_rate,
        "noise_multiplier": cost.noise,
        "times": cost.count,
    }


def test_an_encoder_update_comes_back_from_every_rings_grid(tmp_path):
    """The same training on grids of 2^21, 2^25 and 2^36 steps: they differ by their rounding alone."""
    vectors = {}
    for sealing in RINGS:
        learner = some_learner(tmp_path / sealing, encoder={"sealing": sealing})
        model = SharedModel.start(learner.study)
        place = at(learner.study, 1)
        integers = contribution(learner, Tensor.ENCODER, place, model, 3)
        assert np.abs(integers).max() > UPDATE_STEPS[sealing] // 1000
        vectors[sealing] = learner.open(Tensor.ENCODER, integers, place, model, 1).model.encoder
    coarsest = learner.study.encoder.max_update / UPDATE_STEPS["ring32"]
    for sealing in ("ckks", "ring64"):
        np.testing.assert_allclose(vectors[sealing], vectors["ring32"], atol=2 * coarsest)


def test_a_second_draw_is_another_draw(learner):
    model, place = SharedModel.start(learner.study), at(learner.study, 1)
    first, second = (contribution(learner, Tensor.HEADS, place, model, 3) for _ in range(2))
    assert not np.array_equal(first, second)


def keyed_draws(folder, file, tensor, *, key=bytes(32), attempt=1, silos=3):
    """What another process of the silo draws, on these records, after the counts were opened."""
    study = tiny_study()
    (folder / "counts.json").write_text("[40.0, 40.0, 40.0]")
    drawn = Learner(
        study,
        DataSet(file, DIVISION),
        folder,
        draws=KeyedDraws(key),
        device="cpu",
    )
    place = at(study, {Tensor.COUNTS: 0, Tensor.METRICS: study.rounds + 1}.get(tensor, 1))
    release = plan(study).release(place.round, tensor)
    return drawn.contribution(release, replace(place, attempt=attempt), SharedModel.start(study), silos)


@pytest.mark.parametrize("tensor", Tensor)
def test_a_charge_draws_the_same_again_and_other_records_share_no_noise_with_it(tmp_path, tensor):
    file = patients(tmp_path / "data", 40)["north"]
    first = keyed_draws(tmp_path, file, tensor)
    assert np.array_equal(keyed_draws(tmp_path, file, tensor), first)
    header, *rows = file.read_text().splitlines()
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("\n".join([header, *rows[: len(rows) // 2]]) + "\n")  # fewer patients in both cohorts
    for other in (
        keyed_draws(tmp_path, fewer, tensor),
        keyed_draws(tmp_path, file, tensor, attempt=2),
        keyed_draws(tmp_path, file, tensor, silos=4),
        keyed_draws(tmp_path, file, tensor, key=bytes(31) + b"1"),
    ):
        assert np.mean(other == first) < 0.5


def test_the_encoder_needs_the_opened_counts(tmp_path):
    fresh = bare_learner(tmp_path)
    with pytest.raises(LocalFileError):
        contribution(fresh, Tensor.ENCODER, at(fresh.study, 1), SharedModel.start(fresh.study), 3)


def test_before_any_record_is_read_every_sum_is_computed_once_on_made_up_records(tmp_path, monkeypatch):
    fresh, seen = bare_learner(tmp_path, file=tmp_path / "nobody.csv"), []
    for tensor, kind in fresh._contributions.items():

        def spied(release, cohort, place, model, *, tensor=tensor, rehearse=kind.rehearse):
            seen.append((tensor, release.tensor, place.round, len(cohort) > 0, model.digest))
            rehearse(release, cohort, place, model)

        monkeypatch.setattr(kind, "rehearse", spied)
    fresh.rehearse()
    start = SharedModel.fresh(fresh.study).digest
    assert {(made_up, model) for *_, made_up, model in seen} == {(True, start)}
    assert all(tensor == released for tensor, released, *_ in seen)
    assert {tensor for tensor, *_ in seen} == {Tensor.COUNTS, Tensor.HEADS, Tensor.METRICS}, (
        "the encoder was tried before"
    )
    assert {number for _, _, number, *_ in seen} == {0, fresh.study.rounds, plan(fresh.study).last}
    before = len(seen)
    fresh.rehearse()
    assert len(seen) == before, "once"


def test_rows_that_are_gone_are_told_before_the_round(tmp_path):
    class Gone(Memory):
        def require_whole(self, *, begun):
            if begun:
                msg = "rows.bin is gone; restore it from a backup"
                raise LocalFileError(msg)

    fresh = bare_learner(tmp_path, kept=Gone())
    fresh.require_files(begun=False)
    with pytest.raises(LocalFileError, match=r"rows\.bin is gone"):
        fresh.require_files(begun=True)


def test_a_file_that_cannot_be_used_is_named_before_anything_is_computed(tmp_path):
    files = patients(tmp_path / "data", 4)
    files["north"].write_text(files["north"].read_text().replace("group", "ward"))
    federation = LocalFederation.gather(tiny_study(), files, tmp_path / "silos")
    with pytest.raises(DataError, match=r"north\.csv, column 'group'"):
        federation.learners["north"].load()


@pytest.mark.parametrize("kept", [40, 0])
def test_what_does_not_fit_changes_no_integer_of_any_contribution(tmp_path, kept):
    """With the same source of randomness a hospital computes what it computes without those records, bit for bit."""
    payloads = []
    for name, foul in (("clean", []), ("foul", ["old,a,121,5,1", "new,z,60,5,1", "one,b,60,5", "two,b,60,5,"])):
        files = patients(tmp_path / name / "data", 40)
        header, *rows = files["north"].read_text().splitlines()
        lines = [header, *foul[:2], *rows[:kept], *foul[2:]]
        files["north"].write_text("\n".join(lines) + "\n")
        study = tiny_study(personal={"epochs": 1})
        federation = LocalFederation.gather(study, files, tmp_path / name / "silos").run()
        personal = (tmp_path / name / "silos" / "north" / "personal.safetensors").read_bytes()
        payloads.append({**federation.payloads, "personal": np.frombuffer(personal, np.uint8)})
    clean, foul = payloads
    assert clean.keys() == foul.keys()
    assert {key for key in clean if not np.array_equal(clean[key], foul[key])} == set()


def test_a_running_learner_contributes_nothing_of_whoever_withdrew_from_the_next_contribution_on(tmp_path):
    """Before each contribution one more person withdraws: it is that of a silo that never had them."""
    changes = {**OPEN, "encoder": {"noise": 0.0, "sampling_rate": 1.0, "batch_size": 40}}
    federation = LocalFederation.gather(tiny_study(**changes), patients(tmp_path / "data", 40), tmp_path / "silos")
    federation.run_round(0)
    file, folder, store = tmp_path / "data" / "north.csv", tmp_path / "silos" / "north", Memory()
    header, *rows = file.read_text().splitlines()
    entropy = SeededEntropy(1)
    learner = bare_learner(folder, file, store, entropy, **changes)
    study, start = learner.study, SharedModel.start(learner.study)
    model = start.with_heads(np.full_like(start.heads, 0.5), 0)  # without heads the encoder would not move
    releases = [(number, release) for number in range(plan(study).last + 1) for release in plan(study).round(number)]
    assert {release.tensor for _, release in releases} == {tensor.value for tensor in Tensor}
    learner.load()
    for number, release in releases:
        asked = release.tensor, at(study, number), model, 3
        before = contribution(learner, *asked)
        entropy.begin_again()
        cohort = learner.cohort(release.cohort)
        gone = cohort.identities[0]
        store.people.add(gone)
        if len(store.people) % 2:  # else it was cut off before the rows were removed
            forget(store, [gone])
        left = tmp_path / "left.csv"
        left.write_text("\n".join([header, *(row for row in rows if row.partition(",")[0] not in store.people)]) + "\n")
        expected = contribution(bare_learner(folder, left, **changes), *asked)
        found = contribution(learner, *asked)
        entropy.begin_again()
        assert np.array_equal(found, expected), (release.tensor, number)
        assert not np.array_equal(found, before), (release.tensor, number)


def test_a_local_prior_goes_on_from_earlier_rounds_and_never_from_a_lost_draw_of_the_same_round(tmp_path):
    changes = {"encoder": {"cmi": 0.01, "prior": "local"}, "heads": {"pooled_rounds": 2}}
    study = tiny_study(**changes)
    model = SharedModel.start(study)
    learner, twin = (some_learner(tmp_path / name, **changes) for name in ("one", "twin"))
    first = contribution(learner, Tensor.ENCODER, at(study, 1), model, 3)
    kept = (tmp_path / "one" / "silos" / "north" / "prior-1.f32").read_bytes()
    # A crash before the draw is stored: the next process draws again, with the same source for the sake of the test.
    again = some_learner(tmp_path / "again", **changes)
    (tmp_path / "again" / "silos" / "north" / "prior-1.f32").write_bytes(kept)
    assert np.array_equal(contribution(again, Tensor.ENCODER, at(study, 1), model, 3), first)
    # The next round does start from it.
    with_prior = contribution(learner, Tensor.ENCODER, at(study, 2), model, 3)
    contribution(twin, Tensor.ENCODER, at(study, 1), model, 3)
    (tmp_path / "twin" / "silos" / "north" / "prior-1.f32").unlink()
    assert not np.array_equal(contribution(twin, Tensor.ENCODER, at(study, 2), model, 3), with_prior)


# --- nothing is chosen by private data --------------------------------------------------------------------------------
class Blind(Learner):
    """A learner that may not look at a record."""

    def load(self):
        msg = "a record was looked at"
        raise AssertionError(msg)


def test_which_model_is_taken_is_decided_without_a_look_at_a_record(tmp_path):
    """What a silo makes of opened sums in a whole study: every accepted model, and the end, come of them alone."""
    federation = LocalFederation.gather(tiny_study(), patients(tmp_path / "data", 40), tmp_path / "silos")
    nowhere, draws = DataSet(tmp_path / "none.csv", DIVISION), FreshDraws(SeededEntropy(1))
    blind = Blind(federation.study, nowhere, tmp_path, draws=draws, device="cpu")
    with pytest.raises(AssertionError, match="looked at"):
        contribution(blind, Tensor.COUNTS, at(federation.study, 0), federation.models["north"], 3)
    federation.run()
    model = SharedModel.start(federation.study)
    for number in range(plan(federation.study).last + 1):
        for tensor in map(Tensor, plan(federation.study).tensors(number)):
            total = sum(federation.payloads[number, tensor, silo] for silo in federation.learners)
            blind.check_sum(tensor, total, at(federation.study, number), 3)
            opened = blind.open(tensor, total, at(federation.study, number), model, 3)
            model = opened.model
            if opened.unsolved is not None:
                solution = blind.solve(total, at(federation.study, number), model, 3)
                model = blind.adopt(solution, total, at(federation.study, number), model, 3)
            assert opened.results == (federation.results["north"] if tensor is Tensor.METRICS else None)
    assert model.digest == federation.models["north"].digest


@pytest.mark.parametrize("changes", [{}, {"encoder": {"cmi": 0.01, "prior": "local"}}])
def test_a_learner_that_would_upload_a_batch_statistic_is_not_built(tmp_path, monkeypatch, changes):
    losses = training._losses
    monkeypatch.setattr(training, "_losses", lambda *given: losses(*given) - losses(*given).mean())
    with pytest.raises(Refused) as caught:
        bare_learner(tmp_path, **changes)
    assert caught.value.reason is Reason.BATCH_STATISTICS


@pytest.mark.parametrize(
    ("solver", "calibration", "classes"),
    [("newton", "pooled", 2), ("newton", "domain", 3), ("hierarchical", "pooled", 3), ("hierarchical", "domain", 2)],
)
def test_the_calibration_brings_risks_that_the_clip_made_too_low_to_the_observed_rate(
    tmp_path, solver, calibration, classes
):
    """So small a clip makes the risk of a rare outcome far too low; nothing but the intercepts moves."""
    label = {"column": "ill", "classes": [[0], [1], [2]], "positive": [], "negative": []}
    changes = {
        "data": {} if classes == 2 else {"label": label},
        "model": {"hidden": [], "representation": 2, "encoder": "raw"},
        "heads": {
            "solver": solver,
            "pooled_rounds": 3,
            "domain_rounds": 2,
            "clip": 0.05 if classes == 2 else 0.15,
            "calibration": calibration,
            **dict.fromkeys(("pooled_noise", "domain_noise", "calibration_noise"), 2.0),
        },
        "encoder": {"rounds": 0},
        "privacy": {"max_patients": 10_000},
    }
    study = tiny_study(**changes)
    rng, files = np.random.default_rng(4), {}
    for silo in study.silos:
        files[silo] = write_patients(tmp_path / f"{silo}.csv", rng, SLOPES / 4, patients=1500)
        header, *rows = files[silo].read_text().splitlines()
        rare = [row for row in rows if row.endswith(",0") or rng.random() < 0.15]
        third = [row[:-1] + "2" if row.endswith(",1") and rng.random() < (classes - 2) / 3 else row for row in rare]
        files[silo].write_text("\n".join([header, *third]) + "\n")
    federation = LocalFederation.gather(study, files, tmp_path / "silos")
    for number in range(study.rounds):
        federation.run_round(number)
    before = federation.models["north"]
    federation.run_round(study.rounds)
    assert len({model.digest for model in federation.models.values()}) == 1
    calibrated = federation.models["north"]
    assert calibrated.round == study.rounds
    moved = (calibrated.heads - before.heads).reshape(len(before.heads), -1, 3)
    assert not moved[..., :-1].any()
    ill = moved[..., -1] if classes == 2 else moved[:, 1:, -1] - moved[:, :1, -1]
    assert ill.min() > 0.1
    assert (np.ptp(moved[..., -1], axis=0).max() < 1e-9) == (calibration == "pooled")
    cohorts = [learner.cohort("training") for learner in federation.learners.values()]
    observed = np.bincount(np.concatenate([records.labels for records in cohorts]))[1:]
    claimed = [
        sum(model.predict(records.inputs, records.domains)[:, 1:].sum(axis=0) for records in cohorts)
        for model in (before, calibrated)
    ]
    assert (claimed[0] / observed).max() < 0.8
    np.testing.assert_allclose(claimed[1] / observed, 1, atol=0.1 if classes == 2 else 0.2)


def test_all_patients_are_measured_together_if_the_study_says_so(tmp_path):
    found = {}
    for together in (False, True):
        learner = some_learner(tmp_path / str(together), evaluation={"together": together})
        last, model = at(learner.study, plan(learner.study).last), SharedModel.start(learner.study)
        total = np.full(2 * 2 * 4, int(90 / SumGrid.of(learner.study).step), np.int64)
        found[together] = learner.open(Tensor.METRICS, total, last, model, 3).results
    assert found[False].together is None
    assert found[False].by_domain == found[True].by_domain
    whole, (first, second) = found[True].together, found[True].by_domain
    assert whole.patients.value == pytest.approx(first.patients.value + second.patients.value)
    assert whole.patients.high - whole.patients.value == pytest.approx(
        np.sqrt(2) * (first.patients.high - first.patients.value)
    )
    assert whole.accuracy.high - whole.accuracy.low < first.accuracy.high - first.accuracy.low


def test_all_patients_have_a_block_of_their_own_if_the_study_gives_it_a_share(tmp_path):
    learner = some_learner(tmp_path, evaluation={"together": True, "together_share": 0.5})
    last, model = at(learner.study, plan(learner.study).last), SharedModel.start(learner.study)
    step = SumGrid.of(learner.study).step
    cells = np.stack([np.full((2, 4), 20.0), np.full((2, 4), 40.0), np.full((2, 4), 80.0)])
    total = np.rint(cells * 0.5**0.5 / step).astype(np.int64).ravel()
    found = learner.open(Tensor.METRICS, total, last, model, 3).results
    # 60 as the domains add up to, and 80 as their own block says; the domains' noise is twice as large
    patients = 8 * (60.0 / 3 + 80.0 * 2 / 3)
    assert found.together.patients.value == pytest.approx(patients, rel=1e-4)
    assert sum(one.patients.value for one in found.by_domain) == pytest.approx(patients, rel=1e-4)
    classes = json.loads(StudyFolder(tmp_path / "silos" / "north").classes.read_text())
    assert classes == pytest.approx([patients / 2] * 2, rel=1e-4)


@pytest.mark.parametrize(("share", "others"), [(0.5, 0.5), (0.1, 0.9)])
def test_blocks_of_the_metric_sum_are_judged_in_patients(tmp_path, share, others):
    learner = some_learner(tmp_path, evaluation={"together": True, "together_share": share, "noise": 1e-3})
    last, step = at(learner.study, plan(learner.study).last), SumGrid.of(learner.study).step
    most = learner._counted_patients(last, 3, 3, 0).held_out()
    for block, least in ((0, most[0]), (1, most[1]), (2, sum(most))):
        scale = (share if block == 2 else others) ** 0.5
        for patients, what in ((0.99 * least, None), (1.2 * least, "exceeds"), (-10.0, "negative")):
            total = np.zeros((3, 8))
            total[block, 0] = scale * patients / step
            total = np.rint(total).astype(np.int64).ravel()
            if what is None:
                learner.check_sum(Tensor.METRICS, total, last, 3)
            else:
                with pytest.raises(SumError, match=what):
                    learner.check_sum(Tensor.METRICS, total, last, 3)
