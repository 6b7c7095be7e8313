import hashlib
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from safetensors import safe_open

from policies.documents.study import Study
from policies.plan.cost import Cost
from policies.plan.release import plan
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.personal.unknown_domain import Way
from silo_agent.models import onnx_graph
from silo_agent.models.export import TOLERANCE, Format, ModelExportError, export
from silo_agent.models.predict import predict
from support.local_federation import LocalFederation, write_patients
from support.models import STUDIES, random_model, random_personal, study_of, write_records
from support.studies import tiny_study

STRANGER = Path(__file__).parents[2] / "support" / "stranger.py"


def ask_stranger(how, folder, records, tmp_path):
    """Predictions of a fresh process that has the folder and cannot import FedWard."""
    out = tmp_path / "found.npy"
    command = [sys.executable, "-I", STRANGER, how, folder, records, out]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.load(out)


def metadata(path):
    if path.suffix == ".onnx":
        return {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["fedward"])


def write_results(folder, study, /, **changes):
    estimate = {"value": 0.8125, "low": 0.75, "high": 0.875}
    metrics = {"auc": estimate, "accuracy": {"value": None, "low": 0.0, "high": 1.0}, "balanced_accuracy": None}
    content = {
        "study": study.digest,
        "domains": list(study.data.domains),
        "by_domain": [metrics] * len(study.data.domains),
        "noise_sd": 1.0,
    }
    (folder / "results.json").write_text(json.dumps(content | changes))


# --- round trips ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) if kind == "resnet18" else kind for kind in STUDIES]
)
def test_a_stranger_gets_the_same_predictions_from_the_files_alone(tmp_path, kind):
    study = study_of(kind)
    model, home = random_model(study), tmp_path / "home"
    home.mkdir()
    domains = len(study.data.domains)
    (home / "counts.json").write_text(json.dumps([30.5 * m + 10 for m in range(domains)]))
    records = write_records(tmp_path / "records.csv", study)
    wanted = predict(model, records, folder=home, unknown=Way.ENSEMBLE)
    assert set(wanted.ways) == {"own", "ensemble"}
    assert np.ptp(wanted.probabilities[:, 0]) > 0.05
    export(model, tmp_path / "out", folder=home)
    for how in ("onnx", "tensors"):
        found = ask_stranger(how, tmp_path / "out", records, tmp_path)
        assert found.shape == (len(wanted), study.data.label.count)
        np.testing.assert_allclose(found, wanted.probabilities, atol=TOLERANCE, rtol=0)


def test_a_personal_model_makes_the_round_trip_too(tmp_path):
    study = study_of("stochastic cnn with features")
    model = random_personal(study)
    records = write_records(tmp_path / "records.csv", study)
    wanted = predict(model, records, folder=tmp_path, unknown=Way.ENSEMBLE).probabilities
    export(model, tmp_path / "out", folder=tmp_path, inside_hospital=True)
    for how in ("onnx", "tensors"):
        found = ask_stranger(how, tmp_path / "out", records, tmp_path)
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE, rtol=0)


# --- files ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("files", "names"),
    [
        (Format.SAFETENSORS, {"model.safetensors"}),
        (Format.ONNX, {"model.onnx"}),
        (Format.BOTH, {"model.safetensors", "model.onnx"}),
    ],
)
def test_the_folder_has_what_was_asked_for_and_sums_that_hold(tmp_path, files, names):
    written = export(random_model(study_of("linear mlp")), tmp_path / "out", folder=tmp_path, files=files)
    assert {path.name for path in written} == names | {"model-card.json", "model-card.md", "SHA256SUMS"}
    assert set(written) == set((tmp_path / "out").iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in written)
    lines = (tmp_path / "out" / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == len(written) - 1
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((tmp_path / "out" / name).read_bytes()).hexdigest() == digest


def test_model_files_name_study_model_and_card(tmp_path):
    study = study_of("stochastic mlp of three classes")
    model = random_model(study)
    export(model, tmp_path / "out", folder=tmp_path)
    card = hashlib.sha256((tmp_path / "out" / "model-card.json").read_bytes()).hexdigest()
    for name in ("model.onnx", "model.safetensors"):
        found = metadata(tmp_path / "out" / name)
        assert found["fedward.study"] == study.digest
        assert found["fedward.model"] == model.digest
        assert found["fedward.card"] == card
        assert found["fedward.kind"] == "shared"
        assert "fedward.warning" not in found
    assert json.loads(metadata(tmp_path / "out" / "model.onnx")["fedward.classes"])[2] == ["worse", "dead"]


def test_tensors_have_the_names_of_their_layers(tmp_path):
    export(random_model(study_of("resnet18")), tmp_path / "out", folder=tmp_path, files=Format.SAFETENSORS)
    with safe_open(tmp_path / "out" / "model.safetensors", "numpy") as file:
        names = set(file.keys())
        assert file.get_tensor("heads.weight").shape == (2, 1, 2)
    assert {"image_network.0.weight", "image_network.4.path.0.weight", "layers.2.bias", "heads.bias"} <= names
    assert not {"encoder", "prior"} & names


def test_of_a_stochastic_encoder_only_the_mean_is_exported(tmp_path):
    export(random_model(study_of("stochastic mlp of three classes")), tmp_path / "out", folder=tmp_path)
    card = json.loads((tmp_path / "out" / "model-card.json").read_bytes())
    assert card["architecture"]["tensors"]["layers.2.weight"]["shape"] == [2, 3]


def test_a_model_that_predicts_from_draws_is_refused_by_name(tmp_path):
    study = study_of("stochastic mlp of three classes")
    drawn = Study.model_validate(study.model_dump() | {"model": study.model.model_dump() | {"samples": 20}})
    with pytest.raises(ModelExportError, match=r"model.samples is 20.*fedward-silo predict"):
        export(random_model(drawn), tmp_path / "out", folder=tmp_path)
    assert not (tmp_path / "out").exists()


def test_equal_models_give_equal_files(tmp_path):
    model = random_model(study_of("cnn"))
    for name in ("one", "two"):
        export(model, tmp_path / name, folder=tmp_path)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_the_graph_takes_any_number_of_records(tmp_path):
    export(random_model(study_of("linear mlp")), tmp_path / "out", folder=tmp_path, files=Format.ONNX)
    blob = (tmp_path / "out" / "model.onnx").read_bytes()
    for records in (0, 1, 1000):
        feeds = {"inputs": np.zeros((records, 2), np.float32), "domain": np.zeros(records, np.int64)}
        assert onnx_graph.run(blob, feeds).shape == (records, 2)


def test_every_negative_domain_means_unknown_and_one_too_large_is_refused(tmp_path):
    model = random_model(study_of("linear mlp"))
    export(model, tmp_path / "out", folder=tmp_path, files=Format.ONNX)
    blob = (tmp_path / "out" / "model.onnx").read_bytes()
    feeds = {"inputs": np.full((5, 2), 0.3, np.float32), "domain": np.array([-1, -2, -3, 0, 1])}
    found = onnx_graph.run(blob, feeds)
    np.testing.assert_allclose(found[:3], np.broadcast_to((found[3] + found[4]) / 2, (3, 2)), atol=1e-12)
    assert abs(found[3, 1] - found[4, 1]) > 0.01
    with pytest.raises(Exception, match=r"(?i)out of"):
        onnx_graph.run(blob, {"inputs": np.zeros((1, 2), np.float32), "domain": np.array([3])})


# --- nothing by halves ------------------------------------------------------------------------------------------------
def test_a_graph_that_differs_is_an_error_and_leaves_no_file(tmp_path, monkeypatch):
    right = onnx_graph.run
    monkeypatch.setattr(onnx_graph, "run", lambda blob, values: right(blob, values) + 2 * TOLERANCE)
    with pytest.raises(ModelExportError, match="differs from the model by 2e-05"):
        export(random_model(study_of("linear mlp")), tmp_path / "out", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_gives_no_numbers_is_an_error(tmp_path, monkeypatch):
    right = onnx_graph.run
    monkeypatch.setattr(onnx_graph, "run", lambda blob, values: right(blob, values) * np.nan)
    with pytest.raises(ModelExportError, match="differs from the model by nan"):
        export(random_model(study_of("linear mlp")), tmp_path / "out", folder=tmp_path)


def test_a_disk_that_fails_midway_leaves_no_folder(tmp_path, monkeypatch):
    def fail(path, content):
        if path.suffix == ".md":
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("common.durable.write_whole", fail)
    with pytest.raises(OSError, match="No space left"):
        export(random_model(study_of("linear mlp")), tmp_path / "out", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    model = random_model(study_of("linear mlp"))
    (tmp_path / "empty").mkdir()
    export(model, tmp_path / "empty", folder=tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "empty").iterdir()}
    (tmp_path / "file").write_text("mine")
    for taken in ("empty", "file"):
        with pytest.raises(ModelExportError, match="is never overwritten; give a new folder"):
            export(model, tmp_path / taken, folder=tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "empty").iterdir()} == before
    assert (tmp_path / "file").read_text() == "mine"


def test_without_the_extra_safetensors_still_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "silo_agent.models.onnx_graph")
    monkeypatch.delattr("silo_agent.models.onnx_graph")
    model = random_model(study_of("linear mlp"))
    with pytest.raises(ModelExportError, match=r"onnx is missing\); install requirements-silo\.txt"):
        export(model, tmp_path / "out", folder=tmp_path)
    assert not (tmp_path / "out").exists()
    export(model, tmp_path / "out", folder=tmp_path, files=Format.SAFETENSORS)


# --- the personal model -----------------------------------------------------------------------------------------------
def test_a_personal_model_needs_a_second_word(tmp_path):
    with pytest.raises(ModelExportError, match=r"must not leave the hospital.*--inside-hospital"):
        export(random_personal(study_of("linear mlp")), tmp_path / "out", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_file_of_a_personal_model_says_what_it_is(tmp_path):
    study = study_of("linear mlp")
    write_results(tmp_path, study)
    written = export(random_personal(study), tmp_path / "out", folder=tmp_path, inside_hospital=True)
    assert len(written) == 5
    assert all(path.name.startswith("personal-private-") for path in written)
    card = json.loads((tmp_path / "out" / "personal-private-model-card.json").read_bytes())
    text = (tmp_path / "out" / "personal-private-model-card.md").read_text()
    assert card["privacy"]["private"] is False
    assert card["privacy"]["epsilon"] == "unbounded"
    assert card["quality"] is None
    warnings = [metadata(tmp_path / "out" / f"personal-private-model.{kind}") for kind in ("onnx", "safetensors")]
    for says in (text, card["warning"], *(found["fedward.warning"] for found in warnings)):
        assert "NOT PRIVATE" in says
        assert "must not leave the hospital" in says
        assert "without noise" in says


# --- what the card takes from the study's folder ----------------------------------------------------------------------
def card_of(tmp_path, model, **options):
    export(model, tmp_path / "out", folder=tmp_path, files=Format.SAFETENSORS, **options)
    return json.loads((tmp_path / "out" / "model-card.json").read_bytes())


def test_measured_quality_stands_on_the_card(tmp_path):
    study = study_of("linear mlp")
    write_results(tmp_path, study)
    card = card_of(tmp_path, random_model(study))
    assert [entry["domain"] for entry in card["quality"]] == ["a", "b"]
    assert card["quality"][1]["metrics"]["auc"] == {"value": 0.8125, "low": 0.75, "high": 0.875}
    text = (tmp_path / "out" / "model-card.md").read_text()
    assert "| a | 0.812 [0.750, 0.875] | too few [0.000, 1.000] | - |" in text


@pytest.mark.parametrize("recipe", ["fedavg", "lg-fedavg", "local"])
def test_a_card_says_which_parts_the_hospital_has_for_itself(tmp_path, recipe):
    study = study_of("linear mlp", recipe=recipe, heads={"pooled_rounds": 2, "domain_rounds": 0})
    limits = card_of(tmp_path, random_model(study))["use"]["limits"]
    told = {"fedavg": "", "lg-fedavg": " trained encoder for itself", "local": " trained encoder and heads for itself"}
    assert [told[recipe] in limits[-1], len(limits)] == [True, 5 + study.composition.keeps]
    assert limits[4].startswith("Accuracy and false negatives count a patient as ill from a risk of 0.5 on")


def test_a_model_of_an_earlier_round_was_not_measured(tmp_path):
    study = study_of("linear mlp")
    write_results(tmp_path, study)
    assert card_of(tmp_path, random_model(study, round_number=1))["quality"] is None
    assert "Not measured" in (tmp_path / "out" / "model-card.md").read_text()


def test_a_study_that_ran_is_exported_with_what_it_measured(tmp_path):
    study, rng = tiny_study(), np.random.default_rng(1)
    slopes = np.array([[3.0, 0.0], [0.0, 3.0]])
    files = {
        silo: write_patients(tmp_path / f"{silo}.csv", rng, slopes, patients=80) for silo in ("north", "south", "west")
    }
    federation = LocalFederation.gather(study, files, tmp_path / "silos").run()
    export(federation.models["north"], tmp_path / "out", folder=tmp_path / "silos" / "north")
    card = json.loads((tmp_path / "out" / "model-card.json").read_bytes())
    assert card["model"]["sha256"] == federation.models["south"].digest
    assert card["unknown_domain"]["from"] == "noised domain counts"
    measured = federation.results["south"].by_domain
    figures_of = [{name: one for name, one in asdict(result).items() if name != "sizes"} for result in measured]
    assert [entry["metrics"] for entry in card["quality"]] == figures_of
    figures = {
        "auc", "accuracy", "balanced_accuracy", "false_negatives", "calibration", "expected_observed", "patients"
    }  # fmt: skip
    assert set(card["quality"][0]["metrics"]) == figures


@pytest.mark.parametrize(
    ("changes", "why"), [({"study": "f" * 64}, "belongs to another study"), ({"by_domain": 1}, "damaged")]
)
def test_results_that_are_not_the_models_are_refused(tmp_path, changes, why):
    study = study_of("linear mlp")
    write_results(tmp_path, study, **changes)
    with pytest.raises(ModelExportError, match=why):
        export(random_model(study), tmp_path / "out", folder=tmp_path)


def test_weights_of_unknown_domains_come_from_the_noised_counts(tmp_path):
    study = study_of("linear mlp")
    (tmp_path / "counts.json").write_text("[-4.5, 12.0]")
    assert card_of(tmp_path, random_model(study))["unknown_domain"]["weights"] == [0.0, 1.0]
    (tmp_path / "counts.json").write_text("[1.0]")
    with pytest.raises(ModelFileError, match=r"counts\.json is damaged or belongs to another study"):
        export(random_model(study), tmp_path / "again", folder=tmp_path)


def test_epsilon_is_what_was_charged_where_that_is_more(tmp_path):
    study = study_of("linear mlp")
    planned = card_of(tmp_path, random_model(study))["privacy"]
    assert planned["epsilon"] == planned["epsilon_of_the_plan"]
    assert planned["epsilon_charged_here"] is None
    twice: list[Cost] = [cost for r in (0, 1, 1, 2, 2) for cost in plan(study).round_costs(r).values()]
    export(random_model(study), tmp_path / "charged", folder=tmp_path, files=Format.SAFETENSORS, charged=twice)
    charged = json.loads((tmp_path / "charged" / "model-card.json").read_bytes())["privacy"]
    assert charged["epsilon_of_the_plan"] == planned["epsilon"]
    assert charged["epsilon"] == charged["epsilon_charged_here"] > planned["epsilon"]


def test_another_model_has_another_digest(tmp_path):
    model = random_personal(study_of("linear mlp"))
    other = replace(model, round=model.round - 1)
    digests = set()
    for name, one in (("one", model), ("two", other)):
        export(one, tmp_path / name, folder=tmp_path, files=Format.SAFETENSORS, inside_hospital=True)
        card = json.loads((tmp_path / name / "personal-private-model-card.json").read_bytes())
        digests.add(card["model"]["sha256"])
    assert len(digests) == 2
