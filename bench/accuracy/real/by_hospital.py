"""The four hospitals of UCI Heart Disease on five splits: accuracy at each hospital, with epsilon 8 and without noise.

It adds to the areas by domain FLamby's recipe, which is judged by accuracy, and the published study without noise (ten
findings). Both studies are simulated, the private one with 20 draws of noise on each split. If processes are asked for,
both also run on the first split with a coordinator and four agents. What is wanted: FLamby's own figures from their own
recipe, and without noise at most three points of accuracy below pooled logistic regression at every hospital, in the
mean over the splits. The private study is reported with its intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.accuracy import flamby, hospitals
from bench.accuracy.hospitals import Array, HospitalSplit, InTurns
from bench.intervals import Interval
from bench.places import DEMO, OUT
from bench.processes import Ran, budget_figures, federated, or_failure
from bench.table import Criterion
from deploy.demo.sources import DemoSource, load_source
from deploy.local.processes import FederationError
from deploy.local.simulate.many import simulate_seeds
from deploy.local.simulate.outcome import Outcome, epsilons

SPLITS = tuple(f"heart-{number}" for number in range(1, 6))
"""Names of splits that no choice was made on: the studies were tuned on splits named tune-0 to tune-59."""
DRAWS = 20
"""Of noise on each split, of the private study."""
ACCEPTED = (78.27, 76.40, 75.00, 64.44)
"""Accuracy of FLamby's pooled model at the four centres, mean of the seeds 42 to 46, as they publish it."""
WITHIN = 0.5
POINTS = 3.0
EPSILON = 8.0
PRIVATE, POOLED, ALONE = "epsilon 8", "pooled, 13 findings", "alone, 13 findings"
PUBLIC, SAME, MAJORITY = "no noise", "pooled, 10 findings", "majority"
METHODS = (PRIVATE, POOLED, ALONE, PUBLIC, SAME, MAJORITY)
"""Both studies beside logistic regressions on their own inputs; the one without noise reads ten findings."""
NEAR = 1.0
"""How many points the accuracy of the model without noise may move at a hospital if agents train it."""


@dataclass
class MethodAccuracy:
    """Accuracy in per cent: for every method one row per split, which is the mean of its draws."""

    hospital: dict[str, list[Array]] = field(default_factory=dict)
    domain: dict[str, list[Array]] = field(default_factory=dict)
    complete: dict[str, list[Array]] = field(default_factory=dict)
    flamby: list[Array] = field(default_factory=list)
    draws: list[Array] = field(default_factory=list)
    """Of the private study: (draws, hospitals + domains) per split."""

    def add(self, method: str, models: Sequence[hospitals.Scores], cohorts: HospitalSplit) -> None:
        """What a method says on one split, once per draw."""
        for kind, measure in (
            (self.hospital, hospitals.by_hospital),
            (self.domain, hospitals.by_domain),
            (self.complete, hospitals.on_complete),
        ):
            accuracy = np.mean([measure(scores, cohorts) for scores in models], axis=0)
            kind.setdefault(method, []).append(accuracy)


@dataclass(frozen=True)
class ByHospital:
    """What the bench adds to its table: figures, a table of accuracy in Markdown, and every figure of every split."""

    figures: list[Criterion]
    table: list[str]
    details: dict[str, object]


def accuracies(files: Mapping[str, Path], draws: int, *, workers: int, processes: bool) -> ByHospital:
    """Run both studies on all splits of the silos' files, the private one with so many draws of noise, two at least."""
    private, public = (load_source(DEMO / name) for name in ("heart-disease", "heart-disease-public"))
    splits, ten = ([hospitals.draw_cohorts(of, files, name) for name in SPLITS] for of in (private, public))
    clear = simulate_seeds(public.study, InTurns(ten), range(len(ten)), workers=workers)
    noised = simulate_seeds(private.study, InTurns(splits), range(len(splits) * draws), workers=workers)
    measured = measure(splits, ten, noised, clear)
    own = flamby_accuracies([flamby.read_centre(file) for file in files.values()])
    rows = (*files, *private.study.data.domains)
    shown = [*figures(measured, own, tuple(files)), epsilon_figure(max(epsilons(private.study).values()))]
    if processes:
        name, drawn = SPLITS[0], measured.draws[0][:, : len(files)]
        shown += or_failure(PRIVATE, lambda: private_figures(run_split(private, files, name), splits[0], drawn))
        shown += or_failure(PUBLIC, lambda: public_figures(run_split(public, files, name), clear[0], ten[0]))
    return ByHospital(shown, accuracy_table(measured, rows), details(measured, own, rows))


def measure(
    splits: Sequence[HospitalSplit], ten: Sequence[HospitalSplit], noised: Sequence[Outcome], clear: Sequence[Outcome]
) -> MethodAccuracy:
    """All methods on every split. Of `noised`, each `len(splits)`th outcome is of the same split."""
    measured = MethodAccuracy()
    for number, (cohorts, of_ten) in enumerate(zip(splits, ten, strict=True)):
        said = [hospitals.of_model(outcome.model, cohorts) for outcome in noised[number :: len(splits)]]
        measured.add(PRIVATE, said, cohorts)
        measured.add(POOLED, [hospitals.of_pooled(cohorts)], cohorts)
        measured.add(ALONE, [hospitals.of_alone(cohorts)], cohorts)
        measured.add(PUBLIC, [hospitals.of_model(clear[number].model, of_ten)], of_ten)
        measured.add(SAME, [hospitals.of_pooled(of_ten)], of_ten)
        measured.add(MAJORITY, [hospitals.of_majority(cohorts)], cohorts)
        measured.flamby.append(hospitals.of_flamby(cohorts))
        measured.draws.append(np.array([of_rows(scores, cohorts) for scores in said]))
    return measured


def of_rows(scores: hospitals.Scores, cohorts: HospitalSplit) -> Array:
    """Accuracy by hospital, then by domain."""
    return np.concatenate([hospitals.by_hospital(scores, cohorts), hospitals.by_domain(scores, cohorts)])


def run_split(source: DemoSource, files: Mapping[str, Path], name: str) -> Ran:
    """Run a study with agents that split their files by this name. Raises `FederationError`."""
    folder = OUT / "real" / source.study.name
    return federated(source.study_file, files, hospitals.policy_text(source, name), folder)


def private_figures(ran: Ran, cohorts: HospitalSplit, draws: Array) -> list[Criterion]:
    """The private study of agents beside the simulated `draws` (draws, hospitals) of its split."""
    mean = hospitals.by_hospital(hospitals.of_model(ran.model, cohorts), cohorts).mean()
    beside, start = draws.mean(axis=1), f"{PRIVATE}, processes"
    shown = f"{mean:.1f} ({beside.min():.1f} to {beside.max():.1f}), {ran.seconds:.0f} s"
    name = f"{start}: mean accuracy of the hospitals, beside {len(beside)} simulated draws"
    return [Criterion(name, "shown", shown, met=True), *budget_figures(ran.budgets, EPSILON, f"{start}: ")]


def public_figures(ran: Ran, simulated: Outcome, cohorts: HospitalSplit) -> list[Criterion]:
    """The study without noise of agents beside the simulated one. Raises `FederationError` for another split."""
    check_cohorts(ran, cohorts)
    ours, theirs = (
        hospitals.by_hospital(hospitals.of_model(model, cohorts), cohorts) for model in (ran.model, simulated.model)
    )
    apart = float(np.abs(ours - theirs).max())
    name = f"{PUBLIC}, processes: accuracy at a hospital, beside the simulated one"
    return [Criterion(name, f"at most {NEAR:g} apart", f"{apart:.2f}, {ran.seconds:.0f} s", apart <= NEAR)]


def check_cohorts(ran: Ran, cohorts: HospitalSplit) -> None:
    """The agents held out the records that are measured here: without noise their sums say how many.

    Raises `FederationError`.
    """
    domains = np.concatenate([records.domains for records in cohorts.held_out.values()])
    here = np.bincount(domains, minlength=len(cohorts.domains)).tolist()
    counted = {one.domain: one.value for one in ran.sealed if one.metric == "patients"}
    there = [round(counted.get(domain) or 0.0) for domain in cohorts.domains]
    if here != there:
        msg = f"the agents held out {there} records by domain, this measurement {here}: the splits differ"
        raise FederationError(msg)


def flamby_accuracies(centres: Sequence[flamby.Centre]) -> Array:
    """FLamby's recipe on FLamby's split, mean over their seeds."""
    training = [flamby.own_split(centre.labels) for centre in centres]
    return np.asarray(np.mean([flamby.pooled_accuracies(centres, training, s) for s in flamby.SEEDS], axis=0))


def figures(measured: MethodAccuracy, own: Array, silos: Sequence[str]) -> list[Criterion]:
    """What is wanted of accuracy, and what came."""
    judged = []
    for silo, value, wanted in zip(silos, own, ACCEPTED, strict=True):
        text = f"{wanted:.2f} +- {WITHIN:g}"
        judged.append(
            Criterion(
                f"FLamby's recipe on FLamby's split, {silo}", text, f"{value:.2f}", bool(abs(value - wanted) <= WITHIN)
            )
        )
    for ours, other, reference in (
        (measured.hospital[PUBLIC], "pooled logistic regression on its inputs", measured.hospital[SAME]),
        (measured.hospital[PUBLIC], "pooled logistic regression on 13 findings", measured.hospital[POOLED]),
        (measured.complete[PUBLIC], "FLamby's recipe on complete records", measured.flamby),
    ):
        for silo, value, against in zip(silos, np.mean(ours, axis=0), np.mean(reference, axis=0), strict=True):
            text = f">= {against:.1f} - {POINTS:g}"
            judged.append(
                Criterion(f"no noise, against {other}, {silo}", text, f"{value:.1f}", bool(value >= against - POINTS))
            )
    return judged


def epsilon_figure(epsilon: float) -> Criterion:
    """What the private study costs a record."""
    return Criterion("epsilon, everything included", f"<= {EPSILON:g}", f"{epsilon:.3f}", epsilon <= EPSILON)


def accuracy_table(measured: MethodAccuracy, rows: Sequence[str]) -> list[str]:
    """Accuracy of every method by hospital and by domain, with the interval of the private study, in Markdown.

    Means over the splits. The first method comes with its interval, and how far the noise alone moves one study of it.
    """
    values, noise = {method: _rows(measured, method) for method in METHODS}, noise_deviation(measured.draws)
    lines = [["accuracy, per cent", METHODS[0], "95 % interval", "noise of one study", *METHODS[1:]]]
    lines.append(["---"] * len(lines[0]))
    for number, row in enumerate(rows):
        low, high = ends(values[METHODS[0]][:, number])
        means = [f"{values[method][:, number].mean():.1f}" for method in METHODS]
        lines.append([row, means[0], f"{low:.1f} to {high:.1f}", f"+- {noise[number]:.1f}", *means[1:]])
    return ["| " + " | ".join(line) + " |" for line in lines]


def ends(values: Array) -> tuple[float, float]:
    """The interval of the mean over splits. It counts noise and split; the patients are the same."""
    interval = Interval.of(values)
    return interval.least, interval.most


def details(measured: MethodAccuracy, own: Array, rows: Sequence[str]) -> dict[str, object]:
    """Every figure of every split."""
    return {
        "rows": rows,
        "accuracy": {method: _rows(measured, method).tolist() for method in METHODS},
        "interval": {method: [ends(column) for column in _rows(measured, method).T] for method in METHODS},
        "complete records": {method: np.array(measured.complete[method]).tolist() for method in METHODS},
        "FLamby's recipe on complete records": np.array(measured.flamby).tolist(),
        "FLamby's recipe and split": own.tolist(),
        "private draws": [draws.tolist() for draws in measured.draws],
        "deviation between draws": noise_deviation(measured.draws).tolist(),
    }


def noise_deviation(draws: Sequence[Array]) -> Array:
    """Standard deviation by row that the noise alone brings: within splits, pooled over them."""
    variances = [np.var(split, axis=0, ddof=1) for split in draws]
    return np.asarray(np.sqrt(np.mean(variances, axis=0)), np.float64)


def _rows(measured: MethodAccuracy, method: str) -> Array:
    """(splits, hospitals + domains)."""
    return np.hstack([np.array(measured.hospital[method]), np.array(measured.domain[method])])
