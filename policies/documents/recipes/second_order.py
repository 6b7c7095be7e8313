"""FedWard's own: second-order sums at the common heads, solved; then the encoder with the heads frozen."""

from __future__ import annotations

from policies.documents.recipes.composition import Composition

SECOND_ORDER = Composition("second-order", "docs/design/heads.md", heads="solved", order="alternating")
