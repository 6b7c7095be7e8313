import csv
import json
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from unittest.mock import ANY

import grpc
import numpy as np
import pytest
from pyarrow.parquet import read_table as read_parquet
from typer.testing import CliRunner

from crypto.pki.authority.root import read_request
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role, Subject
from policies.ledger.cosign import CosignatureFile
from policies.ledger.events import Fault
from policies.ledger.ledger import Debit, Ledger, read_history
from policies.plan.release import plan
from policies.plan.release import plan as plan_of
from silo_agent import assembly
from silo_agent.cli import main
from silo_agent.cli import models as cli_models
from silo_agent.learning.figures.evaluation import Estimate
from silo_agent.learning.figures.paired import PairedDifference
from silo_agent.learning.figures.subgroup_risks import SubgroupRisk
from silo_agent.learning.personal.choice import CandidateGain, Choice
from silo_agent.models import fairness
from silo_agent.models.beside_own import BesideOwn, GroupBeside
from silo_agent.models.fairness import Report
from silo_agent.models.groups import Fairness, Gap, GroupQuality, released
from silo_agent.oversight.signing import sign_file
from silo_agent.protocol.calls.client import CallRefused
from silo_agent.storage.approvals import approve, made
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.model_warnings import Warned
from silo_agent.storage.model_warnings import keep as warn
from silo_agent.storage.offered import keep
from silo_agent.storage.state import Ending, State
from support.ledgers import NORTH
from support.local_federation import write_patients
from support.models import random_alone, random_model, random_personal
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

ROOT = Path(__file__).parents[3]


@pytest.fixture
def hospital(quick_path, homes):
    """A folder with everything that `agent.yaml` names; returns the configuration's path."""
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
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
    return CliRunner().invoke(main.app, [str(a) for a in arguments])


def seen(monkeypatch, capsys, *arguments):
    """What a person sees: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["fedward-silo", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture
def sentence(monkeypatch, capsys):
    """Runs a command that must fail; returns its one sentence."""

    def run(*arguments):
        code, out, err = seen(monkeypatch, capsys, *arguments)
        assert code == 1
        assert out == ""
        assert "Traceback" not in err
        assert err.startswith("fedward-silo: ")
        return err

    return run


# --- enrol ------------------------------------------------------------------------------------------------------------
def test_enrolling_makes_a_key_and_a_request_and_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("enrol", "--name", "north", "--data-set", "north-ward")
    assert done.exit_code == 0
    assert (tmp_path / "silo" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert "request.csr to the consortium's authority" in done.output
    asked = read_request((tmp_path / "silo" / "request.csr").read_bytes())
    assert asked.subject == Subject(Identity(Role.SILO, "north"), "north-ward")


def test_enrolling_again_overwrites_nothing(tmp_path, sentence):
    invoke("enrol", tmp_path / "silo", "--name", "north", "--data-set", "north-ward")
    key = (tmp_path / "silo" / "key.pem").read_bytes()
    assert "key.pem" in sentence("enrol", tmp_path / "silo", "--name", "north", "--data-set", "north-ward")
    assert (tmp_path / "silo" / "key.pem").read_bytes() == key


def test_a_name_that_cannot_be_is_a_sentence(tmp_path, sentence):
    sentence("enrol", tmp_path / "silo", "--name", "No Name", "--data-set", "north-ward")
    assert "a data set's id" in sentence("enrol", tmp_path / "silo", "--name", "north", "--data-set", "No Name")
    assert not (tmp_path / "silo" / "key.pem").exists()


# --- ledger -----------------------------------------------------------------------------------------------------------
def charge(hospital, *rounds):
    study = tiny_study()
    with Ledger.open(hospital.parent / "state" / "ledger.sqlite3", NORTH, budget_epsilon=4.0) as ledger:
        for number in rounds:
            ledger.charge(Debit(study.digest, "p" * 64, number, 1, plan(study).round_costs(number)))
        return ledger.spent()


def test_state_and_ledger_come_back_from_a_backup_that_is_not_older(hospital, sentence, tmp_path, told):
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0)
    made = invoke("backup", tmp_path / "a.backup", "-c", hospital)
    assert (made.exit_code, "the ledger up to entry 1" in made.output) == (0, True)
    spent = charge(hospital, 1)
    assert "1 entries that the backup lacks" in sentence("restore", tmp_path / "a.backup", "-c", hospital)
    invoke("backup", tmp_path / "b.backup", "-c", hospital)
    (hospital.parent / "state").rename(hospital.parent / "lost")
    done = invoke("restore", tmp_path / "b.backup", "-c", hospital)
    assert (done.exit_code, "up to entry 2" in done.output) == (0, True)
    assert told == [
        "copying the state",
        "checking the backup, and putting it in place",
        "copying the state",
        "checking the backup, and putting it in place",
    ]
    assert charge(hospital) == spent


def test_a_ledger_is_made_once_in_its_life(hospital, sentence):
    done = invoke("ledger", "create", "-c", hospital)
    assert done.exit_code == 0
    assert "the ledger of north-ward, epsilon 4 to spend" in done.output
    charge(hospital, 0)
    content = (hospital.parent / "state" / "ledger.sqlite3").read_bytes()
    assert "a data set has only one ledger" in sentence("ledger", "create", "-c", hospital)
    assert (hospital.parent / "state" / "ledger.sqlite3").read_bytes() == content


def test_only_the_ledger_of_the_certified_data_set_is_made_and_exported(hospital, tmp_path, sentence):
    write_yaml(hospital.parent / "policy.yaml", policy_document("clinic"))
    text = sentence("ledger", "create", "-c", hospital)
    assert (
        "is for fedward://silo/north with the data set north-ward, not for the data set clinic, and a new name" in text
    )
    ledger = hospital.parent / "state" / "ledger.sqlite3"
    assert not ledger.parent.exists()
    ledger.parent.mkdir()
    Ledger.create(ledger, replace(NORTH, data_set="clinic"))
    for command in (
        ("export", "--format", "json", "--out", tmp_path / "ledger.json"),
        ("note", "withdrawal", "--reference", "case-1"),
        ("recover", "--signed-by", "A. Weber", "--charge-everything"),
    ):
        assert "not for the data set clinic" in sentence("ledger", *command, "-c", hospital)
    assert read_history(ledger)[1] == ()
    assert not (tmp_path / "ledger.json").exists()


def test_a_fault_is_shown_and_cleared_by_a_person(hospital):
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0, 1)
    cleared = ("ledger", "clear-fault", "--signed-by", "A. Weber", "-c", hospital)
    assert "no fault that is not cleared" in invoke(*cleared).output
    with Ledger.open(hospital.parent / "state" / "ledger.sqlite3", NORTH, budget_epsilon=4.0) as ledger:
        fault = ledger.note_fault(Fault(tiny_study().digest, 0, 1, "counts"))
    assert f"entry {fault.sequence + 1}: the faults before it are cleared; A. Weber answers" in invoke(*cleared).output
    assert "Weber" in invoke("ledger", "show", "-c", hospital).output
    entries = json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)["entries"]
    assert (entries[-2]["kind"], entries[-2]["text"]) == ("fault", "fault: not covered by epsilon")
    assert (entries[-1]["kind"], entries[-1]["responsible"]) == ("cleared", "A. Weber")


def test_the_ledger_is_shown_to_people_and_programs(hospital):
    invoke("ledger", "create", "-c", hospital)
    spent = charge(hospital, 0, 1)
    shown = invoke("ledger", "show", "-c", hospital).output
    assert "Ledger of north-ward" in shown
    assert f"spent {spent:.4f} of 4 at delta 1e-05" in " ".join(shown.split())
    assert tiny_study().digest[:12] in shown
    statement = json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)
    assert statement["spent"] == spent
    assert statement["left"] == pytest.approx(4 - spent)
    assert statement["public"] is False
    assert (statement["data_set"], statement["budget"], statement["delta"]) == ("north-ward", 4.0, 1e-5)
    assert [(e["round"], sorted(e["costs"])) for e in statement["entries"]] == [
        (0, ["counts"]),
        (1, ["encoder", "heads"]),
    ]
    assert statement["entries"][1]["costs"]["encoder"]["noise"] == 4.0


def test_an_unbounded_epsilon_is_a_word_in_the_table_and_in_valid_json(hospital):
    document = policy_document("north-ward")
    write_yaml(hospital.parent / "policy.yaml", document | {"data_set": {**document["data_set"], "public": True}})
    done = invoke("ledger", "create", "-c", hospital)
    assert "the ledger of north-ward, public data, so no budget binds" in done.output
    study = tiny_study(
        heads={"pooled_noise": 0, "domain_noise": 0},
        encoder={"noise": 0},
        evaluation={"noise": 0},
        privacy={"mode": "none", "count_noise": 0},
    )
    path = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(path, replace(NORTH, public=True), budget_epsilon=4.0) as ledger:
        ledger.charge(Debit(study.digest, "p" * 64, 0, 1, plan_of(tiny_study()).round_costs(0)))
        ledger.charge(Debit(study.digest, "p" * 64, 1, 1, plan_of(study).round_costs(1)))

    def refuse(constant):
        pytest.fail(f"{constant} is no JSON")

    statement = json.loads(invoke("ledger", "show", "--format=json", "-c", hospital).output, parse_constant=refuse)
    assert (statement["public"], statement["spent"], statement["left"]) == (True, "unbounded", "unbounded")
    first, second = (entry["epsilon_after"] for entry in statement["entries"])
    assert 0 < first < 4
    assert second == "unbounded"
    shown = " ".join(invoke("ledger", "show", "-c", hospital).output.split())
    assert "spent unbounded at delta 1e-05; the data are public, so no budget binds" in shown
    assert invoke("ledger", "verify", "-c", hospital).output == "2 debits, the chain holds\n"


def test_the_ledger_can_be_shown_while_an_agent_holds_it(hospital):
    invoke("ledger", "create", "-c", hospital)
    path = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(path, NORTH, budget_epsilon=4.0):
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


def test_the_ledger_is_shown_by_study_and_by_tensor(hospital):
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0, 1)
    by_study = invoke("ledger", "show", "--by", "study", "-c", hospital).output
    by_tensor = invoke("ledger", "show", "--by", "tensor", "-c", hospital).output
    assert tiny_study().digest[:12] in by_study
    assert tiny_study().digest[:12] not in by_tensor
    statement = json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)
    for part in statement["tensors"]:
        shown = f"{part['epsilon_alone']:.4f}"
        assert shown in by_tensor
        assert shown in by_study
    assert [part["name"] for part in statement["tensors"]] == ["counts", "encoder", "heads"]
    (study,) = statement["studies"]
    assert (study["name"], study["charges"], study["epsilon_alone"]) == (tiny_study().digest, 3, statement["spent"])


@pytest.fixture
def exported(hospital):
    """A ledger with every kind of entry, and its export in a form."""
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0, 1)
    noted = invoke("ledger", "note", "withdrawal", "--reference", "DPO-2026-14", "-c", hospital)
    assert "entry 3: withdrawal, DPO-2026-14; spent and left stay as they are" in noted.output

    def export(form):
        out = hospital.parent / f"ledger.{form}"
        done = invoke("ledger", "export", "--format", form, "--out", out, "-c", hospital)
        assert "3 entries, head 3" in " ".join(done.output.split())
        return out

    return export


def test_a_third_party_checks_an_export_with_the_authoritys_certificate_alone(exported, hospital, authority, sentence):
    out = exported("json")
    public = hospital.parent / "consortium.pem"
    public.write_bytes(authority.pem)
    arguments = ("ledger", "verify", "--export", out, "--authority", public, "-c", "absent.yaml")
    said = invoke(*arguments).output
    spent = json.loads(out.read_text())["spent"]
    assert "signed by fedward://silo/north" in said
    assert "who says that it signed" not in said
    assert "nobody cosigned it" in said
    assert "3 entries, the chain holds, head 3" in said
    assert f"stated {spent:.4f}, recomputed {spent:.4f}" in said
    content = out.read_bytes()
    out.write_bytes(content.replace(b'"budget": 4.0', b'"budget": 9.0'))
    assert "does not fit the signed bytes" in sentence(*arguments)
    out.write_bytes(content)
    (hospital.parent / "ledger.json.sig").unlink()
    assert "no signature of an export" in sentence(*arguments)
    assert "--authority authority.pem" in sentence("ledger", "verify", "--export", out)


def test_another_silos_ledger_is_not_made_ones_own_by_signing_it(exported, hospital, authority, credentials, sentence):
    out = exported("json")
    public = hospital.parent / "consortium.pem"
    public.write_bytes(authority.pem)
    at = json.loads(out.read_text())["at"]
    sign_file(credentials["south"], "json", at, out.read_bytes()).write(out.with_name("ledger.json.sig"))
    said = sentence("ledger", "verify", "--export", out, "--authority", public)
    assert "says that it is of fedward://silo/north at" in said
    assert "but fedward://silo/south signed it" in said


@pytest.mark.parametrize("form", ["csv", "html"])
def test_the_other_exports_are_signed_too(exported, hospital, authority, form):
    out = exported(form)
    public = hospital.parent / "consortium.pem"
    public.write_bytes(authority.pem)
    said = invoke("ledger", "verify", "--export", out, "--authority", public).output
    assert said.startswith("signed by fedward://silo/north, 20")
    assert "only a JSON export" in said
    assert "DPO-2026-14" in out.read_text()


def test_an_export_says_who_recovered_and_who_cosigned(exported, hospital, authority, sentence, by_hub):
    exported("json")
    path = hospital.parent / "state" / "ledger.sqlite3"
    invoke("ledger", "recover", "--signed-by", "A. Weber", "--charge-everything", "-c", hospital)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        last = ledger.checkpoint("north")
    CosignatureFile(path).keep([by_hub(last)])
    invoke("ledger", "note", "refresh", "--reference", "DPO-2026-15", "-c", hospital)
    out, public = hospital.parent / "ledger.json", hospital.parent / "consortium.pem"
    public.write_bytes(authority.pem)
    verify = ("ledger", "verify", "--export", out, "--authority", public)
    done = invoke("ledger", "export", "--format", "json", "--out", out, "-c", hospital)
    assert "5 entries" in done.output
    said = invoke(*verify).output
    assert "entry 4: a recovery, signed by fedward://silo/north, 20" in said
    assert "A. Weber answers" in said
    assert "up to entry 4 cosigned by fedward://coordinator/hub, 20" in said
    assert "nobody cosigned" not in said
    page = hospital.parent / "ledger.html"
    invoke("ledger", "export", "--format", "html", "--out", page, "-c", hospital)
    assert "fedward://coordinator/hub up to entry 4" in page.read_text()


def test_an_export_has_the_budget_in_force_and_not_the_files(exported, hospital):
    path = hospital.parent / "state" / "ledger.sqlite3"
    assert json.loads(exported("json").read_text())["budget"] == 4.0
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        ledger.put_into_force("d" * 64, 1.5)
    out = hospital.parent / "ledger.json"
    invoke("ledger", "export", "--format", "json", "--out", out, "-c", hospital)
    assert json.loads(out.read_text())["budget"] == 1.5


def test_an_export_of_an_older_copy_is_refused(exported, hospital, sentence, by_hub):
    path = hospital.parent / "state" / "ledger.sqlite3"
    older = path.read_bytes()
    charge(hospital, 2)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        last = ledger.checkpoint("north")
    CosignatureFile(path).keep([by_hub(last)])
    path.write_bytes(older)
    out = hospital.parent / "ledger.json"
    said = sentence("ledger", "export", "--format", "json", "--out", out, "-c", hospital)
    assert "an older copy was put in its place" in said
    assert not out.exists()


def test_an_export_outlives_its_certificate_and_says_so(exported, hospital, authority, monkeypatch):
    out, public = exported("json"), hospital.parent / "consortium.pem"
    public.write_bytes(authority.pem)
    real, later = Trust.ran_out, datetime.now(UTC) + timedelta(days=60)
    monkeypatch.setattr(Trust, "ran_out", lambda self, pem, *, now=None: real(self, pem, now=later))
    said = invoke("ledger", "verify", "--export", out, "--authority", public).output
    assert "its certificate was valid then and expired on 20" in said
    assert "Nobody can prove that the signature is that old" in said
    assert "3 entries, the chain holds" in said


def test_an_older_copy_is_found_by_verify_and_recovered_under_a_name(hospital, coordinator, sentence, by_hub):
    invoke("ledger", "create", "-c", hospital)
    path = hospital.parent / "state" / "ledger.sqlite3"
    charge(hospital, 0)
    older = path.read_bytes()
    charge(hospital, 1)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        last = ledger.checkpoint("north")
    told = by_hub(last)
    handed = hospital.parent / "told.json"
    handed.write_text(json.dumps([told.content]))
    recover = ("ledger", "recover", "--countersigned", handed, "--signed-by", "A. Weber", "-c", hospital)
    assert "there is nothing to recover" in sentence(*recover)
    CosignatureFile(path).keep([replace(told, signer="fedward://coordinator/hub")])
    assert "with what fedward://coordinator/hub cosigned" in invoke("ledger", "verify", "-c", hospital).output
    path.write_bytes(older)
    for command in ("verify", "show"):
        assert "an older copy was put in its place" in sentence("ledger", command, "-c", hospital)
    done = invoke(*recover)
    assert "A. Weber answers" in done.output
    assert "1 debits and 1 other entries, the chain holds" in invoke("ledger", "verify", "-c", hospital).output
    statement = json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)
    assert statement["spent"] >= last.epsilon
    assert statement["entries"][-1]["responsible"] == "A. Weber"
    assert "(lost entries)" in invoke("ledger", "show", "--by", "study", "-c", hospital).output


def test_a_loss_that_nobody_knows_ends_the_budget(hospital, sentence):
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0)
    assert "nothing to recover" in sentence("ledger", "recover", "--signed-by", "A. Weber", "-c", hospital)
    invoke("ledger", "recover", "--signed-by", "A. Weber", "--charge-everything", "-c", hospital)
    assert json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)["left"] == 0


@pytest.mark.parametrize("command", ["show", "verify"])
def test_an_absent_ledger_is_a_sentence(hospital, sentence, command):
    assert "ledger.sqlite3" in sentence("ledger", command, "-c", hospital)


@pytest.mark.parametrize("command", [["ledger", "create"], ["ledger", "show"], ["ledger", "verify"], ["run"]])
def test_a_configuration_that_cannot_be_used_is_a_sentence(hospital, sentence, command):
    hospital.write_text(hospital.read_text() + "no_dp: true\n")
    assert "field no_dp: unknown field" in sentence(*command, "-c", hospital)


# --- run --------------------------------------------------------------------------------------------------------------
def test_without_a_ledger_the_agent_does_not_start(hospital, sentence):
    said = sentence("run", "-c", hospital)
    assert f"{hospital.parent / 'state' / 'ledger.sqlite3'}: there is no ledger" in said
    assert "fedward-silo ledger create" in said


def test_without_a_policy_the_agent_does_not_start(hospital, sentence):
    (hospital.parent / "policy.yaml").unlink()
    said = sentence("run", "-c", hospital)
    assert "field policy: there is no file" in said
    assert "fedward-silo policy new" in said


def test_a_program_of_which_a_part_is_not_installed_says_which_file_has_it(hospital, monkeypatch, sentence):
    monkeypatch.setitem(sys.modules, "silo_agent.learning.light_imports", None)
    said = sentence("run", "-c", hospital)
    assert "silo_agent.learning.light_imports is not installed here; install FedWard with requirements-silo.txt" in said


def test_studies_that_ended_are_told(hospital, monkeypatch):
    monkeypatch.setattr(assembly, "run_agent", lambda *_, until_finished: [("tiny", f"finished: {until_finished}")])
    assert invoke("run", "--until-finished", "-c", hospital).output == "tiny: finished: True\n"


def test_a_coordinator_that_turns_the_silo_away_is_a_sentence(hospital, monkeypatch, sentence):
    def refused(*_, **__):
        raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "this coordinator speaks protocol 2")

    monkeypatch.setattr(assembly, "run_agent", refused)
    assert "fedward-silo: this coordinator speaks protocol 2" in sentence("run", "-c", hospital)


def test_a_missing_graphics_card_is_a_sentence(hospital, monkeypatch, sentence):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    hospital.write_text(hospital.read_text() + "device: cuda\n")
    assert "device: cuda was asked for" in sentence("run", "-c", hospital)


def test_a_program_that_fails_says_one_sentence_and_exits_with_1(tmp_path):
    code = "from silo_agent.cli.main import main; main()"
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


# --- models -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def studied(hospital):
    """A finished study of random weights, with a personal model and a charged ledger."""
    study = tiny_study()
    state = State(hospital.parent / "state")
    state.add_study(study.digest, study.canonical())
    state.commit(study.digest, 2)
    random_model(study).save(state.study_folder(study.digest) / "model-2.safetensors")
    random_personal(study).save(state.study_folder(study.digest) / "personal.safetensors")
    state.close()
    invoke("ledger", "create", "-c", hospital)
    charge(hospital, 0, 1, 2, 3)
    return study


def test_the_ledger_names_studies_as_the_agents_state_knows_them(hospital, studied):
    shown = invoke("ledger", "show", "--by", "study", "-c", hospital).output
    assert studied.digest[:12] in shown
    assert studied.name in shown
    statement = json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)
    assert statement["study_names"] == {studied.digest: studied.name}
    database = StateFolder(hospital.parent / "state").database
    database.write_bytes(b"damaged")
    assert json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)["study_names"] == {}
    database.unlink()
    assert json.loads(invoke("ledger", "show", "--format", "json", "-c", hospital).output)["study_names"] == {}


def model_file(hospital, name="model-2.safetensors"):
    return next((hospital.parent / "state").rglob(name))


# --- evaluate ---------------------------------------------------------------------------------------------------------
def test_models_are_evaluated_on_a_file(hospital, studied, told):
    data = hospital.parent / "north.csv"
    found = json.loads(invoke("evaluate", "--format", "json", studied.digest[:12], data, "-c", hospital).stdout)
    assert told == ["measuring the models"]
    assert (found["study"], found["round"], found["domains"]) == (studied.digest, 2, ["a", "b"])
    qualities = found["shared"] + found["personal"]
    for quality in qualities:
        assert set(quality) == {"auc", "accuracy", "balanced_accuracy", "calibration", "expected_observed", "records"}
    assert sum(quality["records"] for quality in found["shared"]) == 60
    rows = table_rows(invoke("evaluate", studied.digest, data, "-c", hospital).output)
    names = ["domain", "model", "n", "AUC", "accuracy", "balanced", "ECE", "E/O"]
    assert rows[0] == names
    figures = ("auc", "accuracy", "balanced_accuracy", "calibration", "expected_observed")
    whole = [row for row in rows[1:] if row[1]]  # below each stands the line of its intervals
    for row, (place, model, m) in zip(
        whole, [("a", "shared", 0), ("", "personal", 0), ("b", "shared", 1), ("", "personal", 1)], strict=True
    ):
        quality = found[model][m]
        assert row == [place, model, str(quality["records"]), *(f"{quality[figure]:.3f}" for figure in figures)]
    low, high = found["shared_intervals"][0]["auc"]
    least, most = found["shared_intervals"][0]["expected_observed"]
    assert rows[2][3:] == [f"{low:.2f}-{high:.2f}", *rows[2][4:6], "", f"{least:.2f}-{most:.2f}"]


def test_a_published_figure_of_a_group_is_never_an_error_of_nothing():
    assert cli_models._estimated("calibration", Estimate(0.0, 0.0, 0.051)) == "below 0.051\n0.00-0.05"
    assert cli_models._estimated("auc", Estimate(None, 0.0, 1.0)) == "too few\n0.00-1.00"
    assert cli_models._estimated("auc", None) == "-"


def test_a_fairness_report_is_a_table_of_groups_and_says_what_the_study_lacks(hospital, studied, monkeypatch, told):
    arguments = ("fairness", studied.digest[:12], "-c", hospital)
    assert "lists no column in data.protected" in str(invoke(*arguments).exception)
    assert told == ["comparing the groups"]
    groups = tuple(GroupQuality(name, 9, 0.5, 1.0, 0.1, None) for name in ("f", "m"))
    gaps = {"auc": Gap(0.2, 0.1), "expected_observed": Gap(0.0, 0.3), "calibration": Gap(0.1, 0.1)}
    of_sex = Fairness("sex", groups, gaps | {"false_negatives": Gap(None, None)}, 0.75)
    estimate = Estimate(0.5, 0.25, 0.75)
    sums = released("sex", ("f", "m"), [{"auc": estimate}, {"auc": estimate, "calibration": None}])
    found = Report(studied.digest, "tiny", 2, "north.csv", 18, (of_sex,), None, sums)
    monkeypatch.setattr(fairness, "report", lambda *_, **__: found)
    assert json.loads(invoke(*arguments, "--format", "json").stdout)["shared"][0]["attacker"] == 0.75
    rows = table_rows(invoke(*arguments).output)
    assert rows[1] == ["sex", "shared", "f", "9", "0.500", "1.000", "0.100", "-", ""]
    assert rows[3] == ["", "", "gap", "", "0.200", "0.000", "0.100", "-", "0.750"]
    assert rows[4][4:7] == ["<=0.10", "<=0.30", "<=0.10"]
    assert rows[5] == ["sex", "sums", "f", "", "0.500", "-", "-", "-", ""]
    assert rows[6][4] == "0.25-0.75"
    assert rows[9][2:5] == ["gap", "", "0.000"]


def test_held_out_patients_are_scored_alone_and_the_cohorts_are_named(hospital, studied):
    data = hospital.parent / "north.csv"
    found = json.loads(invoke("evaluate", "--format", "json", studied.digest, "--held-out", "-c", hospital).stdout)
    patients = found["patients"]
    assert patients == {"unit": "patient", "training": 60 - patients["held_out"], "held_out": ANY, "own": True}
    assert sum(quality["records"] for quality in found["shared"]) == patients["held_out"] < 30

    def said(*arguments):
        return " ".join(invoke("evaluate", studied.digest, *arguments, "-c", hospital).output.split())

    assert f"the {patients['held_out']} patients of north.csv that are held out" in said("--held-out")
    assert f"{patients['training']} of them are the training cohort" in said()
    other = hospital.parent / "other.csv"
    other.write_text(data.read_text().replace(",a,", ",z,", 2))
    assert "if they are patients of this hospital" in said(other)
    assert "Skipped: 2 records that do not fit the study" in said(other)


def test_files_are_read_as_this_hospital_writes_them_or_as_the_study_says(hospital, studied):
    def figures(*arguments):
        found = json.loads(invoke("evaluate", "--format=json", studied.digest, *arguments, "-c", hospital).stdout)
        return found["shared"], found["skipped"]

    data, out = hospital.parent / "north.csv", hospital.parent / "out.csv"
    before = figures()
    document = policy_document("north-ward") | {"version": 4}
    data_set = {**document["data_set"], "file": {"delimiter": ";", "columns": []}}
    limits = {**document["limits"], "memory_mib": 64}
    spelling = {"codes": {"group": {"A": "a"}, "ill": {"yes": 1}}}
    write_yaml(
        hospital.parent / "policy.yaml", document | {"data_set": data_set, "limits": limits, "spelling": spelling}
    )
    plain = hospital.parent / "plain.csv"
    plain.write_text(data.read_text())
    lines = data.read_text().replace(",a,", ",A,").replace(",", ";").splitlines()
    data.write_text("\n".join(line[:-2] + ";yes" if line.endswith(";1") else line for line in lines) + "\n")
    (hospital.parent / "state" / "ledger.sqlite3").unlink()
    Ledger.create(hospital.parent / "state" / "ledger.sqlite3", replace(NORTH, delimiter=";"))
    assert figures() == figures(plain, "--study-form") == before
    for arguments in ((data,), (plain, "--study-form"), (plain, "--model", model_file(hospital))):
        done = invoke("predict", studied.digest, *arguments, "--out", out, "-c", hospital)
        assert done.exit_code == 0
        assert ",a,own," in out.read_text()
        out.unlink()


def test_a_policy_that_divides_the_patients_otherwise_than_the_ledger_is_refused(hospital, studied, sentence):
    document = policy_document("north-ward")
    write_yaml(hospital.parent / "policy.yaml", {**document, "data_set": {**document["data_set"], "holdout": 0.3}})
    assert "the ledger's holdout" in sentence("evaluate", studied.digest, "--held-out", "-c", hospital)


def table_rows(shown):
    """Cells of the first table that rich drew."""
    lines = [line.replace("┃", "│") for line in shown.split("└")[0].splitlines()]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_what_cannot_be_measured_is_a_dash(hospital, studied):
    model_file(hospital, "personal.safetensors").unlink()
    data = hospital.parent / "a.csv"
    data.write_text("patient,group,age,lactate,ill\n1,a,20,3,1\n")
    rows = table_rows(invoke("evaluate", studied.digest, data, "-c", hospital).output)
    assert [row[:4] for row in rows[1:]] == [["a", "shared", "1", "-"], ["b", "shared", "0", "-"]]
    assert rows[2][4:] == ["-", "-", "-", "-"]


def test_what_cannot_be_evaluated_is_a_sentence(hospital, studied, sentence):
    data = hospital.parent / "north.csv"
    assert "0 studies match ''; give" in sentence("evaluate", "", data, "-c", hospital), "an unset variable of a script"
    assert "0 studies match 'ffff'; give a name, or 12 digits of a digest, that `fedward-silo" in sentence(
        "evaluate", "ffff", data, "-c", hospital
    )
    broken = hospital.parent / "broken.csv"
    broken.write_text(data.read_text().replace(",a,", ",z,").replace(",b,", ",z,"))
    assert "column 'group'" in sentence("evaluate", studied.digest[:12], broken, "-c", hospital)
    model = model_file(hospital)
    model.write_bytes(b"damaged")
    sentence("evaluate", studied.digest[:12], data, "-c", hospital)
    model.unlink()
    assert "no finished round" in sentence("evaluate", studied.digest[:12], data, "-c", hospital)


@pytest.mark.parametrize("command", ["evaluate", "fairness", "predict", "export", "report"])
def test_a_study_that_was_stopped_after_its_counts_has_no_model(hospital, sentence, command):
    """Its heads are zeros: figures of them would look like those of a model."""
    study, earlier = tiny_study(name="stopped"), tiny_study(name="goes-on", continues="a" * 64)
    state = State(hospital.parent / "state")
    for one in (study, earlier):
        state.add_study(one.digest, one.canonical())
        state.commit(one.digest, 0)
        random_model(one).save(state.study_folder(one.digest) / "model-0.safetensors")
    state.close()
    invoke("ledger", "create", "-c", hospital)
    data, out = hospital.parent / "north.csv", hospital.parent / "out"
    given = {"evaluate": [data], "predict": [data, "--model", "shared"], "export": ["--out", out]}.get(command, [])
    said = sentence(command, "stopped", *given, "-c", hospital)
    assert (
        "stopped has no model yet: the last round that it finished is 0, which sums numbers of patients alone" in said
    )
    assert not out.exists()
    if command == "evaluate":
        assert "goes-on, round 0" in invoke(command, "goes-on", *given, "-c", hospital).output, "it begins with one"


def test_predictions_go_into_a_folder_that_is_made_for_them(hospital, studied, sentence):
    data, out = hospital.parent / "north.csv", hospital.parent / "new" / "folder" / "out.csv"
    done = invoke("predict", studied.digest, data, "--out", out, "-c", hospital)
    assert done.exit_code == 0, done.output
    assert [path.stat().st_mode & 0o777 for path in (out, out.parent, out.parent.parent)] == [0o600, 0o700, 0o700]
    for path in (data / "out.csv", data / "deeper" / "out.csv"):
        said = sentence("predict", studied.digest, data, "--out", path, "-c", hospital)
        assert f"{data} is a file; give a path through folders" in said


def test_an_agent_that_never_ran_knows_no_study_and_gets_no_state_by_the_question(hospital, monkeypatch):
    assert invoke("studies", "-c", hospital).output == "This silo has begun no study yet.\n"
    assert not (hospital.parent / "state" / "state.sqlite3").exists()
    monkeypatch.setattr("crypto.pki.joining.renewal.WARN_FROM", 0.0)
    assert "warning: this silo's certificate expires on" in invoke("studies", "-c", hospital).stderr


def test_a_study_that_was_offered_is_listed_until_it_begins(hospital, studied):
    folder, now = StateFolder(hospital.parent / "state"), datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
    other = tiny_study(name="other")
    approve(folder, studied, made(studied, "tiny", now))
    for study in (studied, other):
        keep(folder, study, now)
    shown = " ".join(invoke("studies", "-c", hospital).output.split())
    assert f"other {other.digest[:12]} nobody none yet not decided yet, offered last" in re.sub(
        r"[^\w ,.:-]+ ", "", shown
    )
    assert "fedward-silo study show DIGEST" in shown
    listed = json.loads(invoke("studies", "--format", "json", "-c", hospital).stdout)
    assert [(one["name"], one.get("asked")) for one in listed] == [
        ("tiny", None),
        ("other", "2026-11-06T15:04:00+00:00"),
    ]
    assert listed[1]["committed"] == -1
    approve(folder, other, made(other, "shared", now))
    assert "may use shared" in " ".join(invoke("studies", "-c", hospital).output.split())


def test_studies_are_listed_and_found_by_name_digest_or_its_beginning(hospital, studied, sentence):
    listed = json.loads(invoke("studies", "--format", "json", "-c", hospital).stdout)
    assert listed == [
        {
            "name": "tiny",
            "digest": studied.digest,
            "committed": 2,
            "why": "",
            "warnings": [],
            "author": "",
            "reasons": [],
        }
    ]
    assert "tiny" in invoke("studies", "-c", hospital).output
    warning = Warned("reversed", None, 40, 0.25, None)
    warn(StateFolder(hospital.parent / "state").study(studied.digest).warnings, 2, (warning,))
    assert f"warning: tiny: {warning.text}" in invoke("studies", "-c", hospital).output
    assert json.loads(invoke("studies", "--format=json", "-c", hospital).stdout)[0]["warnings"] == [warning.text]
    data = hospital.parent / "north.csv"
    found = [invoke("evaluate", "--format=json", given, data, "-c", hospital) for given in ("tiny", studied.digest)]
    assert found[0].stdout == found[1].stdout
    assert json.loads(found[0].stdout)["study"] == studied.digest
    other = tiny_study(purpose="The same name again.")
    state = State(hospital.parent / "state")
    state.add_study(other.digest, other.canonical())
    state.close()
    told = sentence("evaluate", "tiny", data, "-c", hospital)
    assert f"2 studies match 'tiny' (tiny {studied.digest[:12]}, tiny {other.digest[:12]}); give more" in told
    impostor = tiny_study(name=studied.digest[:12])
    state = State(hospital.parent / "state")
    state.add_study(impostor.digest, impostor.canonical())
    state.close()
    assert "2 studies match" in sentence("evaluate", studied.digest[:12], data, "-c", hospital)
    assert json.loads(
        invoke("evaluate", "--format", "json", studied.digest, data, "-c", hospital).stdout
    ) == json.loads(found[0].stdout)


# --- predict ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def newcomers(hospital):
    """A file without labels; one record of a domain that the study does not know."""
    path = hospital.parent / "new.csv"
    path.write_text("patient,group,age,lactate\nann,a,20,3\nbob,b,80,7\ncid,c,50,1\n")
    return path


def test_predictions_are_csv_and_told_in_a_line_with_the_model_that_made_them(hospital, studied, newcomers, told):
    done = invoke("predict", studied.digest[:12], newcomers, "--unknown-domain", "ensemble", "-c", hospital)
    assert done.exit_code == 0
    assert told == ["predicting"]
    by_name = invoke("predict", studied.name, newcomers, "--unknown-domain", "ensemble", "-c", hospital)
    assert by_name.stdout == done.stdout
    rows = [line.split(",") for line in done.stdout.splitlines()]
    assert rows[0] == ["record", "patient", "domain", "how", "probability_0", "probability_1", "predicted"]
    assert [row[:4] for row in rows[1:]] == [
        ["1", "ann", "a", "own"],
        ["2", "bob", "b", "own"],
        ["3", "cid", "", "ensemble"],
    ]
    inputs = np.array([[-2 / 3, -0.4], [1 / 3, 0.4]], np.float32)
    wanted = random_model(studied).predict(inputs, np.array([0, 1]))
    np.testing.assert_allclose([[float(cell) for cell in row[4:6]] for row in rows[1:3]], wanted, atol=1e-6)
    assert done.stderr == (
        "3 records of tiny, round 2: 1 ensemble, 2 own;"
        " unknown domains: mean of the 2 domains' predictions, weighted equally\n"
        "Predicted by: shared; the study asks for no personal models.\n"
    )


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_predictions_go_to_a_file_that_only_the_owner_reads(hospital, studied, newcomers, name):
    out = hospital.parent / name
    done = invoke("predict", studied.digest, newcomers, "--domain", "b", "--out", out, "-c", hospital)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0] == f"{out}: 3 records of tiny, round 2: 3 own"
    assert out.stat().st_mode & 0o777 == 0o600
    rows = read_parquet(out).to_pylist() if name.endswith("parquet") else list(csv.DictReader(out.open()))
    assert [(row["patient"], row["domain"], row["how"]) for row in rows] == [
        ("ann", "b", "own"),
        ("bob", "b", "own"),
        ("cid", "b", "own"),
    ]


def test_predictions_for_programs(hospital, studied, newcomers):
    command = ["predict", "tiny", newcomers, "--unknown-domain", "pooled", "--format", "json", "-c", hospital]
    found = json.loads(invoke(*command).stdout)
    assert (found["study"], found["round"], found["records"]) == (studied.digest, 2, 3)
    assert found["ways"] == {"own": 2, "pooled": 1}
    assert found["unknown_domain"] == "mean of the heads, weighted equally"
    assert [(row["domain"], row["how"]) for row in found["predictions"]] == [
        ("a", "own"),
        ("b", "own"),
        (None, "pooled"),
    ]
    found = json.loads(invoke(*command, "--out", hospital.parent / "out.csv").stdout)
    assert found["file"].endswith("out.csv")
    assert "predictions" not in found


def test_the_personal_model_predicts_where_it_is_asked_for(hospital, studied, newcomers):
    command = ["predict", studied.digest, newcomers, "--domain", "a", "--format", "json", "-c", hospital]
    shared, personal = (json.loads(invoke(*command, *more).stdout)["predictions"] for more in ([], ["--personal"]))
    inputs = np.array([[-2 / 3, -0.4]], np.float32)
    for rows, model in ((shared, random_model(studied)), (personal, random_personal(studied))):
        wanted = model.predict(inputs, np.array([0]))[0, 1]
        assert rows[0]["probability_1"] == pytest.approx(wanted, abs=1e-6)
    assert shared[0]["probability_1"] != personal[0]["probability_1"]


def test_the_chosen_model_predicts_unless_another_one_is_asked_for(hospital, studied, newcomers, sentence):
    shared = random_model(studied)
    heads = shared.heads + 1.0
    choice = model_file(hospital).with_name("choice.safetensors")
    Choice(studied, 2, shared.digest, "own heads", 99, 5, (CandidateGain("own heads", 0.02, 0.01),), heads).save(choice)
    command = ["predict", studied.digest, newcomers, "--domain", "a", "-c", hospital]
    inputs = np.array([[-2 / 3, -0.4]], np.float32)
    for options, name, model in (
        ([], "own heads", shared.with_heads(heads, 2)),
        (["--model", "chosen"], "own heads", shared.with_heads(heads, 2)),
        (["--model", "shared"], "shared", shared),
        (["--model", "personal"], "personal", random_personal(studied)),
    ):
        done = invoke(*command, *options, "--format", "json")
        found = json.loads(done.stdout)
        assert found["model"] == name
        wanted = model.predict(inputs, np.array([0]))[0, 1]
        assert found["predictions"][0]["probability_1"] == pytest.approx(wanted, abs=1e-6)
        assert f"Predicted by: {name}; {found['why']}." in done.stderr
    said = " ".join(invoke("evaluate", studied.digest, "-c", hospital).output.split())
    assert "Chosen to predict: own heads; in 5-fold cross-validation over 99 training patients" in said
    assert "held-out patients, chosen less shared: AUC" in said
    assert "exclude each other" in sentence(*command, "--personal", "--model", "shared")
    choice.write_bytes(b"damaged")
    assert "choice.safetensors, this hospital's choice" in sentence(*command)
    assert invoke(*command, "--model", "shared").exit_code == 0


def test_the_calibration_stands_in_a_table_of_its_own(hospital, studied):
    said = " ".join(invoke("evaluate", studied.digest, "-c", hospital).output.split())
    assert "Can the risks be trusted? 0 and 1 are right" in said
    assert re.search(r"a │ shared │ [+-]\d+\.\d\d \([+-]\d", said) or "too few patients (" in said
    lines = json.loads(invoke("evaluate", studied.digest, "--format", "json", "-c", hospital).stdout)["lines"]
    assert set(lines) == {"shared", "personal"}
    assert set(lines["shared"][0]) == {"intercept", "slope", "patients"}


def test_a_curve_and_what_acting_on_it_is_worth_are_shown(hospital, studied):
    done = invoke("evaluate", studied.digest, "--format", "json", "-c", hospital)
    document = json.loads(done.stdout)
    of_all = document["curves"]["shared"][-1]
    assert set(of_all[0]) == {"predicted", "observed", "low", "high", "patients"}
    assert len(document["curves"]["shared"]) == len(document["domains"]) + 1
    middle = document["decisions"]["shared"][3]
    assert middle["threshold"] == studied.threshold
    said = invoke("evaluate", studied.digest, "-c", hospital).output
    assert "Of patients with like risks by shared, how many had the outcome" in " ".join(said.split())
    told = f"net benefit {middle['model']:.4f}, of everybody {middle['everybody']:.4f}, gain {middle['gain']:+.4f}"
    assert f"Acting from a risk of {studied.threshold:.3g} on, shared " in said
    assert told in said


def test_groups_that_are_predicted_at_another_risk_are_named_with_their_figures(hospital, studied, monkeypatch):
    out = SubgroupRisk("smokes", "1", 143, 31, (0.74, 0.61, 0.9), stands_out=True)
    fine = replace(out, column="ward", group="a", ratio=(1.0, 0.8, 1.2), stands_out=False)
    few = replace(out, group="0", events=3, ratio=None, stands_out=False)
    monkeypatch.setattr("silo_agent.models.evaluate.subgroup_risks", lambda *_: (out, fine, few))
    said = invoke("evaluate", studied.digest, "-c", hospital).output
    assert (
        "Of 2 groups by listed columns (1 more have too few patients with the outcome), shared predicts 1 at another"
        " risk than they have:\n  smokes 1: 0.74 of what happened (0.61 to 0.90; 143 patients, 31 with the outcome)\n"
    ) in said
    monkeypatch.setattr("silo_agent.models.evaluate.subgroup_risks", lambda *_: (fine,))
    said = invoke("evaluate", studied.digest, "-c", hospital).output
    assert "Of 1 groups by listed columns, personal predicts none at another risk than they have.\n" in said


def test_a_shared_model_that_is_worse_than_ones_own_records_is_told_for_whom(hospital, studied, monkeypatch):
    command = ["evaluate", studied.digest, "-c", hospital]
    assert "no model of this hospital's records alone beside it" in " ".join(invoke(*command).output.split())
    random_alone(studied).save(model_file(hospital).with_name("alone.safetensors"))
    found = json.loads(invoke(*command, "--format", "json").stdout)["beside"]
    assert (found["kind"], found["figure"]) == ("regression", "AUC")
    assert [one["domain"] for one in found["groups"]] == [None, "a", "b"]
    clear = PairedDifference(-0.1, -0.15, -0.05)
    group = GroupBeside("b", 31, 0.79, 0.817, clear, "worse")
    beside = BesideOwn("boosting", "AUC", (replace(group, domain=None, verdict="better"), group))
    monkeypatch.setattr("silo_agent.models.evaluate.beside_own", lambda *_: beside)
    said = " ".join(invoke(*command).output.split())
    assert "beside a model of this hospital's records alone (boosting)" in said
    assert "For the domain b the shared model is worse than one of this hospital's records alone: AUC 0.790" in said
    assert "all patients together" not in said
    assert "There is no model" not in said


def test_a_model_file_can_be_given_and_needs_no_agent(hospital, studied, newcomers, tmp_path):
    model = tmp_path / "given.safetensors"
    model.write_bytes(model_file(hospital).read_bytes())
    done = invoke("predict", studied.digest, newcomers, "--domain", "a", "--model", model, "-c", tmp_path / "no.yaml")
    assert done.exit_code == 0
    assert done.stdout == invoke("predict", studied.digest, newcomers, "--domain", "a", "-c", hospital).stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "row 4, column 'group': found 'c', expected one of 'a', 'b'"),
        (["--domain", "c"], "--domain 'c' is unknown: the study knows a, b"),
        (["--domain", "a", "--unknown-domain", "pooled"], "exclude each other"),
        (["--domain", "a", "--out", "out.txt"], "must be one of .csv, .parquet"),
        (["--domain", "a", "--model", "absent.safetensors"], "absent.safetensors cannot be read"),
    ],
)
def test_what_cannot_be_predicted_is_a_sentence(studied, newcomers, sentence, options, why):
    assert why in sentence("predict", studied.digest, newcomers, *options, "-c", newcomers.parent / "agent.yaml")


def test_a_model_of_another_study_is_a_sentence(hospital, studied, newcomers, sentence, tmp_path):
    random_model(tiny_study(name="other")).save(tmp_path / "other.safetensors")
    said = sentence("predict", studied.digest, newcomers, "--model", tmp_path / "other.safetensors", "-c", hospital)
    assert f"not of {studied.digest}" in said


@pytest.mark.parametrize("command", ["predict", "export"])
def test_a_study_without_the_model_is_a_sentence(hospital, studied, newcomers, sentence, command):
    model_file(hospital).unlink()
    model_file(hospital, "personal.safetensors").unlink()
    more = [newcomers] if command == "predict" else ["--out", hospital.parent / "out"]
    for options, what in (([], "finished round"), (["--personal"], "personal model")):
        said = sentence(command, studied.digest, *more, *options, "-c", hospital)
        assert f"there is no {what} of this study in" in said


# --- export -----------------------------------------------------------------------------------------------------------
def test_a_shared_model_is_exported_with_its_card(hospital, studied, told):
    out = hospital.parent / "exported"
    done = invoke("export", studied.digest[:12], "--out", out, "-c", hospital)
    assert told == ["writing the model, and running what was written"]
    names = ["SHA256SUMS", "model-card.json", "model-card.md", "model.onnx", "model.safetensors"]
    assert done.stdout.splitlines() == [str(out / name) for name in names]
    card = json.loads((out / "model-card.json").read_bytes())
    assert (card["study"]["digest"], card["kind"], card["model"]["round"]) == (studied.digest, "shared", 2)
    assert card["privacy"]["epsilon_charged_here"] == card["privacy"]["epsilon_of_the_plan"] > 0


def test_an_export_for_programs_of_one_format(hospital, studied):
    out = hospital.parent / "exported"
    done = invoke("export", studied.digest, "--out", out, "--files", "safetensors", "--format=json", "-c", hospital)
    assert json.loads(done.stdout) == {
        "folder": str(out),
        "files": ["SHA256SUMS", "model-card.json", "model-card.md", "model.safetensors"],
    }


def test_without_a_ledger_the_card_says_that_the_charge_is_not_known(hospital, studied):
    (hospital.parent / "state" / "ledger.sqlite3").unlink()
    invoke("export", studied.digest, "--out", hospital.parent / "out", "--files", "safetensors", "-c", hospital)
    assert "| not known |" in (hospital.parent / "out" / "model-card.md").read_text()


def test_a_personal_model_is_exported_only_with_a_second_word(hospital, studied, sentence):
    out = hospital.parent / "exported"
    command = ["export", studied.digest, "--out", out, "--personal", "-c", hospital]
    assert "must not leave the hospital. To export it for use in here, add --inside-hospital" in sentence(*command)
    assert not out.exists()
    done = invoke(*command, "--inside-hospital")
    assert len(done.stdout.splitlines()) == 5
    assert all("personal-private" in line for line in done.stdout.splitlines())


# --- what the policy's retention removed ------------------------------------------------------------------------------
@pytest.fixture
def removed(hospital, studied):
    """The study is over, and the removal of what is private of it has begun; its files still lie there."""
    state, day = State(hospital.parent / "state"), date(2026, 3, 1)
    state.finish(studied.digest, "finished: all rounds are done", day)
    state.begin_removal(Ending(studied.digest, day, noticed=day, removed=date(2027, 3, 2)))
    state.close()
    return studied


def test_a_personal_model_that_the_retention_removed_is_missed_by_name(hospital, removed, newcomers, sentence):
    """Also where a crash left the file: what is half removed is not used."""
    out, personal = hospital.parent / "out", model_file(hospital, "personal.safetensors")
    for lies_there in (True, False):
        assert personal.exists() == lies_there
        for command in (
            ["predict", removed.digest, newcomers, "--domain", "a"],
            ["export", removed.digest, "--out", out],
        ):
            said = sentence(*command, "--personal", "-c", hospital)
            assert "on 2027-03-02 the private files of study" in said
            assert removed.digest[:12] in said
        personal.unlink(missing_ok=True)
    assert not out.exists()


def test_the_shared_model_is_still_there_for_everything(hospital, removed, newcomers):
    assert invoke("predict", removed.digest, newcomers, "--domain", "a", "-c", hospital).exit_code == 0
    assert invoke("export", removed.digest, "--out", hospital.parent / "out", "-c", hospital).exit_code == 0
    done = invoke("evaluate", removed.digest, hospital.parent / "north.csv", "-c", hospital)
    assert [row[1] for row in table_rows(done.stdout)[1:] if row[1]] == ["shared", "shared"]
    assert "the private files of study" in done.stderr


def test_an_export_overwrites_nothing(hospital, studied, sentence):
    said = sentence("export", studied.digest, "--out", hospital.parent, "-c", hospital)
    assert "is never overwritten; give a new folder" in said
