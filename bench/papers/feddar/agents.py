"""The experiment as a study: FedDAR by the code that agents run, in one process (`deploy.local.simulate`).

Inputs and responses are divided by `RANGE`, as the ranges of a study do. So a loss is 1 / `RANGE`^2 of the
experiment's, and the encoder's learning rate is `RANGE`^2 times as large for the same step. Two things differ from
`bench.papers.feddar.recipes`: the first round has one head for all domains, and numbers are rounded to the study's
grids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.papers.feddar.law import CLIENTS, DOMAINS, INPUTS, WIDTH, Floats, draw
from bench.papers.feddar.recipes import LinearModel, LocalSteps
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays, rows_of
from policies.documents.study import Study
from policies.plan.families import TARGET_STEPS
from silo_agent.data.records import Records
from silo_agent.learning.encoder.random_features import raw_scale
from silo_agent.learning.model.shared import SharedModel

RANGE = 5.0
"""Inputs and responses lie within it; the few that do not are taken for the nearer end."""
CLIP = 1.0
"""Hardly any gradient is longer. Gradients are rounded to 2^-20 of it."""


def study_of(recipe: str, steps: LocalSteps, rounds: int, *, samples: int, clients: int = CLIENTS) -> Study:
    """The study that takes these steps, with so many rounds of the heads of all domains."""
    names = [f"client-{number:03d}" for number in range(clients)]
    number = {"minimum": -RANGE, "maximum": RANGE}
    heads: dict[str, float] = {"pooled_rounds": 1, "domain_rounds": rounds, "pooled_noise": 0.0, "domain_noise": 0.0}
    if recipe == "feddar-sa":
        heads |= {"ridge": 0.0, "max_step": 4.0}
    if steps.head_steps:
        heads |= {"steps": steps.head_steps, "learning_rate": steps.head_rate}
    return Study.model_validate(
        {
            "version": 1,
            "name": "feddar-synthetic",
            "purpose": "Repeat FedDAR's synthetic experiment.",
            "silos": names,
            "min_silos": clients,
            "data": {
                "label": {"column": "y", **number},
                "domain": [{"column": "z", "values": list(range(DOMAINS)), "names": [f"d{m}" for m in range(DOMAINS)]}],
                "features": [{"kind": "number", "column": f"x{place}", **number} for place in range(INPUTS)],
            },
            "recipe": recipe,
            "model": {"encoder": "linear", "hidden": [], "representation": WIDTH, "bias": False, "seed": 1},
            "heads": heads,
            "encoder": {
                "steps": steps.encoder_steps,
                "sampling_rate": 1.0,
                "batch_size": samples,
                "learning_rate": steps.encoder_rate * RANGE**2,
                "clip": CLIP,
                "noise": 0.0,
                "weight_clip": 100.0,
                "sealing": "ring64",
            },
            "evaluation": {"noise": 0.0},
            "privacy": {"delta": 1e-5, "mode": "none", "colluders": 1, "count_noise": 0.0, "max_patients": samples},
        }
    )


@dataclass(frozen=True)
class ClientDraws:
    """The clients of each seed's draw, with so many training samples. Nobody holds any out."""

    samples: int
    clients: int = CLIENTS

    def draw(self, study: Study, seed: int) -> Cohorts:
        """Their records."""
        training = draw(seed, self.samples, self.clients).training
        parts = zip(training.inputs, training.responses, training.domains, strict=True)
        own = [_records(*part) for part in parts]
        nobody = rows_of(own[0], np.zeros(self.samples, np.bool_))
        return Cohorts({name: Silo(mine, nobody) for name, mine in zip(study.silos, own, strict=True)}, own[0])


def model_of(shared: SharedModel) -> LinearModel:
    """Representation and heads in the experiment's units."""
    matrix = shared.encoder.astype(np.float64).reshape(WIDTH, INPUTS).T
    return LinearModel(matrix, shared.heads / raw_scale(shared.study.data, shared.study.model.input_scale))


def _records(inputs: Floats, responses: Floats, domains: Any) -> Records:
    places = np.rint((np.clip(responses / RANGE, -1.0, 1.0) + 1.0) / 2.0 * TARGET_STEPS)
    return of_arrays(np.clip(inputs / RANGE, -1.0, 1.0), places, domains)
