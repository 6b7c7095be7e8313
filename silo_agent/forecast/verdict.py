"""What a forecast means, in a sentence: whether the study is worth anything, and what to change if it is not."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

from policies.documents.study import Study
from silo_agent.forecast.forecast import Figure, Forecast, Row, reached

_WORTHLESS: Final[dict[Figure, float]] = {"auc": 0.05, "accuracy": 0.02, "r2": 0.02}
"""A model that is no further above a coin than this is named one."""
_WORTH: Final[dict[Figure, float]] = {"auc": 0.1, "accuracy": 0.05, "r2": 0.05}
"""How far above a coin a study is worth something, if it is asked what would take it there."""
_TIMES: Final = (2, 4, 8, 16, 32, 64)
_HELPS: Final = 0.01
"""Least gain for which a change is named."""
_OFTEN: Final = 0.2
"""A chance that the study gains nothing above which it is told, whatever the middle draw says."""
_SAYS_SOMETHING: Final = 0.5
"""Width of an interval of R^2 up to which it says something."""
NAMES: Final[dict[Figure, str]] = {"auc": "AUC", "accuracy": "accuracy", "r2": "R2"}


def is_coin(figure: Figure, row: Row) -> bool:
    """Whether the study may well end no better than a coin: one case in five or more."""
    return (row.mean.middle + row.mean.low) / 2.0 < row.coin + _WORTHLESS[figure]


def is_no_gain(row: Row) -> bool:
    """Whether a hospital alone would do as well, without spending anything."""
    return row.gain is not None and row.gain.middle <= 0.0


def is_often_no_gain(row: Row) -> bool:
    """Whether that may well happen: in more than one draw of five."""
    return row.no_gain is not None and row.no_gain > _OFTEN


def sentences(study: Study, outlook: Forecast) -> list[str]:
    """What each row means; nothing of a row that is worth its price."""
    told = [_sentence(study, outlook, row) for row in outlook.rows]
    if not outlook.asked.is_stated:
        name = NAMES[outlook.figure]
        told = [
            f"If the features reach {name} {row.effect:g}: {text}"
            for row, text in zip(outlook.rows, told, strict=True)
            if text
        ]
    return [text for text in (*told, _vague(study, outlook)) if text]


def _vague(study: Study, outlook: Forecast) -> str:
    """Whether R^2 would be published with intervals that say next to nothing."""
    widths = [row.width for row in outlook.rows]
    if outlook.figure != "r2" or "r2" not in study.publish or any(width <= _SAYS_SOMETHING for width in widths):
        return ""
    known = [width for width in widths if not math.isnan(width)]
    how = f"with 95 % intervals {min(known):.2f} wide" if known else "for no domain, as too few patients are held out"
    return (
        f"R2 would be published {how}, which says nothing: take r2 out of publish. mae says more of as many patients."
    )


def _sentence(study: Study, outlook: Forecast, row: Row) -> str:
    name = NAMES[outlook.figure]
    if is_coin(outlook.figure, row):
        what = f"The study would be no better than a coin ({name} {row.mean.middle:.3f})."
        wanted = row.coin + _WORTH[outlook.figure]
    elif is_no_gain(row) and row.alone is not None:
        what = (
            f"The study would be no better than staying alone ({name} {row.mean.middle:.3f}; one hospital reaches"
            f" {row.alone.middle:.3f} by itself)."
        )
        wanted = row.alone.middle
    elif is_often_no_gain(row) and row.gain is not None and row.no_gain is not None:
        gain = row.gain
        return (
            f"In {row.no_gain:.0%} of the draws the study is no better than staying alone: it gains {gain.middle:+.3f}"
            f" in {name} ({gain.low:+.3f} to {gain.high:+.3f}). {_lever(study, outlook, row)}More hospitals, fewer"
            " inputs and fewer domains make a gain surer."
        )
    else:
        return ""
    return f"{what} {_change(study, outlook, row, wanted)}"


def _change(study: Study, outlook: Forecast, row: Row, wanted: float) -> str:
    """What would take the study to `wanted`, in a sentence."""
    name = NAMES[outlook.figure]
    if row.plain_mean.middle < wanted:
        return (
            f"Without any noise it would reach {row.plain_mean.middle:.3f}, so less privacy does not help: find more"
            " hospitals, or features that say more."
        )
    better = _lever(study, outlook, row)
    place = bisect_left(_TIMES, wanted, key=lambda n: reached(study, outlook.asked, row.limit, times=n))
    often = _TIMES[place] if place < len(_TIMES) else None
    fewer = f"fewer inputs than {study.data.inputs} and fewer domains than {len(study.data.domains)}"
    if often is None:
        return f"{better}Not even {_TIMES[-1]} times the patients would give {name} {wanted:.2f}: plan {fewer}."
    return (
        f"{better}For {name} {wanted:.2f} it takes about {often} times the patients, or {often} times less noise (about"
        f" {often} times the epsilon); {fewer} need less."
    )


def _lever(study: Study, outlook: Forecast, row: Row) -> str:
    """The change without a price that helps most, or nothing."""
    heads = study.heads.model_dump(mode="json")
    changes: dict[str, dict[str, object]] = {
        "heads.clip: 0.5": {"clip": 0.5},
        "heads.solver: hierarchical": {"solver": "hierarchical"},
    }
    best, text = reached(study, outlook.asked, row.limit, times=1) + _HELPS, ""
    for name, change in changes.items():
        if all(heads[field] == value or (field == "clip" and heads[field] <= value) for field, value in change.items()):
            continue
        try:
            other = Study.model_validate(study.model_dump(mode="json") | {"heads": heads | change})
        except ValueError:
            continue
        value = reached(other, outlook.asked, row.limit, times=1)
        if value > best:
            best, text = value, f"{name} costs nothing and would give about {value:.3f}. "
    return text
