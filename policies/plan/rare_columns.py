"""Yes/no columns that heads read as numbers, where a record's own outcome decides how much of it is cut.

The few patients who have a rare one give long terms. Cut by their own length, they pull its coefficient down, and what
is predicted of them is too low: .71 to .83 of their risk in a study of 30,000 (docs/design/heads.md, "Clip"). A range
from 0 to 1 does not prove a yes or no, nor that it is rare, so this is a warning and no refusal.
"""

from __future__ import annotations

from policies.documents.study import NumericFeature, Study


def cut_by_outcome(study: Study) -> tuple[str, ...]:
    """Columns of numbers from 0 to 1 that heads read themselves, under a clip that depends on the outcome."""
    reads = study.model.encoder == "raw" or study.model.skip
    if not (reads and study.composition.solved) or study.heads.clip_by == "worst":
        return ()
    numbers = (feature for feature in study.data.features if isinstance(feature, NumericFeature))
    return tuple(feature.column for feature in numbers if feature.is_yes_or_no)


def warning(study: Study) -> str | None:
    """What the author should know, in two sentences; None if there is no such column."""
    found = cut_by_outcome(study)
    if not found:
        return None
    return (
        f"Heads read {', '.join(found)} as numbers from 0 to 1: if one is a yes or no that few patients have, what is"
        " predicted of these may be far below their risk. heads.clip_by: worst prevents it and costs no epsilon"
        ' (docs/design/heads.md, "Clip"), or write the column as a category.'
    )
