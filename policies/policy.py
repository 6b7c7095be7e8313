"""The policy: what one silo allows, written by its data-protection officer.

Guarantees: a policy that loads is complete and consistent; there are no defaults, so nothing is allowed by being left
out. Its digest stands in every ledger entry. Comparing a study with it is decision.py; the budget is kept in ledger.py.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from policies.document import Closed, read_document
from policies.study import Name

NoiseMode = Literal["local", "distributed"]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DataSet(Closed):
    """Whose budget it is. All fields are fixed for the life of the data set: the ledger is bound to them."""

    id: Name
    """Stable name, known to the authority and the peers, so that renaming refills nothing."""
    unit: Literal["patient", "record"]
    """What differential privacy protects; `record` only where the data have no patient column."""
    holdout: Annotated[float, Field(ge=0.05, le=0.5)]
    """Public fraction of the patients kept for evaluation; drawn by a public hash of each patient's identity."""
    public: bool = False
    """The data are published: studies may run on them without noise, and the ledger then says "unbounded". Fixed when
    the ledger is created, so that an edit of the policy cannot turn a hospital's protection off."""


class Budget(Closed):
    """(epsilon, delta) of the data set over all studies, restarts and years."""

    epsilon: Annotated[float, Field(gt=0, le=32)]
    delta: Annotated[float, Field(ge=1e-12, lt=1e-2)]


class Limits(Closed):
    """The most that any single study may ask for."""

    rounds: Annotated[int, Field(ge=1, le=400)]
    charged_attempts: Annotated[int, Field(ge=1, le=100)]
    """Attempts of one round that may be charged, so that nobody can burn the budget by aborting."""
    study_epsilon: Annotated[float, Field(gt=0, le=32)]
    encoder_weights: Annotated[int, Field(ge=1)]
    representation: Annotated[int, Field(ge=1, le=256)]
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    clip: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Policy(Closed):
    """A silo's whole policy. `digest` names it in the ledger."""

    version: Literal[1]
    contact: Annotated[str, Field(min_length=1, max_length=200)]
    """Who answers for this policy; shown to people whose study is refused."""
    data_set: DataSet
    budget: Budget
    min_silos: Annotated[int, Field(ge=2, le=256)]
    """Least number of silos, this one included, in a sum that this silo joins."""
    noise_modes: Annotated[tuple[NoiseMode, ...], Field(min_length=1, max_length=2)]
    colluders: Annotated[int, Field(ge=0, le=254)]
    """t: colluding silos that a study's sums and its distributed noise must withstand at the least."""
    encoder_sealing: Literal["ring", "ckks"] = "ring"
    """The weakest sealing of encoder updates that this silo uses: `ring` allows masked integers and masked CKKS, `ckks`
    only the latter."""
    limits: Limits
    studies: tuple[Digest, ...] | None
    """Digests of the studies that may run; `null` allows every study within the limits, `[]` none."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.noise_modes)) != len(self.noise_modes):
            msg = "noise_modes lists a mode twice; keep one"
            raise ValueError(msg)
        if self.limits.study_epsilon > self.budget.epsilon:
            msg = f"limits.study_epsilon {self.limits.study_epsilon} exceeds budget.epsilon {self.budget.epsilon}"
            raise ValueError(msg)
        if "distributed" in self.noise_modes and self.min_silos <= self.colluders + 1:
            msg = f"distributed noise needs min_silos above colluders + 1 = {self.colluders + 1}; raise min_silos"
            raise ValueError(msg)
        if self.studies is not None and len(set(self.studies)) != len(self.studies):
            msg = "studies lists a digest twice; keep one"
            raise ValueError(msg)
        return self

    def canonical(self) -> bytes:
        """The policy as canonical JSON (sorted keys, no spaces): what is hashed.

        Fields that are younger than the first version are left out at their defaults, so that older policies keep
        their names.
        """
        document = self.model_dump(mode="json")
        if not self.data_set.public:
            del document["data_set"]["public"]
        if self.encoder_sealing == "ring":
            del document["encoder_sealing"]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def load_policy(path: Path) -> Policy:
    """Read a policy from YAML. Raises `DocumentError` naming file, field and mend, also for a file that is absent."""
    return read_document(path, Policy)
