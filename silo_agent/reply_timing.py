"""When a silo says what it had to read or compute from records (`Study.pace`, docs/design/total.md, "Time")."""

from __future__ import annotations

import math

from policies.documents.study import Study


def padded(study: Study, seconds: float) -> float:
    """`seconds`, or in a padded study the next multiple of its pace from there, at least one."""
    if study.pace != "padded":
        return seconds
    return max(1, math.ceil(seconds / study.pace_seconds)) * float(study.pace_seconds)
