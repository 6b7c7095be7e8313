"""What was forecast of the study: read from what `fedward-silo plan STUDY --json` printed.

Guarantees: a forecast of another study is refused, and nothing of it is computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from policies.documents.study import Study
from policies.errors import PolicyError
from policies.reports.blocks import Bullets, Cell, Paragraph, Section, grid

_TITLE: Final = "What was forecast"
_PARTS: Final = (
    ("Mean of the domains", "mean"),
    ("Worst domain", "worst"),
    ("The same without noise", "plain_mean"),
    ("One hospital alone, no privacy", "alone"),
)
_FIGURES: Final = {"auc": "AUC", "accuracy": "accuracy", "r2": "R²"}


class ForecastFileError(PolicyError):
    """The file is no forecast of this study. The message names the file and the fix."""


def read_forecast(path: Path, study: Study) -> Mapping[str, Any]:
    """The forecast in a file of `fedward-silo plan STUDY --json`. Raises `ForecastFileError`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}; {_fix(path)}"
        raise ForecastFileError(msg) from None
    return forecast_in(content, study, path)


def forecast_in(content: bytes, study: Study, origin: Path | str) -> Mapping[str, Any]:
    """The forecast in what a file holds; `origin` is its name in messages. Raises `ForecastFileError`."""
    try:
        document = json.loads(content)
        digest, forecast = document["digest"], document["forecast"]
        _section(forecast)
    except KeyError as error:
        msg = f"{origin} holds no {error}: expected patients may be missing from the study; {_fix(origin)}"
        raise ForecastFileError(msg) from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        msg = f"{origin} is not what `fedward-silo plan --format json` prints; {_fix(origin)}"
        raise ForecastFileError(msg) from None
    if digest != study.digest:
        msg = f"{origin} forecasts another study ({str(digest)[:12]}, not {study.digest[:12]}); {_fix(origin)}"
        raise ForecastFileError(msg)
    return dict(forecast)


def _fix(origin: Path | str) -> str:
    return f"write it anew: fedward-silo plan STUDY.yaml --format json > {Path(origin).name}"


def section(forecast: Mapping[str, Any] | None) -> Section:
    """The forecast as it was printed, or that none was given."""
    if forecast is None:
        return Section(_TITLE, (Paragraph("No forecast was handed in with this report."),))
    return _section(forecast)


def _section(forecast: Mapping[str, Any]) -> Section:
    rows, figure = forecast["rows"], _FIGURES[forecast["figure"]]
    heads = ("If the features reach", *(f"{figure} {row['effect']:g}" for row in rows))
    lines: list[tuple[str | Cell, ...]] = [
        (name, *(_interval(row.get(part), whole=part in {"mean", "worst"}) for row in rows)) for name, part in _PARTS
    ]
    sentences: Sequence[str] = [str(one) for one in forecast["sentences"]]
    caption = f"From {int(forecast['draws'])} runs of made-up patients, as fedward-silo plan printed them"
    return Section(_TITLE, (grid(heads, lines, numbers=len(rows), caption=caption), Bullets(tuple(sentences))))


def _interval(found: Mapping[str, float | None] | None, *, whole: bool) -> str:
    if found is None or found["middle"] is None:
        return "-"
    ends = f" ({found['low']:.3f} to {found['high']:.3f})" if whole else ""
    return f"{found['middle']:.3f}{ends}"
