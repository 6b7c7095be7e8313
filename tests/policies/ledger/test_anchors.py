"""What the ledger knows of how much was said, and that it never goes down."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.errors import LedgerShortError, LedgerWriteError
from policies.ledger.anchors import Anchor, Anchors
from policies.ledger.ledger import Ledger, read_history
from support.ledgers import NORTH

STUDY, OTHER = "5" * 64, "6" * 64


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    Ledger.create(path, NORTH)
    return path


def test_a_silo_that_has_said_nothing_has_said_nothing_in_no_round(ledger):
    assert Anchors(ledger).of(STUDY) == Anchor(-1, 0)


def test_a_count_outlives_the_process_and_is_the_studys_own(ledger):
    Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
    assert Anchors(ledger).of(STUDY) == Anchor(2, 7)
    assert Anchors(ledger).of(OTHER) == Anchor()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), min_size=1, max_size=5))
def test_it_never_goes_down(tmp_path_factory, raised):
    path = tmp_path_factory.mktemp("ledger") / "ledger.sqlite3"
    Ledger.create(path, NORTH)
    for number, said in raised:
        Anchors(path).raise_to(STUDY, Anchor(number, said))
    assert Anchors(path).of(STUDY) == Anchor(max(n for n, _ in raised), max(s for _, s in raised))


def test_it_is_no_entry_and_an_open_ledger_stays_what_it_wrote(ledger):
    with Ledger.open(ledger, NORTH, budget_epsilon=10.0) as held:
        Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
        held.verify()
        held.note("withdrawal", "one")
        Anchors(ledger).raise_to(STUDY, Anchor(2, 8))
        held.note("withdrawal", "two")
    assert len(read_history(ledger)[1]) == 2
    assert Anchors(ledger).of(STUDY) == Anchor(2, 8)


def test_a_want_of_open_files_passes_and_a_ledger_that_is_gone_does_not(ledger):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(LedgerShortError, match="SQLITE_CANTOPEN"):
            Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
    ledger.unlink()
    with pytest.raises(LedgerWriteError) as gone:
        Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
    assert not isinstance(gone.value, LedgerShortError)


def test_a_ledger_that_is_gone_or_damaged_lets_nothing_be_said(ledger):
    ledger.unlink()
    with pytest.raises(LedgerWriteError, match=r"ledger\.sqlite3: what this silo has said cannot be noted"):
        Anchors(ledger).raise_to(STUDY, Anchor(2, 7))
    assert not ledger.exists()
    ledger.write_bytes(b"no database" * 1000)
    with pytest.raises(LedgerWriteError, match="cannot be noted"):
        Anchors(ledger).of(STUDY)
