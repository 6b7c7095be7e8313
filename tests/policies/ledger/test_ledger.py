from __future__ import annotations

import contextlib
import math
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.accounting import accountant
from policies.errors import (
    BudgetRefused,
    ChargeConflictError,
    LedgerBusyError,
    LedgerError,
    LedgerExistsError,
    LedgerMismatchError,
    LedgerMissingError,
    LedgerTamperedError,
    LedgerWriteError,
    PolicyError,
)
from policies.ledger.chain import REBINDABLE, Genesis, bound
from policies.ledger.events import Cleared, EntryRef, Fault, Recovery
from policies.ledger.ledger import Debit, Ledger, read_history, read_ledger
from policies.ledger.store import create_store
from policies.plan.cost import Cost
from policies.plan.release import plan

DELTA = 1e-5
CARDIOLOGY = Genesis("cardiology", 0.2, DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=())
FAULT = Fault("study", 1, 1, "heads")
HERE = str(Path(__file__).parent)
ROOT = str(Path(__file__).parents[3])


def debit(number: int, attempt: int = 1, noise: float = 10.0, **tensors: Cost) -> Debit:
    return Debit("study", "policy", number, attempt, tensors or {"heads": Cost("training", 1.0, noise, 1)})


def test_a_fresh_ledger_has_spent_nothing(open_ledger):
    ledger = open_ledger()
    assert (ledger.spent(), ledger.left(), ledger.entries(), ledger.costs()) == (0.0, 4.0, (), ())
    assert ledger.head.sequence == 0


def test_a_charge_is_priced_kept_and_returned(open_ledger, ledger_path):
    ledger = open_ledger()
    costs = {"heads": Cost("training", 1.0, 10.0, 1), "metrics": Cost("evaluation", 1.0, 2.0, 1)}
    foreseen = ledger.would_spend(costs.values())
    assert ledger.spent() == 0
    entry = ledger.charge(debit(1, **costs))
    assert entry.epsilon == ledger.spent() == foreseen == accountant.epsilon(costs.values(), DELTA)
    assert ledger.left() == 4.0 - foreseen
    assert ledger.entries() == (entry,)
    assert ledger.charged("study", 1) == {("heads", 1): costs["heads"], ("metrics", 1): costs["metrics"]}
    assert ledger.charged("study", 2) == ledger.charged("other", 1) == {}
    assert ledger.study_costs("study") == tuple(costs.values())
    assert ledger.study_costs("other") == ()
    assert read_ledger(ledger_path) == (ledger.genesis, (entry,))
    ledger.verify()
    ledger.close()
    again = open_ledger()
    assert again.entries() == (entry,)
    assert again.spent() == foreseen


def test_charging_the_same_again_is_free_and_writes_nothing(open_ledger, ledger_path):
    ledger = open_ledger()
    entry = ledger.charge(debit(1))
    before, changed = ledger_path.read_bytes(), ledger_path.stat().st_mtime_ns
    assert ledger.charge(debit(1)) is entry
    assert ledger_path.read_bytes() == before
    assert ledger_path.stat().st_mtime_ns == changed
    ledger.close()
    assert open_ledger(budget_epsilon=1e-9).charge(debit(1)) == entry


def test_only_what_is_new_of_a_repeated_charge_is_debited(open_ledger):
    ledger = open_ledger()
    heads, encoder = Cost("training", 1.0, 10.0, 1), Cost("training", 0.1, 2.0, 5)
    first = ledger.charge(debit(1, heads=heads))
    second = ledger.charge(debit(1, heads=heads, encoder=encoder))
    assert dict(second.debit.costs) == {"encoder": encoder}
    assert ledger.charge(debit(1, heads=heads, encoder=encoder)) is second
    assert ledger.charge(debit(1, heads=heads)) is first
    assert ledger.costs() == (heads, encoder)


def test_the_same_release_at_another_cost_is_a_conflict(open_ledger):
    ledger = open_ledger()
    ledger.charge(debit(1, noise=10))
    with pytest.raises(ChargeConflictError, match="use a new attempt"):
        ledger.charge(debit(1, noise=20))
    with pytest.raises(ChargeConflictError):
        ledger.charge(debit(1, heads=Cost("training", 1.0, 20.0, 1), encoder=Cost("training", 1.0, 20.0, 1)))
    assert len(ledger.entries()) == 1


def test_a_new_attempt_is_a_new_charge(open_ledger):
    ledger = open_ledger()
    ledger.charge(debit(1, attempt=1))
    once = ledger.spent()
    ledger.charge(debit(1, attempt=2))
    assert ledger.spent() > once
    assert set(ledger.charged("study", 1)) == {("heads", 1), ("heads", 2)}


def test_an_overdraft_is_refused_with_its_numbers_and_not_written(open_ledger, ledger_path):
    ledger = open_ledger(budget_epsilon=1.0)
    ledger.charge(debit(1, noise=5))
    before, spent = ledger_path.read_bytes(), ledger.spent()
    with pytest.raises(BudgetRefused, match="does not refill") as caught:
        ledger.charge(debit(2, noise=5))
    assert caught.value.spent == spent
    assert caught.value.wanted == ledger.would_spend([Cost("training", 1.0, 5.0, 1)]) > 1.0
    assert f"{spent:.4f}" in str(caught.value)
    assert (caught.value.budget, caught.value.delta) == (1.0, DELTA)
    assert ledger_path.read_bytes() == before
    assert ledger.spent() == spent


def test_the_budget_can_be_used_up_exactly_and_not_a_hair_beyond(open_ledger):
    wanted = accountant.epsilon([Cost("training", 1.0, 6.0, 1)], DELTA)
    with contextlib.closing(open_ledger(budget_epsilon=math.nextafter(wanted, 0.0))) as ledger:
        with pytest.raises(BudgetRefused):
            ledger.charge(debit(1, noise=6))
        ledger.put_into_force("policy", wanted)
        ledger.charge(debit(1, noise=6))
        assert ledger.left() == 0.0
        ledger.put_into_force("wider", 2 * wanted)
        assert ledger.left() == wanted


def test_an_infinite_price_is_refused(open_ledger):
    with pytest.raises(BudgetRefused, match="inf"):
        open_ledger().charge(debit(1, noise=1e-9))


def test_a_lowered_budget_stops_and_forgets_nothing(open_ledger):
    with contextlib.closing(open_ledger()) as ledger:
        spent = ledger.charge(debit(1, noise=3)).epsilon
    lowered = open_ledger(budget_epsilon=0.1)
    assert (lowered.spent(), lowered.left()) == (spent, 0.0)
    with pytest.raises(BudgetRefused):
        lowered.charge(debit(2, noise=1e6))


def test_an_accountant_that_finds_less_lowers_nothing(open_ledger, monkeypatch):
    with contextlib.closing(open_ledger()) as ledger:
        spent = ledger.charge(debit(1, noise=5)).epsilon
        monkeypatch.setattr(accountant, "epsilon", lambda costs, delta: 0.01)
        assert ledger.charge(debit(2, noise=5)).epsilon == spent
    assert open_ledger().spent() == spent


def test_a_ledger_that_states_too_little_is_counted_again_when_it_is_opened(open_ledger, monkeypatch):
    with monkeypatch.context() as older, contextlib.closing(open_ledger()) as ledger:
        older.setattr(accountant, "epsilon", lambda costs, delta: 0.01)
        assert ledger.charge(debit(1, noise=5)).epsilon == 0.01
    ledger = open_ledger()
    assert ledger.spent() == accountant.epsilon([Cost("training", 1.0, 5.0, 1)], DELTA) > 0.01
    assert ledger.left() == 4.0 - ledger.spent()


def test_a_ledger_is_made_once_and_never_in_passing(tmp_path):
    path = tmp_path / "ledger.db"
    with pytest.raises(LedgerMissingError):
        Ledger.open(path, CARDIOLOGY, budget_epsilon=4.0)
    assert list(tmp_path.iterdir()) == []
    Ledger.create(path, CARDIOLOGY)
    with pytest.raises(LedgerExistsError):
        Ledger.create(path, CARDIOLOGY)


@pytest.mark.parametrize("unsaid", ["unit", "identified_by", "delimiter", "columns"])
def test_a_new_ledger_says_what_it_protects(unsaid, tmp_path):
    with pytest.raises(ValueError, match=f"says what it protects .*; {unsaid} is missing"):
        Ledger.create(tmp_path / "ledger.db", replace(CARDIOLOGY, **{unsaid: None}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data_set", "other"),
        ("unit", "record"),
        ("identified_by", ("visit",)),
        ("holdout", 0.3),
        ("delta", 1e-6),
        ("delimiter", ";"),
        ("columns", ("pid", "y")),
    ],
)
def test_a_ledger_of_another_data_set_is_refused_and_released(field, value, open_ledger, ledger_path):
    with pytest.raises(LedgerMismatchError, match=f"the ledger's {field} is"):
        open_ledger(**{field: value})
    held = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert ledger_path not in held
    open_ledger()


def test_the_lock_lies_beside_the_ledger(open_ledger, ledger_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    open_ledger()
    assert ledger_path.with_name("ledger.db.lock").exists()


def test_the_policy_in_force_is_the_last_one(open_ledger):
    ledger = open_ledger()
    assert ledger.policy is None
    for policy in ("first", "second"):
        ledger.put_into_force(policy, 4.0)
        assert ledger.policy == policy


def test_a_file_with_a_header_line_is_named_in_the_error(open_ledger):
    says = r"the ledger's columns is none \(a header line\), but the policy says pid, y;"
    with pytest.raises(LedgerMismatchError, match=says):
        open_ledger(columns=("pid", "y"))


def test_the_columns_are_named_in_the_error_and_their_order_counts(tmp_path):
    path, rows = (
        tmp_path / "ledger.db",
        Genesis("rows", 0.2, DELTA, unit="record", identified_by=("ward", "row"), delimiter=",", columns=()),
    )
    Ledger.create(path, rows)
    says = "the ledger's identified_by is ward, row, but the policy says row, ward"
    with pytest.raises(LedgerMismatchError, match=says):
        Ledger.open(path, replace(rows, identified_by=("row", "ward")), budget_epsilon=4.0)
    with Ledger.open(path, rows, budget_epsilon=4.0) as ledger:
        assert (ledger.genesis.unit, ledger.genesis.identified_by) == ("record", ("ward", "row"))


def test_a_ledger_that_is_older_than_the_unit_opens_and_stays_as_it_was_written(tmp_path):
    path, older = tmp_path / "ledger.db", Genesis("cardiology", 0.2, DELTA)
    create_store(path, older)
    for unit, columns in (("patient", ("pid",)), ("record", ("ward", "row"))):
        with Ledger.open(path, replace(CARDIOLOGY, unit=unit, identified_by=columns), budget_epsilon=4.0) as ledger:
            assert ledger.genesis == older
            assert ledger.genesis.unit is ledger.genesis.identified_by is None
    with pytest.raises(LedgerMismatchError, match="the ledger's holdout is"):
        Ledger.open(path, replace(CARDIOLOGY, holdout=0.3), budget_epsilon=4.0)


def test_a_ledger_that_is_older_than_the_file_opens_with_every_file_and_stays_as_it_was_written(tmp_path):
    path, older = tmp_path / "ledger.db", replace(CARDIOLOGY, delimiter=None, columns=None)
    create_store(path, older)
    for delimiter, columns in ((",", ()), (";", ("pid", "y"))):
        with Ledger.open(path, replace(CARDIOLOGY, delimiter=delimiter, columns=columns), budget_epsilon=4.0) as ledger:
            assert ledger.genesis == older
    with pytest.raises(LedgerMismatchError, match="the ledger's unit is patient"):
        Ledger.open(path, replace(CARDIOLOGY, unit="record"), budget_epsilon=4.0)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_that_bounds_nothing_is_refused(budget, open_ledger):
    with pytest.raises(LedgerMismatchError, match="budget_epsilon"):
        open_ledger(budget_epsilon=budget)


def test_every_error_hangs_on_one_tree():
    for error in (BudgetRefused, LedgerWriteError, LedgerTamperedError, LedgerBusyError, ChargeConflictError):
        assert issubclass(error, LedgerError)
        assert issubclass(error, PolicyError)


OPEN = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from policies.ledger.ledger import Genesis, Ledger
genesis = Genesis("cardiology", 0.2, 1e-5, unit="patient", identified_by=("pid",), delimiter=",", columns=())
Ledger.open(Path(sys.argv[1]), genesis, budget_epsilon=4.0)
"""


def test_a_second_process_is_refused_by_name(open_ledger, ledger_path):
    ledger = open_ledger()
    with pytest.raises(LedgerBusyError):
        open_ledger()
    child = [sys.executable, "-c", OPEN, ledger_path, ROOT]
    refused = subprocess.run(child, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "LedgerBusyError: the ledger is held by another process" in refused.stderr
    ledger.charge(debit(1))
    ledger.close()
    assert subprocess.run(child, check=False).returncode == 0


def test_two_threads_charge_one_after_the_other(open_ledger):
    ledger = open_ledger()
    threads = [threading.Thread(target=ledger.charge, args=(debit(number % 4, noise=30),)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.debit.round for entry in ledger.entries()) == [0, 1, 2, 3]
    ledger.verify()


def test_a_full_disk_charges_nothing_and_spoils_nothing(open_ledger, ledger_path):
    ledger = open_ledger()
    connection = ledger._store._connection
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    spent, entries = 0.0, ()

    def fill() -> None:
        nonlocal spent, entries
        for number in range(100):
            spent, entries = ledger.spent(), ledger.entries()
            ledger.charge(debit(number, noise=200))

    with pytest.raises(LedgerWriteError, match="SQLITE_FULL"):
        fill()
    assert (ledger.spent(), ledger.entries()) == (spent, entries)
    assert len(entries) < 99
    assert ledger.charged("study", len(entries)) == {}
    assert read_ledger(ledger_path)[1] == entries
    ledger.verify()
    connection.execute("PRAGMA max_page_count=1000000")
    assert ledger.charge(debit(len(entries), noise=200)).sequence == len(entries) + 1


CHARGING = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from policies.ledger.ledger import Genesis, Ledger
from test_ledger import pair
genesis = Genesis("cardiology", 0.2, 1e-5, unit="patient", identified_by=("pid",), delimiter=",", columns=())
ledger = Ledger.open(Path(sys.argv[1]), genesis, budget_epsilon=4.0)
for number in range(len(ledger.entries()), 100_000):
    print(number, "begun", flush=True)
    ledger.charge(pair(number))
    print(number, "charged", flush=True)
"""


def pair(number: int) -> Debit:
    cost = Cost("training", 1.0, 2000.0, 1)
    return debit(number, heads=cost, metrics=cost)


@pytest.mark.slow
def test_kill_9_during_charges_leaves_each_whole_or_absent(ledger_path, open_ledger):
    for turn in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", CHARGING, ledger_path, HERE, ROOT], stdout=subprocess.PIPE, text=True
        ) as child:
            # The first charge loads the accountant, which takes as long as the machine wants; the others are quick.
            said = [child.stdout.readline().rstrip() for _ in range(2)]
            time.sleep(0.02 + 0.013 * turn)
            child.send_signal(signal.SIGKILL)
            said += child.stdout.read().splitlines()
        acknowledged = [int(line.split()[0]) for line in said if line.endswith("charged")]
        with contextlib.closing(open_ledger()) as ledger:
            held = [entry.debit for entry in ledger.entries()]
            assert held == [pair(number) for number in range(len(held))]
            assert len(held) >= max(acknowledged, default=-1) + 1
            assert len(held) <= max(acknowledged, default=len(held) - 2) + 2
            assert ledger.spent() == pytest.approx(accountant.epsilon(ledger.costs(), DELTA))
    assert held


def test_a_closed_ledger_refuses(open_ledger):
    ledger = open_ledger()
    ledger.charge(debit(1))
    ledger.put_into_force("policy", 4.0)
    ledger.close()
    ledger.close()
    recovery = Recovery((EntryRef(9, "a" * 64),), (), "A. Weber", "fedward://silo/north", "PEM", "00")
    for ask in (
        lambda: ledger.charge(debit(1)),
        lambda: ledger.charge(debit(2)),
        lambda: ledger.put_into_force("policy", 4.0),
        lambda: ledger.note("refresh", "case"),
        lambda: ledger.clear_fault("A. Weber"),
        lambda: ledger.recover(recovery, ()),
        ledger.verify,
    ):
        with pytest.raises(LedgerWriteError, match="open it again"):
            ask()


def test_a_fault_stands_until_a_person_clears_it(open_ledger):
    with contextlib.closing(open_ledger()) as ledger:
        assert ledger.clear_fault("A. Weber") is None
        first = ledger.note_fault(FAULT)
        assert ledger.note_fault(FAULT) is ledger.fault is first
        second = ledger.note_fault(replace(FAULT, tensor="encoder"))
        ledger.note("refresh", "case")
        assert ledger.fault is second
    with pytest.raises(LedgerWriteError, match="open it again"):
        ledger.note_fault(second.event)
    with contextlib.closing(open_ledger()) as ledger:
        assert ledger.fault == second
        assert ledger.note_fault(FAULT).sequence == 4, "only the newest is not recorded twice"
        assert ledger.clear_fault("A. Weber").event == Cleared("A. Weber")
        assert (ledger.fault, ledger.clear_fault("A. Weber")) == (None, None)
        assert ledger.note_fault(FAULT) is ledger.fault is ledger.history()[-1]
        assert len(ledger.history()) == 6


OTHER = replace(
    CARDIOLOGY, unit="record", identified_by=("visit", "day"), holdout=0.3, delimiter=";", encoding="windows-1252"
)


def test_before_anything_was_charged_a_ledger_can_be_bound_anew(open_ledger, ledger_path):
    with contextlib.closing(open_ledger()) as ledger:
        assert ledger.rebind(CARDIOLOGY, "A. Weber") is None
        assert not ledger.rebound
        ledger.put_into_force("p", 4.0)
        ledger.note_fault(FAULT)
        entry = ledger.rebind(OTHER, "A. Weber")
        assert ledger.rebound
        assert (ledger.bound, ledger.genesis, ledger.head) == (OTHER, CARDIOLOGY, entry.head)
        assert ledger.rebind(OTHER, "A. Weber") is None
        ledger.put_into_force("q", 4.0)
        assert not ledger.rebound
    with pytest.raises(LedgerMismatchError, match=r"holdout is 0\.3, but .* ledger rebind"):
        open_ledger()
    changed = {field: getattr(OTHER, field) for field in REBINDABLE}
    with contextlib.closing(open_ledger(**changed)) as ledger:
        assert bound(*read_history(ledger_path)) == ledger.bound == OTHER
        third = replace(CARDIOLOGY, columns=("pid", "y"))
        ledger.rebind(third, "A. Weber")
        assert ledger.bound == third
        ledger.charge(Debit("study", "q", 1, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
        with pytest.raises(LedgerMismatchError, match="something was charged"):
            ledger.rebind(OTHER, "A. Weber")
        assert ledger.rebind(third, "A. Weber") is None


@pytest.mark.parametrize("changes", [{"data_set": "oncology"}, {"delta": 1e-6}, {"public": True}])
def test_whose_budget_it_is_cannot_be_bound_anew(open_ledger, changes):
    ledger = open_ledger()
    with pytest.raises(LedgerMismatchError, match=next(iter(changes))):
        ledger.rebind(replace(OTHER, **changes), "A. Weber")
    assert ledger.history() == ()


def test_a_ledger_that_was_recovered_cannot_be_bound_anew(open_ledger):
    ledger = open_ledger()
    ledger.recover(Recovery((EntryRef(3, "a" * 64),), (), "A. Weber", "fedward://silo/north", "PEM", "ab"), ())
    with pytest.raises(LedgerMismatchError, match="something was charged"):
        ledger.rebind(OTHER, "A. Weber")


def test_a_chain_that_is_bound_anew_after_a_charge_is_refused(open_ledger, monkeypatch):
    with contextlib.closing(open_ledger()) as ledger:
        ledger.charge(debit(1))
        ledger._begun = False
        ledger.rebind(OTHER, "A. Weber")
    with pytest.raises(LedgerTamperedError, match="binds the ledger anew after something was charged"):
        open_ledger()


def test_an_older_copy_is_told_by_the_cosigned_head(open_ledger, ledger_path):
    with contextlib.closing(open_ledger()) as ledger:
        empty, start = ledger_path.read_bytes(), ledger.head
        ledger.charge(debit(1))
        older = ledger_path.read_bytes()
        ledger.charge(debit(2))
        cosigned = ledger.head
        ledger.require(start)
        ledger.require(cosigned)
    for copy in (empty, older):
        ledger_path.write_bytes(copy)
        with contextlib.closing(open_ledger()) as ledger:
            ledger.require(start)
            with pytest.raises(LedgerTamperedError, match="an older copy was put in its place"):
                ledger.require(cosigned)


def test_a_head_of_another_history_is_refused(open_ledger):
    ledger = open_ledger()
    ledger.charge(debit(1))
    for head in (EntryRef(1, "0" * 64), EntryRef(0, ledger.head.hash), EntryRef(-1, ledger.head.hash)):
        with pytest.raises(LedgerTamperedError):
            ledger.require(head)


def test_what_is_missing_is_what_neither_stands_nor_was_charged_for(open_ledger):
    ledger = open_ledger()
    start = ledger.checkpoint("north")
    ledger.charge(debit(1))
    first = ledger.checkpoint("north")
    gone = [replace(first, head=EntryRef(place, "a" * 64)) for place in (1, 5, 7)]
    assert ledger.missing([start, first, *gone]) == tuple(gone)
    ledger.recover(
        Recovery((gone[1].head,), (Cost("training", 1.0, 50.0, 1),), "A. Weber", "fedward://silo/north", "PEM", "00"),
        gone[1:2],
    )
    assert ledger.missing([start, first, *gone]) == (gone[0], gone[2])


def test_a_file_put_back_under_the_agent_is_found_at_the_next_charge(open_ledger, ledger_path):
    ledger = open_ledger()
    before = ledger_path.read_bytes()
    ledger.charge(debit(1))
    ledger_path.write_bytes(before)
    with pytest.raises(LedgerTamperedError):
        ledger.verify()
    with pytest.raises((LedgerTamperedError, LedgerWriteError)):
        ledger.charge(debit(2))


@pytest.mark.parametrize(
    "case",
    [
        (CARDIOLOGY, [debit(1)], [debit(1, noise=20.0)]),
        (CARDIOLOGY, [debit(1), debit(2)], [debit(1, noise=20.0), debit(2)]),
        (replace(CARDIOLOGY, data_set="other"), [], []),
    ],
)
def test_a_whole_ledger_of_the_same_length_under_the_agent_is_found(case, open_ledger, ledger_path, tmp_path):
    genesis, mine, theirs = case
    other = tmp_path / "other.db"
    Ledger.create(other, genesis)
    with Ledger.open(other, genesis, budget_epsilon=4.0) as ledger:
        for wish in theirs:
            ledger.charge(wish)
    ledger = open_ledger()
    for wish in mine:
        ledger.charge(wish)
    ledger.verify()
    ledger_path.write_bytes(other.read_bytes())
    with pytest.raises(LedgerTamperedError, match="is not what this process wrote"):
        ledger.verify()


def test_a_recovery_states_at_least_the_price_of_what_the_lost_heads_sum_up(open_ledger):
    """The epsilon that a head states is not believed: whoever stole a key could state any."""
    ledger = open_ledger()
    ledger.charge(debit(1))
    totals = (Cost("training", 1.0, 2.0, 1),)
    priced = accountant.epsilon(totals, CARDIOLOGY.delta)
    assert priced > 2 * ledger.spent()
    head = replace(ledger.checkpoint("north"), head=EntryRef(9, "a" * 64), epsilon=99.0)
    lost = [replace(head, totals=totals), head]
    signed = Recovery(
        (lost[0].head,), (Cost("training", 1.0, 50.0, 1),), "A. Weber", "fedward://silo/north", "PEM", "00"
    )
    assert ledger.recover(signed, lost).epsilon == ledger.spent() == priced
    again = ledger.recover(replace(signed, covers=()), lost)
    assert again.epsilon == ledger.spent() == priced


@pytest.mark.parametrize(
    ("off", "believed"), [(-1e-9, False), (0.0, True), (9e-7, True), (1.1e-6, False), (0.5, False)]
)
def test_a_heads_own_epsilon_is_believed_if_rounding_explains_it(open_ledger, off, believed):
    ledger = open_ledger()
    ledger.charge(debit(1))
    totals = (Cost("training", 1.0, 2.0, 1),)
    priced = accountant.epsilon(totals, CARDIOLOGY.delta)
    said = priced * (1 + off)
    lost = replace(ledger.checkpoint("north"), head=EntryRef(9, "a" * 64), totals=totals, epsilon=said)
    signed = Recovery((lost.head,), (Cost("training", 1.0, 50.0, 1),), "A. Weber", "fedward://silo/north", "PEM", "00")
    assert ledger.recover(signed, [lost]).epsilon == (said if believed else priced)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=st.sampled_from(["chain", "charged"]),
    place=st.integers(0, 3),
    column=st.integers(0, 4),
    value=st.one_of(st.integers(-5, 50), st.text("0123456789abcdef", max_size=64), st.just('{"kind":"genesis"}')),
)
def test_no_edit_of_a_stored_value_goes_unseen(tmp_path, table, place, column, value):
    path = Path(tempfile.mkdtemp(dir=tmp_path)) / "ledger.db"
    Ledger.create(path, CARDIOLOGY)
    with Ledger.open(path, CARDIOLOGY, budget_epsilon=4.0) as ledger:
        for number in range(1, 4):
            ledger.charge(debit(number))
        entries = ledger.entries()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        columns = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
        rowid = raw.execute(f"SELECT rowid FROM {table} ORDER BY rowid LIMIT 1 OFFSET ?", (place % 3,)).fetchone()[0]  # noqa: S608
        with contextlib.suppress(sqlite3.IntegrityError):
            raw.execute(f"UPDATE {table} SET {columns[column % len(columns)]} = ? WHERE rowid = ?", (value, rowid))  # noqa: S608
        raw.commit()
    try:
        with Ledger.open(path, CARDIOLOGY, budget_epsilon=4.0) as ledger:
            assert ledger.entries() == entries
    except LedgerTamperedError as error:
        assert "cosigned" in str(error)  # noqa: PT017 - the edit may have changed nothing


class LedgerLaws(RuleBasedStateMachine):
    """Any history of charges, repetitions, refusals and restarts."""

    BUDGET = 1.5

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.db"
        Ledger.create(
            self.path,
            Genesis(
                data_set="d",
                holdout=0.2,
                delta=DELTA,
                unit="patient",
                identified_by=("pid",),
                delimiter=",",
                columns=(),
            ),
        )
        self.expected: dict[tuple[str, int, str, int], Cost] = {}
        self.most = 0.0
        self.open()

    def open(self) -> None:
        self.ledger = Ledger.open(
            self.path,
            Genesis(
                data_set="d",
                holdout=0.2,
                delta=DELTA,
                unit="patient",
                identified_by=("pid",),
                delimiter=",",
                columns=(),
            ),
            budget_epsilon=self.BUDGET,
        )

    @rule(
        study=st.sampled_from(["a", "b"]),
        number=st.integers(0, 3),
        attempt=st.integers(1, 2),
        costs=st.dictionaries(
            st.sampled_from(["heads", "encoder", "metrics"]),
            st.builds(
                Cost,
                st.sampled_from(["training", "evaluation"]),
                st.sampled_from([1.0, 1.0, 0.05]),
                st.sampled_from([5.0, 12.0, 40.0]),
                st.integers(1, 3),
            ),
            min_size=1,
        ),
    )
    def charge(self, study, number, attempt, costs) -> None:
        wish = Debit(study, "policy", number, attempt, costs)
        keys = {(study, number, tensor, attempt): cost for tensor, cost in costs.items()}
        fresh = {key: cost for key, cost in keys.items() if key not in self.expected}
        conflict = any(self.expected.get(key, cost) != cost for key, cost in keys.items())
        before, foreseen = self.ledger.entries(), self.ledger.would_spend(fresh.values())
        close = pytest.approx(foreseen, rel=1e-9)  # the order of composing shows in the last digits
        try:
            entry = self.ledger.charge(wish)
        except ChargeConflictError:
            assert conflict
        except BudgetRefused as refusal:
            assert self.BUDGET < refusal.wanted == close  # noqa: PT017 - one of several right outcomes
        else:
            assert not conflict
            self.expected.update(fresh)
            assert self.ledger.entries() == (*before, entry) if fresh else before
            assert self.ledger.spent() == close
            assert self.ledger.charge(wish) == entry
            return
        assert self.ledger.entries() == before

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.open()

    @precondition(lambda self: self.expected)
    @rule()
    def check(self) -> None:
        self.ledger.verify()

    @invariant()
    def it_never_decreases_never_exceeds_and_forgets_nothing(self) -> None:
        if not hasattr(self, "ledger"):
            return
        spent = self.ledger.spent()
        assert self.most <= spent <= self.BUDGET
        self.most = spent
        held = {
            (study, number, tensor, attempt): cost
            for study in ("a", "b")
            for number in range(4)
            for (tensor, attempt), cost in self.ledger.charged(study, number).items()
        }
        assert held == self.expected
        assert spent >= accountant.epsilon(self.expected.values(), DELTA) * (1 - 1e-9)

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.folder.cleanup()


TestLedgerLaws = LedgerLaws.TestCase
TestLedgerLaws.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


def test_a_whole_study_is_charged_within_its_foreseen_price(make_study, open_ledger, composed):
    study = make_study()
    ledger = open_ledger()
    for number in range(plan(study).last + 1):
        ledger.charge(Debit(study.digest, "policy", number, 1, plan(study).round_costs(number)))
        kinds, sums = composed()
        assert kinds <= 1, "the encoder's releases alone are sampled"
        assert sums <= number, "at most one composition for each charge"
    assert ledger.spent() == pytest.approx(
        accountant.epsilon([c for n in range(plan(study).last + 1) for c in plan(study).round_costs(n).values()], DELTA)
    )


def test_public_data_may_be_charged_without_noise_and_say_unbounded(tmp_path):
    path = tmp_path / "public.db"
    published = Genesis(
        "published", 0.2, DELTA, public=True, unit="patient", identified_by=("pid",), delimiter=",", columns=()
    )
    Ledger.create(path, published)
    with Ledger.open(path, published, budget_epsilon=1.0) as ledger:
        ledger.charge(Debit("s" * 64, "p" * 64, 0, 1, {"counts": Cost("training", 1.0, 0.0, 1)}))
        assert math.isinf(ledger.spent())
        assert ledger.left() == 0
        ledger.charge(Debit("s" * 64, "p" * 64, 1, 1, {"heads": Cost("training", 1.0, 20.0, 1)}))
        ledger.verify()
    with Ledger.open(path, published, budget_epsilon=1.0) as ledger:
        assert math.isinf(ledger.spent())
    with pytest.raises(LedgerMismatchError, match="public"):
        Ledger.open(path, replace(published, public=False), budget_epsilon=1.0)


def test_a_policy_that_is_edited_cannot_make_a_ledger_public(tmp_path):
    path = tmp_path / "private.db"
    ward = Genesis("ward", 0.2, DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=())
    Ledger.create(path, ward)
    with pytest.raises(LedgerMismatchError, match="public"):
        Ledger.open(path, replace(ward, public=True), budget_epsilon=1.0)
    with Ledger.open(path, ward, budget_epsilon=1.0) as ledger, pytest.raises(BudgetRefused):
        ledger.charge(Debit("s" * 64, "p" * 64, 0, 1, {"counts": Cost("training", 1.0, 0.0, 1)}))
    assert ledger.entries() == ()
