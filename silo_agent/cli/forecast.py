"""The part of `fedward-silo plan` that says what a study will be worth: reads nothing but the study and options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from policies.documents.study import Study

if TYPE_CHECKING:
    from silo_agent.learning.forecast.forecast import Forecast, Interval, Row

HOW: Final = (
    "For a forecast of what it will be worth, write expected: {patients: ...} into the study, or give --patients."
)


def made(
    study: Study,
    *,
    patients: Sequence[int],
    prevalence: float | None,
    effect: float | None,
    held_out: float | None,
) -> Forecast | None:
    """The forecast, or None if nobody says how many patients are expected. Raises `LearningError`."""
    if not patients and study.expected is None:
        return None
    # This loads torch, which no price needs.
    from silo_agent.learning.forecast.asked import HELD_OUT, asked_of
    from silo_agent.learning.forecast.forecast import forecast

    aside = HELD_OUT if held_out is None else held_out
    asked = asked_of(study, patients=patients, prevalence=prevalence, effect=effect, held_out=aside)
    return None if asked is None else forecast(study, asked)


def show(study: Study, found: Forecast) -> None:
    """Print the forecast and what it means."""
    from silo_agent.learning.forecast.forecast import counted
    from silo_agent.learning.forecast.verdict import NAMES, sentences

    name, asked = NAMES[found.figure], found.asked
    heading = (
        f"Forecast of {name} from made-up patients: {asked.total:,} who train at {len(asked.patients)} hospitals,"
        f" {found.draws} runs"
    )
    table = Table(title=heading, title_justify="left")
    table.add_column(f"if the features reach {name}")
    for row in found.rows:
        table.add_column(f"{row.effect:g}", justify="right", no_wrap=True)
    parts = {
        "mean of the domains": [_interval(row.mean) for row in found.rows],
        "worst domain": [_interval(row.worst) for row in found.rows],
        "the same without noise": [_middle(row.plain_mean) for row in found.rows],
        "worst domain without noise": [_middle(row.plain_worst) for row in found.rows],
        "one hospital alone, no privacy": [_middle(row.alone) for row in found.rows],
        "width of a published interval": [_width(row) for row in found.rows],
    }
    for what, cells in parts.items():
        table.add_row(what, *cells)
    console = Console(markup=False, emoji=False)
    console.print(table)
    about, domains = len(counted(study, asked)), len(study.data.domains)
    if about < domains:
        few = f"It is about {about} of the {domains} domains: in the others too few patients will be held out to tell."
        console.print(few, soft_wrap=True, highlight=False)
    for sentence in sentences(study, found):
        console.print(sentence, soft_wrap=True, highlight=False)


def document(study: Study, found: Forecast) -> dict[str, object]:
    """The forecast as plain data; what is not known is None."""
    from silo_agent.learning.forecast.verdict import is_coin, is_no_gain, sentences

    rows = [
        asdict(row) | {"coin_toss": is_coin(found.figure, row), "no_better_than_alone": is_no_gain(row)}
        for row in found.rows
    ]
    content = {"figure": found.figure, "asked": asdict(found.asked), "draws": found.draws, "rows": rows}
    return {name: _plain(part) for name, part in (content | {"sentences": sentences(study, found)}).items()}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(found: Interval) -> str:
    return "-" if math.isnan(found.middle) else f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})"


def _middle(found: Interval | None) -> str:
    return "-" if found is None or math.isnan(found.middle) else f"{found.middle:.3f}"


def _width(row: Row) -> str:
    return "too few patients" if math.isnan(row.width) else f"{row.width:.3f}"
