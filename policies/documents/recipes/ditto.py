"""Ditto: a shared model by FedAvg, and at every silo a personal model that is held close to it."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

DITTO = Composition("ditto", "Li et al. 2021, Algorithm 1", heads="averaged", needs=(("personal.ditto",),))
