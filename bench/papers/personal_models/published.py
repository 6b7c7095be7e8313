"""The adaptive-MMD paper's methods, settings for the Synthetic data (Table 3) and accuracies (Tables 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONSTRAINTS: Final = ("none", "cosine", "mk-mmd", "mk-mmd every 20", "mmd-d")
"""What holds the features close. "mk-mmd" chooses its kernel weights at every step."""
SHARED: Final = "fedavg"
HETEROGENEITIES: Final = (0.0, 0.5)


@dataclass(frozen=True)
class PersonalMethod:
    """A personal model: lambda of Ditto's distance and mu of the constraint, which is an index of `CONSTRAINTS`."""

    constraint: int
    ditto: float
    mu: float

    @property
    def name(self) -> str:
        """As the table has it."""
        held = CONSTRAINTS[self.constraint]
        if not self.ditto:
            return held if self.constraint else "alone"
        return f"ditto + {held}" if self.constraint else "ditto"


@dataclass(frozen=True)
class Settings:
    """Of one heterogeneity: the learning rate, and ten methods; those with Ditto stand behind the five without."""

    rate: float
    methods: tuple[PersonalMethod, ...]


def _settings(rate: float, ditto: float, alone: tuple[float, ...], beside: tuple[float, ...], held: float) -> Settings:
    without = tuple(PersonalMethod(at, 0.0, mu) for at, mu in enumerate((0.0, *alone)))
    together = tuple(PersonalMethod(at, ditto if at == 0 else held, mu) for at, mu in enumerate((0.0, *beside)))
    return Settings(rate, without + together)


SETTINGS: Final = {
    0.0: _settings(0.001, 0.01, (1.0, 1.0, 1.0, 1.0), (1.0, 0.1, 0.1, 1.0), 0.01),
    0.5: _settings(0.01, 0.1, (1.0, 0.1, 0.1, 1.0), (1.0, 1.0, 1.0, 1.0), 0.01),
}

PRINTED: Final = {
    0.0: {
        "fedavg": 84.733, "cosine": 89.975, "mmd-d": 90.237, "mk-mmd": 91.418, "mk-mmd every 20": 90.066,
        "ditto": 89.129, "ditto + cosine": 89.187, "ditto + mmd-d": 89.458, "ditto + mk-mmd": 89.183,
        "ditto + mk-mmd every 20": 89.258,
    },
    0.5: {
        "fedavg": 85.458, "cosine": 90.199, "mmd-d": 91.270, "mk-mmd": 91.137, "mk-mmd every 20": 90.262,
        "ditto": 85.533, "ditto + cosine": 87.783, "ditto + mmd-d": 89.695, "ditto + mk-mmd": 88.154,
        "ditto + mk-mmd every 20": 88.104,
    },
}  # fmt: skip
"""Accuracy in per cent, mean of three runs. The paper does not say the seed of the data."""
