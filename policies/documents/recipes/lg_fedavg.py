"""LG-FedAvg: every silo keeps an encoder of its own under shared heads. FedPer is its mirror image."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

LG_FEDAVG = Composition("lg-fedavg", "Liang et al. 2020", heads="averaged", encoder="kept")
