from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from policies.documents.study import load_study
from policies.ledger.events import Fault
from policies.ledger.ledger import Ledger
from policies.plan import disk
from silo_agent.cli.preflight import private_checks
from silo_agent.cli.preflight.findings import Status
from silo_agent.cli.preflight.public_checks import CheckedSilo, Skipped, guarded
from silo_agent.config import AgentConfig
from silo_agent.data.errors import RecordError
from silo_agent.errors import SiloError
from silo_agent.storage.approvals import approve, made
from silo_agent.storage.folders import StateFolder
from support.ledgers import NORTH


@pytest.fixture
def subject(study_file, configure):
    return CheckedSilo(load_study(study_file), AgentConfig.load(configure()), None)


@pytest.mark.parametrize(("free", "status"), [(1 << 20, Status.FAILS), (1 << 40, Status.OK)])
def test_the_disk_must_have_room(subject, monkeypatch, free, status):
    monkeypatch.setattr(private_checks.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert private_checks.free_disk(subject).status is status


def test_a_state_folder_that_is_not_there_yet_is_looked_for_above(subject, tmp_path):
    settings = subject.settings.model_copy(update={"state": tmp_path / "a" / "b"})
    assert private_checks.free_disk(CheckedSilo(subject.study, settings, None)).status is Status.OK


@pytest.mark.parametrize(("free", "status"), [(1, Status.LOOK), (1 << 30, Status.OK)])
def test_memory_that_is_taken_now_is_to_be_looked_at(subject, monkeypatch, tmp_path, free, status):
    info = tmp_path / "meminfo"
    info.write_text(f"MemTotal: 99 kB\nMemAvailable:   {free} kB\n")
    monkeypatch.setattr(private_checks, "_FREE", info)
    assert private_checks.free_memory(subject).status is status


@pytest.mark.parametrize(("spare", "status"), [(-1, Status.FAILS), (0, Status.OK)])
def test_what_is_needed_on_the_disk_is_enough(subject, monkeypatch, spare, status):
    needs = disk.needed(subject.study)
    monkeypatch.setattr(private_checks.shutil, "disk_usage", lambda _: SimpleNamespace(free=needs + spare))
    found = private_checks.free_disk(subject)
    assert (found.check, found.status) == ("disk free", status)
    assert found.text.startswith(
        f"{(needs + spare) // 2**20} MiB are free for the state folder, up to {-(-needs // 2**20)} MiB are needed"
    )


@pytest.mark.parametrize(("spare", "status"), [((0, 0), Status.OK), ((-1, 0), Status.LOOK), ((0, -1), Status.LOOK)])
def test_what_is_needed_in_memory_is_enough_of_what_is_available_and_of_the_machine(
    subject, monkeypatch, tmp_path, spare, status
):
    needs = 1024 * 3000
    monkeypatch.setattr(private_checks.memory, "needed", lambda _: SimpleNamespace(total=needs))
    monkeypatch.setattr(private_checks, "machine_bytes", lambda: needs + spare[1])
    monkeypatch.setattr(private_checks, "_FREE", tmp_path / "meminfo")
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemFree: 2 kB\nMemAvailable: {3000 + spare[0]} kB\n")
    found = private_checks.free_memory(subject)
    assert (found.check, found.status) == ("memory free", status)
    assert found.text == "2 MiB are available now, up to 3 MiB may be needed"


FAULTS = [Fault("5" * 64, number, 1, "heads") for number in (1, 2)]


@pytest.mark.parametrize(
    ("events", "status", "entry"),
    [
        ((), Status.OK, None),
        ((FAULTS[0],), Status.FAILS, 1),
        ((FAULTS[0], "cleared"), Status.OK, None),
        ((FAULTS[0], "cleared", FAULTS[1]), Status.FAILS, 3),
        ((FAULTS[0], FAULTS[1], "cleared"), Status.OK, None),
        ((FAULTS[0], "cleared", FAULTS[1], "cleared"), Status.OK, None),
        ((FAULTS[0], "withdrawn"), Status.FAILS, 1),
    ],
)
def test_a_fault_fails_until_it_is_cleared_and_a_cleared_one_hides_no_new_one(subject, events, status, entry):
    with Ledger.open(subject.settings.state / "ledger.sqlite3", NORTH, budget_epsilon=10.0) as ledger:
        for event in events:
            if event == "cleared":
                ledger.clear_fault("A. Weber")
            elif event == "withdrawn":
                ledger.note("withdrawal", "one")
            else:
                ledger.note_fault(event)
    found = private_checks.fault(subject)
    assert found.status is status
    assert found.text.startswith(f"entry {entry} " if entry else "none")


def test_records_that_do_not_fit_are_to_be_looked_at_and_none_that_fits_fails(subject):
    file = subject.settings.data["tiny"]
    file.write_text(file.read_text() + "q,ward-9,5,5,1\n")
    found = private_checks.data(subject)
    assert found.status is Status.LOOK
    assert "41 rows: 40 records of 40 patients fit, 1 would be left out" in found.text
    file.write_text("patient,group,age,lactate,ill\nq,ward-9,5,5,1\n")
    assert private_checks.data(subject).status is Status.FAILS


def test_a_column_that_gives_the_label_away_is_named(subject):
    rows = [f"p{i},{'ab'[i % 2]},{20 + 40 * (i // 2 % 2)},{i % 10},{i // 2 % 2}" for i in range(80)]
    subject.settings.data["tiny"].write_text("\n".join(["patient,group,age,lactate,ill", *rows]) + "\n")
    found = private_checks.data(subject)
    assert found.status is Status.LOOK
    assert "age alone give the label away" in found.text


def test_a_file_that_lacks_a_column_fails_by_its_name(subject):
    subject.settings.data["tiny"].write_text("patient,group,age,ill\n")
    found = guarded("data", lambda: private_checks.data(subject))
    assert found.status is Status.FAILS
    assert "lactate" in found.text


def test_what_the_records_give_is_told_by_column_and_by_domain(subject):
    found = private_checks.data(subject)
    fit = "40 rows: 40 records of 40 patients fit, 0 would be left out"
    assert found.text == f"{fit}; nobody has approved the study yet: fedward-silo study approve"
    approve(
        StateFolder(subject.settings.state),
        subject.study,
        made(subject.study, "tiny", datetime(2026, 11, 1, tzinfo=UTC)),
    )
    assert private_checks.data(subject).text == fit
    fits = {"do not fit": 0, "missing": 0}
    tables = {title: {row.pop(title[3:]): row for row in rows} for title, rows in found.tables.items()}
    half = {"records": 20, "patients": 20, "left out": 0}
    assert tables["By domain"]["a"] == tables["By domain"]["b"] == half
    unseen = fits | {"gives the label away": "not looked at", "AUC at least": ""}
    assert tables["By column"]["ill"] == unseen
    assert tables["By column"]["age"] == fits | {"gives the label away": "no", "AUC at least": "0.285"}


def test_more_patients_than_the_study_allows_for_are_to_be_looked_at(subject):
    def found(most):
        privacy = subject.study.privacy.model_copy(update={"max_patients": most})
        study = subject.study.model_copy(update={"privacy": privacy})
        return private_checks.data(CheckedSilo(study, subject.settings, None))

    assert found(39).status is Status.LOOK
    assert "; privacy.max_patients is 39" in found(39).text
    assert "max_patients" not in found(40).text


def test_rows_that_are_none_are_counted(subject):
    file = subject.settings.data["tiny"]
    file.write_text(file.read_text() + "q,a,5\n")
    found = private_checks.data(subject)
    assert "41 rows: 40 records of 40 patients fit, 1 would be left out (1 are no rows)" in found.text
    assert found.status is Status.LOOK


def test_without_a_policy_or_a_file_nothing_is_looked_at(subject):
    subject.settings.data["tiny"].unlink()
    with pytest.raises(SiloError, match=r"the data are not there: .*north\.csv; fix data or databases in agent.yaml"):
        private_checks.data(subject)
    subject.settings.policy.write_text("version: 1\n")
    with pytest.raises(Skipped, match="the policy fails"):
        private_checks.data(CheckedSilo(subject.study, subject.settings, None))


def test_each_check_has_its_name(subject):
    assert [(name, check(subject).check) for name, check in private_checks.CHECKS] == [
        (name, name) for name, _ in private_checks.CHECKS
    ]


def test_a_statement_that_fails_on_a_record_is_told_here_and_nowhere_else(subject, monkeypatch):
    def fail(*_):
        raise RecordError("of patient 17")  # noqa: EM101, TRY003  # the whole text

    monkeypatch.setattr("silo_agent.data.profiling.profile.profile", fail)
    with pytest.raises(SiloError, match="so the agent would send noise alone: of patient 17"):
        private_checks.data(subject)
