import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from deploy.demo.report import print_terminal, render, size
from deploy.demo.report_data import (
    MethodRow,
    NoisedFigure,
    PersonalResult,
    ReportData,
    RoundBytes,
    SealedDomain,
    SiloBudget,
    TensorBytes,
    WorkSeconds,
)

DATA = ReportData(
    title="Test <study>",
    purpose="A & B",
    study_digest="ab" * 32,
    silos=("one", "two"),
    domains=("White", "Black & <b>"),
    unit="patient",
    delta=1e-5,
    noise_mode="distributed",
    colluders=1,
    budgets=(SiloBudget("one", 3.9, 3.9, 8.0), SiloBudget("two", 3.8, 3.8, 4.0)),
    seconds=12.0,
    methods=(
        MethodRow("FedWard", "ours", (0.81, 0.79), 3.9),
        MethodRow("alone", "none", (0.75, 0.70), None, ((0.7, 0.8), (0.6, 0.75))),
    ),
    sealed=(
        SealedDomain(
            NoisedFigure(61.7, 50.0, 70.0),
            NoisedFigure(0.8, 0.7, 0.9),
            NoisedFigure(0.88, 0.81, 0.93),
            NoisedFigure(0.75, 0.65, 0.85),
            NoisedFigure(0.05, 0.0, 0.12),
            NoisedFigure(0.97, 0.81, 1.21),
        ),
        SealedDomain(NoisedFigure(3.0, 0.0, 9.0), None, None, None, None, None),
    ),
    uploads=(TensorBytes("heads", "CKKS", 300, 65536, 3),),
    rounds=(RoundBytes(0, 1000, 2000), RoundBytes(1, 65536, 90000)),
    phases=(WorkSeconds("training", 5.0), WorkSeconds("sums", 1.0)),
    personal=(PersonalResult("one", 0.8, 0.82),),
    settings=(("rounds", "2"),),
)
INF = math.inf
BARE = replace(DATA, methods=(), sealed=(), uploads=(), rounds=(), phases=(), personal=(), settings=())


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.urls, self.tags = [], [], [], set()

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.urls.append(value)


def page(data, tmp_path):
    render(data, tmp_path / "new" / "report.html")
    text = (tmp_path / "new" / "report.html").read_text(encoding="utf-8")
    found = Page()
    found.feed(text)
    return text, found


def test_the_page_loads_nothing_and_runs_nothing(tmp_path):
    text, found = page(DATA, tmp_path)
    assert all(url.startswith("#") for url in found.urls)
    assert found.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []


def test_ids_are_unique_and_links_inside_the_page_hit_one(tmp_path):
    text, found = page(DATA, tmp_path)
    assert len(found.ids) == len(set(found.ids))
    targets = {url[1:] for url in found.urls} | set(re.findall(r"url\(#([^)]+)\)", text))
    assert targets <= set(found.ids)


def test_texts_are_escaped_in_page_and_drawings(tmp_path):
    text, _ = page(DATA, tmp_path)
    assert "Test &lt;study&gt;" in text
    assert "<b>" not in text
    assert text.count("<svg") == text.count("</svg>") == 5


def test_the_study_is_named_whole_once(tmp_path):
    text, _ = page(DATA, tmp_path)
    assert text.count(DATA.study_digest) == 1
    assert text.count('<th scope="row">study</th>') == 1


def test_equal_data_gives_equal_pages(tmp_path):
    assert page(DATA, tmp_path / "a")[0] == page(DATA, tmp_path / "b")[0]


def test_best_and_worst_are_marked_and_the_guarantee_is_told(tmp_path):
    text, _ = page(DATA, tmp_path)
    assert '<td class="worst">0.790</td>' in text
    assert '<td class="sum best">0.800</td>' in text
    assert "epsilon 3.90 at delta 1e-05" in text
    assert text.count("too few held-out patients") == 1
    assert text.count("<td>too few</td>") == 5
    assert "<td>0.750 (0.650 to 0.850)</td>" in text


def test_a_study_without_public_test_data_has_a_page_without_those_sections(tmp_path):
    text, _ = page(BARE, tmp_path)
    assert text.count("<svg") == 1
    assert "How well every group is served" not in text
    assert "What it cost each hospital" in text


@pytest.mark.parametrize(
    ("factor", "agrees"), [(1.0, True), (1.009, True), (0.991, True), (1.011, False), (0.98, False)]
)
def test_two_accountants_agree_within_one_per_cent(factor, agrees):
    budgets = tuple(replace(b, recomputed=b.spent * factor) for b in DATA.budgets)
    assert replace(DATA, budgets=budgets).ledgers_agree() is agrees


@pytest.mark.parametrize(("spent", "counted", "agrees"), [(INF, INF, True), (3.9, INF, False), (INF, 3.9, False)])
def test_two_accountants_agree_on_what_has_no_bound(spent, counted, agrees):
    assert replace(DATA, budgets=(SiloBudget("one", spent, counted, 8.0),)).ledgers_agree() is agrees


def test_a_study_without_noise_says_that_nothing_is_protected(tmp_path):
    public = replace(DATA, noise_mode="none", budgets=(SiloBudget("one", INF, INF, 8.0),))
    text, _ = page(public, tmp_path)
    assert "<strong>Nothing</strong>: no noise was used" in text
    assert "Differential privacy for every" not in text
    assert "The sum over all 2 hospitals" in text
    assert re.search(r"\binf\b", text) is None
    assert text.count("<svg") == 4
    assert "no noise was used" not in page(DATA, tmp_path)[0]
    out = StringIO()
    print_terminal(public, Console(file=out, width=180))
    assert "No noise was used" in out.getvalue()
    assert "inf" not in out.getvalue()


def test_more_than_two_classes_have_no_auc(tmp_path):
    several = replace(DATA, sealed=tuple(replace(domain, auc=None) for domain in DATA.sealed))
    text, _ = page(several, tmp_path)
    assert "balanced accuracy on held-out patients, from noised sums" in text
    assert text.count("<td>too few</td>") == 4
    assert "<th>AUC</th>" not in text
    assert "<th>AUC</th>" in page(DATA, tmp_path)[0]


def test_a_ledger_that_disagrees_is_told_loudly(tmp_path):
    wrong = replace(DATA, budgets=(SiloBudget("one", 3.0, 3.9, 8.0),))
    assert "A ledger disagrees" in page(wrong, tmp_path)[0]
    assert "A ledger disagrees" not in page(DATA, tmp_path / "right")[0]


def test_the_terminal_shows_every_number_that_is_there():
    out = StringIO()
    print_terminal(DATA, Console(file=out, width=180))
    for wanted in ("0.810", "0.800", "0.700 to 0.900", "0.810 to 0.930", "0.000 to 0.120", "too few", "3.900", "4.100"):
        assert wanted in out.getvalue()
    assert "64.0 KiB" in out.getvalue()
    print_terminal(BARE, Console(file=StringIO()))


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (65536, "64.0 KiB"), (10**6, "977 KiB")])
def test_sizes_are_short(count, text):
    assert size(count) == text


def test_data_that_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="one AUC per domain"):
        replace(DATA, methods=(MethodRow("x", "", (0.5,)),))
    with pytest.raises(ValueError, match="one entry per domain"):
        replace(DATA, sealed=DATA.sealed[:1])
    with pytest.raises(ValueError, match="budget of one silo"):
        replace(DATA, budgets=())
    assert DATA.spent == 3.9
    assert DATA.budget == 4.0
    assert DATA.worst_domain == "Black & <b>"
    assert BARE.worst_domain is None
