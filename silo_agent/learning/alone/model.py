"""The model of one hospital's records alone: what it predicts, and its file. As private as the records.

Guarantees: a file is read whole or refused by name; nothing in it is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import Study
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs, part
from silo_agent.learning.alone.boosting import Trees
from silo_agent.learning.alone.design import columns
from silo_agent.learning.alone.regression import Regression
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.registry import family_of_study

Part = Regression | Trees
_KIND: Final = "single-hospital"
_PARTS: Final[Mapping[str, type[Part]]] = {"regression": Regression, "boosting": Trees}
_AT_ONCE: Final = 1 << 14
"""Records whose columns are made at once."""


@dataclass(frozen=True, repr=False, eq=False)
class AloneModel:
    """A regression or trees over a record's inputs and domain, made after the study's `round`. It reads no image."""

    study: Study
    round: int
    part: Part

    def __repr__(self) -> str:
        return "AloneModel(<private>)"

    @property
    def kind(self) -> str:
        """What it is: regression or boosting."""
        return next(name for name, own in _PARTS.items() if isinstance(self.part, own))

    @property
    def family(self) -> Family:
        """The family of the study's outcomes."""
        return family_of_study(self.study)

    def logits(self, inputs: NDArray[np.float32] | Inputs, domains: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logits (n, R) of records, float64."""
        count = len(self.study.data.domains)
        found = np.zeros((len(inputs), self.family.form.logits))
        for begin in range(0, len(inputs), _AT_ONCE):
            rows = slice(begin, begin + _AT_ONCE)
            found[rows] = self.part.logits(columns(part(inputs, rows), domains[rows], count))
        return found

    def predict(
        self,
        inputs: NDArray[np.float32] | Inputs,
        domains: NDArray[np.int64],
        images: Images | None = None,  # noqa: ARG002  # as of the other models
        device: torch.device | str = "cpu",  # noqa: ARG002  # as of the other models
    ) -> NDArray[np.float64]:
        """Probability of every class, or a number, float64 (n, C)."""
        return self.family.probabilities(self.logits(inputs, domains))

    def to_bytes(self) -> bytes:
        """The model as safetensors, with its study. The bytes are private."""
        return files.encode(_KIND, self.study, self.round, self.part.tensors(), facts=json.dumps({"kind": self.kind}))

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Inverse of `to_bytes`. Raises `ModelFileError`."""
        study, round_number, tensors = files.decode(_KIND, blob)
        width = study.data.inputs + len(study.data.domains)
        rows = family_of_study(study).form.logits
        try:
            facts: dict[str, Any] = json.loads(files.facts(blob))
            parse: Callable[[dict[str, NDArray[np.generic]], int, int], Part] = _PARTS[facts["kind"]].parse
            return cls(study, round_number, parse(tensors, rows, width))
        except (KeyError, TypeError, ValueError) as fault:
            msg = f"the model of this hospital's own records cannot be used: {fault}; restore it from a backup"
            raise ModelFileError(msg) from None

    def save(self, path: Path) -> None:
        """Write the model durably, readable by its owner alone."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model. Raises `ModelFileError`, also if there is no file."""
        with files.naming(path):
            return cls.from_bytes(files.read(path))
