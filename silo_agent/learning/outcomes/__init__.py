"""Families of outcomes: everything that learning does differently for another kind of label, one file for each family.

`family` says what a family must provide. `registry` finds a study's family. A new family needs one file here, one entry
in `registry`, and its sizes in `policies.plan.families`.
"""

__all__ = ["expected", "family", "links", "registry", "response"]
