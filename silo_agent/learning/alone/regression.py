"""A regularised regression: logistic for classes, ridge for a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.outcome import targets
from silo_agent.learning.alone.design import Design
from silo_agent.learning.outcomes.family import is_of_classes

Floats = NDArray[np.float64]
STRENGTHS: Final = (0.1, 1.0, 10.0, 100.0, 1000.0)
"""Of the penalty on the squared weights, which are of inputs with deviation 1; a patient's loss counts once."""
_STEPS: Final = 500


@dataclass(frozen=True, repr=False, eq=False)
class Regression:
    """Logits (n, R) are (x - `middle`) / `spread` times `weights` (R, p), and `intercepts` (R,)."""

    middle: Floats
    spread: Floats
    weights: Floats
    intercepts: Floats

    def logits(self, x: NDArray[np.float32]) -> Floats:
        """Logits (n, R) of columns (n, p)."""
        found: Floats = ((x - self.middle) / self.spread) @ self.weights.T + self.intercepts
        return found

    def tensors(self) -> dict[str, NDArray[np.generic]]:
        """All that it is made of."""
        return {
            "middle": self.middle,
            "spread": self.spread,
            "weights": self.weights,
            "intercepts": self.intercepts,
        }

    @classmethod
    def parse(cls, tensors: dict[str, NDArray[np.generic]], rows: int, width: int) -> Self:
        """Inverse of `tensors`. Raises ValueError if they do not fit R = `rows` logits and p = `width` columns."""
        shapes = {"middle": (width,), "spread": (width,), "weights": (rows, width), "intercepts": (rows,)}
        own = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
        if {name: tensor.shape for name, tensor in own.items()} != shapes:
            msg = "it has other tensors than a regression"
            raise ValueError(msg)
        if not all(np.isfinite(tensor).all() for tensor in own.values()) or (own["spread"] <= 0.0).any():
            msg = "it has a value that no regression has"
            raise ValueError(msg)
        return cls(**own)


def regress(design: Design, strength: float) -> Regression:
    """Fit one. Every class must be there."""
    from sklearn.linear_model import LogisticRegression, Ridge  # noqa: PLC0415  # who only predicts need not load it

    x = design.x.astype(np.float64)
    middle, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0.0] = 1.0
    x = (x - middle) / spread
    if is_of_classes(design.family):
        found = LogisticRegression(C=1.0 / strength, max_iter=_STEPS)
        found.fit(x, design.labels, sample_weight=design.counted)
    else:
        found = Ridge(alpha=strength)
        found.fit(x, targets(design.labels), sample_weight=design.counted)
    rows = design.family.form.logits
    weights = np.asarray(found.coef_, np.float64).reshape(rows, -1)
    return Regression(middle, spread, weights, np.asarray(found.intercept_, np.float64).reshape(rows))
