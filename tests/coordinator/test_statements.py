from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.statements import Statements
from coordinator.store import Store
from protos.statements import SignedStatement


def signed(text: str) -> SignedStatement:
    return SignedStatement(text.encode(), b"certificate", text.encode())


@pytest.fixture
def opened(tmp_path):
    stores = []

    def open_() -> Statements:
        stores.append(Store.in_folder(tmp_path))
        return Statements(stores[-1].engine)

    yield open_
    for store in stores:
        store.engine.dispose()


def test_the_latest_of_each_signer_outlives_the_process(opened):
    first = opened()
    for text in ("old", "new"):
        first.keep("north", "north", signed(text))
    first.keep("north", "south", signed("peer"))
    assert list(opened().latest("north")) == ["north", "south"]
    assert opened().latest("north") == {"north": signed("new"), "south": signed("peer")}


def test_silos_are_told_apart(opened):
    statements = opened()
    statements.keep("north", "north", signed("a"))
    statements.keep("south", "south", signed("c"))
    statements.keep("south", "north", signed("d"))
    assert statements.latest("north") == {"north": signed("a")}
    assert statements.latest("south") == {"north": signed("d"), "south": signed("c")}
    assert statements.latest("west") == {}


def test_a_database_of_an_older_version_gets_the_table(tmp_path):
    store = Store.in_folder(tmp_path)
    assert Statements(store.engine).latest("north") == {}
    assert Statements(store.engine).latest("north") == {}, "a table that stands already is taken as it is"
    store.engine.dispose()


def test_many_silos_state_at_once(opened):
    statements = opened()
    with ThreadPoolExecutor(8) as pool:
        names = [f"silo-{number}" for number in range(16)]
        list(pool.map(lambda name: statements.keep(name, name, signed(name)), names))
    assert all(statements.latest(name) == {name: signed(name)} for name in names)
