"""Whole reports, and that a report to share does not depend on the records."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from policies.ledger.events import Fault
from policies.ledger.ledger import Ledger
from silo_agent.cli import main
from silo_agent.cli.preflight import dry_round, private_checks, public_checks
from silo_agent.data.sources import opening
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml

SHARED = [
    "study",
    "authority",
    "certificate",
    "reachability",
    "TLS",
    "coordinator",
    "clock",
    "policy",
    "ledger",
    "memory",
    "disk needed",
    "device",
    "dry round",
]
INSIDE = ["disk free", "memory free", "fault", "data"]


def invoke(study_file, config, *more):
    arguments = ["preflight", str(study_file), "-c", str(config), "--no-dry-round", *more]
    return CliRunner().invoke(main.app, arguments)


def checks_of(done):
    return {one["check"]: one for one in json.loads(done.output)["checks"]}


def test_everything_is_looked_at_and_counted_for_inside(study_file, configure, told):
    done = invoke(study_file, configure(), "--format", "json")
    assert done.exit_code == 0, done.output
    found = checks_of(done)
    assert set(found) == {*SHARED, *INSIDE}
    checks = [*public_checks.CHECKS, *private_checks.CHECKS]
    asked = ["asking the authority", "calling the coordinator", *(f"checking: {name}" for name, _ in checks)]
    assert told[: len(asked)] == asked, "whoever waits hears what is looked at"
    assert {name for name, one in found.items() if one["status"] == "fails"} == set()
    assert "40 rows: 40 records of 40 patients fit, 0 would be left out" in found["data"]["found"]
    assert [row["domain"] for row in found["data"]["tables"]["By domain"]] == ["a", "b"]
    assert json.loads(done.output)["report"] == "inside"


def test_people_get_one_table_and_those_of_the_data(study_file, configure):
    done = invoke(study_file, configure())
    assert done.output.startswith("Preflight of tiny at north, for inside")
    assert "By column" in done.output
    assert "By domain" in done.output


def damage(kind, folder):
    file = folder / "north.csv"
    if kind == "gone":
        file.unlink()
    elif kind == "empty":
        file.write_text("patient,group,age,lactate,ill\n")
    elif kind == "foul":
        file.write_text("patient,group,age,lactate,ill\n" + "q,ward-9,x,y,z\n" * 5000)
    elif kind == "lacks a column":
        file.write_text("patient\nq\n")
    elif kind == "unreadable":
        file.unlink()
        file.mkdir()


@pytest.mark.parametrize("kind", ["gone", "empty", "foul", "lacks a column", "unreadable"])
def test_a_report_to_share_is_the_same_whatever_the_records_are(study_file, configure, kind):
    config = configure()
    before = invoke(study_file, config, "--share", "--format", "json")
    damage(kind, config.parent)
    after = invoke(study_file, config, "--share", "--format", "json")
    assert list(checks_of(before)) == SHARED
    assert (after.exit_code, before.exit_code) == (0, 0)
    changing = re.compile(r"[0-9.]+ (?:ms|s behind|s ahead of)|to within [0-9.]+ s|behind|ahead of")
    assert changing.sub("", after.output) == changing.sub("", before.output)
    inside = invoke(study_file, config, "--format", "json")
    assert checks_of(inside)["data"]["status"] in ("fails", "look")


def test_no_file_of_records_is_opened_for_a_report_to_share(study_file, configure, monkeypatch):
    config, read = configure(), []
    monkeypatch.setattr(opening, "_open_file", lambda *_: read.append(1))
    assert invoke(study_file, config, "--share").exit_code == 0
    assert not read
    invoke(study_file, config)
    assert read


def test_a_fault_that_records_may_have_caused_shows_inside_alone(study_file, configure):
    config = configure()
    shared = invoke(study_file, config, "--share", "--format", "json")
    with Ledger.open(config.parent / "state" / "ledger.sqlite3", NORTH, budget_epsilon=4.0) as ledger:
        ledger.note_fault(Fault("5" * 64, 0, 1, "counts"))
    done = invoke(study_file, config, "--format", "json")
    assert done.exit_code == 3
    assert checks_of(done)["fault"]["status"] == "fails"
    again = invoke(study_file, config, "--share", "--format", "json")
    assert again.exit_code == 0
    for name in ("policy", "ledger"):
        assert checks_of(again)[name] == checks_of(shared)[name]


def test_whatever_fails_is_said_at_once(study_file, configure, homes):
    config = configure(coordinator="localhost:1", data={"one": "north.csv", "other": "north.csv"})
    write_yaml(config.parent / "policy.yaml", policy_document("north-ward", min_silos=5, retention_days=1, colluders=3))
    done = invoke(study_file, config, "--format", "json")
    assert done.exit_code == 3
    found = checks_of(done)
    assert "localhost:1 cannot be reached" in found["reachability"]["found"]
    assert {found[name]["status"] for name in ("TLS", "coordinator", "clock")} == {"skipped"}
    assert "too_few_silos" in found["policy"]["found"]
    assert "colluders" in found["policy"]["found"]
    assert "nothing says which data the study 'tiny' is for (agent.yaml names: one, other)" in found["data"]["found"]


def test_a_hospital_that_has_next_to_nothing_hears_all_of_it(study_file, configure):
    config = configure(authority="none.pem", certificate="none.pem", policy="no-policy.yaml", data={})
    shutil.rmtree(config.parent / "state")
    study_file.write_text("name: [tiny\n")
    done = invoke(study_file, config, "--format", "json")
    assert done.exit_code == 3
    found = checks_of(done)
    fails = {name: one["found"] for name, one in found.items() if one["status"] == "fails"}
    assert set(fails) == {"study", "certificate", "policy", "ledger"}
    assert "line 2" in fails["study"]
    assert "none.pem cannot be read" in fails["certificate"]
    assert "there is no such file" in fails["policy"]
    assert {found[name]["found"] for name in ("memory", "disk needed", "disk free", "data")} == {"the study fails"}
    assert found["reachability"]["status"] == "ok"
    assert json.loads(done.output)["study"] == str(study_file)


def test_an_agents_file_that_cannot_be_read_does_not_hide_the_study(study_file, configure):
    config = configure()
    config.write_text("coordinator: here\n")
    study_file.write_text("name: [tiny\n")
    done = invoke(study_file, config)
    assert (done.exit_code, type(done.exception).__name__) == (1, "DocumentError")
    assert "study.yaml: line 2" in done.stderr


def test_data_are_not_read_without_a_policy(study_file, configure):
    config = configure(policy="no-policy.yaml")
    found = checks_of(invoke(study_file, config, "--format", "json"))
    assert (found["data"]["status"], found["data"]["found"]) == ("skipped", "the policy fails")
    assert found["policy"]["status"] == "fails"


def test_the_hospitals_state_is_not_touched(study_file, configure):
    config = configure()
    state = config.parent / "state"

    def content():
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in state.rglob("*") if path.is_file()}

    before = content()
    assert invoke(study_file, config).exit_code == 0
    assert content() == before


def test_a_missing_ledger_is_said_with_what_makes_one(study_file, configure):
    config = configure()
    shutil.rmtree(config.parent / "state")
    found = checks_of(invoke(study_file, config, "--share", "--format", "json"))
    assert "ledger create" in found["ledger"]["found"]


@pytest.mark.parametrize("share", [(), ("--share",)])
def test_the_dry_round_is_part_of_both_reports(study_file, configure, monkeypatch, share):
    asked = []

    def run(command, seconds):
        asked.append((command, seconds))
        return 1, "", "fedward: a party failed\n"

    monkeypatch.setattr(dry_round, "_run", run)
    arguments = ["preflight", str(study_file), "-c", str(configure()), "--format", "json", *share]
    done = CliRunner().invoke(main.app, arguments)
    assert done.exit_code == 3
    assert checks_of(done)["dry round"] == {
        "check": "dry round",
        "status": "fails",
        "found": "fedward: a party failed",
    }
    ((command, seconds),) = asked
    assert (command[-2:], seconds) == (["--limit", "600.0"], 720.0), "the limit, and what the parties' start may take"
    assert not any(str(study_file.parent) in word for word in command)
