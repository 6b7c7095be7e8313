"""Whether published 95 % intervals hold what they should: 1,000 draws of patients and noise on each of three laws.

A draw has held-out patients of one domain, counted into noised cells and read as a silo reads opened sums. Laws: a risk
that is right (its logit normal), one that is skewed and right, and one that is too extreme and shifted. The outcome has
the study's expected prevalence, which is its threshold, too. What is true is taken from a million patients. Twenty
events are held out in the small setting, 180 in the large. Bins and noise are those of a draft at epsilon 4.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from bench.table import Criterion, judge
from policies.documents.study import BINARY
from silo_agent.learning.figures.evaluation import Estimate, quality, results_from_histograms, score_histograms
from silo_agent.learning.outcomes.family import OfClasses, is_of_classes
from silo_agent.learning.outcomes.registry import family_of

Floats = NDArray[np.float64]
DRAWS: Final = 1000
NOISE: Final = 1.7
"""Of a cell, as a draft has it at epsilon 4."""
PREVALENCE: Final = 0.12
SIZES: Final = {"20 events": (167, 6), "180 events": (1500, 20)}
"""Held-out patients and bins (`policies.plan.derive`)."""
FIGURES: Final = ("auc", "accuracy", "balanced_accuracy", "false_negatives", "calibration", "expected_observed")
LEVEL, FAMILY_WISE = 0.95, 0.01
MEAN: Final = (0.94, 0.97)
TOLD: Final = 0.9
_MANY: Final = 1_000_000


@dataclass(frozen=True)
class CoverageLaw:
    """Logits of true risks, and what is predicted of one."""

    name: str
    logits: Callable[[np.random.Generator, int], Floats]
    slope: float = 1.0
    shift: float = 0.0


def _normal(rng: np.random.Generator, count: int) -> Floats:
    return 1.2 * rng.normal(size=count)


def _skewed(rng: np.random.Generator, count: int) -> Floats:
    return rng.gamma(1.5, 0.9, size=count)


LAWS: Final = (
    CoverageLaw("right", _normal),
    CoverageLaw("skewed", _skewed),
    CoverageLaw("too extreme", _normal, slope=1.5, shift=0.3),
)


@dataclass(frozen=True)
class CoverageCount:
    """Of one figure: draws in which it was told, those in which its interval held the truth, and its mean width."""

    told: int
    held: int
    width: float


def patients(law: CoverageLaw, offset: float, rng: np.random.Generator, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Predictions (n, 2) and labels (n,)."""
    logits = law.logits(rng, count) + offset
    labels = (rng.random(count) < expit(logits)).astype(np.int64)
    middle = np.log(PREVALENCE / (1.0 - PREVALENCE))
    said = expit(middle + law.slope * (logits - middle) + law.shift)
    return np.stack([1.0 - said, said], axis=1), labels


def offset_of(law: CoverageLaw) -> float:
    """What brings the law to the prevalence."""
    logits = law.logits(np.random.default_rng(1), _MANY)
    return float(brentq(lambda offset: expit(logits + offset).mean() - PREVALENCE, -15, 5))


def truth(law: CoverageLaw, offset: float, family: OfClasses, bins: int) -> Mapping[str, float]:
    """Every figure of a million patients."""
    said, labels = patients(law, offset, np.random.default_rng(2), _MANY)
    found = quality(said, labels, bins, family)
    ill = labels == 1
    missed = float((family.decisions(said)[ill] == 0).mean())
    return {name: missed if name == "false_negatives" else getattr(found, name) for name in FIGURES}


def two_classes() -> OfClasses:
    """The family of two classes with the prevalence as its threshold."""
    family = family_of(BINARY, PREVALENCE)
    if not is_of_classes(family):
        msg = "two classes have no family of classes"
        raise TypeError(msg)
    return family


def covered(law: CoverageLaw, size: int, bins: int, draws: int) -> Mapping[str, CoverageCount]:
    """The draws of one law and size."""
    offset, rng = offset_of(law), np.random.default_rng([size, draws])
    family = two_classes()
    true = truth(law, offset, family, bins)
    widths: dict[str, list[float]] = {name: [] for name in FIGURES}
    held = dict.fromkeys(FIGURES, 0)
    for _ in range(draws):
        said, labels = patients(law, offset, rng, size)
        nowhere, whole = np.zeros(size, np.int64), np.ones(size)
        cells = score_histograms(said, labels, nowhere, whole, family, count=1, bins=bins)
        noised = cells + rng.normal(0.0, NOISE, cells.shape)
        (result,) = results_from_histograms(noised, NOISE, family, count=1, bins=bins, rng=rng, fitted=True)
        for name in FIGURES:
            found: Estimate | None = getattr(result, name)
            if found is not None and found.value is not None:
                widths[name].append(found.high - found.low)
                held[name] += found.low <= true[name] <= found.high
    return {
        name: CoverageCount(len(widths[name]), held[name], float(np.mean(widths[name] or [np.nan]))) for name in FIGURES
    }


def figures_of(found: Mapping[tuple[str, str], Mapping[str, CoverageCount]], draws: int) -> list[Criterion]:
    """What is wanted of all of them together and of each."""
    every = [(*place, name, one) for place, by_name in found.items() for name, one in by_name.items() if one.told]
    mean = float(np.mean([one.held / one.told for *_, one in every]))
    low = [
        (f"{name}, {law}, {size}", one)
        for law, size, name, one in every
        if one.held < binom.ppf(FAMILY_WISE / len(every), one.told, LEVEL)
    ]
    text = ", ".join(f"{name} {one.held / one.told:.3f}" for name, one in low) or "none"
    figures = [
        Criterion("mean coverage", f"{MEAN[0]} to {MEAN[1]}", f"{mean:.3f}", MEAN[0] <= mean <= MEAN[1]),
        Criterion("below a binomial limit at a family-wise 1 %", "none", text, not low),
    ]
    for law, size in found:
        told = {name: one.told / draws for name, one in found[law, size].items()}
        least = min(told, key=lambda name: told[name])
        name = f"least told, {law}, {size}"
        figures.append(Criterion(name, f">= {TOLD}", f"{told[least]:.3f} ({least})", told[least] >= TOLD))
    return figures


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    places = {(law.name, name): (law, size) for law in LAWS for name, size in SIZES.items()}
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        waiting = {
            place: pool.submit(partial(covered, law, *size, given.draws)) for place, (law, size) in places.items()
        }
        found = {place: one.result() for place, one in waiting.items()}
    for (law, size), by_name in found.items():
        for name, one in by_name.items():
            share = one.held / one.told if one.told else np.nan
            print(f"{law}, {size}: {name} told {one.told / given.draws:.3f}, held {share:.3f}, wide {one.width:.3f}")
    details = {
        f"{law}, {size}: {name}": [one.told, one.held, one.width]
        for (law, size), by_name in found.items()
        for name, one in by_name.items()
    }
    return judge("coverage", figures_of(found, given.draws), details)


if __name__ == "__main__":
    sys.exit(main())
