"""The model of a silo's own, which never leaves it."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, ValidationInfo, model_validator

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import AnnealingSteps, Coefficient, GroupRate, Penalty, Positive, Share

PERSONAL_MOMENTUM: Final = 0.9
"""Momentum of the personal model's steps, as of torch's SGD."""

_MOST_PULL: Final = 2.0 * (1.0 + PERSONAL_MOMENTUM)
"""Of learning rate times curvature: beyond it, gradient descent with this momentum leaves even a parabola's bottom."""


class Personal(Closed):
    """The personal model, which never leaves the silo: weights of the terms that hold it close to the shared one."""

    epochs: Annotated[
        int, Field(ge=1, le=1000), About("how long the personal model trains", unit="passes over the records")
    ] = 2
    learning_rate: Annotated[Positive, bounds.within(1e-9, 10), About("how far a step goes", unit="step length")] = 0.05
    batch_size: Annotated[int, Field(ge=2, le=4096), About("how many records a step reads", unit="records")] = 64
    ditto: Annotated[
        Coefficient,
        About(
            (
                "pulls the personal model to the shared one; times `learning_rate` at most 3.8, or a step"
                " would overshoot by more than it mends (if `irm` divides the loss from the first step,"
                " its share counts)"
            ),
            unit="weight of a loss term",
            change="the hospital has few patients: raise",
        ),
    ] = 0.1
    mmd: Annotated[
        Coefficient,
        About(
            "keeps the distribution of its representations like that of the shared encoder's (MK-MMD)",
            unit="weight of a loss term",
            change="the hospital has few patients: raise",
        ),
    ] = 0.1
    cosine: Annotated[
        Coefficient,
        About(
            "keeps each record's representation in the direction of the shared encoder's",
            unit="weight of a loss term",
            change="beside or instead of `mmd`; cheaper",
            since="0.6",
        ),
    ] = 0.0
    mmd_d: Annotated[
        Coefficient,
        About(
            "as `mmd`, under a kernel that is trained at the hospital to tell the two apart (MMD-D)",
            unit="weight of a loss term",
            change="instead of `mmd`",
            since="0.6",
        ),
    ] = 0.0
    kernel_steps: Annotated[
        int,
        Field(ge=1, le=100),
        About("how often that kernel is trained before each step of the model", unit="steps", since="0.6"),
    ] = 5
    irm: Annotated[
        Penalty,
        About(
            (
                "the personal model is to hold in every environment of the hospital (IRM); above 1 the"
                " whole loss is divided by it. Batches should be large: `batch_size: 1024` or more"
            ),
            unit="weight of a loss term",
            change="the hospital has environments that mislead: 100 or more",
            since="0.6",
        ),
    ] = 0.0
    """Weight of IRMv1's penalty on the environments of `data.environment`; above 1 it divides the whole loss too."""
    irm_after: Annotated[
        AnnealingSteps,
        About(
            "before so many steps `irm` weighs at most 1",
            unit="steps over all rounds",
            change="as `encoder.irm_after`",
            since="0.6",
        ),
    ] = 0
    group_dro: Annotated[
        Share,
        About(
            (
                "environments that are predicted badly count more (GroupDRO); 1: nothing is left of the"
                " mean over records"
            ),
            unit="share",
            change="the worst environment matters, not the mean",
            since="0.6",
        ),
    ] = 0.0
    group_rate: Annotated[
        GroupRate, About("how fast these weights move", unit="rate", change="they hardly move: `0.1`", since="0.6")
    ] = 0.01
    mmd_every: Annotated[
        int,
        Field(ge=1, le=1000),
        About(
            (
                "`mmd` weighs its kernels anew after so many steps, on the batches of those steps; 1: at"
                " every step, on its batch"
            ),
            unit="steps",
            change="batches are small and the weights jump: 20",
            since="0.6",
        ),
    ] = 1
    """When MK-MMD chooses the weights of its kernels: at every step, on its batch, or after every so many steps, on the
    batches of those steps. They stay fixed in between."""
    depth: Annotated[
        int,
        Field(ge=1, le=10),
        About(
            "how many layers of the encoder `mmd`, `mmd_d` and `cosine` compare, from the representation down",
            unit="layers",
            change="the encoder has hidden layers that are to stay alike, too",
            since="0.6",
        ),
    ] = 1
    """How many layers of the encoder `mmd`, `mmd_d` and `cosine` compare, from the last down: 1 is the representation
    alone. The image network counts as one layer."""
    adversary: Annotated[
        Coefficient,
        About(
            "the personal model leads astray a network that guesses `data.protected` from its representation",
            unit="weight of a loss term",
            change=(
                "predictions must not rest on a protected attribute: 0.3 to 4, with `representation` 1 or"
                " 2, `batch_size: 512` or more, `ditto` and `mmd` at 0; and look at the report"
            ),
            since="0.6",
        ),
    ] = 0.0
    adversary_steps: Annotated[
        int,
        Field(ge=1, le=100),
        About(
            "how often that network is trained before each step of the model, each time on records drawn anew",
            unit="steps",
            since="0.6",
        ),
    ] = 5

    @model_validator(mode="after")
    def _check_pull(self, info: ValidationInfo) -> Self:
        if bounds.lifted(info):
            return self
        # Ditto's distance is divided by `irm` from its step on, so this is the most that it ever weighs.
        pull = self.ditto if self.irm_after else self.ditto / max(1.0, self.irm)
        if self.learning_rate * pull > _MOST_PULL:
            msg = (
                f"personal.learning_rate {self.learning_rate:g} times the {pull:g} that personal.ditto weighs at most"
                f" exceeds {_MOST_PULL:g}, so that each step throws the model further from the shared one; lower one of"
                " them"
            )
            raise ValueError(msg)
        return self
