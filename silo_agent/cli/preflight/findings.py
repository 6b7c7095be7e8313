"""What a check found, and how reports show it: as a table for people, as JSON for programs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 120


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    LOOK = "look"
    """Nothing stands in the way, but a person should look."""
    FAILS = "fails"
    SKIPPED = "skipped"
    """Something that the check needs has failed, or it was not asked for."""


@dataclass(frozen=True)
class Finding:
    """One row of a report. `tables` has what does not fit a sentence, by title; each row has the same names."""

    check: str
    status: Status
    text: str
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class PreflightReport:
    """All findings. `shared` says that none of them follows from a record."""

    study: str
    digest: str
    silo: str
    version: str
    shared: bool
    findings: tuple[Finding, ...]

    @property
    def attention(self) -> bool:
        """Whether a check fails."""
        return any(one.status is Status.FAILS for one in self.findings)

    @property
    def title(self) -> str:
        """What the report is and who may see it."""
        kind = "to share: no record was read for it" if self.shared else "for inside: it counts records, keep it here"
        return f"Preflight of {self.study} at {self.silo or 'this silo'}, {kind}"

    def as_json(self) -> str:
        """The report for programs."""
        checks = [
            {
                "check": one.check,
                "status": one.status,
                "found": one.text,
                **({"tables": one.tables} if one.tables else {}),
            }
            for one in self.findings
        ]
        document = {
            "report": "shared" if self.shared else "inside",
            "study": self.study,
            "digest": self.digest,
            "silo": self.silo,
            "version": self.version,
            "attention": self.attention,
            "checks": checks,
        }
        return json.dumps(document, indent=1)

    def as_text(self) -> str:
        """The report for people."""
        out = io.StringIO()
        console = Console(file=out, width=_WIDTH, markup=False, emoji=False, highlight=False)
        table = Table("check", "result", "found", pad_edge=False)
        for one in self.findings:
            table.add_row(one.check, one.status, one.text)
        console.print(self.title)
        console.print(table)
        for one in self.findings:
            for title, rows in one.tables.items():
                if rows:
                    console.print(f"\n{title}")
                    more = Table(*rows[0], pad_edge=False)
                    for row in rows:
                        more.add_row(*(str(value) for value in row.values()))
                    console.print(more)
        return out.getvalue().rstrip("\n")
