"""FedProx: FedAvg, and a silo's weights are drawn to where the round began."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDPROX = Composition("fedprox", "Li et al. 2020, Eq. 2", heads="averaged", needs=(("encoder.proximal",),))
