"""What a study states, each field by itself, and what follows from the fields alone.

Which fields contradict each other is said by `consistency`. `study` is what is validated, read and named by its digest.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from policies.documents import bounds, recipes
from policies.documents.data_schema import DataSchema
from policies.documents.document import Closed
from policies.documents.sections import (
    ALL_PATIENTS,
    Deadlines,
    EncoderPlan,
    Evaluation,
    Expected,
    HeadPlan,
    Metric,
    Model,
    Name,
    Personal,
    Privacy,
    Purpose,
    Recipe,
)


class StudyFields(Closed):
    """The fields of a study, and the numbers that follow from them. Each is checked by itself alone."""

    version: Literal[1]
    name: Name
    purpose: Purpose
    silos: Annotated[tuple[Name, ...], Field(min_length=2, max_length=256)]
    min_silos: Annotated[int, Field(ge=2, le=256)]
    data: DataSchema
    model: Model
    recipe: Recipe = "second-order"
    """How encoder and heads are learned and aggregated."""
    continues: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), bounds.text(64)] | None = None
    """Digest of the shared model from which the study starts, if it continues an earlier one. Without it, the study
    starts from public weights."""
    heads: HeadPlan
    encoder: EncoderPlan
    evaluation: Evaluation
    personal: Personal | None = None
    publish: Annotated[tuple[Metric, ...], bounds.items(10)] = ()
    """Metrics of the last round's sums that the silos sign and the coordinator shows. Nothing else leaves the silos."""
    privacy: Privacy
    deadlines: Deadlines = Deadlines()
    expected: Expected | None = None
    """What the author expects of the data. Forecasts read it; nothing that is computed from records does."""
    pace: Literal["prompt", "padded"] = "prompt"
    """When a silo says what it had to read or compute from records. prompt: when it is done. padded: at the next
    multiple of `pace_seconds` after it was asked, so that the time of a computation does not show."""
    pace_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Most attempts of one round before the study ends."""

    @property
    def reported(self) -> tuple[str, ...]:
        """Of whom figures are published: the domains, and with `evaluation.together` all patients."""
        return (*self.data.domains, *([ALL_PATIENTS] if self.evaluation.together else []))

    @property
    def composition(self) -> recipes.Composition:
        """What the recipe is made of."""
        return recipes.RECIPES[self.recipe]

    @property
    def rounds(self) -> int:
        """Number of training rounds. Round 0 sums the domain counts before them, one more round the metrics after."""
        sealed = self.encoder_steps if self.encoder.sealed_steps else 0
        return self.head_rounds + sealed + (self.heads.calibration != "none")

    @property
    def head_rounds(self) -> int:
        """Number of training rounds that sum the heads. A calibration follows as the last round, if there is any."""
        return self.heads.pooled_rounds + self.heads.domain_rounds

    @property
    def encoder_rounds(self) -> int:
        """Number of rounds of the heads, from the first, of which (every `encoder.every`-th) train the encoder."""
        if self.composition.joint or self.encoder.together:
            return self.head_rounds
        if self.encoder.rounds is not None:
            return self.encoder.rounds
        return (self.heads.pooled_rounds if self.heads.solver == "hierarchical" else self.head_rounds) - 1

    @property
    def encoder_steps(self) -> int:
        """Number of steps in which the encoder is trained, in all rounds together."""
        return self.encoder_rounds * self.encoder.steps

    @property
    def head_inputs(self) -> int:
        """Number of values that a head reads of a record: representation, inputs beside it, random features."""
        model = self.model
        return model.representation + (self.data.inputs if model.skip else 0) + model.random_features

    @property
    def head_row(self) -> int:
        """K: weights in one row of a head, one for each value that it reads, and the bias if there is one."""
        return self.head_inputs + self.model.bias
