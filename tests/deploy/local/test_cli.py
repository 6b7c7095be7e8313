"""The command `fedward`: its help, its errors, and one small study from beginning to end."""

import math
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deploy.local import cli
from deploy.local.cli import app, shown
from deploy.local.dry_round import DryRoundResult
from deploy.local.ledgers import SpentBudget
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml
from support.studies import tiny_document

ROOT = Path(__file__).parents[3]


@pytest.fixture
def command(tmp_path):
    """The arguments of a run, and its files."""
    write_yaml(tmp_path / "study.yaml", study_document(heads=ONE_ROUND))
    write_yaml(tmp_path / "policy.yaml", policy_document())
    write_sites(tmp_path / "data", patients=60)
    paths = {"--data": tmp_path / "data", "--policy": tmp_path / "policy.yaml", "--out": tmp_path / "out"}
    return ["local", str(tmp_path / "study.yaml"), *(str(part) for pair in paths.items() for part in pair)]


ONE_ROUND = {"pooled_rounds": 1, "domain_rounds": 0, "pooled_noise": 8.0, "domain_noise": 8.0}


def fails(monkeypatch, capsys, command):
    """What the command says on stderr when it ends with exit code 1."""
    monkeypatch.setattr(sys, "argv", ["fedward", *command])
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    return capsys.readouterr().err


def test_help_names_the_command_and_its_options():
    assert "local" in CliRunner().invoke(app, ["--help"]).stdout
    shown = CliRunner().invoke(app, ["local", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(option in shown for option in ("--data", "--policy", "--out", "--limit"))


def test_a_study_that_is_no_study_is_an_error(monkeypatch, capsys, command, tmp_path):
    (tmp_path / "study.yaml").write_text("version: 1\n")
    assert f"fedward: {tmp_path / 'study.yaml'}: " in fails(monkeypatch, capsys, command)


def test_a_silo_without_a_file_is_named(monkeypatch, capsys, command, tmp_path):
    (tmp_path / "data" / "south.csv").unlink()
    assert "exactly one file for the silo south" in fails(monkeypatch, capsys, command)
    assert not (tmp_path / "out").exists()


def test_a_policy_without_a_place_for_the_data_set_is_an_error(monkeypatch, capsys, command, tmp_path):
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_document("wards")))
    assert 'needs "{data_set}"' in fails(monkeypatch, capsys, command)


def test_a_folder_that_is_in_use_is_left_alone(monkeypatch, capsys, command, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "ledger").touch()
    assert "is not an empty folder" in fails(monkeypatch, capsys, command)


def test_a_dry_round_says_what_lasts_and_what_it_was(monkeypatch, tmp_path):
    lines, given = [], []

    def ran(*asked, **named):
        given.append((asked[1:], named))
        return DryRoundResult(rounds=2, silos=3, seconds=4.2)

    monkeypatch.setattr(cli, "waiting", lambda what: nullcontext(lines.append(what)))
    monkeypatch.setattr(cli, "dry_round", ran)
    study = write_yaml(tmp_path / "study.yaml", tiny_document())
    done = CliRunner().invoke(cli.app, ["dry-round", str(study), "--silo", "north", "--device", "cpu", "--limit", "9"])
    assert done.output == "2 rounds of 3 silos with made-up records in 4 s\n"
    assert lines == ["throw-away parties run two rounds"]
    assert given == [(("north",), {"device": "cpu", "limit": 9.0})]


def test_a_ledger_without_a_bound_has_nothing_left():
    table = shown([SpentBudget("north", 1.0, 4.0, 1e-5), SpentBudget("south", math.inf, 4.0, 1e-5)])
    assert [list(column.cells) for column in table.columns][1:] == [["1.000", "inf"], ["4", "4"], ["3.000", "0.000"]]


@pytest.mark.slow
def test_a_study_runs_and_leaves_ledgers_and_models(command, tmp_path):
    program = [sys.executable, "-m", "deploy.local", *command]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    for silo in SILOS:
        state = tmp_path / "out" / silo / "state"
        assert (state / "ledger.sqlite3").is_file()
        assert list(state.glob("studies/*/model-*.safetensors"))
        assert silo in done.stdout
    assert "spent" in done.stdout
