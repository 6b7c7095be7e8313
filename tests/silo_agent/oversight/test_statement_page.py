import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Cosignature, checkpoint
from policies.ledger.events import Debit, EntryRef, InForce, Notice, Recovery
from policies.ledger.exports import Export
from policies.ledger.summary import summarise
from policies.plan.cost import Cost
from silo_agent.oversight.statement_page import statement_page

AT = "2026-01-31T08:00:00+00:00"
COST = Cost("training", 1.0, 20.0, 1)
EVENTS = (
    (InForce("p" * 64, 4.0), 0.0),
    (Debit("s" * 64, "p" * 64, 1, 1, {"heads": COST}), 0.5),
    (Notice("withdrawal", "<script>case</script>"), 0.5),
    (InForce("q" * 64, 2.0), 0.5),
    (Recovery((EntryRef(9, "a" * 64),), (COST,), 'A. "Weber" & co', "fedward://silo/north", "PEM", "00"), 1.25),
)
VOID = {"meta", "line", "path"}


class Outline(HTMLParser):
    """Checks that elements are closed in order, and notes what there is."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page(events=EVENTS, *, public=False, unit="patient"):
    columns = None if unit is None else ("pid",)
    genesis = Genesis("ward <1>", 0.2, 1e-5, public, unit, columns)
    entries, head = [], EntryRef(0, genesis_row(genesis)[2])
    for event, epsilon in events:
        entries.append(next_entry(head, event, AT, epsilon))
        head = entries[-1].head
    export = Export("fedward://silo/north", AT, 2.0, genesis, tuple(entries))
    return statement_page(export, summarise(genesis, entries)).decode(), export


def test_it_says_what_is_spent_and_left_and_where_the_chain_ends():
    text, export = page()
    assert "Epsilon 1.2500 of 2 is spent at delta 1e-05; 0.7500 is left. 5 entries." in text
    assert export.head.hash in text
    assert "up to entry 9; A. &quot;Weber&quot; &amp; co answers for it" in text
    assert "patients withdrew" in text
    assert "lost entries, charged again" in text
    assert f"<code>{'s' * 64}</code>" in text


def test_a_study_is_named_as_the_silo_knows_it_beside_its_digest():
    _, export = page()
    summary = summarise(export.genesis, export.entries)
    text = statement_page(export, summary, {"s" * 64: "exam <1>"}).decode()
    assert f"<td>exam &lt;1&gt; <code>{'s' * 64}</code></td>" in text
    assert "exam" not in statement_page(export, summary, {"t" * 64: "exam"}).decode()


def test_it_says_who_cosigned_up_to_which_entry():
    _, export = page()
    assert "Nobody else has signed how far the ledger had come." in page()[0]
    said = checkpoint("north", export.genesis, export.entries[:3], AT)
    held = tuple(Cosignature(said, f"fedward://{one}", b"", b"", b"", b"") for one in ("coordinator/hub", "silo/<b>"))
    text = statement_page(replace(export, cosigned=held), summarise(export.genesis, export.entries)).decode()
    assert "fedward://coordinator/hub up to entry 3, fedward://silo/&lt;b&gt; up to entry 3." in text
    assert "Nobody else" not in text


def test_it_is_complete_in_itself_and_runs_nothing():
    text, _ = page()
    assert "<script" not in text
    assert "&lt;script&gt;case&lt;/script&gt;" in text
    assert "ward &lt;1&gt;" in text
    assert not re.search(r"(\bsrc=|\bhref=|url\(|@import|https?:)", text)
    assert "default-src 'none'" in text


def test_it_can_be_read_aloud():
    text, _ = page()
    outline = Outline(text)
    assert outline.open == []
    assert outline.seen.count("h1") == 1
    assert outline.seen.count("table") == outline.seen.count("caption") == 3
    assert ("lang", "en") in outline.attributes
    assert ("role", "img") in outline.attributes
    assert outline.attributes.count(("scope", "col")) == outline.seen.count("th")
    labelled = dict(outline.attributes)["aria-labelledby"].split()
    assert all(("id", name) in outline.attributes for name in labelled)
    assert "rises from 0 to 1.2500 over 5 entries; the budget is 2, so 0.7500 is left" in text


def test_it_says_what_is_protected():
    patients, records, older = (page(unit=unit)[0] for unit in ("patient", "record", None))
    assert "the patient, with all records of that person" in patients
    assert "tell about any one patient" in patients
    assert "a person behind several records is protected less" in records
    assert "tell about any one record" in records
    assert "A fixed part of the records (20%)" in records
    meaning = records[records.index("What these figures mean") : records.index("Spent and left")]
    assert "patient" not in meaning
    assert "hospital&#x27;s policy says" in older
    assert "tell about any one protected unit" in older


def test_it_promises_noise_only_where_none_may_be_left_out():
    private, public = page()[0], page((), public=True)[0]
    assert "Random noise is added to every value that leaves." in private
    assert "Random noise" not in public
    assert "declared public: studies may use them without noise" in public
    assert "without noise" not in private
    assert "What is protected" not in public


def test_the_plot_steps_up_at_the_entry_that_cost_something():
    text, _ = page()
    paths = re.findall(r'<path d="([^"]+)"', text)
    heights = [float(y) for y in re.findall(r",([\d.]+)", paths[1])]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == 3, "nothing, 0.5, 1.25"
    budget = [float(y) for y in re.findall(r",([\d.]+)", paths[2])]
    assert budget == sorted(budget), "it was lowered"
    assert len(set(budget)) == 2


@pytest.mark.parametrize(("events", "public"), [((), False), ((), True)])
def test_an_empty_ledger_has_a_page_too(events, public):
    text, _ = page(events, public=public)
    assert Outline(text).open == []
    assert "0.0000" in text


def test_public_data_are_said_to_be_without_a_bound():
    text, _ = page([(Debit("s", "p", 0, 1, {"counts": Cost("training", 1.0, 0.0, 1)}), float("inf"))], public=True)
    assert "no budget binds. Spent: epsilon unbounded" in text
    assert "stroke-dasharray" not in text
    assert Outline(text).open == []
