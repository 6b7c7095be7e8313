"""A table of wanted and measured figures: printed, written to `bench/out/NAME.json`, and judged."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from bench.places import OUT


@dataclass(frozen=True)
class Criterion:
    """One line: `wanted` says in words what `met` judges."""

    name: str
    wanted: str
    measured: str
    met: bool


def judge(name: str, figures: list[Criterion], details: object) -> int:
    """Print, write, and return the exit code, which is 1 if a figure is missed."""
    widths = [max(len(getattr(f, field)) for f in figures) for field in ("name", "wanted", "measured")]
    print(
        f"\n{name}, {datetime.now(UTC):%Y-%m-%d}, {platform.processor() or platform.machine()}, {platform.platform()}"
    )
    for figure in figures:
        cells = (figure.name.ljust(widths[0]), figure.wanted.ljust(widths[1]), figure.measured.ljust(widths[2]))
        print("| " + " | ".join(cells) + " | " + ("met" if figure.met else "MISSED") + " |")
    OUT.mkdir(exist_ok=True)
    lines = [{**asdict(figure), "met": bool(figure.met)} for figure in figures]
    content = {"command": " ".join(sys.argv), "figures": lines, "details": details}
    (OUT / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if all(figure.met for figure in figures) else 1
