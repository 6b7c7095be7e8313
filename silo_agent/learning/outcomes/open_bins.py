"""Means within bins whose end lies far from most scores. The scores in such bins are taken to follow a power law."""

from __future__ import annotations

import numpy as np

_LEAST_COUNT = 1e-3
_POWERS = (1e-3, 10.0)


def power_means(near: float, far: float, inner: float, outer: float) -> tuple[float, float]:
    """Mean of t over [0, near] and over [near, far], if P(below t) ~ t^power.

    The power follows from the counts in the two ranges, `inner` and `outer`. Noise may make them negative.
    """
    inner, outer = max(inner, _LEAST_COUNT), max(outer, 0.0)
    power = float(np.clip(np.log((inner + outer) / inner) / np.log(far / near), *_POWERS))
    mean = power / (power + 1.0)
    return mean * near, mean * (far ** (power + 1.0) - near ** (power + 1.0)) / (far**power - near**power)
