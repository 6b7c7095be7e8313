"""Columns by which a table of one row for each patient and period is known: those that look like time at risk.

All rows of a patient weigh as one patient together. In a table of person-periods, who leaves early has fewer rows, and
each of them weighs more. So the risk of the first periods comes out too high: 5.5 times in a study of ten-year survival
(docs/studies.md, "Several rows of a patient"). A column's name proves nothing, so this is a warning and no refusal.
"""

from __future__ import annotations

import re
from typing import Final

from policies.documents.study import Study

_WORDS: Final = frozenset({"interval", "intervals", "period", "periods", "followup", "exposure", "tenure", "hazard"})
_PHRASES: Final = re.compile(
    r"at risk|follow up|person (?:time|years?|months?|days?)|time (?:to|since|from)|survival time"
    r"|(?:hours|days|weeks|months|years) (?:since|from|after|to|until)"
)


def time_at_risk(study: Study) -> tuple[str, ...]:
    """Columns of features that look like time at risk; none if each record is a patient of its own."""
    if study.data.patient is None:
        return ()
    return tuple(feature.column for feature in study.data.features if _looks_so(feature.column))


def _looks_so(column: str) -> bool:
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column)
    words = re.sub(r"[^a-z]+", " ", apart.lower()).strip()
    return bool(_WORDS & set(words.split())) or _PHRASES.search(words) is not None


def warning(study: Study) -> str | None:
    """What the author should know, in two sentences; None if nothing looks so."""
    found = time_at_risk(study)
    if not found:
        return None
    return (
        f"Look at {', '.join(found)}: is there a row for each patient and period? A patient's rows weigh as one patient"
        " together, so such a table gives risks of the first periods that are several times too high; do not train on"
        ' it (docs/studies.md, "Several rows of a patient").'
    )
