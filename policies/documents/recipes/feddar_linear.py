"""FedDAR's Algorithm 2: heads in closed form, then one step of a linear encoder and its QR."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDDAR_LINEAR = Composition(
    "feddar-linear", "FedDAR, ICLR 2023, Algorithm 2", heads="solved", order="alternating", public=True, linear=True
)
