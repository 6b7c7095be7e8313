"""Settings of federated averaging, for each data set the best of those tried on splits that no figure uses.

Drawn at random by `python -m bench.accuracy.real.tune`, each setting at every epsilon: 39 for heart disease (three
splits), 6 for Adult, 2 for diabetes, where the demo's setting with one head was better and stands. FedAvg was better
with one head than with one for each domain on all three. Of diabetes, FedDAR-WA has the demo's setting, too.
"""

from __future__ import annotations

from typing import Final

from deploy.demo.baselines import FedAvgPlan

BATCH: Final = {"heart": 150, "adult": 5000, "diabetes": 8000}
"""Public denominator of a silo's gradient."""
_TUNED: Final[dict[tuple[str, bool], dict[float | None, tuple[int, int, float, float]]]] = {
    ("heart", False): {
        1.0: (20, 1, 44.8, 0.1),
        2.0: (20, 1, 44.8, 0.1),
        4.0: (160, 1, 22.2, 0.1),
        8.0: (160, 1, 22.2, 0.1),
        None: (40, 1, 51.3, 0.3),
    },
    ("heart", True): {
        1.0: (4, 10, 1.1, 0.3),
        2.0: (4, 10, 50.7, 0.03),
        4.0: (80, 2, 2.7, 0.3),
        8.0: (80, 2, 2.7, 0.3),
        None: (8, 5, 1.7, 0.1),
    },
    ("adult", False): dict.fromkeys((1.0, 2.0, 4.0, 8.0, None), (16, 10, 11.9, 1.0)),
    ("adult", True): {
        1.0: (32, 5, 45.2, 0.1),
        **dict.fromkeys((2.0, 4.0, 8.0), (16, 10, 11.9, 1.0)),
        None: (32, 5, 45.2, 0.1),
    },
    ("diabetes", False): dict.fromkeys((1.0, 2.0, 4.0, 8.0, None), (10, 30, 6.0, 0.3)),
    ("diabetes", True): dict.fromkeys((1.0, 2.0, 4.0, 8.0, None), (10, 30, 6.0, 0.3)),
}
"""Rounds, steps, learning rate and clip, by data set, whether it is FedDAR-WA, and epsilon."""


def plan_of(name: str, epsilon: float | None, *, weighted: bool) -> tuple[FedAvgPlan, bool]:
    """Settings, and whether each domain has a head of its own: those tuned at the nearest epsilon."""
    plans = _TUNED[name, weighted]
    nearest = min((tuned for tuned in plans if tuned is not None), key=lambda tuned: abs(tuned - (epsilon or 0.0)))
    rounds, steps, rate, clip = plans[None if epsilon is None else nearest]
    plan = FedAvgPlan(
        rounds=rounds, steps=steps, sampling_rate=1.0, batch_size=BATCH[name], learning_rate=rate, clip=clip
    )
    return plan, weighted
