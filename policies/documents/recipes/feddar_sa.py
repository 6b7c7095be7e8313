"""FedDAR-SA: local heads, averaged with their Hessians (Eq. 8); then the encoder with the heads frozen."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDDAR_SA = Composition(
    "feddar-sa", "FedDAR, ICLR 2023, Algorithm 1", heads="hessians", order="alternating", public=True
)
