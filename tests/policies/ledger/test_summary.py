from __future__ import annotations

from policies.accounting import accountant
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.events import Debit, EntryRef, InForce, Recovery
from policies.ledger.summary import summarise
from policies.plan.cost import Cost

GENESIS = Genesis("ward", 0.2, 1e-5)
HEADS, STEPS, METRICS = Cost("training", 1.0, 20.0, 1), Cost("training", 0.1, 4.0, 5), Cost("evaluation", 1.0, 8.0, 1)


def chain(*events):
    entries, head = [], EntryRef(0, genesis_row(GENESIS)[2])
    for number, event in enumerate(events):
        entries.append(next_entry(head, event, "2026-01-31T08:00:00+00:00", float(number)))
        head = entries[-1].head
    return entries


def alone(*costs):
    return accountant.epsilon(costs, 1e-5)


def test_every_release_is_counted_by_study_and_by_tensor():
    summary = summarise(
        GENESIS,
        chain(
            InForce("p", 4.0),
            Debit("a", "p", 1, 1, {"heads": HEADS, "encoder": STEPS}),
            Debit("a", "p", 1, 2, {"heads": HEADS}),
            Debit("b", "p", 2, 1, {"heads": HEADS, "metrics": METRICS}),
        ),
    )
    a, b = summary.studies
    assert (a.whole.name, a.whole.charges, a.whole.releases) == ("a", 3, 7)
    assert a.whole.epsilon == alone(HEADS, STEPS, HEADS)
    assert [(part.name, part.charges, part.releases, part.epsilon) for part in a.tensors] == [
        ("encoder", 1, 5, alone(STEPS)),
        ("heads", 2, 2, alone(HEADS, HEADS)),
    ]
    assert (b.whole.name, b.whole.epsilon) == ("b", alone(HEADS, METRICS))
    assert [(part.name, part.charges, part.epsilon) for part in summary.tensors] == [
        ("encoder", 1, alone(STEPS)),
        ("heads", 3, alone(HEADS, HEADS, HEADS)),
        ("metrics", 1, alone(METRICS)),
    ]
    assert summary.recovered is None


def test_what_was_recovered_stands_by_itself():
    recovery = Recovery((), (HEADS, STEPS), "A. Weber", "fedward://silo/north", "PEM", "00")
    summary = summarise(GENESIS, chain(recovery))
    assert (summary.studies, summary.tensors) == ((), ())
    assert (summary.recovered.charges, summary.recovered.releases) == (2, 6)
    assert summary.recovered.epsilon == alone(HEADS, STEPS)
