"""FedPer: a shared encoder under heads that every silo keeps; one step trains both."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

FEDPER = Composition("fedper", "Arivazhagan et al. 2019", heads="kept")
