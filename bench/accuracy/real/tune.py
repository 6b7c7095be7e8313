"""Random search for the settings of federated averaging (`plans`), on splits that no figure uses."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from bench.accuracy.real import central, data_sets
from bench.accuracy.real.data_sets import TUNING
from bench.accuracy.real.fedavg import FedAvgRecipe
from bench.accuracy.real.plans import BATCH
from bench.places import DATA, OUT
from deploy.demo.baselines import FedAvgPlan

METHODS = {"FedAvg, one head": (False, False), "FedAvg, several heads": (True, False), "FedDAR-WA": (True, True)}
EPSILONS = (1.0, 2.0, 4.0, 8.0, None)


def main() -> None:
    """Print the best setting by method and epsilon, in the mean of the domains' AUC."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(BATCH))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--splits", type=int, default=3)
    given = parser.parse_args()
    data = data_sets.load(given.name, given.data, OUT / "real")
    cohorts = [data.source.draw(data.study, TUNING + split) for split in range(given.splits)]
    rng = np.random.default_rng(1)
    best: dict[tuple[str, float | None], tuple[float, float, FedAvgPlan]] = {}
    for _ in range(given.settings):
        plan = drawn(rng, BATCH[given.name])
        for method, (several, weighted) in METHODS.items():
            for epsilon in EPSILONS:
                recipe = FedAvgRecipe(plan, epsilon, several, weighted)
                measured = [
                    central.measured(data.study, own, seed, recipe.risks(data.study, own, seed=seed))
                    for seed, own in enumerate(cohorts)
                ]
                mean = float(np.mean([one.mean for one in measured]))
                worst = float(np.mean([one.worst(data.least) for one in measured]))
                best[method, epsilon] = max(
                    best.get((method, epsilon), (0.0, 0.0, plan)), (mean, worst, plan), key=lambda one: one[0]
                )
    for (method, epsilon), (mean, worst, plan) in best.items():
        setting = (plan.rounds, plan.steps, round(plan.learning_rate, 1), plan.clip)
        print(f"{method}, epsilon {epsilon}: {mean:.4f} / {worst:.4f} by {setting}")


def drawn(rng: np.random.Generator, batch: int) -> FedAvgPlan:
    """One setting; every patient is in every step, which costs least noise for the same epsilon."""
    total = int(rng.choice([10, 20, 40, 80, 160, 320]))
    steps = min(int(rng.choice([1, 2, 5, 10, 20])), total)
    rate = float(np.exp(rng.uniform(np.log(1), np.log(100))))
    return FedAvgPlan(total // steps, steps, 1.0, batch, rate, float(rng.choice([0.03, 0.1, 0.3, 1.0])))


if __name__ == "__main__":
    main()
