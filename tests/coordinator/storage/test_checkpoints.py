from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.storage.checkpoints import Checkpoints
from coordinator.storage.store import Store
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint


def signed(text: str) -> SignedCheckpoint:
    return SignedCheckpoint(text.encode(), b"certificate", text.encode())


def word(text: str) -> CosignedCheckpoint:
    return CosignedCheckpoint(signed(text), b"other certificate", b"other " + text.encode())


@pytest.fixture
def opened(tmp_path):
    stores = []

    def open_() -> Checkpoints:
        stores.append(Store.in_folder(tmp_path))
        return Checkpoints(stores[-1].engine)

    yield open_
    for store in stores:
        store.engine.dispose()


def test_the_latest_of_each_signer_outlives_the_process(opened):
    first = opened()
    for text in ("old", "new"):
        first.keep("north", signed(text))
        first.keep_cosigned("north", "south", word(text))
    first.keep_cosigned("north", "east", word("peer"))
    assert opened().latest("north") == signed("new")
    assert opened().cosigned("north") == {"east": word("peer"), "south": word("new")}
    assert list(opened().cosigned("north")) == ["east", "south"]


def test_silos_are_told_apart(opened):
    checkpoints = opened()
    checkpoints.keep("north", signed("a"))
    checkpoints.keep("south", signed("c"))
    checkpoints.keep_cosigned("south", "north", word("d"))
    assert (checkpoints.latest("north"), checkpoints.cosigned("north")) == (signed("a"), {})
    assert (checkpoints.latest("south"), checkpoints.cosigned("south")) == (signed("c"), {"north": word("d")})
    assert (checkpoints.latest("west"), checkpoints.cosigned("west")) == (None, {})


def test_a_database_of_an_older_version_gets_the_tables(tmp_path):
    store = Store.in_folder(tmp_path)
    assert Checkpoints(store.engine).latest("north") is None
    assert Checkpoints(store.engine).cosigned("north") == {}, "a table that stands already is taken as it is"
    store.engine.dispose()


def test_many_silos_state_at_once(opened):
    checkpoints = opened()
    with ThreadPoolExecutor(8) as pool:
        names = [f"silo-{number}" for number in range(16)]
        list(pool.map(lambda name: checkpoints.keep(name, signed(name)), names))
    assert all(checkpoints.latest(name) == signed(name) for name in names)
