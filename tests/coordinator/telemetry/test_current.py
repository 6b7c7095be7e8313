"""Figures of the moment of a scrape: for whom and how long a study waits, the spool's room, the database's errors."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import text

from coordinator.storage.database import Database, StoreDamagedError
from coordinator.storage.shortage import DatabaseShortError
from coordinator.storage.spool import Spool
from coordinator.telemetry.current import CurrentFigures, families
from protos.status import MemberStatus, StudyStatus
from support.databases import EPOCH

STUDY = "ab" * 32
LABEL = {"study": STUDY[:12]}


def status(**changes):
    given = {
        "study": STUDY,
        "name": "heart",
        "state": "running",
        "why": "",
        "round": 1,
        "rounds": 3,
        "attempt": 1,
        "phase": "gather",
        "tensor": None,
        "waiting_for": ("south", "west"),
        "members": (
            MemberStatus("north", "active", "", 0.0),
            MemberStatus("south", "no data", "", 0.0),
            MemberStatus("west", "away", "", 0.0),
        ),
        "since": 100.0,
        "until": 160.0,
    }
    return StudyStatus(**{**given, **changes})


class Scraped:
    """A coordinator's figures with everything that they are made of."""

    def __init__(self, folder):
        self.folder, self.studies, self.now, self.errors = folder / "spool", [], 130.0, {"short": 0, "damaged": 0}
        self.spool = Spool(self.folder, EPOCH)
        self.registry = CollectorRegistry()
        self.registry.register(CurrentFigures(lambda: self.studies, lambda: self.now, self.spool, self.errors))

    def value(self, name, **labels):
        return self.registry.get_sample_value(f"fedward_coordinator_{name}", labels)


@pytest.fixture
def scraped(tmp_path):
    return Scraped(tmp_path)


def test_a_study_that_waits_says_for_whom_and_how_long(scraped):
    scraped.studies = [status()]
    assert [scraped.value("waiting_for", **LABEL, silo=silo) for silo in ("north", "south", "west")] == [None, 1, 1]
    for silo, state in (("north", "active"), ("south", "no_data"), ("west", "away")):
        assert scraped.value("member_state", **LABEL, silo=silo, state=state) == 1
    assert scraped.value("phase_elapsed_seconds", **LABEL, phase="gather") == 30
    assert scraped.value("phase_left_seconds", **LABEL, phase="gather") == 30
    scraped.now = 170.0
    assert scraped.value("phase_left_seconds", **LABEL, phase="gather") == -10, "the clock that ends phases is late"


def test_what_nothing_ends_has_no_time_left_and_what_is_over_has_no_figures(scraped):
    scraped.studies = [status(until=0.0)]
    assert scraped.value("phase_left_seconds", **LABEL, phase="gather") is None
    assert scraped.value("phase_elapsed_seconds", **LABEL, phase="gather") == 30
    scraped.studies = []
    for name in ("waiting_for", "member_state", "phase_elapsed_seconds"):
        family = next(one for one in scraped.registry.collect() if one.name == f"fedward_coordinator_{name}")
        assert not family.samples


def test_the_spool_is_counted_and_what_cannot_be_read_takes_nothing_else_with_it(scraped, monkeypatch):
    (scraped.folder / str(EPOCH) / "study").mkdir()
    (scraped.folder / str(EPOCH) / "study" / "a.sealed").write_bytes(bytes(1000))
    (scraped.folder / str(EPOCH) / "b.partial").write_bytes(bytes(234))
    scraped.studies = [status()]
    assert scraped.value("spool_bytes") == 1234
    assert scraped.value("spool_free_bytes") == pytest.approx(scraped.spool.free, rel=0.05)

    def away(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("coordinator.storage.spool.shutil.disk_usage", away)
    assert scraped.value("spool_free_bytes") is None
    assert scraped.value("spool_bytes") == 1234
    monkeypatch.undo()
    monkeypatch.setattr("coordinator.storage.spool._size", away)
    assert scraped.value("spool_bytes") is None
    assert scraped.value("spool_free_bytes") > 0
    assert scraped.value("waiting_for", **LABEL, silo="west") == 1


def test_the_databases_errors_are_counted_by_kind(scraped, tmp_path):
    database = Database.in_folder(tmp_path / "data")
    assert database.errors == {"short": 0, "damaged": 0}
    with pytest.raises(DatabaseShortError), database.unchecked() as connection:
        connection.execute(text("SELECT * FROM nothing"))
    assert database.errors == {"short": 1, "damaged": 0}
    database.engine.dispose()
    (tmp_path / "data" / "coordinator.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreDamagedError), database.unchecked() as connection:
        connection.execute(text("SELECT 1 FROM lease"))
    assert database.errors == {"short": 1, "damaged": 1}
    scraped.errors |= {"short": 3, "damaged": 2}
    assert scraped.value("database_errors_total", kind="short") == 3
    assert scraped.value("database_errors_total", kind="damaged") == 2


def test_every_family_is_described_under_its_own_name(scraped):
    names = [one.name for one in families()]
    assert len(set(names)) == len(names) == len(list(scraped.registry.collect()))
    assert all(one.documentation.endswith(".") for one in families())


def test_a_scrape_waits_for_no_lock_of_the_engine(server, scene):
    found = []
    with server.engine._lock:
        asking = threading.Thread(target=lambda: found.extend(server.engine.under_way()), daemon=True)
        asking.start()
        asking.join(60)
    assert {one.study for one in found} >= {scene.study.digest}
    scene.abort("enough")
    assert scene.study.digest not in {one.study for one in server.engine.under_way()}
