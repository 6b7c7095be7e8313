"""The page: self-contained, escaped, the same for equal reports, and nothing of a report is left out."""

import html as entities
import re
from dataclasses import replace
from html.parser import HTMLParser

from policies.reports.page import html
from support.reports import NASTY, WHOLE


class Page(HTMLParser):
    """Collects what a browser would act on, and all that it would show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.urls, self.said, self.attributes = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self.urls += [value for name, value in attributes if name in {"src", "href", "xlink:href", "action", "data"}]

    def handle_data(self, data):
        self.said.append(data)


TEXT = html(WHOLE).decode()
PAGE = Page(TEXT)


def test_it_loads_nothing_and_runs_nothing():
    assert PAGE.urls == []
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(PAGE.tags)
    assert "@import" not in TEXT
    assert re.findall(r"url\(", TEXT) == []
    policy = next(value for tag, name, value in PAGE.attributes if tag == "meta" and value.startswith("default-src"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not [name for _, name, _ in PAGE.attributes if name.startswith("on")]


def test_texts_are_texts_wherever_they_stand():
    assert "<b>" not in TEXT
    assert "b" not in PAGE.tags
    escaped = entities.escape(NASTY, quote=False)
    assert TEXT.count(escaped) == TEXT.count("#panic()") == 11


def test_everything_is_said():
    said = " ".join(" ".join(PAGE.said).split())
    for wanted in (
        *("Loud.", "Quiet.", "second", "note", "0.6 to 0.8", "Figures", "too few", "2 of 8", "6 of 4", "happened 0.5"),
        *("Not noised, stays inside", "2 hospitals", "ab" * 32),
    ):
        assert wanted in said


def test_what_stays_inside_is_marked_and_nothing_else():
    assert TEXT.count('<section class="inside">') == TEXT.count('<p class="stays">') == 1
    assert '<p class="banner">Not noised, stays inside.</p>' in TEXT
    assert 'class="banner"' not in html(replace(WHOLE, warning="")).decode()


def test_values_stand_where_they_belong_on_their_axes():
    places = re.findall(r'<i class="(dot s\d|span s\d|reference)" style="left:([\d.]+)%', TEXT)
    assert places == [
        ("reference", "0.00"),
        ("span s0", "20.00"),
        ("dot s0", "50.00"),
        ("dot s1", "100.00"),
        ("reference", "0.00"),
    ]
    assert "right:calc(100% - 80.00%)" in TEXT
    assert re.findall(r'<i class="(room|bar|bar over)" style="width:([\d.]+)%', TEXT) == [
        ("room", "100.00"),
        ("bar", "25.00"),
        ("room", "50.00"),
        ("bar over", "75.00"),
    ]
    assert re.search(r'x1="105.0" x2="105.0" y1="235.0" y2="85.0" class="whisker"', TEXT)
    assert re.search(r'cx="105.0" cy="160.0"', TEXT)


def test_marks_and_numbers_have_their_classes_and_headings_for_narrow_screens():
    assert re.search(r'<td class="n best" data-head="AUC">0.8</td>', TEXT)
    assert re.search(r'<td class="n worst" data-head="R²">0.7<small>0.6 to 0.8</small></td>', TEXT)
    assert '<tr class="ours">' in TEXT
    assert TEXT.count("<thead>") == 1, "a table of facts has no headings"


def test_it_is_for_the_dark_for_narrow_screens_and_for_paper():
    for query in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print"):
        assert query in TEXT
    assert ("meta", "content", "width=device-width, initial-scale=1") in PAGE.attributes


def test_drawings_are_told_to_who_cannot_see_them():
    labels = [value for _, name, value in PAGE.attributes if name == "aria-label"]
    assert labels == ["AUC: a 0.75; b too few", "epsilon: north 2 of 8; south 6 of 4", "Predicted 0.25, happened 0.5."]


def test_equal_reports_give_equal_bytes():
    assert html(WHOLE) == html(WHOLE)
