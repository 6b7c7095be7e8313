"""A report as the files that people get: a page and a document that say the same."""

from __future__ import annotations

from policies.reports import page, paper
from policies.reports.blocks import BoardReport


def files(report: BoardReport, name: str) -> dict[str, bytes]:
    """The report as HTML and PDF, by file name."""
    return {f"{name}.html": page.html(report), f"{name}.pdf": paper.pdf(report)}
