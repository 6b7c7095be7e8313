"""Made-up records of the bench's studies: the cohort law and its variants, and the law of the demo.

The cohort law is that of `bench.accuracy.private_heads`. Here its sizes, prevalence, domains and difference can be
chosen, and a share of every hospital's patients is held out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from bench.accuracy.hospitals import pooled
from bench.accuracy.private_heads import FINDINGS, RANGE
from deploy.demo import cohort as demo
from deploy.local.simulate.silos import of_arrays
from policies.documents.study import Study
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records

Floats = NDArray[np.float64]
TESTED = 20_000
"""Test patients of each domain."""


@dataclass(frozen=True)
class LawOfPatients:
    """Patients by hospital; share of each domain; prevalence; deviation of the logits; how far domains differ."""

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    prevalence: float
    spread: float
    difference: float

    def records(self, seed: int, cohort: int = 0) -> tuple[Mapping[str, Records], Records]:
        """The records of each hospital, and of as many test patients of each domain.

        `seed` draws the population and its patients. Another `cohort` is of other patients of the same population.
        """
        rng, domains = np.random.default_rng(seed), len(self.shares)
        spectrum = np.arange(1, FINDINGS + 1) ** -0.5
        turn = np.linalg.qr(rng.normal(size=(FINDINGS, FINDINGS)))[0]
        axes = 0.8 * (spectrum / np.linalg.norm(spectrum))[:, None] * turn
        common, own = _unit(rng.normal(size=FINDINGS)), _unit(rng.normal(size=(domains, FINDINGS)))
        directions = _unit(common + self.difference * own)
        centres = 0.1 * rng.normal(size=(domains, FINDINGS)) / np.sqrt(FINDINGS)

        def findings(domain: NDArray[np.int64]) -> Floats:
            x = rng.normal(size=(len(domain), FINDINGS)) @ axes + centres[domain]
            return np.asarray(x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)))

        slopes, offsets = np.zeros(domains), np.zeros(domains)
        for m in range(domains):
            along = findings(np.full(4000, m)) @ directions[m]
            slopes[m] = self.spread / along.std()
            offsets[m] = _offset(slopes[m] * along, self.prevalence)

        if cohort:
            rng = np.random.default_rng([seed, cohort])

        def people(domain: NDArray[np.int64]) -> Records:
            x = findings(domain)
            risk = expit(slopes[domain] * (x * directions[domain]).sum(axis=1) + offsets[domain])
            return of_arrays(np.clip(x / RANGE, -1, 1), (rng.random(len(domain)) < risk).astype(np.int64), domain)

        shares = np.array(self.shares) / sum(self.shares)
        hospitals = {
            f"hospital-{number}": people(rng.choice(domains, size=size, p=shares))
            for number, size in enumerate(self.sizes)
        }
        return hospitals, people(np.repeat(np.arange(domains), TESTED))


@cache
def exam(study: Study, seed: int) -> tuple[Mapping[str, Records], Records]:
    """The demo's made-up hospitals, and its test patients."""
    with tempfile.TemporaryDirectory(prefix="fedward-bench-") as folder:
        made = demo.generate(Path(folder), seed)
        hospitals = {
            silo: read_records(site, study.data, ["patient_id"]).records
            for silo, site in zip(study.silos, made.sites, strict=True)
        }
        return hospitals, pooled([read_records(test, study.data).records for test in made.tests.values()])


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _offset(logits: Floats, prevalence: float) -> float:
    return float(brentq(lambda offset: expit(logits + offset).mean() - prevalence, -15, 15))
