"""A hospital's choice of the model that it predicts with, and its file. As private as the records.

Guarantees: a file is read whole or refused by name, with what to do; it says of which shared model it is. Nothing that
leaves the hospital reads it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.families import form_of
from silo_agent.learning.alone.mixing import Mix
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files

SHARED: Final = "shared"
PERSONAL: Final = "personal"
REFITTED: Final[Mapping[str, tuple[bool, bool]]] = {
    "recalibrated": (True, False),
    "own heads": (False, True),
    "own heads, recalibrated": (True, True),
}
"""Heads of the hospital's own under the shared encoder: whether `refit` changes the factor, and the weights."""
ALONE: Final = "own records"
"""A model of the hospital's own records alone."""
MIXED: Final = "shared and own records"
"""A mix of that model and the shared one."""
CANDIDATES: Final = (SHARED, *REFITTED, PERSONAL, ALONE, MIXED)
ERRORS: Final = 0.5
"""A model is chosen only if it gains more than so many standard errors (docs/design/choice.md, "The rule")."""
ERRORS_ALONE: Final = 1.5
"""The same of the hospital's records alone, which nothing holds close to the shared model."""
FEWEST: Final = 50
"""Training patients below which nothing is compared."""
_KIND: Final = "choice"


@dataclass(frozen=True)
class CandidateGain:
    """How much lower a candidate's loss was than the shared model's: mean over patients, and its standard error."""

    candidate: str
    gain: float
    error: float


@dataclass(frozen=True, repr=False, eq=False)
class Choice:
    """What was chosen after `round`, beside the shared model with the digest `shared`.

    `patients` is how many training patients were compared on, in `folds` parts; `compared` has every candidate but the
    shared model that could be compared, and is empty if there were too few patients. `heads` (M, W) are those of a
    refitted model, (0, W) otherwise; `mix` is that of the shared model and the one of the hospital's own records, None
    otherwise. `personal` and `alone` are the SHA-256 of the files that were there of the personal model and of that of
    the hospital's own records, empty if there was none.
    """

    study: Study
    round: int
    shared: str
    candidate: str
    patients: int
    folds: int
    compared: tuple[CandidateGain, ...]
    heads: NDArray[np.float64]
    personal: str = ""
    mix: Mix | None = None
    alone: str = ""

    def __repr__(self) -> str:
        return "Choice(<private>)"

    @property
    def why(self) -> str:
        """The reason, as a sentence for people inside the hospital."""
        if not self.compared:
            return f"{self.patients} training patients are too few to compare models on ({FEWEST} are needed)"
        best = max(self.compared, key=lambda one: one.gain)
        of = f"in {self.folds}-fold cross-validation over {self.patients} training patients"
        by = f"{best.gain:+.4f} +- {best.error:.4f}"
        if self.candidate == SHARED:
            return (
                f"{of} no model of this hospital's own gained enough beyond its standard error; the best,"
                f" {best.candidate}, lowered the loss of a patient by {by}"
            )
        return f"{of} it lowered the loss of a patient by {by}"

    def to_bytes(self) -> bytes:
        """The choice as safetensors, with its study. The bytes are private."""
        facts = {
            "shared": self.shared,
            "candidate": self.candidate,
            "patients": self.patients,
            "folds": self.folds,
            "compared": [asdict(one) for one in self.compared],
            "personal": self.personal,
            "alone": self.alone,
        }
        tensors = {"heads": self.heads}
        if self.mix is not None:
            tensors |= {"weights": self.mix.weights, "shift": self.mix.shift}
        return files.encode(_KIND, self.study, self.round, tensors, facts=json.dumps(facts))

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Inverse of `to_bytes`. Raises `ModelFileError`."""
        study, round_number, tensors = files.decode(_KIND, blob)
        try:
            facts: dict[str, Any] = json.loads(files.facts(blob))
            heads = np.asarray(tensors["heads"], np.float64)
            choice = cls(
                study,
                round_number,
                str(facts["shared"]),
                str(facts["candidate"]),
                int(facts["patients"]),
                int(facts["folds"]),
                tuple(
                    CandidateGain(str(c["candidate"]), float(c["gain"]), float(c["error"])) for c in facts["compared"]
                ),
                heads,
                str(facts["personal"]),
                _mix(tensors),
                str(facts.get("alone", "")),  # before 0.7 there was none
            )
        except (KeyError, TypeError, ValueError):
            msg = "it is damaged"
            raise ModelFileError(msg) from None
        choice._check(tuple(tensors))
        return choice

    def _check(self, tensors: tuple[str, ...]) -> None:
        """Raises `ModelFileError`."""
        domains = len(self.study.data.domains)
        shape = (domains if self.candidate in REFITTED else 0, shapes.head_width(self.study))
        values = [value for one in self.compared for value in (one.gain, one.error)]
        named = {self.candidate, *(one.candidate for one in self.compared)}
        whole = self.heads.shape == shape and bool(np.isfinite(self.heads).all())
        whole &= set(tensors) == ({"heads", "weights", "shift"} if self.candidate == MIXED else {"heads"})
        if self.mix is not None:
            whole &= self.mix.weights.shape == (domains,) and self.mix.shift.shape == (self._logits,)
            whole &= bool(((self.mix.weights >= 0.0) & (self.mix.weights <= 1.0)).all())
            whole &= bool(np.isfinite(self.mix.shift).all())
        if not whole or not named <= set(CANDIDATES) or not all(map(math.isfinite, values)):
            msg = "it does not fit its study"
            raise ModelFileError(msg)

    @property
    def _logits(self) -> int:
        return form_of(self.study.data.label.count).logits

    def save(self, path: Path) -> None:
        """Write the choice durably, readable by its owner alone."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a choice. Raises `ModelFileError`, which names the file and what to do."""
        try:
            return cls.from_bytes(files.read(path))
        except ModelFileError as fault:
            raise broken(path, str(fault)) from None


def _mix(tensors: Mapping[str, NDArray[np.generic]]) -> Mix | None:
    if "weights" not in tensors:
        return None
    return Mix(np.asarray(tensors["weights"], np.float64), np.asarray(tensors["shift"], np.float64))


def broken(path: Path, why: str) -> ModelFileError:
    """The error of a choice that cannot be used."""
    return ModelFileError(
        f"{path}, this hospital's choice of a model, cannot be used: {why}. Restore it from a backup, or say --model"
        " shared or --model personal; once the file is removed, the shared model predicts"
    )
