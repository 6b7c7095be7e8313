import os
import threading
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from policies.plan.release import plan
from protos.messages import Place, Tensor
from protos.steps import Task
from silo_agent.metrics import AgentMetrics
from silo_agent.storage import retention as retention_module
from silo_agent.storage.retention import Retaining, Retention, today, weigh
from silo_agent.storage.state import Ending, State
from support.states import keyed
from support.studies import tiny_study

STUDY, OTHER = "5" * 64, "6" * 64
END = date(2026, 3, 1)
OPENED = {"counts.json", "counts.json.sha256", "classes.json", "results.json", "publication.json", "training.jsonl"}
STAYS = {"model-0.safetensors", "model-0.digest", *OPENED}
GOES = {
    "studies": {
        "personal.safetensors",
        "personal.safetensors.new",
        ".personal.safetensors.x1y2",
        "prior-1.f32",
        "kept-1.f64",
        "keys.sealed",
        "attempt-0123456789abcdef.i64",
        "attempt-0123456789abcdef.safetensors",
        "of-a-later-version.bin",
        "releases/2-heads-1.i64",
        "releases/counts.json",
    },
    "outbox": {f"{'a' * 64}.sealed", "2-1-shares.note", f"{'a' * 64}.sealed.new"},
    "inbox": {"2-1-shares-south.note", "2-1-shares-west.note.part"},
}


class Crash(BaseException):
    """The power fails."""


def after(days):
    return END + timedelta(days)


# --- what a look at the clock decides ---------------------------------------------------------------------------------
@given(days=st.integers(1, 400), gaps=st.lists(st.integers(0, 60), min_size=1, max_size=60))
def test_by_a_right_clock_nothing_goes_before_its_days_are_over_and_all_goes_a_look_after(days, gaps):
    ending, at, noticed = Ending(STUDY, END), 0, None
    for gap in gaps:
        at += gap
        ending = weigh(ending, after(at), days)
        assert (ending.removed is not None) == (noticed is not None and at > noticed)
        if ending.removed:
            return
        noticed = at if noticed is None and at >= days else noticed


@given(days=st.integers(1, 50))
def test_looked_at_daily_it_goes_on_the_day_after_its_last(days):
    ending, at = Ending(STUDY, END), 0
    while ending.removed is None:
        ending = weigh(ending, after(at), days)
        at += 1
    assert ending.removed == after(days + 1)


@settings(max_examples=300)
@given(
    days=st.integers(2, 60),
    looks=st.lists(st.tuples(st.integers(0, 3), st.integers(-20_000, 20_000)), min_size=1, max_size=40),
)
def test_a_clock_that_is_put_right_before_the_next_look_costs_no_day(days, looks):
    """Every second reading is right, the others are anything."""
    ending, at = Ending(STUDY, END), 0
    for gap, wrong_by in looks:
        for error in (0, wrong_by):
            at += gap
            ending = weigh(ending, after(at + error), days)
            assert ending.removed is None or at >= days
            if ending.removed:
                return


@given(wrong_by=st.integers(1, 20_000), days=st.integers(1, 60))
def test_an_end_that_a_wrong_clock_wrote_does_not_keep_it_for_ever(wrong_by, days):
    ending, at = Ending(STUDY, after(wrong_by)), 0
    while ending.removed is None:
        ending = weigh(ending, after(at), days)
        at += 1
        assert at <= days + 4
    assert ending.removed >= after(days)


@given(days=st.integers(1, 60), jump=st.integers(0, 20_000))
def test_the_notice_of_an_end_to_come_is_no_notice_of_an_end_long_ago(days, jump):
    ahead = weigh(Ending(STUDY, after(10)), END, days)
    assert ahead.noticed == END
    assert weigh(ahead, after(11 + days + jump), days).removed is None


def test_an_end_without_a_day_counts_from_the_first_look():
    assert weigh(Ending(STUDY, None), END, 30) == Ending(STUDY, END)


def test_what_is_removed_stays_removed():
    gone = Ending(STUDY, END, after(30), after(31))
    for day in (after(-900), END, after(31), after(900)):
        assert weigh(gone, day, 30) == gone


def test_today_is_a_day():
    assert isinstance(today(), date)


# --- files and rows ---------------------------------------------------------------------------------------------------
def fill(state, study):
    """Every kind of file that a study may leave."""
    folders = dict(zip(("studies", "outbox", "inbox"), state.folders(study), strict=True))
    for box, names in {**GOES, "studies": GOES["studies"] | STAYS}.items():
        for name in names:
            path = folders[box] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    state.add_study(study, b"{}")


def left(state, study):
    """Names below the study's folders, by folder."""
    return {
        folder.parent.name: {str(path.relative_to(folder)) for path in folder.rglob("*")}
        for folder in state.folders(study)
        if folder.exists()
    }


@pytest.fixture
def state(quick_path):
    state = keyed(quick_path / "state")
    (state.folder / "ledger.sqlite3").write_bytes(b"ledger")
    (state.folder / "policies").mkdir()
    (state.folder / "policies" / "0.json").write_bytes(b"policy")
    (state.folder / "witnessed").mkdir()
    (state.folder / "witnessed" / "south.json").write_bytes(b"statement")
    (state.folder / "session.sealed").write_bytes(b"session")
    for study in (STUDY, OTHER):
        fill(state, study)
    state.finish(STUDY, "finished: done", END)
    yield state
    state.close()


def look(state, day, days=30, metrics=None):
    with capture_logs() as logs:
        Retention(state, days, metrics or AgentMetrics(), lambda: after(day)).look()
    return logs


def removal(state):
    look(state, 30)
    return look(state, 31)


def test_what_is_private_goes_and_what_is_listed_stays(state):
    around = {path: path.read_bytes() for path in state.folder.glob("*/*.json")}
    running = left(state, OTHER)
    look(state, 29)
    assert set(left(state, STUDY)) == {"studies", "outbox", "inbox"}
    (notice,) = look(state, 30)
    assert (notice["log_level"], notice["study"], notice["ended"]) == ("warning", STUDY[:12], "2026-03-01")
    assert left(state, STUDY)["outbox"] == GOES["outbox"]
    look(state, 31)
    assert left(state, STUDY) == {"studies": STAYS}
    assert left(state, OTHER) == running
    assert {path: path.read_bytes() for path in around} == around
    assert (state.folder / "ledger.sqlite3").read_bytes() == b"ledger"
    assert (state.folder / "session.sealed").read_bytes() == b"session"


def test_a_study_that_runs_is_never_touched_however_late_it_is(state):
    for day in (30, 31, 10_000, 10_001):
        look(state, day)
    assert left(state, OTHER)["inbox"] == GOES["inbox"]
    assert state.removed(OTHER) is None
    state.finish(OTHER, "ended: enough", after(10_001))
    look(state, 10_002)
    assert left(state, OTHER)["inbox"] == GOES["inbox"]


def test_the_log_names_what_was_removed_and_shows_nothing_of_it(state):
    (entry,) = [entry for entry in removal(state) if entry["event"] == "retention: removed"]
    named = {f"{box}/{STUDY}/{name}" for box, names in GOES.items() for name in names}
    folders = {f"outbox/{STUDY}", f"inbox/{STUDY}", f"studies/{STUDY}/releases"}
    assert set(entry["names"]) == named | folders
    assert set(entry) == {"event", "log_level", "study", "names"}


def test_a_removal_is_counted_once(state):
    metrics = AgentMetrics()
    for day in (30, 31, 32):
        look(state, day, metrics=metrics)
    assert metrics.registry.get_sample_value("fedward_silo_removals_total") == 1


def test_a_look_that_finds_nothing_new_writes_nothing(state):
    for day in (5, 32):
        look(state, day - 1)
        look(state, day)
        written = (state.folder / "state.sqlite3").stat().st_mtime_ns
        assert look(state, day) == []
        assert (state.folder / "state.sqlite3").stat().st_mtime_ns == written


def test_a_shorter_retention_binds_studies_that_ended_before_it(state):
    look(state, 10, days=30)
    look(state, 11, days=5)
    look(state, 12, days=5)
    assert left(state, STUDY) == {"studies": STAYS}


def test_a_longer_retention_takes_the_notice_back(state):
    look(state, 30, days=30)
    look(state, 31, days=60)
    look(state, 60, days=60)
    assert left(state, STUDY)["outbox"] == GOES["outbox"]


def test_what_a_backup_brings_back_is_removed_again(state):
    removal(state)
    personal = state.folders(STUDY)[0] / "personal.safetensors"
    personal.write_bytes(b"from a backup")
    look(state, 32)
    assert not personal.exists()


def test_links_are_removed_and_not_followed(state, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.csv").write_bytes(b"records")
    for folder in state.folders(STUDY):
        (folder / "link").symlink_to(elsewhere)
        (folder / "file").symlink_to(elsewhere / "kept.csv")
    removal(state)
    assert (elsewhere / "kept.csv").read_bytes() == b"records"
    assert left(state, STUDY) == {"studies": STAYS}


def test_what_cannot_be_removed_is_named_and_does_not_stop_the_rest(state, monkeypatch):
    unlink = Path.unlink

    def stuck(path, **kwargs):
        if path.name == "keys.sealed":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **kwargs)

    monkeypatch.setattr(Path, "unlink", stuck)
    (error,) = [entry for entry in removal(state) if entry["log_level"] == "error"]
    assert "keys.sealed" in error["why"]
    assert left(state, STUDY) == {"studies": STAYS | {"keys.sealed"}}
    monkeypatch.setattr(Path, "unlink", unlink)
    look(state, 32)
    assert left(state, STUDY) == {"studies": STAYS}


def test_a_database_that_fails_is_logged_and_nothing_goes(state, monkeypatch):
    look(state, 30)
    monkeypatch.setattr(State, "begin_removal", _broken)
    (error,) = look(state, 31)
    assert error["log_level"] == "error"
    assert left(state, STUDY)["inbox"] == GOES["inbox"]


def _broken(*_):
    statement = "UPDATE"
    raise OperationalError(statement, {}, OSError("disk full"))


# --- crashes ----------------------------------------------------------------------------------------------------------
def steps(monkeypatch, die_at):
    """Count what a removal does to the disk, and die before a step. Returns the counter."""
    count = [0]

    def watched(real):
        def step(*args, **kwargs):
            count[0] += 1
            if count[0] == die_at:
                raise Crash
            return real(*args, **kwargs)

        return step

    monkeypatch.setattr(State, "begin_removal", watched(State.begin_removal))
    monkeypatch.setattr(Path, "unlink", watched(Path.unlink))
    monkeypatch.setattr(Path, "rmdir", watched(Path.rmdir))
    monkeypatch.setattr(os, "fsync", watched(os.fsync))
    return count


def test_a_crash_anywhere_leaves_a_state_from_which_the_removal_goes_on(state, monkeypatch):
    with monkeypatch.context() as patch:
        count = steps(patch, 0)
        removal(state)
    assert count[0] > 2 * sum(map(len, GOES.values()))
    for number in range(1, count[0] + 1):
        study = f"{number:064x}"
        fill(state, study)
        state.finish(study, "finished: done", END)
        look(state, 40)
        whole = left(state, study)
        with monkeypatch.context() as patch:
            steps(patch, number)
            with pytest.raises(Crash):
                look(state, 41)
        state.close()
        state = keyed(state.folder)
        # What is half removed is known to be: nobody uses it.
        assert state.removed(study) == after(41) or left(state, study) == whole
        look(state, 41)
        assert left(state, study) == {"studies": STAYS}
        assert state.removed(study) == after(41)


# --- a study as agents leave it ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_of_a_real_study_stays_what_all_silos_hold_and_nothing_else(federate, mode):
    encoder = {"prior": "local", "l2r": 0.001, "cmi": 0.001}
    study = tiny_study(privacy={"mode": mode}, personal={"epochs": 1}, publish=["accuracy"], encoder=encoder)
    coordinator, silos = federate(study)
    silo, place = silos["north"], Place(study.digest, 1, 1)
    for number in range(plan(study).last + 1):
        coordinator.run_round(number)
        look(silo.state, 50_000 + number, days=1)
    before = left(silo.state, study.digest)["studies"]
    assert {"personal.safetensors", "prior-1.f32", "keys.sealed"} <= before
    ledger = silo.gate.ledger.head
    coordinator.finish("north")
    (ending,) = silo.state.endings()
    for days in (1, 2):
        Retention(silo.state, 1, AgentMetrics(), lambda days=days: ending.ended + timedelta(days)).look()
    models = {f"model-{r}.{kind}" for r in range(study.rounds + 1) for kind in ("safetensors", "digest")}
    assert left(silo.state, study.digest) == {"studies": models | OPENED}
    assert silo.gate.ledger.head == ledger
    silo.restart()
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, (), Tensor.HEADS))
    assert coordinator.said("north").dispute == "out_of_turn"


# --- daily ------------------------------------------------------------------------------------------------------------
def test_while_the_agent_runs_it_looks_again_and_again_until_told_to_stop(state):
    looked, stop = threading.Semaphore(0), threading.Event()

    class Watched(Retention):
        def look(self):
            looked.release()

    retaining = Retaining(Watched(state, 1, AgentMetrics()), stop, seconds=0.001)
    retaining.start()
    assert all(looked.acquire(timeout=300) for _ in range(3))
    stop.set()
    retaining.join()
    assert not retaining._thread.is_alive()


def test_it_looks_once_a_day():
    assert retention_module.SECONDS == 24 * 3600
