"""Private heads on made-up patients: both solvers and FedAvg with DP-SGD, at four epsilons, paired over 20 fresh seeds.

The law: six hospitals with 7,681 patients of five ethnic groups, mixed as in the EXAM study; 16 findings, a logistic
outcome whose weights differ by group, one patient in nine ill (one in five in the third group). The heads read the
findings themselves. Epsilon is the training patients' at delta 1e-5, counts included. A domain's AUC is exact, on 4,000
patients whom nobody trained on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from bench.intervals import Gain
from bench.table import Criterion, judge
from deploy.demo.baselines import fedavg
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.many import each_seed
from deploy.local.simulate.outcome import Exact, RunMetrics, epsilons
from deploy.local.simulate.silos import Cohorts, Silo, of_arrays, rows_of
from policies.accounting import accountant
from policies.documents.study import Study
from silo_agent.data.records import Records

Floats = NDArray[np.float64]

SILOS: Final = (2200, 1700, 1300, 1100, 800, 581)
MIX: Final = (
    (59.6, 10.0, 3.4, 2.0, 24.9),
    (75.0, 11.1, 2.8, 0.6, 10.5),
    (46.5, 26.3, 4.2, 7.0, 16.0),
    (71.4, 6.3, 4.2, 0.8, 17.2),
    (44.0, 28.4, 1.6, 6.3, 19.8),
    (0.0, 0.0, 100.0, 0.0, 0.0),
)
DOMAINS, FINDINGS, TESTED = 5, 16, 4000
PREVALENCE: Final = (0.11, 0.11, 0.188, 0.11, 0.11)
SPREAD, DIFFERENCE = 2.2, 0.8
"""Standard deviation of the logits in a group, and how far a group's direction lies from the common one."""
RANGE = 0.6
"""Public range of a finding: about three standard deviations."""
SEEDS: Final = range(200, 220)
EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)
WANTED: Final = {1.0: (0.847, 0.775), 2.0: (0.866, 0.810), 4.0: (0.876, 0.836), 8.0: (0.880, 0.850)}
"""Mean and worst AUC of the hierarchical solver with distributed noise."""
HIERARCHICAL: Final = {"solver": "hierarchical", "pooled_rounds": 3, "domain_rounds": 5, "clip": 0.5, "max_step": 30.0}
NEWTON: Final = {"pooled_rounds": 4, "domain_rounds": 3, "clip": 0.5, "repair": 0.6, "max_step": 30.0}
RATIO: Final = {"hierarchical": 2.5, "newton": 3.05}
"""Noise of a pooled round over that of a domain round. Both plans were tuned on the seeds 0 to 11."""


@dataclass(frozen=True)
class SeedPatients:
    """The patients of one seed."""

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - a source may depend on the study; this does not
        """Silos' records and the test records."""
        rng = np.random.default_rng(seed)
        spectrum = np.arange(1, FINDINGS + 1) ** -0.5
        turn = np.linalg.qr(rng.normal(size=(FINDINGS, FINDINGS)))[0]
        axes = 0.8 * (spectrum / np.linalg.norm(spectrum))[:, None] * turn
        common, own = _unit(rng.normal(size=FINDINGS)), _unit(rng.normal(size=(DOMAINS, FINDINGS)))
        directions = _unit(common + DIFFERENCE * own)
        centres = 0.1 * rng.normal(size=(DOMAINS, FINDINGS)) / np.sqrt(FINDINGS)

        def findings(count: int, domain: int) -> Floats:
            x = rng.normal(size=(count, FINDINGS)) @ axes + centres[domain]
            return np.asarray(x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)))

        slopes, offsets = np.zeros(DOMAINS), np.zeros(DOMAINS)
        for m in range(DOMAINS):
            along = findings(4000, m) @ directions[m]
            slopes[m] = SPREAD / along.std()
            offsets[m] = _offset(slopes[m] * along, PREVALENCE[m])

        def people(counts: NDArray[np.int64]) -> Records:
            parts = [findings(count, m) for m, count in enumerate(counts)]
            logits = [slopes[m] * part @ directions[m] + offsets[m] for m, part in enumerate(parts)]
            ill = rng.random(counts.sum()) < expit(np.concatenate(logits))
            inputs = np.clip(np.concatenate(parts) / RANGE, -1, 1)
            return of_arrays(inputs, ill.astype(np.int64), np.repeat(np.arange(DOMAINS), counts))

        silos = {}
        for number, (size, mix) in enumerate(zip(SILOS, MIX, strict=True)):
            shares = np.array(mix) / sum(mix)
            training, held_out = (people(rng.multinomial(count, shares)) for count in (size, 50))
            silos[f"hospital-{number}"] = Silo(training, held_out)
        return Cohorts(silos, people(np.full(DOMAINS, TESTED)))


def study_of(solver: str, mode: str, epsilon: float) -> Study:
    """The study of one solver, with the noise that its training patients' epsilon allows."""
    ratio, local = RATIO[solver], mode == "local"
    document = {
        "version": 1,
        "name": "private-heads",
        "purpose": "Compare solvers on made-up patients.",
        "silos": [f"hospital-{number}" for number in range(len(SILOS))],
        "min_silos": len(SILOS),
        "data": {
            "label": {"column": "ill", "positive": [1], "negative": [0]},
            "domain": [
                {
                    "column": "group",
                    "values": list(range(DOMAINS)),
                    "names": [f"group-{number}" for number in range(DOMAINS)],
                }
            ],
            "features": [
                {"kind": "number", "column": f"finding-{number}", "minimum": -RANGE, "maximum": RANGE}
                for number in range(FINDINGS)
            ],
        },
        "model": {"encoder": "raw", "hidden": [], "representation": FINDINGS, "seed": 1},
        "heads": {**(HIERARCHICAL if solver == "hierarchical" else NEWTON), "pooled_noise": ratio, "domain_noise": 1.0},
        "encoder": {
            "rounds": 0,
            "steps": 1,
            "sampling_rate": 1.0,
            "batch_size": 1,
            "learning_rate": 1.0,
            "noise": 1.0,
        },
        "evaluation": {"bins": 10, "noise": 1.0},
        "privacy": {
            "delta": 1e-5,
            "mode": "local" if local else "distributed",
            "colluders": 1,
            "count_noise": 40.0,
            "max_patients": 10_000,
        },
    }
    return accountant.calibrate(Study.model_validate(document), epsilon)


def dp_fedavg(study: Study, cohorts: Cohorts, *, seed: int) -> RunMetrics:
    """FedAvg with DP-SGD (local noise) on a head for each domain, at the epsilon that the study was made for."""
    epsilon = min(EPSILONS, key=lambda one: abs(one - epsilons(study)["training"]))
    (test,) = cohorts.measured
    tests = [rows_of(test, test.domains == m) for m in range(DOMAINS)]
    areas = fedavg([silo.training for silo in cohorts.silos.values()], tests, study, epsilon, seed=seed)
    exact = tuple(Exact(area, None, None, TESTED, TESTED) for area in areas.auc)
    return RunMetrics(study, seed, exact, Exact(None, None, None, TESTED * DOMAINS, TESTED))


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    seeds = SEEDS[: arguments.seeds]
    rows: dict[tuple[str, str, float], Floats] = {}
    for epsilon in EPSILONS:
        for mode in ("distributed", "local"):
            for solver in ("hierarchical", "newton"):
                study = study_of(solver, mode, epsilon)
                rows[solver, mode, epsilon] = _areas(
                    each_seed(simulate, study, SeedPatients(), seeds, workers=arguments.workers)
                )
        study = study_of("newton", "local", epsilon)
        rows["fedavg", "local", epsilon] = _areas(
            each_seed(dp_fedavg, study, SeedPatients(), seeds, workers=arguments.workers)
        )
        print(f"epsilon {epsilon:g} is done", file=sys.stderr, flush=True)
    details = [
        {"scheme": scheme, "noise": mode, "epsilon": epsilon, "mean_worst": areas.tolist()}
        for (scheme, mode, epsilon), areas in rows.items()
    ]
    return judge("private-heads", [figure for epsilon in EPSILONS for figure in _figures(rows, epsilon)], details)


def _figures(rows: dict[tuple[str, str, float], Floats], epsilon: float) -> list[Criterion]:
    mean, worst = WANTED[epsilon]
    own = rows["hierarchical", "distributed", epsilon]
    reached = own.mean(axis=0)
    figures = [
        Criterion(
            f"epsilon {epsilon:g}, distributed noise, mean / worst domain",
            f">= {mean:.3f} / {worst:.3f}",
            f"{reached[0]:.4f} / {reached[1]:.4f}",
            bool(reached[0] >= mean and reached[1] >= worst),
        )
    ]
    for mode in ("distributed", "local"):
        for other, name in (("newton", "version 0.5's solver"), ("fedavg", "FedAvg with DP-SGD")):
            beside = rows[other, "local" if other == "fedavg" else mode, epsilon]
            gain = Gain.of(rows["hierarchical", mode, epsilon] - beside)
            figures.append(
                Criterion(
                    f"epsilon {epsilon:g}, {mode} noise, less {name}",
                    "> 2 standard errors" if other == "newton" else "> 0",
                    f"{gain} (from {beside[:, 0].mean():.4f} / {beside[:, 1].mean():.4f})",
                    bool(gain.mean[0] > (2 * gain.error[0] if other == "newton" else 0)),
                )
            )
    return figures


def _areas(measured: Sequence[RunMetrics]) -> Floats:
    """Mean and worst AUC, (seeds, 2)."""
    return np.array([(one.mean, one.worst()) for one in measured])


def _unit(vectors: Floats) -> Floats:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _offset(logits: Floats, prevalence: float) -> float:
    return float(brentq(lambda offset: expit(logits + offset).mean() - prevalence, -15, 5))


if __name__ == "__main__":
    sys.exit(main())
