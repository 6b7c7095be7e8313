from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from coordinator.storage.checkpoints import Checkpoints
from coordinator.storage.database import Database
from coordinator.storage.tables import statements
from policies.ledger.judging import Summed
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from protos.messages import Place, Tensor
from support.databases import opened as open_database
from support.databases import store_in

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)


def signed(text: str) -> SignedCheckpoint:
    return SignedCheckpoint(text.encode(), b"certificate", text.encode())


def word(text: str) -> CosignedCheckpoint:
    return CosignedCheckpoint(signed(text), b"other certificate", b"other " + text.encode())


@pytest.fixture
def opened(database, url):
    databases = []

    def open_() -> Checkpoints:
        databases.append(open_database(Database(url)))
        return Checkpoints(databases[-1])

    yield open_
    for one in databases:
        one.engine.dispose()


def test_the_latest_of_each_signer_outlives_the_process(opened):
    first = opened()
    for text in ("old", "new"):
        first.keep("north", signed(text), NOW)
        first.keep_cosigned("north", "south", word(text))
    first.keep_cosigned("north", "east", word("peer"))
    assert opened().latest("north") == signed("new")
    assert opened().cosigned("north") == {"east": word("peer"), "south": word("new")}
    assert list(opened().cosigned("north")) == ["east", "south"]


def test_silos_are_told_apart(opened):
    checkpoints = opened()
    checkpoints.keep("north", signed("a"), NOW)
    checkpoints.keep("south", signed("c"), NOW)
    checkpoints.keep_cosigned("south", "north", word("d"))
    assert (checkpoints.latest("north"), checkpoints.cosigned("north")) == (signed("a"), {})
    assert (checkpoints.latest("south"), checkpoints.cosigned("south")) == (signed("c"), {"north": word("d")})
    assert (checkpoints.latest("west"), checkpoints.cosigned("west")) == (None, {})


def test_a_database_of_an_older_version_gets_the_tables(tmp_path):
    store = store_in(tmp_path)
    assert Checkpoints(store.database).latest("north") is None
    assert Checkpoints(store.database).cosigned("north") == {}, "a table that stands already is taken as it is"
    store.engine.dispose()


def test_many_silos_state_at_once(opened):
    checkpoints = opened()
    with ThreadPoolExecutor(8) as pool:
        names = [f"silo-{number}" for number in range(16)]
        list(pool.map(lambda name: checkpoints.keep(name, signed(name), NOW), names))
    assert all(checkpoints.latest(name) == signed(name) for name in names)


def test_what_came_before_is_remembered_with_its_time(opened, monkeypatch):
    monkeypatch.setattr("policies.ledger.judging.RECENT", 2)
    first = opened()
    first.keep("south", signed("s"), NOW)
    for hours in (0, 1, 30, 31, 32, 33):
        first.keep("north", signed(str(hours)), NOW + timedelta(hours=hours))
        first.keep("east", signed(str(hours)), NOW + timedelta(hours=hours))
    assert opened().history("south") == [(signed("s"), NOW)], "others' later ones drive nobody's out"
    assert opened().history("east") == opened().history("north")
    assert opened().history("north") == [
        (signed(str(hours)), NOW + timedelta(hours=hours)) for hours in (1, 31, 32, 33)
    ]
    assert opened().history("west") == []


def test_what_an_earlier_version_stored_is_remembered_without_a_time(opened):
    checkpoints = opened()
    checkpoints._put(
        statements,
        "north",
        "north",
        {
            "statement": b"old",
            "certificate_pem": b"certificate",
            "signature": b"old",
        },
    )
    assert checkpoints.history("north") == [(signed("old"), None)]
    checkpoints.keep("north", signed("new"), NOW)
    assert opened().history("north") == [(signed("old"), None), (signed("new"), NOW)]


def test_the_releases_in_signed_lists_are_stored_once(opened):
    checkpoints, place = opened(), Place("5" * 64, 2, 3)
    for _ in range(2):
        checkpoints.keep_summed(place, Tensor.HEADS, ("north", "south"))
    checkpoints.keep_summed(place, Tensor.HEADS, ("north", "west"))
    checkpoints.keep_summed(place, Tensor.ENCODER, ("west",))
    assert opened().summed("north") == [Summed("5" * 64, 2, 3, "heads")]
    assert set(opened().summed("west")) == {Summed("5" * 64, 2, 3, tensor) for tensor in ("heads", "encoder")}
