"""A report as PDF, typeset by Typst: tagged, so that a screen reader finds headings, tables and drawings (PDF/UA-1).

Guarantees: texts reach the typesetter as data and are never read as its language. It is given no file but its template,
and no package. Equal reports give equal bytes, where the fonts that ship with Typst have all their characters (Latin,
Greek, Cyrillic). Where no font of the machine has one either, the document shows a box in its place and is tagged all
the same, but does not claim the standard. The page has every character.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Literal

import typst

from policies.reports.blocks import BoardReport

_TEMPLATES: Final = Path(__file__).parent / "templates"


def pdf(report: BoardReport) -> bytes:
    """The document."""
    content = json.dumps(report.plain(), allow_nan=False)
    try:
        return _typeset(content, "ua-1")
    except typst.TypstError:
        return _typeset(content, None)


def _typeset(content: str, standard: Literal["ua-1"] | None) -> bytes:
    return typst.compile(
        _TEMPLATES / "paper.typ",
        root=_TEMPLATES,
        format="pdf",
        sys_inputs={"report": content},
        pdf_standards=standard,
    )
