"""A report as one HTML file, which loads nothing, runs nothing and sends nothing.

Guarantees: all that the page needs is in it, its content policy forbids any request, every text is escaped, and equal
reports give equal bytes. It is read in the light and in the dark, on paper, and on a screen 400 px wide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup

from policies.reports.blocks import BoardReport

_TEMPLATES: Final = Path(__file__).parent / "templates"


def html(report: BoardReport) -> bytes:
    """The page as UTF-8."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["share"] = _share
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    page = environment.get_template("page.html").render(
        report=report,
        style=Markup(style),  # noqa: S704  # a file of this package
    )
    return page.encode()


def _share(value: float, low: float, high: float) -> str:
    """How far along an axis a value lies, in percent; what lies beyond stands at the end."""
    along = (value - low) / (high - low)
    return f"{100.0 * min(max(along, 0.0), 1.0):.2f}"
