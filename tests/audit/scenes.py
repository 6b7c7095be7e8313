"""Silos for the statistics: the real gate, ledger and learner around small, made-up cohorts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.attacks.audit import AuditedSilo, canary_study
from crypto.entropy import Entropy
from policies.documents.study import Study
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import Draws
from support.entropy import SeededEntropy


def study(factors: tuple[int, ...] = (2,), inputs: int = 1, **changes: dict[str, Any]) -> Study:
    """The audit's study with other numbers of domains and inputs. `changes` gives fields by part of the study."""
    document = canary_study().model_dump(mode="json")
    document["data"]["domain"] = [
        {"column": f"factor {at}", "values": list(range(size)), "names": [f"{at}-{value}" for value in range(size)]}
        for at, size in enumerate(factors)
    ]
    document["data"]["features"] = document["data"]["features"][:inputs]
    for part, fields in changes.items():
        document[part] = fields if not isinstance(document[part], dict) else document[part] | fields
    return Study.model_validate(document, strict=False)


def crowd(patients: int, inputs: int = 1, domain: int = 0) -> Records:
    """Patients with one record each, all in one domain, half of them in each class."""
    rng = np.random.default_rng(patients)
    return Records(
        rng.uniform(-1, 1, (patients, inputs)).astype(np.float32),
        np.arange(patients) % 2,
        np.full(patients, domain),
        np.arange(patients),
        tuple(str(i) for i in range(patients)),
    )


@dataclass(frozen=True)
class _AlikeDraws:
    draws: Draws

    def source(self, place: Place, tensor: str, _read: bytes) -> Entropy:
        return self.draws.source(place, tensor, b"")


@contextmanager
def silo(
    folder: Path,
    made: Study,
    training: Records,
    evaluation: Records,
    seed: int,
    *,
    alike: bool = False,
    **policy: object,
) -> Iterator[AuditedSilo]:
    """A silo in a folder of its own below `folder`.

    `alike`: it draws as if it had read nothing, so that the sums of two neighbours differ by a patient alone.
    """
    own = folder / str(sum(1 for _ in folder.iterdir()))
    own.mkdir()
    held = AuditedSilo(own, made, training, evaluation, SeededEntropy(seed), **policy)
    if alike:
        held.learner._draws = _AlikeDraws(held.learner._draws)
    try:
        yield held
    finally:
        held.close()


def begin(held: AuditedSilo) -> SharedModel:
    """Do round 0. Returns the model at the start."""
    start = SharedModel.start(held.study)
    held.contribute(Tensor.COUNTS, 0, start)
    held.open_counts(start)
    return start


def summed(made: Study) -> Iterator[tuple[int, Tensor]]:
    """Every sum of a study after round 0, in order."""
    planned = plan(made)
    for number in range(1, planned.last + 1):
        yield from ((number, Tensor(name)) for name in planned.tensors(number))
