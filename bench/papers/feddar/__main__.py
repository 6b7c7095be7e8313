"""FedDAR's synthetic experiment: errors of FedDAR and of what it is compared with, at 5, 10 and 20 samples a client.

FedDAR runs until no coefficient moves by `TOLERANCE` in a round, with steps that were chosen on seeds 0 to 5. The
others run `ROUNDS` rounds at the rate, of `RATES`, that gives the least mean error on the test samples: their best
case. FedDAR-SA runs a second time with every sum sealed: a quarter of an hour on one core, mostly for the masks of 100
silos. Algorithm 2 runs a second time as a study, by the code that agents run, and so does FedDAR-SA at 20 samples:
another quarter of an hour on one core. They run as many rounds as the same method needed above, and `SPARE` more,
because they start elsewhere. At 5 samples FedDAR-SA needs some 300 rounds, more than a study may have.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.intervals import standard_error
from bench.papers.feddar import agents, baselines, plot
from bench.papers.feddar.law import CLIENTS, DOMAINS, INPUTS, WIDTH, Experiment, distance, draw, error
from bench.papers.feddar.recipes import (
    Clients,
    LinearModel,
    LocalSteps,
    Recipe,
    Total,
    closed_form,
    plain_total,
    second_order,
    weighted_average,
)
from bench.papers.feddar.sealed import SealedSilos
from bench.places import OUT
from bench.table import Criterion, judge
from deploy.local.simulate.many import simulate_seeds

SAMPLES, SEEDS = (5, 10, 20), (10, 11, 12)
WANTED_ERROR, WANTED_RATIO = 2e-7, 1e4
ROUNDS, TOLERANCE = 500, 3e-6
MANY = LocalSteps(50, 1.0, 10, 0.1)
"""Algorithm 1 with many local steps. The rates are below the stable ones, not tuned to an error."""
FEW = LocalSteps(10, 0.5, 10, 0.1)
EXACT = LocalSteps(0, 0.0, 10, 0.1)
LINEAR = LocalSteps(0, 0.0, 1, 0.5)
"""Algorithm 2 at the largest rate of its theorem for heads of norm 1: 1 / (4 sigma_max^2) is at least .5."""
RATES: Mapping[str, tuple[float, ...]] = {
    "Local only": (1e-5, 1e-2, 0.1, 1.0, 10.0),
    "FedAvg": (0.01, 0.03, 0.1),
    "FedRep": (0.1, 0.5, 1.0),
    "Separate FedAvg": (0.01, 0.03, 0.1),
}
"""Rates, and penalties of the regression of a client alone."""
WORSE = ("Local only", "FedAvg", "FedRep")
"""The methods that FedDAR-SA must beat by far."""
SA, ALGORITHM_2, SEALED = "FedDAR-SA", "FedDAR, Algorithm 2", "FedDAR-SA, sealed sums"
AGENTS_2, AGENTS_SA = "Algorithm 2 as a study", "FedDAR-SA as a study"
STUDIES: Mapping[str, tuple[str, str, LocalSteps, tuple[int, ...]]] = {
    AGENTS_2: ("feddar-linear", ALGORITHM_2, LINEAR, SAMPLES),
    AGENTS_SA: ("feddar-sa", SA, MANY, (20,)),
}
"""Recipe of a study, the method above that it is, its steps, and the numbers of samples at which it runs."""
SPARE, MOST = 20, 200
"""Rounds more than the method needed above, and the most that a study may have."""
WA, WA_EXACT = "FedDAR-WA, 10 local steps", "FedDAR-WA, heads solved"

Errors = dict[str, dict[int, list[float]]]
"""Errors of every draw, by method and number of samples."""


@dataclass(frozen=True)
class SampleError:
    """Error on the test samples, rounds, and distance of the representation from the true one."""

    error: float
    rounds: int
    distance: float


def main() -> int:
    """Run, plot, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments.add_argument("--samples", type=int, nargs="+", choices=SAMPLES, default=SAMPLES, help="of a client")
    arguments.add_argument("--workers", type=int, default=2, help="processes that run studies")
    arguments.add_argument("--without", nargs="+", choices=("sealed", "studies"), default=(), help="what to leave out")
    chosen = arguments.parse_args()
    seeds, sizes = tuple(chosen.seeds), tuple(chosen.samples)
    errors: Errors = {}
    details: dict[str, object] = {"seeds": seeds}
    for samples in sizes:
        draws = {seed: draw(seed, samples) for seed in seeds}
        by_method, notes = measure(draws, sealed="sealed" not in chosen.without)
        if "studies" not in chosen.without:
            by_method |= by_studies(draws, samples, notes, chosen.workers)
        for method, values in by_method.items():
            errors.setdefault(method, {})[samples] = values
            print(f"{samples:2d} samples, {method}: " + ", ".join(f"{value:.2e}" for value in values), flush=True)
        details[f"{samples} samples"] = notes
    plotted = ("Local only", "FedAvg", "FedRep", "Separate FedAvg", WA_EXACT, WA, SA, SEALED)
    shown = {m: [spread(errors[m][s]) for s in sizes] for m in plotted if m in errors}
    OUT.mkdir(exist_ok=True)
    plot.draw(OUT / "feddar.svg", sizes, shown)
    return judge("feddar", figures(errors), details | {"errors": errors})


def by_studies(
    draws: Mapping[int, Experiment], samples: int, notes: Mapping[str, Any], workers: int
) -> dict[str, list[float]]:
    """Errors of the studies for each draw. `notes` has the rounds that the same methods needed."""
    errors = {}
    for name, (recipe, method, steps, sizes) in STUDIES.items():
        if samples in sizes:
            needed = max(outcome["rounds"] for outcome in notes[method])
            study = agents.study_of(recipe, steps, min(needed + SPARE, MOST), samples=samples)
            outcomes = simulate_seeds(study, agents.ClientDraws(samples), tuple(draws), workers=workers)
            models = [agents.model_of(outcome.model) for outcome in outcomes]
            pairs = zip(draws.values(), models, strict=True)
            errors[name] = [error(draw.test, model.coefficients) for draw, model in pairs]
    return errors


def measure(
    draws: Mapping[int, Experiment], *, sealed: bool = True
) -> tuple[dict[str, list[float]], dict[str, object]]:
    """Errors by method for each draw, and what else was seen."""
    methods: dict[str, Callable[[int, float], float]] = {
        "Local only": lambda seed, rate: baselines.alone(draws[seed], rate),
        "FedAvg": lambda seed, rate: baselines.fedavg(draws[seed], rate, seed, ROUNDS),
        "FedRep": lambda seed, rate: baselines.fedrep(draws[seed], rate, seed, ROUNDS),
        "Separate FedAvg": lambda seed, rate: baselines.separate_fedavg(draws[seed], rate, seed, ROUNDS),
    }
    errors: dict[str, list[float]] = {}
    notes: dict[str, object] = {}
    for name, method in methods.items():
        with np.errstate(over="ignore", invalid="ignore"):  # a rate that is too large diverges, and is not chosen
            tried = {rate: [method(seed, rate) for seed in draws] for rate in RATES[name]}
        notes[f"rate of {name}"] = best = min(tried, key=lambda rate: np.nan_to_num(np.mean(tried[rate]), nan=np.inf))
        errors[name] = tried[best]
    errors["best single model"] = [baselines.one_model(draw) for draw in draws.values()]
    errors["best model for each domain"] = [baselines.one_model_each_domain(draw) for draw in draws.values()]
    for name, recipe, steps in (
        (WA_EXACT, weighted_average, EXACT),
        (WA, weighted_average, FEW),
        (ALGORITHM_2, closed_form, LINEAR),
        (SA, second_order, MANY),
    ):
        outcomes = [run(draws[seed], recipe, steps, plain_total, seed) for seed in draws]
        errors[name], notes[name] = [outcome.error for outcome in outcomes], [asdict(outcome) for outcome in outcomes]
    if not sealed:
        return errors, notes
    silos, began = SealedSilos(CLIENTS), time.process_time()
    outcomes = [run(draws[seed], second_order, MANY, silos, seed) for seed in draws]
    errors[SEALED], notes[SEALED] = [outcome.error for outcome in outcomes], [asdict(outcome) for outcome in outcomes]
    notes["sums"] = {"number": silos.sums, "cpu seconds": time.process_time() - began, "largest value": silos.largest}
    return errors, notes


def run(experiment: Experiment, recipe: Recipe, steps: LocalSteps, total: Total, seed: int) -> SampleError:
    """A whole training from a Gaussian start (B.3.1), whose columns have a norm near 1."""
    model, clients = start(seed), Clients.of(experiment.training, total)
    rounds, moved = 0, np.inf
    while rounds < ROUNDS and moved >= TOLERANCE:
        before, model = model.coefficients, recipe(clients, model, total, steps)
        rounds, moved = rounds + 1, float(np.abs(model.coefficients - before).max())
    return SampleError(error(experiment.test, model.coefficients), rounds, distance(model.encoder, experiment.encoder))


def start(seed: int) -> LinearModel:
    """The same model for every method that has one head a domain."""
    rng = np.random.default_rng(seed)
    return LinearModel(rng.normal(size=(INPUTS, WIDTH)) / np.sqrt(INPUTS), rng.normal(size=(DOMAINS, WIDTH)))


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error, which is 0 of one value."""
    return float(np.mean(values)), float(standard_error(np.array(values))) if len(values) > 1 else 0.0


def least_ratio(errors: Errors, method: str) -> float:
    """The least error of the methods of `WORSE` over this method's, on the same draw, over all draws."""
    return min(
        theirs / own
        for other in WORSE
        for samples, values in errors[method].items()
        for theirs, own in zip(errors[other][samples], values, strict=True)
    )


def figures(errors: Errors) -> list[Criterion]:
    """Mean and standard error of all methods at each number of samples, then what is judged beside."""
    judged = [method for method in (ALGORITHM_2, SA, SEALED, AGENTS_2, AGENTS_SA) if method in errors]
    lines = []
    for method, by_samples in errors.items():
        shown = "; ".join("{:.1e} +- {:.0e}".format(*spread(values)) for values in by_samples.values())
        met = method not in judged or all(spread(values)[0] <= WANTED_ERROR for values in by_samples.values())
        wanted = f"<= {WANTED_ERROR:g} each" if method in judged else "shown"
        lines.append(Criterion(f"{method}: error at {', '.join(map(str, by_samples))} samples", wanted, shown, met))
    for method in judged:
        ratio = least_ratio(errors, method)
        name = f"least error of {', '.join(WORSE)} / {method}"
        lines.append(Criterion(name, f">= {WANTED_RATIO:g}", f"{ratio:.1e}", ratio >= WANTED_RATIO))
    for how, plain, other in (
        ("sealing", SA, SEALED),
        ("a study", ALGORITHM_2, AGENTS_2),
        ("a study of SA", SA, AGENTS_SA),
    ):
        by_samples = errors.get(other, {})
        pairs = [pair for s in by_samples for pair in zip(errors[plain][s], by_samples[s], strict=True)]
        if pairs:
            changed = max(abs(new / old - 1.0) for old, new in pairs)
            lines.append(
                Criterion(f"largest relative change of an error by {how}", "shown", f"{changed:.1e}", met=True)
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
