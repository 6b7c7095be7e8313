"""FedRep: FedPer, but the first steps of a round train the silo's heads alone, the others the encoder alone."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDREP = Composition(
    "fedrep", "Collins et al. 2021", heads="kept", order="heads-first", needs=(("encoder.head_steps",),)
)
