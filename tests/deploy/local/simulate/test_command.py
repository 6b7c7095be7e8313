"""`fedward simulate` from its options to its files, and what it refuses."""

import json
import re
import sys

import pytest
import yaml
from typer.testing import CliRunner

from deploy.local import cli
from deploy.local.simulate import command, engine, expected_patients, many
from deploy.local.simulate.command import MOST_SEEDS, parse_seeds
from deploy.local.simulate.errors import SimulationError
from support import images
from support.small_cohort import write_yaml
from support.studies import tiny_document


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    """Nothing in the repository's folder is looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def study(tmp_path):
    return str(write_yaml(tmp_path / "study.yaml", tiny_document(publish=["auc"])))


def run(*arguments, columns="200"):
    done = CliRunner().invoke(
        cli.app, ["simulate", *map(str, arguments)], env={"COLUMNS": columns}, catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def fails(monkeypatch, capsys, *arguments):
    """What the command says on stderr when it ends with exit code 1."""
    monkeypatch.setattr(sys, "argv", ["fedward", "simulate", *map(str, arguments)])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_made_up_records_give_table_json_and_plot(study, tmp_path):
    json_file, plot = tmp_path / "out.json", tmp_path / "out.svg"
    options = ("--seeds", "2", "--patients", "60", "--without-noise", "--alone", "--figures", json_file, "--plot", plot)
    shown = run(study, *options)
    assert "made-up records" in shown
    assert all(row in shown for row in ("mean", "worst domain", "all together", "without noise"))
    found = json.loads(json_file.read_text())
    assert found["source"] == "made up"
    assert found["public"] is None
    assert [one["seed"] for one in found["runs"]["study"]] == [1, 2]
    assert set(found["runs"]) == {"study", "without noise", "alone"}
    assert 0 < found["epsilon"]["training"] < 10
    assert found["silos"] == {"north": 80, "south": 80, "west": 80}, "60 train, and a quarter is held out"
    assert "<svg" in plot.read_text()


def test_of_a_recipe_that_keeps_parts_each_silos_own_patients_are_shown_too(tmp_path):
    """Beside the common test records, which the mean of all silos' models predicts."""
    file = write_yaml(tmp_path / "kept.yaml", tiny_document(recipe="lg-fedavg"))
    shown = run(file, "--seeds", "1", "--patients", "60", "--ensemble", "--figures", tmp_path / "out.json")
    assert "own patients" in shown
    assert "ensemble" in shown
    runs = json.loads((tmp_path / "out.json").read_text())["runs"]
    assert {name: found[0]["together"]["records"] for name, found in runs.items()} == {
        "study": 10_000,
        "ensemble": 10_000,
        "own patients": runs["own patients"][0]["together"]["records"],
    }
    assert 0 < runs["own patients"][0]["together"]["records"] < 240


def test_every_option_may_be_left_out(monkeypatch, study, tmp_path):
    asked, side_by_side, real, drawn = [], [], many.each_seed, expected_patients.expected

    def each_seed(*given, workers, **named):
        side_by_side.append(workers)
        return real(*given, workers=workers, **named)

    monkeypatch.setattr(many, "each_seed", each_seed)

    def expected(study, *, done, **given):
        asked.append(given)
        return drawn(study, **{**given, "patients": (60,), "done": done})

    monkeypatch.setattr(expected_patients, "expected", expected)
    monkeypatch.setattr("deploy.local.simulate.command.parse_seeds", lambda text: (int(text) - 4,))
    run(study, "--figures", tmp_path / "out.json")
    assert side_by_side == [1]
    assert asked == [{"patients": (), "prevalence": None, "effect": None, "held_out": 0.25}]
    found = json.loads((tmp_path / "out.json").read_text())
    assert {name: [one["seed"] for one in runs] for name, runs in found["runs"].items()} == {"study": [1]}


def test_seeds_that_are_kept_are_not_run_again(monkeypatch, study, tmp_path):
    """Of all that is measured, and with the same table."""
    folder, begun = tmp_path / "kept", []
    real = engine.simulate

    def simulate(*given, seed, **named):
        begun.append(seed)
        return real(*given, seed=seed, **named)

    monkeypatch.setattr(engine, "simulate", simulate)
    options = (study, "--patients", "60", "--without-noise", "--alone", "--keep", folder)
    run(*options, "--seeds", "1")
    assert begun == [1, 1]
    both = run(*options, "--seeds", "2")
    assert begun == [1, 1, 2, 2]
    assert run(*options, "--seeds", "2") == both
    assert begun == [1, 1, 2, 2]
    assert run(*options[:-2], "--seeds", "2") == both
    run(study, "--patients", "61", "--keep", folder, "--seeds", "1")
    assert begun[-1] == 1
    assert len(begun) == 9


def test_a_folder_to_keep_results_in_must_be_there_beside(monkeypatch, capsys, study, tmp_path):
    says = fails(monkeypatch, capsys, study, "--keep", tmp_path / "none" / "kept")
    assert f"there is no folder {tmp_path / 'none'} for kept" in says
    says = fails(monkeypatch, capsys, study, "--keep", study)
    assert f"--keep {study} is a file; name a folder" in says


def test_what_is_read_by_a_program_has_a_width_of_its_own(study):
    options = (study, "--seeds", "1", "--patients", "60")
    assert run(*options, columns="40") == run(*options, columns="200")


def test_the_help_says_what_the_model_is():
    assert re.search(r"--model +FILE +The shared model that the study continues\.", run("--help"))


def test_a_study_of_a_number_shows_what_is_explained(tmp_path):
    label = {"column": "days", "positive": [], "negative": [], "minimum": 0, "maximum": 30}
    document = tiny_document(data={"label": label}, evaluation={"bins": 10})
    shown = run(write_yaml(tmp_path / "number.yaml", document), "--seeds", "1", "--patients", "300")
    assert "R2" in shown
    assert "10000" in shown


def test_public_records_are_read_and_the_reason_is_kept(study, files, tmp_path):
    json_file = tmp_path / "out.json"
    shown = run(
        study, "--data", files["north"].parent, "--public", "made for a test", "--seeds", "3-3", "--figures", json_file
    )
    assert "made for a test" in shown
    found = json.loads(json_file.read_text())
    assert found["public"] == "made for a test"
    assert found["silos"] == {"north": 80, "south": 80, "west": 80}
    assert [one["seed"] for one in found["runs"]["study"]] == [3]


def test_one_table_is_parted_by_a_column_and_another_file_measures(study, files, tmp_path):
    table, json_file = tmp_path / f"{'all' * 12}.csv", tmp_path / "out.json"
    rows = [line for file in files.values() for line in file.read_text().splitlines()[1:]]
    wards = [f"{row},Ward {number % 4}" for number, row in enumerate(rows)]
    table.write_text("\n".join(["patient,group,age,lactate,ill,ward", *wards, f"p,a,{'old' * 9},5,1,Ward 1"]))
    options = ("--public", "made for a test", "--silos-by", "ward", "--seeds", "1,4", "--figures", json_file)
    test = files["north"]
    test.write_text(test.read_text() + "q,z,50,5,1\n")
    shown = run(study, "--data", table, "--test", test, *options)
    assert "1 records left out, 1 test records left out" in " ".join(shown.split())
    assert "left out, 1 records: age: expected a number in" in shown
    assert max(map(len, shown.splitlines())) > 140, "a reason stands in one line, however long it is"
    assert "left out, 1 test records: group: expected" in shown
    found = json.loads(json_file.read_text())
    assert found["silos"] == {f"ward-{number}": 60 for number in range(4)}
    assert (found["left_out"], found["test_left_out"]) == (1, 1)
    assert found["reasons"][0]["column"] == "age"
    assert found["test_reasons"][0] | {"expected": ""} == {
        "column": "group",
        "expected": "",
        "records": 1,
        "found": "'z'",
        "row": 82,
        "file": "north.csv",
    }
    assert [one["together"]["records"] for one in found["runs"]["study"]] == [80, 80]


def test_a_file_to_measure_on_is_no_silo_however_its_path_is_written(monkeypatch, study, files, tmp_path):
    folder = files["north"].parent
    (folder / "test.csv").write_text(files["north"].read_text())
    monkeypatch.chdir(folder.parent)
    options = ("--public", "made for a test", "--seeds", "1", "--figures", tmp_path / "out.json")
    run(study, "--data", folder.name, "--test", f"{folder.name}/../{folder.name}/test.csv", *options)
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["silos"] == {"north": 80, "south": 80, "west": 80}
    assert [one["together"]["records"] for one in found["runs"]["study"]] == [80]


@pytest.mark.slow
def test_images_lie_below_the_folder_of_the_files(tmp_path):
    folder, json_file = tmp_path / "files", tmp_path / "out.json"
    for name, file in images.write_sites(folder).items():
        (folder / f"{name}.csv").write_text(file.read_text().replace("png/", f"{name}/png/"))
        file.unlink()
    study = write_yaml(tmp_path / "scans.yaml", images.study_document())
    options = ("--public", "made for a test", "--seeds", "2", "--workers", "2", "--figures", json_file)
    run(study, "--data", folder, *options)
    found = json.loads(json_file.read_text())
    assert found["left_out"] == 0
    assert set(found["silos"]) == set(images.SILOS)
    assert len({one["model"] for one in found["runs"]["study"]}) == 2


@pytest.mark.parametrize("reason", [(), ("--public", "  ")])
def test_records_need_a_reason_why_they_are_public(monkeypatch, capsys, study, files, reason):
    assert '--public "REASON"' in fails(monkeypatch, capsys, study, "--data", files["north"].parent, *reason)


def test_a_reason_without_records_is_an_error(monkeypatch, capsys, study):
    assert "--public without --data" in fails(monkeypatch, capsys, study, "--public", "published")


@pytest.mark.parametrize("option", ["--figures", "--plot"])
def test_a_file_that_cannot_be_written_is_told_at_once(monkeypatch, capsys, study, tmp_path, option):
    assert "there is no folder" in fails(monkeypatch, capsys, study, option, tmp_path / "nowhere" / "out.svg")
    assert ".svg, .png, .pdf" in fails(monkeypatch, capsys, study, "--plot", tmp_path / "out.txt")
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert "requirements-research.txt" in fails(monkeypatch, capsys, study, "--plot", tmp_path / "out.svg")


def test_a_file_that_an_agent_names_is_refused(monkeypatch, capsys, study, files, tmp_path):
    config = {"coordinator": "hub:1", "policy": "policy.yaml", "data": {"tiny": str(files["south"])}}
    (tmp_path / "silo").mkdir()
    (tmp_path / "silo" / "agent.yaml").write_text(yaml.safe_dump(config))
    said = fails(monkeypatch, capsys, study, "--data", files["north"].parent, "--public", "it is not")
    assert "south.csv is what" in said
    assert "silo/agent.yaml names under data" in said


def test_what_could_not_be_compared_is_told(monkeypatch, capsys, study, files, tmp_path):
    """Before anything is read: here a file lacks a column."""
    database = {"url": "postgresql://reader@db.example.org/ward", "statement": "SELECT 1"}
    config = {"coordinator": "hub:1", "policy": "policy.yaml", "databases": {"tiny": database}}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
    files["south"].write_text("patient,group\n1,a\n")
    said = fails(monkeypatch, capsys, study, "--data", files["north"].parent, "--public", "made for a test")
    assert f"not compared: the database of tiny, which {tmp_path}/agent.yaml names" in said


def test_a_file_without_a_column_of_the_study_is_an_error(monkeypatch, capsys, study, files):
    files["south"].write_text("patient,group\n1,a\n")
    said = fails(monkeypatch, capsys, study, "--data", files["north"].parent, "--public", "made for a test")
    assert "column 'ill'" in said


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", (1, 2, 3)), ("1,2,7", (1, 2, 7)), ("200-203", (200, 201, 202, 203)), ("5-5", (5,)), ("1, 4-5", (1, 4, 5))],
)
def test_seeds_are_a_number_or_a_list(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "x", "1,,2", "7-3", "-3", f"{MOST_SEEDS + 1}", f"1-{MOST_SEEDS + 1}"])
def test_anything_else_names_no_seeds(text):
    with pytest.raises(SimulationError, match="--seeds"):
        parse_seeds(text)
