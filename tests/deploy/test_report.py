"""The demo's report: what it adds to a board's report, on the page and on the terminal."""

import math
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from deploy.demo.report import print_terminal, report, size
from deploy.demo.report_data import (
    MethodRow,
    PersonalResult,
    ReportData,
    RoundBytes,
    SiloBudget,
    TensorBytes,
    WorkSeconds,
)
from policies.reports.page import html
from policies.reports.published import PublishedFigure
from support.studies import tiny_study

STUDY = tiny_study(
    purpose="A & B",
    data={"domain": [{"column": "group", "values": ["a", "b"], "names": ["White", "Black & <b>"]}]},
    privacy={"mode": "distributed"},
)
DATA = ReportData(
    title="Test <study>",
    study=STUDY,
    budgets=(SiloBudget("one", 3.9, 3.9, 8.0), SiloBudget("two", 3.8, 3.8, 4.0)),
    seconds=12.0,
    methods=(
        MethodRow("FedWard", "ours", (0.81, 0.79), 3.9),
        MethodRow("alone", "none", (0.75, 0.70), None, ((0.7, 0.8), (0.6, 0.75))),
    ),
    sealed=(
        PublishedFigure("White", "patients", 61.7, 50.0, 70.0),
        PublishedFigure("White", "auc", 0.8, 0.7, 0.9),
        PublishedFigure("White", "accuracy", 0.88, 0.81, 0.93),
        PublishedFigure("White", "calibration", 0.0, 0.0, 0.12),
        PublishedFigure("Black & <b>", "patients", 3.0, 0.0, 9.0),
        PublishedFigure("Black & <b>", "auc", None, 0.0, 1.0),
    ),
    uploads=(TensorBytes("heads", "CKKS", 300, 65536, 3),),
    rounds=(RoundBytes(0, 1000, 2000), RoundBytes(1, 65536, 90000)),
    phases=(WorkSeconds("training", 5.0), WorkSeconds("sums", 1.0)),
    personal=(PersonalResult("one", 0.8, 0.82),),
    settings=(("rounds", "2"),),
)
INF = math.inf
BARE = replace(DATA, methods=(), sealed=(), uploads=(), rounds=(), phases=(), personal=(), settings=())
ADDED = (
    "How well every group is served",
    "How good the model is, and for whom",
    "Can the predicted risks be trusted?",
    "What travelled",
    "Where the time went",
    "The personal models that never leave",
    "Settings",
)
PUBLIC = tiny_study(
    heads={"pooled_noise": 0.0, "domain_noise": 0.0},
    encoder={"noise": 0.0},
    evaluation={"noise": 0.0},
    privacy={"mode": "none", "count_noise": 0.0},
    data={"domain": [{"column": "group", "values": ["a", "b"], "names": ["White", "Black & <b>"]}]},
)


def page(data):
    return html(report(data)).decode()


def printed(data):
    out = StringIO()
    print_terminal(data, Console(file=out, width=200))
    return out.getvalue()


def test_texts_are_escaped_and_the_study_is_named_whole_once():
    text = page(DATA)
    assert "Test &lt;study&gt;" in text
    assert "<b>" not in text
    assert text.count(f"<code>{STUDY.digest}</code>") == 1


def test_equal_data_gives_equal_pages():
    assert page(DATA) == page(DATA)


def test_best_and_worst_are_marked_and_the_guarantee_is_told():
    text = page(DATA)
    assert '<td class="n worst" data-head="Black &amp; &lt;b&gt;">0.790</td>' in text
    assert '<td class="n best" data-head="Mean">0.800</td>' in text
    assert '<td class="n best" data-head="Worst">0.790</td>' in text
    assert text.count('class="n best"') == 2
    assert re.search(r'<tr class="ours">\s*<th scope="row" data-head="Method">FedWard<small>ours</small>', text)
    assert "of a budget of 4, delta 1e-05" in text
    assert text.count(">too few held-out patients to tell<") == 1
    assert "too few (about 3 patients)" in text
    assert "below 0.120" in text


def test_methods_are_drawn_with_their_spread():
    section = next(one for one in report(DATA).sections if one.title == ADDED[0])
    drawn = section.blocks[1]
    assert (drawn.series, drawn.low, drawn.high) == (("FedWard", "alone"), 0.5, 1.0)
    first = drawn.rows[0]
    assert [(dot.value, dot.low, dot.high, dot.series) for dot in first.dots] == [
        (0.75, 0.7, 0.8, 1),
        (0.81, None, None, 0),
    ]
    low = replace(DATA, methods=(replace(DATA.methods[1], auc=(0.4, 0.3), spread=((0.3, 0.5), (0.25, 0.4))),))
    section = next(one for one in report(low).sections if one.title == ADDED[0])
    assert section.blocks[1].low == pytest.approx(0.2)


def test_a_study_without_public_test_data_has_a_page_without_those_sections():
    titles, bare = ([one.title for one in report(data).sections] for data in (DATA, BARE))
    assert [title for title in titles if title not in bare] == list(ADDED)
    assert "What it cost each hospital's budget" in bare
    assert bare[-1] == "TRIPOD+AI"
    assert "made-up patients" in page(BARE)
    assert "made-up patients" not in page(replace(BARE, synthetic=False))


@pytest.mark.parametrize(
    ("factor", "agrees"), [(1.0, True), (1.009, True), (0.991, True), (1.011, False), (0.98, False)]
)
def test_two_accountants_agree_within_one_per_cent(factor, agrees):
    budgets = tuple(replace(b, recomputed=b.spent * factor) for b in DATA.budgets)
    assert replace(DATA, budgets=budgets).ledgers_agree() is agrees


@pytest.mark.parametrize(("spent", "counted", "agrees"), [(INF, INF, True), (3.9, INF, False), (INF, 3.9, False)])
def test_two_accountants_agree_on_what_has_no_bound(spent, counted, agrees):
    assert replace(DATA, budgets=(SiloBudget("one", spent, counted, 8.0),)).ledgers_agree() is agrees


def test_a_study_without_noise_says_that_nothing_is_protected():
    public = replace(DATA, study=PUBLIC, budgets=(SiloBudget("one", INF, INF, 8.0),))
    text = page(public)
    assert "Nothing: no noise was used" in text
    assert "Differential privacy for every" not in text
    assert "The sum over the hospitals that took part" in text
    assert "every hospital declares these data public" in text
    assert re.search(r"\binf\b", text) is None
    assert "What it cost each hospital" not in text
    assert "no noise was used" not in page(DATA)
    assert "No noise was used" in printed(public)
    assert "inf" not in printed(public)


def test_more_than_two_classes_have_no_auc():
    several = replace(DATA, sealed=(PublishedFigure("White", "balanced_accuracy", 0.75, 0.65, 0.85),))
    assert 'data-head="AUC"' not in page(several)
    assert "0.750 (0.650 to 0.850)" in page(several)
    assert 'data-head="AUC"' in page(DATA)


def test_a_ledger_that_disagrees_is_told_loudly():
    wrong = replace(DATA, budgets=(SiloBudget("one", 3.0, 3.9, 8.0),))
    assert '<p class="warning">A ledger disagrees' in page(wrong)
    assert "A ledger disagrees" not in page(DATA)


def test_the_terminal_shows_every_number_that_is_there():
    said = printed(DATA)
    for wanted in ("0.810", "0.800", "0.700 to 0.900", "0.810 to 0.930", "below 0.120", "too few", "3.900", "4.100"):
        assert wanted in said
    assert "64.0 KiB" in said
    assert "0.8" not in printed(BARE).split("Epsilon")[0]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (65536, "64.0 KiB"), (10**6, "977 KiB")])
def test_sizes_are_short(count, text):
    assert size(count) == text


def test_data_that_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="one AUC per domain"):
        replace(DATA, methods=(MethodRow("x", "", (0.5,)),))
    with pytest.raises(ValueError, match="budget of one silo"):
        replace(DATA, budgets=())
    assert DATA.spent == 3.9
    assert DATA.budget == 4.0
    assert DATA.worst_domain == "Black & <b>"
    assert BARE.worst_domain is None
