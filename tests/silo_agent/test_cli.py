import json
import subprocess
import sys
from pathlib import Path

import grpc
import numpy as np
import pytest
from typer.testing import CliRunner

from policies.costs import round_costs
from policies.ledger import Debit, Ledger
from silo_agent import assembly, cli
from silo_agent.client import CallRefused
from silo_agent.learning.model import SharedModel
from silo_agent.state import State
from support.local_federation import write_patients
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hospital(quick_path, homes):
    """A folder with everything that `agent.yaml` names; returns the configuration's path."""
    write_yaml(quick_path / "policy.yaml", policy_document("ward"))
    write_patients(quick_path / "north.csv", np.random.default_rng(1), np.array([[3.0, 0.0], [0.0, 3.0]]), patients=60)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    return write_yaml(
        quick_path / "agent.yaml",
        {
            "coordinator": "localhost:1",
            **credential,
            "policy": "policy.yaml",
            "state": "state",
            "data": {"tiny": "north.csv"},
        },
    )


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def main(monkeypatch, capsys, *arguments):
    """What a person sees: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["fedward-silo", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def sentence(monkeypatch, capsys):
    """Runs a command that must fail; returns its one sentence."""

    def run(*arguments):
        code, out, err = main(monkeypatch, capsys, *arguments)
        assert code == 1
        assert out == ""
        assert "Traceback" not in err
        assert err.startswith("fedward-silo: ")
        return err

    return run


# --- enrol ------------------------------------------------------------------------------------------------------------
def test_enrolling_makes_a_key_and_a_request_and_says_what_to_do(tmp_path):
    done = invoke("enrol", tmp_path / "silo", "--name", "north")
    assert done.exit_code == 0
    assert (tmp_path / "silo" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert "request.csr to the consortium's authority" in done.output


def test_enrolling_again_overwrites_nothing(tmp_path, sentence):
    invoke("enrol", tmp_path / "silo", "--name", "north")
    key = (tmp_path / "silo" / "key.pem").read_bytes()
    assert "key.pem" in sentence("enrol", tmp_path / "silo", "--name", "north")
    assert (tmp_path / "silo" / "key.pem").read_bytes() == key


def test_a_name_that_cannot_be_is_a_sentence(tmp_path, sentence):
    sentence("enrol", tmp_path / "silo", "--name", "No Name")
    assert not (tmp_path / "silo" / "key.pem").exists()


# --- ledger -----------------------------------------------------------------------------------------------------------
def charge(hospital, *rounds):
    study = tiny_study()
    with Ledger.open(
        hospital.parent / "state" / "ledger.sqlite3", data_set="ward", holdout=0.2, budget_epsilon=4.0, delta=1e-5
    ) as ledger:
        for number in rounds:
            ledger.charge(Debit(study.digest, "p" * 64, number, 1, round_costs(study, number)))
        return ledger.spent()


def test_a_ledger_is_made_once_in_its_life(hospital, sentence):
    done = invoke("ledger", "create", "-c", hospital)
    assert done.exit_code == 0
    assert "the ledger of ward, epsilon 4 to spend" in done.output
    charge(hospital, 0)
    content = (hospital.parent / "state" / "ledger.sqlite3").read_bytes()
    assert "a data set has one ledger for ever" in sentence("ledger", "create", "-c", hospital)
    assert (hospital.parent / "state" / "ledger.sqlite3").read_bytes() == content


def test_the_ledger_is_shown_to_people_and_programs(hospital):
    invoke("ledger", "create", "-c", hospital)
    spent = charge(hospital, 0, 1)
    shown = invoke("ledger", "show", "-c", hospital).output
    assert "Ledger of ward" in shown
    assert f"spent {spent:.4f} of 4 at delta 1e-05" in " ".join(shown.split())
    assert tiny_study().digest[:12] in shown
    statement = json.loads(invoke("ledger", "show", "--json", "-c", hospital).output)
    assert statement["spent"] == spent
    assert statement["left"] == pytest.approx(4 - spent)
    assert (statement["data_set"], statement["budget"], statement["delta"]) == ("ward", 4.0, 1e-5)
    assert [(e["round"], sorted(e["costs"])) for e in statement["entries"]] == [
        (0, ["counts"]),
        (1, ["encoder", "heads"]),
    ]
    assert statement["entries"][1]["costs"]["encoder"]["noise"] == 4.0


def test_the_ledger_can_be_shown_while_an_agent_holds_it(hospital):
    invoke("ledger", "create", "-c", hospital)
    path = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(path, data_set="ward", holdout=0.2, budget_epsilon=4.0, delta=1e-5):
        assert invoke("ledger", "show", "-c", hospital).exit_code == 0
        assert invoke("ledger", "verify", "-c", hospital).exit_code == 0


def test_a_chain_that_holds_is_confirmed_and_one_that_does_not_is_named(hospital, sentence):
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0, 1)
    assert invoke("ledger", "verify", "-c", hospital).output == "2 debits, the chain holds\n"
    path = hospital.parent / "state" / "ledger.sqlite3"
    content = path.read_bytes()
    assert content.count(b'"noise":30.0') == 1
    path.write_bytes(content.replace(b'"noise":30.0', b'"noise":90.0'))
    assert "ledger entry 1 was edited" in sentence("ledger", "verify", "-c", hospital)


@pytest.mark.parametrize("command", ["show", "verify"])
def test_an_absent_ledger_is_a_sentence(hospital, sentence, command):
    assert "ledger.sqlite3" in sentence("ledger", command, "-c", hospital)


@pytest.mark.parametrize("command", [["ledger", "create"], ["ledger", "show"], ["ledger", "verify"], ["run"]])
def test_a_configuration_that_cannot_be_used_is_a_sentence(hospital, sentence, command):
    hospital.write_text(hospital.read_text() + "no_dp: true\n")
    assert "field no_dp: unknown field" in sentence(*command, "-c", hospital)


# --- run --------------------------------------------------------------------------------------------------------------
def test_without_a_ledger_the_agent_does_not_start(hospital, sentence):
    assert "ledger.sqlite3" in sentence("run", "-c", hospital)


def test_without_a_policy_the_agent_does_not_start(hospital, sentence):
    (hospital.parent / "policy.yaml").unlink()
    assert "field policy: there is no file" in sentence("run", "-c", hospital)


def test_studies_that_ended_are_told(hospital, monkeypatch):
    monkeypatch.setattr(assembly, "run_agent", lambda *_, until_finished: [("tiny", f"finished: {until_finished}")])
    assert invoke("run", "--until-finished", "-c", hospital).output == "tiny: finished: True\n"


def test_a_coordinator_that_turns_the_silo_away_is_a_sentence(hospital, monkeypatch, sentence):
    def refused(*_, **__):
        raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "this coordinator speaks protocol 2")

    monkeypatch.setattr(assembly, "run_agent", refused)
    assert "FAILED_PRECONDITION: this coordinator speaks protocol 2" in sentence("run", "-c", hospital)


def test_a_missing_graphics_card_is_a_sentence(hospital, monkeypatch, sentence):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    hospital.write_text(hospital.read_text() + "device: cuda\n")
    assert "device: cuda was asked for" in sentence("run", "-c", hospital)


def test_a_program_that_fails_says_one_sentence_and_exits_with_1(tmp_path):
    code = "from silo_agent.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ledger", "show", "-c", tmp_path / "agent.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (f"fedward-silo: {tmp_path}/agent.yaml: there is no such file; create it or give its path\n")


# --- evaluate ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def studied(hospital):
    study = tiny_study()
    state = State(hospital.parent / "state")
    state.add_study(study.digest, study.canonical())
    state.commit(study.digest, 2)
    SharedModel.start(study).save(state.study_folder(study.digest) / "model-2.safetensors")
    state.close()
    return study


def test_models_are_evaluated_on_a_file(hospital, studied):
    data = hospital.parent / "north.csv"
    found = json.loads(invoke("evaluate", "--json", studied.digest[:8], data, "-c", hospital).output)
    assert (found["study"], found["round"], found["shared"], found["personal"]) == (studied.digest, 2, [0.5, 0.5], None)
    shown = invoke("evaluate", studied.digest, data, "-c", hospital).output
    assert "AUC, tiny, round 2" in shown
    assert "0.500" in shown


def test_what_cannot_be_evaluated_is_a_sentence(hospital, studied, sentence):
    data = hospital.parent / "north.csv"
    assert "0 studies match 'ffff'" in sentence("evaluate", "ffff", data, "-c", hospital)
    broken = hospital.parent / "broken.csv"
    broken.write_text(data.read_text().replace(",a,", ",z,"))
    assert "column 'group'" in sentence("evaluate", studied.digest[:8], broken, "-c", hospital)
    model = next((hospital.parent / "state").rglob("model-2.safetensors"))
    model.write_bytes(b"damaged")
    sentence("evaluate", studied.digest[:8], data, "-c", hospital)
    model.unlink()
    assert "no finished round" in sentence("evaluate", studied.digest[:8], data, "-c", hospital)
