"""FedSR: FedAvg with an encoder that is drawn at random, L2R and CMI in every record's loss."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDSR = Composition("fedsr", "Nguyen et al. 2022", heads="averaged", needs=(("encoder.l2r",), ("encoder.cmi",)))
