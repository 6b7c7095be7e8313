from dataclasses import replace

import pytest

from crypto.pki.certificates import Trust
from policies.accounting import totals
from policies.errors import CosignError
from policies.ledger.events import EXHAUSTED, EntryRef, Recovery, recovery_message
from policies.ledger.ledger import Debit, Ledger
from policies.plan.cost import Cost
from silo_agent.oversight.recovery import checked, recover
from support.cosigners import cosigned
from support.ledgers import NORTH


@pytest.fixture
def rolled_back(quick_path):
    """A ledger whose last two debits were lost, and what was cosigned before."""
    path = quick_path / "ledger.sqlite3"
    Ledger.create(path, NORTH)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        for number in (1, 2, 3):
            ledger.charge(Debit("s", "p", number, 1, {"heads": Cost("training", 1.0, 10.0 + number, 1)}))
            if number == 1:
                older = path.read_bytes()
        last = ledger.checkpoint("north")
    path.write_bytes(older)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        yield ledger, last


def test_what_was_lost_is_charged_and_signed(rolled_back, credentials, authority):
    ledger, last = rolled_back
    after = ledger.head
    entry = recover(ledger, credentials["north"], [last], "A. Weber")
    event = entry.event
    assert isinstance(event, Recovery)
    assert (event.covers, event.responsible, event.signer) == ((last.head,), "A. Weber", "fedward://silo/north")
    assert totals.beyond(last.totals, ledger.costs()) == ()
    assert entry.epsilon >= last.epsilon
    ledger.require(last.head)
    message = recovery_message("north-ward", after, event.covers, event.costs, "A. Weber")
    signer = Trust(authority.pem).verify(event.certificate.encode(), message, bytes.fromhex(event.signature))
    assert signer.uri == event.signer


def test_what_is_there_is_not_charged_again(rolled_back, credentials):
    ledger, last = rolled_back
    recover(ledger, credentials["north"], [last], "A. Weber")
    spent = ledger.spent()
    with pytest.raises(CosignError, match="nothing to recover"):
        recover(ledger, credentials["north"], [last], "A. Weber")
    assert ledger.spent() == spent


def test_where_nobody_knows_everything_is_charged(rolled_back, credentials):
    ledger, last = rolled_back
    with pytest.raises(CosignError, match="nothing to recover"):
        recover(ledger, credentials["north"], [], "A. Weber")
    entry = recover(ledger, credentials["north"], [last], "A. Weber", charge_everything=True)
    assert EXHAUSTED in entry.event.costs
    assert entry.event.covers == (last.head,)
    assert ledger.spent() > 32


def test_a_loss_that_cost_nothing_is_covered_by_name(rolled_back, credentials):
    ledger, _ = rolled_back
    free = ledger.checkpoint("north")
    lost = replace(free, head=EntryRef(2, "d" * 64), anchors=(*free.anchors, free.head))
    spent = ledger.spent()
    entry = recover(ledger, credentials["north"], [lost], "A. Weber")
    assert (entry.event.costs, entry.epsilon) == ((), spent)
    ledger.require(lost.head)


def test_statements_about_other_ledgers_are_refused(rolled_back, credentials, coordinator):
    ledger, last = rolled_back
    with pytest.raises(CosignError, match="belongs to other"):
        recover(ledger, credentials["north"], [replace(last, data_set="other")], "A. Weber")

    def signed(checkpoint):
        return cosigned(checkpoint, coordinator, credentials[checkpoint.silo])

    (good,) = checked([signed(last)], credentials["north"])
    assert good.signer == "fedward://coordinator/hub"
    with pytest.raises(CosignError, match="ledger of south"):
        checked([signed(replace(last, silo="south"))], credentials["north"])
    assert len(ledger.history()) == 1


@pytest.mark.parametrize("epsilon", [1e300, float("inf")])
def test_a_made_up_epsilon_is_not_believed_and_the_price_is_that_of_the_costs(rolled_back, credentials, epsilon):
    """Whoever stole the key for minutes can have any figure cosigned."""
    ledger, last = rolled_back
    entry = recover(ledger, credentials["north"], [replace(last, epsilon=epsilon)], "A. Weber")
    assert totals.beyond(last.totals, ledger.costs()) == ()
    assert last.epsilon <= entry.epsilon < 4.0


def test_costs_that_no_private_ledger_has_are_refused_with_what_to_do(rolled_back, credentials):
    ledger, last = rolled_back
    made_up = replace(last, totals=(*last.totals, Cost("evaluation", 1.0, 0.0, 1)))
    before = ledger.head
    with pytest.raises(CosignError, match="Have the root revoke that key as of the theft"):
        recover(ledger, credentials["north"], [made_up], "A. Weber")
    assert ledger.head == before


def test_what_is_in_signed_lists_is_charged_even_if_no_head_tells_of_it(rolled_back, credentials):
    """The heads came under a key that was stolen, and bind no more; a sum that was opened is never forgiven."""
    ledger, _ = rolled_back
    held, lost = Cost("training", 1.0, 11.0, 1), Cost("training", 1.0, 12.0, 1)
    with pytest.raises(CosignError, match="look for a newer copy"):
        recover(ledger, credentials["north"], [], "A. Weber", summed=[held])
    entry = recover(ledger, credentials["north"], [], "A. Weber", summed=[held, lost])
    assert (entry.event.covers, entry.event.costs) == ((), (lost,))
    with pytest.raises(CosignError, match="nothing to recover"):
        recover(ledger, credentials["north"], [], "A. Weber", summed=[held, lost])


def test_what_a_head_tells_of_is_not_charged_twice_because_it_is_in_a_list(rolled_back, credentials):
    ledger, last = rolled_back
    entry = recover(ledger, credentials["north"], [last], "A. Weber", summed=last.totals)
    assert entry.event.costs == totals.beyond(last.totals, [Cost("training", 1.0, 11.0, 1)])
