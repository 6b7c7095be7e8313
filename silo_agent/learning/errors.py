"""Errors of the learning package. No message holds a number computed from private data."""

from __future__ import annotations

from silo_agent.errors import SiloError


class LearningError(SiloError):
    """Base of this package's errors."""


class NoiseParametersError(LearningError):
    """The public parameters of a release do not give the promised noise. Nothing was computed."""


class ModelFileError(LearningError):
    """A model file cannot be used: it is damaged, belongs to another study, or has another form."""


class SolutionError(LearningError):
    """The solver's heads do not follow from the opened sums."""


class SumError(LearningError):
    """An opened sum cannot be the sum of this roster's contributions."""


class AdaptError(LearningError):
    """A shared model cannot be adapted to this silo's records as asked. The message names the fix."""
