from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.statements import Statements
from coordinator.store import Store
from protos.statements import CountersignedStatement, SignedStatement


def signed(text: str) -> SignedStatement:
    return SignedStatement(text.encode(), b"certificate", text.encode())


def word(text: str) -> CountersignedStatement:
    return CountersignedStatement(signed(text), b"other certificate", b"other " + text.encode())


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
        first.keep("north", signed(text))
        first.keep_countersigned("north", "south", word(text))
    first.keep_countersigned("north", "east", word("peer"))
    assert opened().latest("north") == signed("new")
    assert opened().countersigned("north") == {"east": word("peer"), "south": word("new")}
    assert list(opened().countersigned("north")) == ["east", "south"]


def test_silos_are_told_apart(opened):
    statements = opened()
    statements.keep("north", signed("a"))
    statements.keep("south", signed("c"))
    statements.keep_countersigned("south", "north", word("d"))
    assert (statements.latest("north"), statements.countersigned("north")) == (signed("a"), {})
    assert (statements.latest("south"), statements.countersigned("south")) == (signed("c"), {"north": word("d")})
    assert (statements.latest("west"), statements.countersigned("west")) == (None, {})


def test_a_database_of_an_older_version_gets_the_tables(tmp_path):
    store = Store.in_folder(tmp_path)
    assert Statements(store.engine).latest("north") is None
    assert Statements(store.engine).countersigned("north") == {}, "a table that stands already is taken as it is"
    store.engine.dispose()


def test_many_silos_state_at_once(opened):
    statements = opened()
    with ThreadPoolExecutor(8) as pool:
        names = [f"silo-{number}" for number in range(16)]
        list(pool.map(lambda name: statements.keep(name, signed(name)), names))
    assert all(statements.latest(name) == signed(name) for name in names)
