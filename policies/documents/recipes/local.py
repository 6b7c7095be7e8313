"""Nothing is shared: every silo trains encoder and heads alone, by the same charged steps. The baseline."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

LOCAL = Composition("local", "Liang et al. 2020, the baseline", heads="kept", encoder="kept")
