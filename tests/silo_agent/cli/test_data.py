import json
import os
import pty
import subprocess
import sys

import pytest
import yaml
from structlog.testing import capture_logs
from typer.testing import CliRunner

from crypto.entropy import SystemEntropy
from policies.documents.document import DocumentError
from policies.ledger.ledger import Ledger, read_history
from silo_agent.cli import main
from silo_agent.config import AgentConfig
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.review.cohorts import cohorts_of
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import rows_of
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

HEADER = "patient,group,age,lactate,ill"
FIT = [f"p{i},a,{i},5,1" for i in range(12)]
FOUL = ["q1,ward-9,50,5,1", "q2,a,121,[red]5,1", "q3,a,50", '"q4,a,50,5,1']
ONE_LINE = "expected quotes that close in their own line; keep cells of several lines in a Parquet file or a database"


@pytest.fixture
def study(quick_path):
    return write_yaml(quick_path / "study.yaml", tiny_document())


@pytest.fixture
def hospital(quick_path, homes):
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    (quick_path / "state").mkdir()
    ledger = quick_path / "state" / "ledger.sqlite3"
    Ledger.create(ledger, NORTH)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    write(quick_path, *FIT)
    return write_yaml(quick_path / "agent.yaml", {**document, "data": {"tiny": "north.csv"}})


def test_a_study_that_expects_another_file_than_the_policy_says_is_named(study, hospital):
    write_yaml(study, tiny_document(data={"delimiter": ";"}))
    done = CliRunner().invoke(main.app, ["data", "check", str(study), "-c", str(hospital)])
    assert isinstance(done.exception, StateError)
    assert "the agent would refuse tiny: file: study.data.delimiter is ';'" in str(done.exception)


def write(folder, *rows, header=HEADER):
    (folder / "north.csv").write_text("\n".join([header, *rows]) + "\n")


def invoke(*arguments):
    return CliRunner().invoke(main.app, ["data", "check", *map(str, arguments)])


def test_a_file_that_fits_is_said_to_fit(hospital, study):
    done = invoke(study, "-c", hospital)
    assert done.exit_code == 0
    assert done.output == f"{hospital.parent / 'north.csv'}: of tiny, 12 records fit and 0 would be left out\n"


def test_what_would_be_left_out_is_listed_with_its_place_and_counted(hospital, study):
    write(hospital.parent, *FIT, *FOUL)
    with capture_logs() as logs:
        done = invoke(study, "-c", hospital)
    assert done.exit_code == 3
    assert done.output.splitlines() == [
        "north.csv, row 14, column 'group': found 'ward-9', expected one of 'a', 'b'",
        "north.csv, row 15, column 'age': found '121', expected a number in [0, 120]",
        "north.csv, row 15, column 'lactate': found '[red]5', expected a number in [0, 10], written like 1.5",
        "north.csv, row 16: found 3 cells, expected 5 cells",
        f"north.csv, row 17: found a quote that is open at the line's end, {ONE_LINE}",
        f"{hospital.parent / 'north.csv'}: of tiny, 12 records fit and 4 would be left out",
    ]
    assert logs == []


def test_as_many_faults_as_asked_for_are_listed_and_all_are_counted(hospital, study):
    write(hospital.parent, *[f"p{i},z,121,5,1" for i in range(30)], *FIT)
    lines = invoke(study, "-c", hospital).output.splitlines()
    assert lines[:3] == [
        "column 'group': 30 cells, expected one of 'a', 'b'",
        "column 'age': 30 cells, expected a number in [0, 120]",
        "for example:",
    ]
    assert len(lines) == 3 + 22
    assert lines[23] == "and 40 more; --limit shows more of them"
    assert len(invoke(study, "-c", hospital, "--limit", 60).output.splitlines()) == 3 + 61
    assert len(invoke(study, "-c", hospital, "--limit", 1).output.splitlines()) == 3 + 3
    assert invoke(study, "-c", hospital, "--limit", 0).exit_code == 2


def test_programs_get_the_same_as_a_document(hospital, study):
    write(hospital.parent, *FIT, *FOUL)
    done = invoke(study, "-c", hospital, "--format", "json")
    assert done.exit_code == 3
    document = json.loads(done.output)
    assert document["study"] == tiny_study().digest
    assert (document["kept"], document["left_out"], document["total"]) == (12, 4, 5)
    assert sum(reason["count"] for reason in document["reasons"]) == 5
    assert document["faults"][0] == {
        "file": "north.csv",
        "row": 14,
        "column": "group",
        "found": "'ward-9'",
        "expected": "one of 'a', 'b'",
    }


def test_a_file_that_the_agent_would_refuse_is_a_sentence(hospital, study):
    write(hospital.parent, *FIT, header=HEADER.replace("age", "years"))
    done = invoke(study, "-c", hospital)
    with pytest.raises(StateError, match=r"the agent would refuse tiny: north\.csv, column 'age': found 0 columns"):
        raise done.exception


def test_a_file_parted_by_semicolons_is_told_so_in_one_sentence(hospital, study):
    write(hospital.parent, *[row.replace(",", ";") for row in FIT], header=HEADER.replace(",", ";"))
    told = str(invoke(study, "-c", hospital).exception)
    assert told == (
        "the agent would refuse tiny: north.csv: found a header line whose columns are parted by semicolons, expected"
        " ',': set data_set.file.delimiter to ';' in the policy, or save it anew"
    )


def test_a_study_without_a_file_is_a_sentence(hospital, study):
    write_yaml(study, tiny_document(name="other"))
    config = yaml.safe_load(hospital.read_text())
    write_yaml(hospital, {**config, "data": {**config["data"], "more": "more.csv"}})
    with pytest.raises(StateError, match=r"nothing says which data .* 'other' is for .*say so with --data NAME"):
        raise invoke(study, "-c", hospital).exception
    assert "records fit" in invoke(study, "-c", hospital, "--data", "tiny").output
    with pytest.raises(DocumentError):
        raise invoke(hospital.parent / "policy.yaml", "-c", hospital).exception


def test_nothing_is_charged_and_nothing_is_written(hospital, study):
    write(hospital.parent, *FIT, *FOUL)
    before = {path: path.read_bytes() for path in hospital.parent.rglob("*") if path.is_file()}
    invoke(study, "-c", hospital)
    assert {path: path.read_bytes() for path in hospital.parent.rglob("*") if path.is_file()} == before
    assert read_history(hospital.parent / "state" / "ledger.sqlite3")[1] == ()


def test_the_policy_that_the_agent_reads_by_is_the_one_in_force(study, hospital):
    """An agent refuses a file that is not in force; so does the check, instead of reading by what nobody applies."""
    ledger = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(ledger, NORTH, budget_epsilon=4.0) as opened:
        opened.put_into_force("f" * 64, 4.0)
    done = invoke(study, "-c", hospital)
    assert "policy.yaml is not the policy in force (ffffffffffff)" in str(done.exception)


# --- withdrawals ------------------------------------------------------------------------------------------------------
def withdraw(hospital, *cells):
    return CliRunner().invoke(main.app, ["data", "withdraw", *cells, "-c", str(hospital)])


def keeping(hospital, quick_path):
    """The hospital's configuration, and whose rows a study reads that keeps the hospital's file."""
    settings = AgentConfig.load(hospital)
    files, study = StateFolder(settings.state), tiny_study()
    rows = rows_of(files.study(study.digest), settings.credential(), SystemEntropy())
    folder = files.study(study.digest).path
    learner = Learner(
        study,
        DataSet(quick_path / "north.csv", Division("north-ward", 0.25, ("patient",))),
        folder,
        draws=FreshDraws(SystemEntropy()),
        device="cpu",
        kept=rows,
    )

    def people():
        return {name for cohort in ("training", "evaluation") for name in learner.cohort(cohort).identities}

    return settings, people


def test_a_person_who_withdraws_is_out_of_what_studies_keep_and_of_what_they_read(hospital, homes, quick_path, told):
    settings, people = keeping(hospital, quick_path)
    everybody = {f"p{place}" for place in range(12)}
    assert people() == everybody
    write(quick_path, *FIT, "p99,a,5,5,1")
    assert people() == everybody, "the study goes on with the rows that it began with"
    done = withdraw(hospital, "p3")
    assert done.output == "withdrawn; 1 rows are removed from what studies keep, and no later reading has any\n"
    assert told == ["taking the person out of what studies keep"]
    assert people() == everybody - {"p3"}, "although nobody started the agent anew"
    done = withdraw(hospital, "p3")
    assert done.output == "this person had withdrawn before, and no row that studies keep was left to remove\n"
    done = withdraw(hospital, "p77")
    assert done.output.startswith("no row that studies keep was this person's. What you gave is on the list")
    assert "Check the cells: patient" in done.output
    assert "p77" in cohorts_of(settings).withdrawn
    assert "p3" in cohorts_of(settings).withdrawn, "for evaluate, adapt and fairness"
    checked = invoke(write_yaml(quick_path / "again.yaml", tiny_document()), "-c", hospital)
    assert "12 records fit and 0 would" in checked.output, "without p3, and with p99"


def test_a_person_whom_no_study_keeps_is_withdrawn_only_after_a_question(hospital, homes, quick_path, monkeypatch):
    """A mistyped cell would look the same, and nothing is undone."""
    monkeypatch.setattr("silo_agent.cli.data.on_terminal", lambda: True)
    settings, people = keeping(hospital, quick_path)
    assert "p3" in people()
    for answer, ended in (("n", 1), ("", 1), ("y", 0)):
        done = CliRunner().invoke(main.app, ["data", "withdraw", "p99", "-c", str(hospital)], input=f"{answer}\n")
        assert done.exit_code == ended
        assert "no row that studies keep has this person" in done.output
        assert ("p99" in cohorts_of(settings).withdrawn) == (ended == 0)
    done = withdraw(hospital, "p3")
    assert done.output.startswith("withdrawn; 1 rows are removed"), "nobody is asked about a person who is there"


def test_a_withdrawal_needs_the_cells_that_the_policy_names(hospital):
    for cells, why in ((["p3", "60"], "give a cell for each, 1 in all"), ([" "], "a person has an identifier")):
        done = withdraw(hospital, *cells)
        assert isinstance(done.exception, StateError)
        assert why in str(done.exception)
    assert not StateFolder(AgentConfig.load(hospital).state).withdrawn.exists()


def test_whoever_waits_sees_how_many_rows_were_read_and_no_program_does(hospital, study):
    """On a terminal alone, of which the line is gone in the end."""
    command = [sys.executable, "-m", "silo_agent.cli", "data", "check", str(study), "-c", str(hospital)]
    leader, follower = pty.openpty()
    terminal = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=follower, env=terminal, check=True)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    assert "rows read" in shown
    assert b"rows read" not in done.stdout
    piped = subprocess.run(command, capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (done.stdout, b"")
