"""Made-up patients that fit a study's schema: for trying a study before there are any records.

The law of one seed. A number is normal around the middle of its range, with a deviation of .4 on the scale [-1, 1], cut
at the ends; codes, domains and environments are equally likely; nothing is absent. Domain m's logit is `effect` times
the standard score of a linear function of the inputs, along w_0 + `difference` v_m with random w_0 and v_m, and an
intercept that gives the prevalence. With more than two classes each class has such a function, and the classes are
about equally likely. A number is normal around the middle of its range as the others are: `effect` times that standard
score plus a standard normal, scaled; so effect^2 / (1 + effect^2) of its variance can be explained. Every patient has
one record.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from common.canonical_json import canonical_json
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays
from policies.documents.study import BINARY, CategoryFeature, Study
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import Records

Array = NDArray[np.float64]
_DEVIATION = 0.4
_INTERCEPT = 40.0


@dataclass(frozen=True)
class MadeUp:
    """Made-up patients: `patients` at each silo, and `test` more to measure the model on.

    `prevalence` in (0, 1), of two classes; `effect`: standard deviation of the logit (1 gives an AUC of about .74 if it
    is known, 2 about .87); `difference`: how far the domains' directions lie apart (0: all the same); `share` of each
    silo's patients is held out.
    """

    patients: int = 1000
    prevalence: float = 0.2
    effect: float = 1.5
    difference: float = 0.5
    share: float = 0.25
    test: int = 10_000

    @property
    def digest(self) -> str:
        """SHA-256 over the law, lowercase hex. The study and a seed say the rest."""
        return hashlib.sha256(canonical_json({"law": "made up", **asdict(self)}).encode()).hexdigest()

    def draw(self, study: Study, seed: int) -> Cohorts:
        """Patients of one seed, who follow the law of that seed. Raises `SimulationError` for a study with images."""
        if study.data.image is not None:
            msg = "made-up records have no images; give --data with public ones"
            raise SimulationError(msg)
        rng = np.random.default_rng(seed)
        law = _Law(study, self, rng)
        silos = {name: Silo.split(law.patients(self.patients), f"{name} {seed}", self.share) for name in study.silos}
        return Cohorts(silos, law.patients(self.test))


class _Law:
    def __init__(self, study: Study, asked: MadeUp, rng: np.random.Generator) -> None:
        self._study, self._effect, self._rng = study, asked.effect, rng
        outputs = 1 if study.data.label.count <= BINARY else study.data.label.count
        size = (len(study.data.domains), outputs, study.data.inputs)
        self._slopes = rng.normal(size=size[1:]) + asked.difference * rng.normal(size=size)
        inputs = self._inputs(10_000)
        raw = np.einsum("nd,mrd->nmr", inputs, self._slopes)
        self._centre, self._spread = raw.mean(axis=0), raw.std(axis=0) + 1e-12
        sample = asked.effect * (raw - self._centre) / self._spread
        self._intercept = 0.0
        if study.data.label.count == BINARY:
            excess = lambda b: float(expit(sample + b).mean()) - asked.prevalence  # noqa: E731  # used once, below
            self._intercept = float(brentq(excess, -_INTERCEPT, _INTERCEPT))

    def patients(self, count: int) -> Records:
        rng, inputs = self._rng, self._inputs(count)
        domains = rng.integers(len(self._study.data.domains), size=count)
        raw = np.einsum("nd,nrd->nr", inputs, self._slopes[domains])
        logits = self._effect * (raw - self._centre[domains]) / self._spread[domains] + self._intercept
        if self._study.data.label.number is not None:
            score = (logits[:, 0] + rng.normal(size=count)) / np.hypot(self._effect, 1.0)
            labels = np.rint((np.clip(_DEVIATION * score, -1.0, 1.0) + 1.0) / 2.0 * TARGET_STEPS)
        elif logits.shape[1] == 1:
            labels = (rng.random(count) < expit(logits[:, 0])).astype(np.int64)
        else:
            labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        environment = self._study.data.environment
        places = None if environment is None else rng.integers(environment.count, size=count)
        return of_arrays(inputs, labels, domains, environments=places)

    def _inputs(self, count: int) -> Array:
        rng, columns = self._rng, []
        for feature in self._study.data.features:
            own = np.zeros((count, feature.width))
            if isinstance(feature, CategoryFeature):
                own[np.arange(count), rng.integers(feature.width, size=count)] = 1.0
            else:
                own[:, 0] = np.clip(rng.normal(0.0, _DEVIATION, count), -1.0, 1.0)
            columns.append(own)
        return np.concatenate(columns, axis=1)
