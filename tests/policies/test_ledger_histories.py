"""Whatever happens to a ledger, and whenever its process dies: nothing released is forgotten, no budget is passed."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.accounting import accountant, totals
from policies.errors import BudgetRefused, LedgerMismatchError, LedgerRolledBackError, LedgerWriteError
from policies.ledger.chain import Genesis
from policies.ledger.cosign import Cosignature, CosignatureFile, advance, check, gap
from policies.ledger.events import EXHAUSTED, EntryRef, InForce, Recovery
from policies.ledger.ledger import Debit, Ledger, read_history, read_ledger
from policies.plan.cost import Cost
from support.failpoints import END, Failpoints, Say, points, run, torn

DELTA = 1e-5
HUB = "fedward://coordinator/hub"
STRIDE = int(os.environ.get("FEDWARD_LEDGER_STRIDE", "3"))
"""Of the moments at which a process may die, a seed takes one in so many; 1 takes every one."""


def opened(path: Path, budget: float) -> Ledger:
    return Ledger.open(
        path,
        Genesis(
            data_set="ward", holdout=0.2, delta=DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=()
        ),
        budget_epsilon=budget,
    )


def created(folder: Path) -> Path:
    Ledger.create(
        folder / "ledger.db",
        Genesis(
            data_set="ward", holdout=0.2, delta=DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=()
        ),
    )
    return folder / "ledger.db"


def release(number: int, policy: str, noise: float = 20.0) -> Debit:
    return Debit("study", policy, number, 1, {"heads": Cost("training", 1.0, noise, 1)})


def recovery(ledger: Ledger, lost) -> Recovery:
    missing = gap(ledger.genesis, ledger.history(), lost)
    return Recovery(tuple(i.head for i in lost), missing, "A. Weber", "fedward://silo/north", "PEM", "00")


class Histories(RuleBasedStateMachine):
    """Charges, policies, notices, crashes, restored copies, recoveries, in any order, with a cosigner."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        self.path = created(self.folder)
        self.budget, self.policy, self.number = 1.5, "first", 0
        self.released: list[Cost] = []
        """Costs of everything that was ever computed: it is computed only once it is charged and cosigned."""
        self.copies = [self.path.read_bytes()]
        self.most = 0.0
        self.last = None
        self.ledger: Ledger | None = None
        self.start()

    def start(self) -> None:
        """As the agent starts: what others cosigned is there, or it is recovered."""
        ledger = opened(self.path, self.budget)
        lost = () if self.last is None else ledger.missing([self.last])
        for item in lost:
            with pytest.raises(LedgerRolledBackError):
                ledger.require(item.head)
        if lost:
            ledger.recover(recovery(ledger, lost), lost)
        if self.last is not None:
            ledger.require(self.last.head)
        ledger.put_into_force(self.policy, self.budget)
        self.ledger = ledger

    @rule(noise=st.sampled_from([4.0, 9.0, 30.0]), rate=st.sampled_from([1.0, 1.0, 0.1]))
    def compute(self, noise, rate) -> None:
        cost = Cost("training", rate, noise, 1)
        wish = Debit("study", self.policy, self.number, 1, {"heads": cost})
        before = self.ledger.head
        try:
            self.ledger.charge(wish)
        except BudgetRefused as refused:
            assert refused.wanted > self.budget  # noqa: PT017 - one of two right outcomes
            assert self.ledger.head == before
            return
        assert self.ledger.spent() <= self.budget
        self.number += 1
        known = () if self.last is None else (self.last.head,)
        self.last = advance(self.last, self.ledger.checkpoint("north", known))
        self.released.append(cost)

    @rule(budget=st.sampled_from([0.4, 1.5, 3.0]), name=st.sampled_from(["first", "second", "third"]))
    def reload(self, budget, name) -> None:
        stale = self.policy
        self.budget, self.policy = budget, name
        spent, head = self.ledger.spent(), self.ledger.head
        self.ledger.put_into_force(name, budget)
        assert self.ledger.spent() == spent
        assert (self.ledger.head == head) == (name == stale)
        if name != stale:
            with pytest.raises(LedgerMismatchError, match="not in force"):
                self.ledger.charge(release(10_000, stale))

    @rule(kind=st.sampled_from(["withdrawal", "refresh"]))
    def note(self, kind) -> None:
        spent = self.ledger.spent()
        self.ledger.note(kind, "case 14")
        assert self.ledger.spent() == spent

    @rule()
    def restart(self) -> None:
        self.ledger.close()
        self.start()

    @rule()
    def back_up(self) -> None:
        self.ledger.close()
        self.copies.append(self.path.read_bytes())
        self.start()

    @precondition(lambda self: self.last is not None)
    @rule(which=st.integers(0, 99))
    def restore_an_older_copy(self, which) -> None:
        self.ledger.close()
        self.path.write_bytes(self.copies[which % len(self.copies)])
        self.start()

    @precondition(lambda self: self.last is not None)
    @rule(which=st.integers(0, 99))
    def an_older_copy_goes_on_unseen(self, which) -> None:
        """Nobody asked the cosigner; it finds the other history when its next cosignature is wanted."""
        self.ledger.close()
        self.path.write_bytes(self.copies[which % len(self.copies)])
        with opened(self.path, 32.0) as ledger:
            ledger.put_into_force(self.policy, 32.0)
            ledger.charge(release(20_000 + self.number, self.policy))
            self.number += 1
            if ledger.missing([self.last]):
                with pytest.raises(LedgerRolledBackError):
                    advance(self.last, ledger.checkpoint("north", (self.last.head,)))
        self.start()

    @invariant()
    def nothing_is_forgotten(self) -> None:
        if getattr(self, "ledger", None) is None:
            return
        spent = self.ledger.spent()
        assert spent >= accountant.epsilon(self.released, DELTA) * (1 - 1e-9)
        assert totals.beyond(self.released, self.ledger.costs()) == ()
        if self.last is not None:
            assert spent >= self.last.epsilon
        self.ledger.verify()

    def teardown(self) -> None:
        if getattr(self, "ledger", None) is not None:
            self.ledger.close()
            shutil.rmtree(self.folder)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=25, stateful_step_count=14, deadline=None)


# --- kill -9 at every failpoint -----------------------------------------------------------------------------------
def live(path: Path, seed: int, failpoints: Failpoints, say: Say) -> None:
    """A hospital's days, from the making of its ledger on; it says what it was told is done."""
    Ledger.create(
        path,
        Genesis(
            data_set="ward", holdout=0.2, delta=DELTA, unit="patient", identified_by=("pid",), delimiter=",", columns=()
        ),
    )
    chance, kept = random.Random(seed), CosignatureFile(path)  # noqa: S311 - which order, nothing secret
    with opened(path, 4.0) as ledger:
        failpoints.watch(ledger)
        for number in range(5):
            action = chance.choice(["charge", "charge", "policy", "note", "recover", "cosign"])
            match action:
                case "charge":
                    ledger.charge(release(number, ledger.policy or "p"))
                case "policy":
                    ledger.put_into_force(f"policy {number}", 4.0)
                case "note":
                    ledger.note("refresh", f"case {number}")
                case "recover":
                    lost = Cost("training", 1.0, 30.0 + number, 1)
                    signed = Recovery((), (lost,), "A. Weber", "fedward://silo/north", "PEM", "00")
                    ledger.recover(signed, ())
                case "cosign":
                    item = ledger.checkpoint("north", [held.checkpoint.head for held in kept.latest()])
                    kept.keep(
                        [
                            check(
                                Cosignature(item, "", b"PEM", b"s", b"own", b"s"),
                                lambda pem, *_: HUB if pem == b"PEM" else "fedward://silo/north",
                            )
                        ]
                    )
            say(f"{action} {number} {ledger.head.sequence} {ledger.spent()!r}")


def require_what_was_said(path: Path, said: list[str]) -> None:
    """Everything that was acknowledged stands, at most one more entry does, and what is charged is charged once."""
    done = [line.split() for line in said if not line.startswith(END)]
    if not done and not path.exists():
        return
    length, least = (int(done[-1][2]), float(done[-1][3])) if done else (0, 0.0)
    with opened(path, 4.0) as ledger:
        assert ledger.spent() >= least, "a crash refunded"
        assert length <= ledger.head.sequence <= length + 1
        assert ledger.spent() >= accountant.epsilon(ledger.costs(), DELTA) * (1 - 1e-9)
        ledger.verify()
        charged = [int(number) for action, number, *_ in done if action == "charge"]
        assert {entry.debit.round for entry in ledger.entries()} >= set(charged), "computed and not charged"
        head = ledger.head
        for number in charged:
            ledger.charge(release(number, "whatever policy"))
        assert ledger.head == head, "charged twice"
        signed = [int(length) for action, _, length, _ in done if action == "cosign"]
        kept = CosignatureFile(path).latest()
        for item in kept:
            ledger.require(item.checkpoint.head)
        assert max([item.checkpoint.head.sequence for item in kept], default=-1) >= max(signed, default=-1)


@pytest.mark.parametrize("seed", range(25))
def test_kill_9_before_and_after_every_durable_write_keeps_what_was_said(tmp_path, seed):
    whole = run(partial(live, tmp_path / "undisturbed", seed))
    moments = range(1 + seed % STRIDE, points(whole) + 1, STRIDE)
    assert len(whole) == 6
    for fatal in moments:
        path = tmp_path / str(fatal)
        said = run(partial(live, path, seed), fatal)
        assert END not in "".join(said), "it did not die"
        require_what_was_said(path, said)


def test_a_kill_in_the_middle_of_any_write_of_a_commit_leaves_all_or_nothing(tmp_path):
    """At every 512 bytes of ledger and journal, or one place in STRIDE: torn pages are what the journal undoes."""
    folder = tmp_path / "before"
    folder.mkdir()
    with opened(created(folder), 4.0) as ledger:
        for number in range(20):
            ledger.charge(release(number, "p"))
        spent = ledger.spent()
    content = (folder / "ledger.db").read_bytes()
    seen = Counter()
    for limit in range(0, len(content) + 8192, 512 * STRIDE):
        path = tmp_path / f"{limit}.db"
        path.write_bytes(content)

        def charge(say, path=path):
            with opened(path, 4.0) as ledger:
                ledger.charge(release(99, "p"))
                say("charged")

        said = torn(charge, limit)
        journal = path.with_name(path.name + "-journal").exists()
        with opened(path, 4.0) as ledger:
            assert ledger.head.sequence in (20, 21)
            assert ledger.spent() >= spent, "a crash refunded"
            assert not said or ledger.head.sequence == 21, "said and forgotten"
            ledger.verify()
            seen["whole" if said else "torn with a journal" if journal else "torn"] += 1
            assert ledger.charge(release(99, "p")).sequence == 21, "charged once, whatever happened"
    assert min(seen["whole"], seen["torn with a journal"]) >= 1, seen


# --- clocks, older files, loss -------------------------------------------------------------------------------------
@pytest.mark.parametrize("jump", ["2026-02-02T08:00:00+00:00", "2026-01-29T08:00:00+00:00"])
def test_a_clock_that_jumps_two_days_changes_nothing_but_the_dates(tmp_path, monkeypatch, jump):
    path = created(tmp_path)
    at = ["2026-01-31T08:00:00+00:00"]
    monkeypatch.setattr("policies.ledger.ledger._now", lambda: at[0])
    with opened(path, 4.0) as ledger:
        ledger.put_into_force("p", 4.0)
        ledger.charge(release(1, "p"))
        first = ledger.checkpoint("north")
        spent = ledger.spent()
        at[0] = jump
        assert ledger.charge(release(1, "p")).sequence == 2, "what is charged is not charged again"
        assert ledger.spent() == spent
        ledger.charge(release(2, "p"))
        ledger.verify()
        assert advance(first, ledger.checkpoint("north", (first.head,))).at == jump
        assert ledger.spent() == accountant.epsilon(ledger.costs(), DELTA)
    with opened(path, 4.0) as ledger:
        assert [entry.at for entry in ledger.history()][1:] == ["2026-01-31T08:00:00+00:00", jump]


def test_the_ledgers_day_goes_forward_only_whatever_the_clock_does(tmp_path, monkeypatch):
    path, seen = created(tmp_path), []
    at = [""]
    monkeypatch.setattr("policies.ledger.ledger._now", lambda: at[0])
    with opened(path, 4.0) as ledger:
        assert ledger.day is None
        for day in ("2026-01-31", "2026-02-02", "2026-01-29", "2026-02-01", "2026-02-03"):
            at[0] = f"{day}T23:59:59+00:00"
            ledger.note("refresh", day)
            seen.append(str(ledger.day))
    assert seen == ["2026-01-31", "2026-02-02", "2026-02-02", "2026-02-02", "2026-02-03"]
    with opened(path, 4.0) as ledger:
        assert str(ledger.day) == "2026-02-03"


def test_a_ledger_of_debits_alone_opens_unchanged_and_goes_on(tmp_path):
    path = created(tmp_path)
    with opened(path, 4.0) as ledger:
        for number in range(3):
            ledger.charge(release(number, f"policy of round {number}"))
        entries, head, spent = ledger.history(), ledger.head, ledger.spent()
    before = path.read_bytes()
    with opened(path, 4.0) as ledger:
        assert (ledger.history(), ledger.head, ledger.spent(), ledger.policy) == (entries, head, spent, None)
        assert path.read_bytes() == before
        assert ledger.put_into_force("p", 4.0).sequence == 4
        assert ledger.put_into_force("p", 4.0) is None
        ledger.charge(release(3, "p"))
    assert read_history(path)[1][:3] == entries
    assert len(read_ledger(path)[1]) == 4
    assert isinstance(read_history(path)[1][3].event, InForce)


def test_a_budget_that_is_reloaded_binds_the_next_charge(tmp_path):
    with opened(created(tmp_path), 4.0) as ledger:
        ledger.put_into_force("wide", 4.0)
        ledger.charge(release(1, "wide", noise=3.0))
        ledger.put_into_force("narrow", 0.1)
        assert ledger.left() == 0
        with pytest.raises(BudgetRefused):
            ledger.charge(release(2, "narrow", noise=1e6))
        with pytest.raises(LedgerMismatchError, match="budget_epsilon"):
            ledger.put_into_force("boundless", float("inf"))
        assert ledger.policy == "narrow"


def test_after_an_unknown_loss_no_policy_brings_the_budget_back(tmp_path):
    path = created(tmp_path)
    with opened(path, 4.0) as ledger:
        ledger.charge(release(1, "p"))
        ledger.recover(Recovery((), (EXHAUSTED,), "A. Weber", "fedward://silo/north", "PEM", "00"), ())
        assert ledger.spent() > 32
        assert ledger.costs()[-1] == EXHAUSTED
        assert ledger.entries()[-1].debit == release(1, "p")
    with opened(path, 32.0) as ledger, pytest.raises(BudgetRefused):
        ledger.charge(release(2, "p", noise=1e6))


@pytest.mark.parametrize(
    ("ago", "noises", "rate"),
    [(ago, [10.0 + n for n in range(12)], 1.0) for ago in (1, 10, 12)] + [(3, [9.0, 30.0, 4.0], 0.1)],
)
def test_an_older_copy_is_recovered_to_at_least_what_was_cosigned(tmp_path, ago, noises, rate):
    """The last: the accountant composes these in another order, and finds 1e-13 less."""
    path = created(tmp_path)
    copies = []
    with opened(path, 32.0) as ledger:
        for number, noise in enumerate(noises):
            copies.append(path.read_bytes())
            ledger.charge(Debit("s", "p", number, 1, {"heads": Cost("training", rate, noise, 1)}))
        last = ledger.checkpoint("north")
    path.write_bytes(copies[-ago])
    with opened(path, 32.0) as ledger:
        assert ledger.missing([last]) == (last,)
        with pytest.raises(LedgerRolledBackError):
            ledger.require(last.head)
        ledger.recover(recovery(ledger, [last]), [last])
        ledger.require(last.head)
        assert ledger.missing([last]) == ()
        assert ledger.spent() >= last.epsilon
        assert totals.beyond(last.totals, ledger.costs()) == ()
        assert advance(last, ledger.checkpoint("north")).covers == (last.head,)


@pytest.mark.parametrize("factor", [1 + 1e-12, 1.5])
def test_what_charges_nothing_can_be_written_and_read_after_the_accountant_found_more(tmp_path, monkeypatch, factor):
    path = created(tmp_path)
    with opened(path, 4.0) as ledger:
        stated = ledger.charge(release(1, "p")).epsilon
        lost = ledger.checkpoint("north")
    older = accountant.epsilon
    monkeypatch.setattr(accountant, "epsilon", lambda costs, delta: older(costs, delta) * factor)
    with opened(path, 4.0) as ledger:
        assert ledger.spent() == stated * factor
        assert ledger.note("refresh", "case 7").epsilon == stated
        assert ledger.put_into_force("p", 4.0).epsilon == stated
        free = Recovery((EntryRef(9, "a" * 64),), (), "A. Weber", "fedward://silo/north", "PEM", "00")
        assert ledger.recover(free, [lost]).epsilon == stated
        charged = ledger.charge(release(2, "p")).epsilon
        assert charged == older(ledger.costs(), 1e-5) * factor
    with opened(path, 4.0) as ledger:
        assert ledger.spent() == charged
        assert len(ledger.history()) == 5


def test_a_ledger_writes_nothing_that_it_would_refuse_to_read(tmp_path):
    path = created(tmp_path)
    with opened(path, 4.0) as ledger:
        spent = ledger.charge(release(1, "p")).epsilon
        beyond = Recovery((), (Cost("training", 1.0, 0.1, 200),), "A. Weber", "fedward://silo/north", "PEM", "00")
        with pytest.raises(LedgerWriteError, match=r"entry 2 was not written.*no finite price"):
            ledger.recover(beyond, ())
        assert ledger.spent() == spent
        ledger.charge(release(2, "p"))
    with opened(path, 4.0) as ledger:
        assert len(ledger.history()) == 2
