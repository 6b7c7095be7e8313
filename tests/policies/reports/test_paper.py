"""The PDF: text and never markup, tagged, the same for equal reports, of the same content as the page."""

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import typst

from policies.reports import paper
from policies.reports.paper import pdf
from support.reports import NASTY, WHOLE

BLOB = pdf(WHOLE)
TEMPLATE = Path(paper.__file__).parent / "templates" / "paper.typ"


def plain(blob):
    """The document with its streams unpacked."""
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", blob, re.DOTALL)
    return blob + b"\n".join(zlib.decompress(one) for one in streams if one[:1] == b"x")


def test_it_is_a_tagged_document_with_a_title_and_a_language():
    said = plain(BLOB)
    assert BLOB.startswith(b"%PDF-")
    assert b"/MarkInfo" in said
    assert b"pdfuaid:part" in said
    assert re.search(rb"/Lang\s*\(en", said)
    for role in (b"/S /H1", b"/S /H2", b"/S /Table", b"/S /TH", b"/S /Figure", b"/S /L"):
        assert role in said or role.replace(b" /", b"/") in said


def test_texts_are_texts_and_not_typst():
    """What would end, call or refer in Typst is printed: the document is made, and its outline has the title whole."""
    said = typst.query(
        TEMPLATE, "heading", field="body", root=TEMPLATE.parent, sys_inputs={"report": json.dumps(WHOLE.plain())}
    )
    texts = json.dumps(json.loads(said), ensure_ascii=False)
    assert json.dumps(f"First {NASTY}", ensure_ascii=False)[1:-1] in texts
    assert json.dumps(f"Title {NASTY}", ensure_ascii=False)[1:-1] in texts


def test_equal_reports_give_equal_bytes():
    assert pdf(WHOLE) == BLOB


def test_drawings_are_told_to_who_cannot_see_them():
    said = plain(BLOB)
    assert len(re.findall(rb"/Alt\s*[(<]", said)) == 3


@pytest.mark.parametrize(
    "title", ["\u80ba\u304c\u3093", "\u0645\u0631\u0636", "\U0001f600", "a\u202eb", "tab\there", "bell\x07"]
)
def test_a_character_that_no_font_has_costs_no_report(title):
    blob = pdf(replace(WHOLE, title=title))
    assert blob.startswith(b"%PDF-")
    assert b"/MarkInfo" in plain(blob)


def test_what_is_no_character_at_all_is_an_error_and_no_broken_file():
    with pytest.raises(typst.TypstError):
        pdf(replace(WHOLE, title="\ud800"))
