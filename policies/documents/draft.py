"""A draft of a study: what its author knows and expects, and the epsilon that it may cost, in place of the noises.

Guarantees: what a draft states is kept as it stands, and only what it leaves out is derived (`policies.plan.derive`).
A draft is never priced, sent or trained: everything that reads a study refuses one, so that a digest always names
numbers and never the rule of a version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from policies import file_kinds
from policies.documents.about import About
from policies.documents.document import Closed, read_document
from policies.documents.sections.data import DataSchema
from policies.documents.sections.expected import Expected
from policies.documents.sections.kinds import MOST_SILOS, Name, Purpose

MOST_EPSILON: Final = 32.0
"""The largest epsilon that a policy's budget may have."""
MARGIN: Final = 10
"""A draft's delta is at most 1 / (MARGIN x expected patients)."""


class DraftPrivacy(Closed):
    """What a draft says of its price. Other fields of `privacy` may stand beside these."""

    model_config = ConfigDict(extra="allow")

    epsilon: Annotated[
        float,
        Field(gt=0, le=MOST_EPSILON),
        About(
            "what the whole study may cost a patient, even if one round is charged twice",
            question="The most epsilon that the study may cost a patient",
        ),
    ]
    delta: Annotated[float, Field(ge=1e-12, lt=1e-2)] | None = None
    mode: Literal["local", "distributed"] | None = None


class Draft(Closed):
    """A study that lacks what follows from `privacy.epsilon` and `expected`. The study's schema checks the rest."""

    KIND: ClassVar[str] = file_kinds.STUDY

    model_config = ConfigDict(extra="allow")

    name: Name
    purpose: Purpose
    silos: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_SILOS)]
    data: DataSchema
    privacy: DraftPrivacy
    expected: Expected

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(self.expected.patients) not in {1, len(self.silos)}:
            msg = (
                f"expected.patients has {len(self.expected.patients)} numbers; write one, or one for each of the"
                f" {len(self.silos)} silos"
            )
            raise ValueError(msg)
        most = 1 / (MARGIN * sum(self.patients))
        if self.privacy.delta is not None and self.privacy.delta > most:
            msg = (
                f"privacy.delta {self.privacy.delta:g} is no small chance among {sum(self.patients)} expected patients;"
                f" choose at most {most:.1g}, or leave it out"
            )
            raise ValueError(msg)
        return self

    @property
    def patients(self) -> tuple[int, ...]:
        """Expected patients of each silo."""
        said = self.expected.patients
        return said if len(said) == len(self.silos) else said * len(self.silos)

    def stated(self) -> dict[str, Any]:
        """What the draft states, as a document without `privacy.epsilon`; sections that it leaves out are absent."""
        document = self.model_dump(mode="json", exclude_unset=True)
        del document["privacy"]["epsilon"]
        return document


def load_draft(path: Path) -> Draft:
    """Read a draft from YAML. Raises `DocumentError` with file, field and fix."""
    return read_document(path, Draft)
