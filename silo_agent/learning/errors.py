"""Errors of the learning package. No message holds a number computed from private data."""

from __future__ import annotations

from silo_agent.errors import SiloError


class LearningError(SiloError):
    """Base of this package's errors."""


class ReleaseError(LearningError):
    """The public parameters of a release do not give the promised noise; nothing was computed."""


class ModelFileError(LearningError):
    """A model's bytes are damaged, of another study, or of another form."""


class SolutionError(LearningError):
    """The solver's heads are not what the opened sums give."""


class SumError(LearningError):
    """An opened sum is no sum of this roster's contributions."""
