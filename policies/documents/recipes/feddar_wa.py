"""FedDAR-WA: local heads, averaged with numbers of patients; then the encoder with the heads frozen."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDDAR_WA = Composition("feddar-wa", "FedDAR, ICLR 2023, Algorithm 1", heads="counts", order="alternating", public=True)
