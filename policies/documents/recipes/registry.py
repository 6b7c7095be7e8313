"""Every recipe by its name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policies.documents.recipes.composition import Composition
from policies.documents.recipes.ditto import DITTO
from policies.documents.recipes.fedavg import FEDAVG, MULTI_HEAD_FEDAVG
from policies.documents.recipes.feddar_linear import FEDDAR_LINEAR
from policies.documents.recipes.feddar_sa import FEDDAR_SA
from policies.documents.recipes.feddar_wa import FEDDAR_WA
from policies.documents.recipes.fedper import FEDPER
from policies.documents.recipes.fedprox import FEDPROX
from policies.documents.recipes.fedrep import FEDREP
from policies.documents.recipes.fedsr import FEDSR
from policies.documents.recipes.lg_fedavg import LG_FEDAVG
from policies.documents.recipes.local import LOCAL
from policies.documents.recipes.perinvfl import PERINVFL
from policies.documents.recipes.second_order import SECOND_ORDER

RECIPES: Final[Mapping[str, Composition]] = MappingProxyType(
    {
        one.name: one
        for one in (
            SECOND_ORDER,
            FEDDAR_SA,
            FEDDAR_WA,
            FEDDAR_LINEAR,
            FEDAVG,
            MULTI_HEAD_FEDAVG,
            FEDPROX,
            FEDSR,
            DITTO,
            PERINVFL,
            LG_FEDAVG,
            FEDPER,
            FEDREP,
            LOCAL,
        )
    }
)
"""The recipes, in the order in which documents list them."""
