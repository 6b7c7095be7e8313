"""PerInvFL: a personal model that holds in all environments of a silo, pulled to a shared one."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

PERINVFL = Composition(
    "perinvfl",
    "Tang, Guo, Zhang 2022, Algorithm 1",
    heads="averaged",
    needs=(("data.environment",), ("personal.ditto",), ("personal.irm", "personal.group_dro")),
)
