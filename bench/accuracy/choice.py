"""Which model a hospital predicts with: shared, personal, or the one that it chose, on patients whom none has seen.

A model of the hospital's records alone, and its mix with the shared one, stand beside them. Heart disease by hospital
and diabetes-130 by specialty, as `bench.accuracy.real` cuts them, on ten splits: one private study of each split at
epsilon 8 is simulated (and kept in `bench/out/choice`), then every hospital trains its personal model, fits one of its
own records, and chooses as an agent's personal process does. Measured on the hospital's held-out patients: AUC and log
loss, paired. Wanted: no hospital worse than with the shared model beyond the noise of the splits, none of its domains
beyond that and what chance gives among so many, and better in the mean. All choices about candidates and rule were made
on splits from 1000 on. Splits share their patients, so an interval over them is too narrow. It judges hospitals all the
same, and beside it stands what Nadeau and Bengio (2003, Machine Learning 52) make of it, which judges domains.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from bench.accuracy.real import data_sets
from bench.accuracy.real.data_sets import RealDataSet
from bench.intervals import Interval
from bench.places import DATA, OUT
from bench.table import Criterion, judge
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Cohorts, Silo
from policies.accounting import accountant
from policies.documents.study import Personal, Study
from silo_agent.data.records import Records
from silo_agent.learning.alone.fitting import FittedAlone, fit
from silo_agent.learning.alone.mixing import MixedModel
from silo_agent.learning.figures.paired import paired
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.choice import ALONE, FEWEST, MIXED, REFITTED, SHARED, Choice
from silo_agent.learning.personal.cross_validation import Compared, compare, decided, own_folds, personal_model
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.unknown_domain import Model

EPSILON: Final = 8.0
SPLITS: Final = 10
FRESH: Final = 30
"""First of the splits that nothing was looked at on, which `bench.accuracy.real` takes."""
PERSONAL: Final[Mapping[str, Personal]] = {
    "heart": Personal(mmd=0.0),
    "diabetes": Personal(mmd=0.0, batch_size=512),
}
"""The personal model's training: the defaults of a study, with larger batches for thousands of patients."""
METHODS: Final = ("personal", "alone", "mixed", "chosen")
KEPT: Final = OUT / "choice"
_UPPER: Final = 0.975
"""Of the quantiles between which 95 % lie."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ChoiceGain:
    """One hospital on one split: AUC and log loss less the shared model's, None where a class is absent."""

    split: int
    hospital: str
    chosen: str
    expected: float
    """What the comparison on training patients said that the chosen model lowers the loss by."""
    auc: dict[str, float | None]
    loss: dict[str, float]
    groups: dict[str, tuple[float | None, float]]
    """By domain, of the chosen model: AUC and log loss less the shared model's. A domain without patients has none."""


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with diabetes130 and heart_disease")
    parser.add_argument("--only", nargs="+", choices=tuple(PERSONAL), default=tuple(PERSONAL))
    parser.add_argument("--seeds", type=int, default=SPLITS, help="number of splits")
    parser.add_argument(
        "--first", type=int, default=0, help="first split; from 1000 on those that choices were made on"
    )
    given = parser.parse_args()
    if given.seeds < 2:
        parser.error("an interval needs two splits at least")
    figures: list[Criterion] = []
    details: dict[str, object] = {}
    for name in given.only:
        data = data_sets.load(name, given.data, OUT / "real")
        measured = on_splits(name, data, range(given.first, given.first + given.seeds))
        figures += judged(name, measured, data.holdout)
        details[name] = [asdict(one) for one in measured]
    return judge("choice", figures, details)


def on_splits(name: str, data: RealDataSet, splits: Iterable[int]) -> list[ChoiceGain]:
    """All hospitals of all splits."""
    plan, measured = PERSONAL[name], list[ChoiceGain]()
    study = accountant.calibrate(data.study.model_copy(update={"personal": plan}), EPSILON)
    for split in splits:
        began = time.monotonic()
        measured += on_split(name, study, data, plan, split)
        print(f"{name}, choice on split {split}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return measured


def on_split(name: str, study: Study, data: RealDataSet, plan: Personal, split: int) -> list[ChoiceGain]:
    """All hospitals of one split."""
    cohorts = data.source.draw(study, split)
    models = shared_models(name, study, cohorts, split)
    return [on_hospital(split, hospital, silo, models, plan) for hospital, silo in cohorts.silos.items()]


def shared_models(name: str, study: Study, cohorts: Cohorts, split: int) -> dict[int, SharedModel]:
    """The shared models of a simulated study by round, from the disk if it was simulated before."""
    folder = KEPT / f"{name}-{split}-{study.digest[:12]}"
    if not folder.exists():
        models = [SharedModel.start(study)]
        simulate(study, cohorts, seed=split, after_round=models.append)
        beside = folder.with_suffix(".new")
        beside.mkdir(parents=True, exist_ok=True)
        for model in models:
            model.save(beside / f"{model.round}.safetensors")
        beside.replace(folder)
    return {int(path.stem): SharedModel.load(path) for path in folder.glob("*.safetensors")}


def on_hospital(split: int, hospital: str, silo: Silo, models: Mapping[int, SharedModel], plan: Personal) -> ChoiceGain:
    """Train, choose and measure at one hospital."""
    shared = models[max(models)]
    entropy = RepeatableEntropy(split, hospital)
    personal = personal_model(models, silo.training, plan, entropy=entropy)
    alone, found = None, Compared()
    if silo.training.patient_count >= FEWEST:
        alone = fit(silo.training, own_folds(silo.training, shared.study.digest), shared.study, shared.round)
        found = compare(models, silo.training, plan, entropy=entropy, alone=alone)
    choice = decided(shared, silo.training, found)
    own: Model = shared if alone is None else alone.model
    mixed: Model = shared if alone is None or found.mix is None else MixedModel(shared, alone.model, found.mix)
    chosen = _chosen(choice, shared, personal, alone)
    held, auc, loss = silo.held_out, {}, {}
    first = shared.predict(held.inputs, held.domains)
    for method, model in zip(METHODS, (personal, own, mixed, chosen), strict=True):
        gain = paired(first, model.predict(held.inputs, held.domains), held.labels, held.patients, shared.family)
        auc[method] = None if gain.auc is None else gain.auc.value
        loss[method] = 0.0 if gain.loss is None else gain.loss.value
    expected = {one.candidate: one.gain for one in choice.compared}.get(choice.candidate, 0.0)
    groups = by_domain(first, chosen.predict(held.inputs, held.domains), held, shared)
    return ChoiceGain(split, hospital, choice.candidate, expected, auc, loss, groups)


def by_domain(first: Floats, said: Floats, held: Records, shared: SharedModel) -> dict[str, tuple[float | None, float]]:
    """The second model less the first in each domain that has patients here."""
    found = {}
    for number, name in enumerate(shared.study.data.domains):
        rows = held.domains == number
        if rows.any():
            gain = paired(first[rows], said[rows], held.labels[rows], held.patients[rows], shared.family)
            area = None if gain.auc is None else gain.auc.value
            found[name] = (area, 0.0 if gain.loss is None else gain.loss.value)
    return found


def _chosen(choice: Choice, shared: SharedModel, personal: PersonalModel, alone: FittedAlone | None) -> Model:
    if choice.candidate in REFITTED:
        return PersonalModel.start(shared, choice.heads)
    if alone is not None and choice.candidate in {ALONE, MIXED}:
        return alone.model if choice.mix is None else MixedModel(shared, alone.model, choice.mix)
    return shared if choice.candidate == SHARED else personal


def judged(name: str, measured: Sequence[ChoiceGain], holdout: float) -> list[Criterion]:
    """Per hospital, and in the mean over hospitals. `holdout` is the share of patients that is measured."""
    figures, worse_at = [], []
    wider = float(np.sqrt(1.0 + len({one.split for one in measured}) * holdout / (1.0 - holdout)))
    for hospital in dict.fromkeys(one.hospital for one in measured):
        own = [one for one in measured if one.hospital == hospital]
        for method in METHODS:
            auc = interval([one.auc[method] for one in own])
            loss = interval([one.loss[method] for one in own])
            if method == "chosen" and _worse(auc.widened(wider), loss.widened(wider)):
                worse_at.append(hospital)
            wanted = "not worse beyond noise" if method == "chosen" else "shown"
            names = [one.chosen for one in own]
            counts = ", ".join(f"{choice} {names.count(choice)}" for choice in dict.fromkeys(names))
            figures.append(
                Criterion(
                    f"{name}, {hospital}, {method} less shared: AUC / log loss",
                    wanted,
                    f"{auc.signed(4)} / {loss.signed(4)}" + (f" ({counts})" if method == "chosen" else ""),
                    method != "chosen" or not _worse(auc, loss),
                )
            )
    for method in METHODS:
        gains = [mean_over_hospitals(measured, method, figure) for figure in ("auc", "loss")]
        figures.append(
            Criterion(
                f"{name}, mean over hospitals, {method} less shared: AUC / log loss",
                "> 0 / < 0" if method == "chosen" else "shown",
                f"{gains[0].signed(4)} / {gains[1].signed(4)}",
                method != "chosen" or (gains[0].mean > 0.0 > gains[1].mean),
            )
        )
    expected = float(np.mean([one.expected for one in measured]))
    came = float(np.mean([-one.loss["chosen"] for one in measured]))
    figures.append(groups_figure(name, measured, wider))
    overlapping = "worse with the chosen model, intervals widened for overlapping splits"
    figures.append(Criterion(f"{name}, hospitals {overlapping}", "shown", ", ".join(worse_at) or "none", met=True))
    told = f"{expected:.4f}, {came:.4f}"
    figures.append(Criterion(f"{name}, chosen: log loss lower as compared, as it came", "shown", told, met=True))
    return figures


def groups_figure(name: str, measured: Sequence[ChoiceGain], wider: float) -> Criterion:
    """Whether a hospital's domain is worse with the chosen model, beyond what chance gives among so many.

    `wider` is what intervals are widened by for overlapping splits; they are widened for the number of groups, too.
    """
    groups = sorted({(one.hospital, domain) for one in measured for domain in one.groups})
    splits = len({one.split for one in measured})
    sure = student.ppf(1.0 - (1.0 - _UPPER) / len(groups), splits - 1) / student.ppf(_UPPER, splits - 1)
    worse = []
    for hospital, domain in groups:
        own = [one.groups[domain] for one in measured if one.hospital == hospital and domain in one.groups]
        if len(own) < 2:  # no interval
            continue
        auc, loss = (interval(values).widened(wider * float(sure)) for values in zip(*own, strict=True))
        if _worse(auc, loss):
            worse.append(f"{hospital}, {domain}: {auc.signed(3)} / {loss.signed(3)}")
    what = f"{name}, of {len(groups)} groups by hospital and domain, worse with the chosen model beyond noise"
    return Criterion(what, "none", "; ".join(worse) or "none", not worse)


def mean_over_hospitals(measured: Sequence[ChoiceGain], method: str, figure: str) -> Interval:
    """The mean over hospitals, with its interval over the splits."""
    splits = sorted({one.split for one in measured})
    values = [[getattr(one, figure)[method] for one in measured if one.split == split] for split in splits]
    return interval([_mean(own) for own in values])


def interval(values: Sequence[float | None]) -> Interval:
    """Of the splits that have a value, 0 if none has. It counts split and noise; the patients are the same."""
    return Interval.of([value for value in values if value is not None] or [0.0])


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else 0.0


def _worse(auc: Interval, loss: Interval) -> bool:
    """Whether a lower AUC or a higher loss is more than chance explains."""
    return auc.most < 0.0 or loss.least > 0.0


if __name__ == "__main__":
    sys.exit(main())
