"""Families of outcomes: all that learning does differently for another kind of label, one file each.

`family` says what a family must answer; `registry` finds the one of a study. A new family is one file here, one entry
there, and its sizes in `policies.plan.families`.
"""

__all__ = ["family", "registry"]
