"""`make bench NAME=personal`: how personal models do beside a shared one, paired over seeds of the data.

First the Synthetic data of the adaptive-MMD paper with both heterogeneities, as published (probabilities into the
cross-entropy) and with logits: what the paper prints, ours, and the difference from FedAvg and from a model that
nothing holds, both with a 95 % interval (t) over the seeds of the data. Then the same terms on heart disease and
diabetes. A part that has been measured is kept in `bench/out/personal`, and measured anew with `--again`. No accuracy
is wanted: a line is met if it was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from bench import threads
from bench.intervals import Interval
from bench.papers.personal_models import hospitals, stack, synthetic
from bench.papers.personal_models.published import HETEROGENEITIES, PRINTED, SETTINGS, SHARED
from bench.places import DATA, OUT
from bench.table import Criterion, judge

SEEDS: Final = 5
WAYS: Final = {"published": True, "logits": False}
_ALONE: Final = "alone"


def synthetic_part(heterogeneity: float, way: str, seeds: list[int], rounds: int) -> dict[str, Any]:
    """Accuracy by method, one value for each seed of the data."""
    began = time.process_time()

    def told(what: str) -> None:
        print(f"synthetic {heterogeneity} {way}, {what}, {time.process_time() - began:.0f} s", flush=True)

    settings = SETTINGS[heterogeneity]
    accuracies = stack.train(
        settings, stack.TrainingWay(doubled=WAYS[way], rounds=rounds), synthetic.draw(heterogeneity, seeds), seeds, told
    )
    names = [SHARED, *(method.name for method in settings.methods)]
    return {
        "accuracies": {name: accuracies[:, at].tolist() for at, name in enumerate(names)},
        "seconds": time.process_time() - began,
    }


def synthetic_figures(heterogeneity: float, way: str, part: dict[str, Any]) -> list[Criterion]:
    """One line for each method."""
    accuracies = {name: np.array(values) for name, values in part["accuracies"].items()}
    lines = []
    for name, values in accuracies.items():
        printed = PRINTED[heterogeneity].get(name)
        beside = "not in the paper" if printed is None else f"paper {printed:.1f}"
        measured = f"{values.mean():.2f}"
        for other in (SHARED, _ALONE):
            if name not in (SHARED, other):
                measured += f", less {other} {Interval.of(values - accuracies[other]).signed(2)}"
        lines.append(Criterion(f"synthetic {heterogeneity:g}, {way}, {name}", beside, measured, met=True))
    return lines


def hospital_figures(name: str, part: dict[str, Any]) -> list[Criterion]:
    """AUC of the hospitals' held-out patients in the mean, and what personal models add to it."""
    areas = {method: np.array(values) for method, values in part["aucs"].items()}
    return [
        Criterion(
            f"{name}, {method}",
            "shown",
            f"{values.mean():.4f}"
            + (
                ""
                if method == hospitals.SHARED
                else f", less shared {Interval.of(values - areas[hospitals.SHARED]).signed(4)}"
            ),
            met=True,
        )
        for method, values in areas.items()
    ]


def main() -> int | str:
    """Measure what is wanted, part after part; print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=SEEDS, help="seeds of the data, and splits of the hospitals")
    arguments.add_argument("--rounds", type=int, default=stack.ROUNDS, help="rounds of the Synthetic data")
    arguments.add_argument("--only", default="", help="a part whose name begins so")
    arguments.add_argument("--again", action="store_true", help="measure again what has been measured")
    arguments.add_argument("--data", type=Path, default=DATA)
    asked = arguments.parse_args()
    if why := threads.several("personal"):
        return why
    torch.set_num_threads(1)
    seeds = list(range(1, asked.seeds + 1))
    parts: dict[str, tuple[Callable[[], dict[str, Any]], Callable[[dict[str, Any]], list[Criterion]]]] = {}
    for way in WAYS:
        for heterogeneity in reversed(HETEROGENEITIES):
            parts[f"synthetic-{heterogeneity:g}-{way}"] = (
                lambda h=heterogeneity, w=way: synthetic_part(h, w, seeds, asked.rounds),  # type: ignore[misc]
                lambda part, h=heterogeneity, w=way: synthetic_figures(h, w, part),  # type: ignore[misc]
            )
    for name in hospitals.NAMES:
        parts[name] = (
            lambda n=name: hospitals.measure(n, asked.seeds, asked.data),  # type: ignore[misc]
            lambda part, n=name: hospital_figures(n, part),  # type: ignore[misc]
        )
    figures, details = [], {}
    for name, (measure, figures_of) in parts.items():
        if not name.startswith(asked.only):
            continue
        kept = OUT / "personal" / f"{name}-{asked.seeds}-{asked.rounds}.json"
        if asked.again or not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(measure()) + "\n", encoding="utf-8")
        details[name] = json.loads(kept.read_text(encoding="utf-8"))
        figures += figures_of(details[name])
    return judge("personal", figures, details)


if __name__ == "__main__":
    sys.exit(main())
