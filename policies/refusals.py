"""Refusals: normal outcomes with a named reason, as opposed to errors.

Guarantees: every refusal of a study has one type, whether its text (study.py), its price (decision.py) or the model to
be trained (the silo's learning) is refused. The reason is one of a fixed set of labels, so refusals can be counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Self

from policies.errors import PolicyError


class Reason(StrEnum):
    """The reason why a study, or a round of it, is refused."""

    BOUNDS = "bounds"
    FILE = "file"
    MEMORY = "memory"
    NOT_INVITED = "not_invited"
    STUDY_NOT_ALLOWED = "study_not_allowed"
    TOO_FEW_SILOS = "too_few_silos"
    TOO_MANY_SILOS = "too_many_silos"
    NOISE_MODE = "noise_mode"
    NOT_PUBLIC = "not_public"
    COLLUDERS = "colluders"
    SEALING = "sealing"
    DELTA = "delta"
    TOO_MANY_ROUNDS = "too_many_rounds"
    NOT_IN_PLAN = "not_in_plan"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    ENCODER_TOO_LARGE = "encoder_too_large"
    REPRESENTATION_TOO_LARGE = "representation_too_large"
    SAMPLING_RATE = "sampling_rate"
    CLIP = "clip"
    UNIT = "unit"
    EPSILON_PER_STUDY = "epsilon_per_study"
    BUDGET_SPENT = "budget_spent"
    POLICY_CHANGED = "policy_changed"
    EXPIRED = "policy_expired"
    ARCHITECTURE = "architecture"
    SMALLEST_DOMAIN = "smallest_domain"
    PUBLISH = "publish"
    EPSILON_PER_ROUND = "epsilon_per_round"
    SPLIT = "split"
    BATCH_STATISTICS = "batch_statistics"
    BATCH_NORM = "batch_norm"
    NO_PER_SAMPLE_GRADIENT = "no_per_sample_gradient"
    UNNOISED_PART = "unnoised_part"
    PRIVATE_CHOICE = "private_choice"
    NO_MODEL = "no_model"
    HAND_OVER = "hand_over"
    LOCAL_MODELS = "local_models"
    FAULT = "fault"
    NOT_APPROVED = "not_approved"
    UNSIGNED = "unsigned"


Why = tuple[Reason, str]
"""A reason, and a sentence with the field, what the study has there, and what is allowed."""


class Refused(PolicyError):  # noqa: N818 - a refusal, not a fault
    """A normal outcome: this silo does not take part, for a named reason. `str()` is for the study's authors."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason = reason
        """The first, which stands for the refusal where only one label fits."""
        self.text = text
        self.reasons: tuple[Why, ...] = ((reason, text),)
        super().__init__(f"{reason}: {text}")

    @classmethod
    def of(cls, reasons: Sequence[Why]) -> Self:
        """One refusal for all reasons, at least one. The labels stand in front: a reader of a cut text has them all."""
        (first, text), *more = reasons
        if more:
            labels = ", ".join(dict.fromkeys(reason for reason, _ in reasons))
            listed = " ".join(f"({number}) {each}." for number, (_, each) in enumerate(reasons, start=1))
            text = f"{len(reasons)} reasons ({labels}): {listed}"
        found = cls(first, text)
        found.reasons = tuple(reasons)
        return found
