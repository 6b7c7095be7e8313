"""Fair representations of Adult (Liang et al. 2020, LG-FedAvg, section 5.3): race and sex are hidden by an adversary.

Ten silos share a model at epsilon 8 (UCI Adult, race White or Black; race and sex are no inputs). Each silo trains its
personal model with `personal.adversary`, and the same without it. A network trained from scratch on the finished
representations of the silo's training patients then guesses race and sex of patients of the official test file.
Each seed deals patients to the silos anew and draws other noise. Seeds from `TUNING` on hold out training patients
instead; all settings were chosen on these, so the test file is for reporting alone. What a seed gave is kept in
`bench/out/local-global`, so a stopped bench goes on where it was; remove it to measure anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier

from bench.accuracy.real import tables
from bench.accuracy.real.data_sets import HERE, TUNING
from bench.intervals import Interval
from bench.places import DATA, OUT
from bench.table import Criterion, judge
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.outcome import epsilons
from deploy.local.simulate.silos import Cohorts, Silo, rows_of
from policies.accounting import accountant
from policies.documents.study import DataSchema, Study, load_study
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import features
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.cross_validation import personal_model
from silo_agent.models.attacker import attacker_auc, scores

Floats = NDArray[np.float64]
SILOS: Final = tuple(f"silo-{number}" for number in range(1, 11))
SEEDS: Final = (0, 1, 2)
EPSILON: Final = 8.0
MOST_AUC, MOST_LOST, LEAST_CONTROL = 0.55, 4.0, 0.6
ATTRIBUTES: Final = ("race", "sex")
HIDDEN: Final = 32
NARROW, WIDE = 1, 8
"""Values of the protected representation, and of a wider one that shows what the narrow one costs by itself."""
PERSONAL: Final[Mapping[str, Any]] = {
    "epochs": 20,
    "learning_rate": 0.1,
    "batch_size": 619,
    "ditto": 0.0,
    "mmd": 0.0,
    "adversary": 4.0,
    "adversary_steps": 5,
}
"""Epochs of each of the three rounds. The batch is a fifth of a silo's patients, so that no batch is a small rest."""
KEPT: Final = OUT / "local-global" / "adult"
_HELD_OUT: Final = 0.3
PLAIN, PROTECTED, WIDER = "without adversary", "with adversary", f"without, {WIDE} values"


@dataclass(frozen=True)
class Guessed:
    """AUC of those who guess one attribute of held-out patients from one representation.

    `attacker`: the product's network, trained on the silo's training patients. `crossed`: the same, cross-validated on
    the held-out patients as in a fairness report; only of models with an adversary. `trees`: boosted trees, trained as
    `attacker`.
    """

    attacker: float
    trees: float
    crossed: float | None = None


@dataclass(frozen=True)
class AdultResult:
    """One model at one silo: accuracy (per cent) and AUC of the outcome, share predicted positive, and guesses."""

    seed: int
    silo: str
    model: str
    accuracy: float
    majority: float
    """Accuracy of who always says the silo's more frequent outcome."""
    area: float
    positive: float
    guessed: dict[str, Guessed]


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with adult/adult.data and adult.test")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help=f"from {TUNING} on: tuning")
    given = parser.parse_args()
    shown, details = parts(given.data, given.seeds)
    return judge("local-global-adult", shown, details)


def parts(data: Path = DATA, seeds: Sequence[int] = SEEDS) -> tuple[list[Criterion], object]:
    """The rows of the table and what they follow from."""
    torch.set_num_threads(1)
    training, test = read(data, study(NARROW).data)
    measured: list[AdultResult] = []
    raw: list[dict[str, Guessed]] = []
    for seed in seeds:
        began = time.monotonic()
        own, inputs = on_seed(training, test, seed)
        measured += own
        raw += inputs
        print(f"adult, seed {seed}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    epsilon = max(max(epsilons(study(width)).values()) for width in (NARROW, WIDE))
    details = {"personal": dict(PERSONAL), "seeds": list(seeds), **_document(measured, raw)}
    return figures(measured, raw, epsilon), details


# --- the study and its patients ---------------------------------------------------------------------------------------
def study(representation: int) -> Study:
    """The study of Adult with race and sex protected and read by no input; its noise costs `EPSILON` in all."""
    document = load_study(HERE / "adult.yaml").model_dump(mode="json", exclude_defaults=True)
    race, sex = (
        {"column": column, "values": values, "names": values}
        for column, values in (("race", ["White", "Black"]), ("sex", ["Male", "Female"]))
    )
    document |= {
        "name": "adult-fair",
        "purpose": "Predict an income above 50,000 dollars from a representation that tells neither race nor sex.",
        "silos": list(SILOS),
        "min_silos": len(SILOS),
        "data": document["data"]
        | {"domain": [{"column": "all", "values": [0], "names": ["all"]}], "protected": [race, sex]},
        "model": {"encoder": "mlp", "hidden": [HIDDEN], "representation": representation, "seed": 1},
        "heads": {
            "solver": "newton",
            "pooled_rounds": 3,
            "domain_rounds": 0,
            "pooled_noise": 1.0,
            "domain_noise": 1.0,
            "clip": 0.5,
            "max_step": 30.0,
        },
        "personal": dict(PERSONAL),
    }
    return accountant.calibrate(Study.model_validate(document, strict=False), EPSILON)


def read(data: Path, schema: DataSchema) -> tuple[Records, Records]:
    """The patients of the official training and test files whose race is White or Black."""
    halves = []
    for part, dealt in zip(("training", "test"), tables.adult(data / "adult"), strict=True):
        rows = [{**row, "all": 0} for silo in dealt.values() for row in silo if row["race"] != "Other"]
        file = tables.write({"all": rows}, KEPT / part)["all"]
        halves.append(read_records(file, schema, ("row",)).whole())
    return halves[0], halves[1]


def deal(training: Records, test: Records, seed: int) -> Cohorts:
    """Silos of equal size, drawn by the seed: the training file's patients, and as held-out ones the test file's.

    From `TUNING` on the held-out patients are of the training file, too.
    """
    drawn = np.random.default_rng([seed, len(training)])
    own, other = (drawn.permutation(len(part)) % len(SILOS) for part in (training, test))
    if seed < TUNING:
        return Cohorts(
            {name: Silo(rows_of(training, own == at), rows_of(test, other == at)) for at, name in enumerate(SILOS)}
        )
    held = drawn.random(len(training)) < _HELD_OUT
    return Cohorts(
        {
            name: Silo(rows_of(training, (own == at) & ~held), rows_of(training, (own == at) & held))
            for at, name in enumerate(SILOS)
        }
    )


# --- measuring --------------------------------------------------------------------------------------------------------
def on_seed(training: Records, test: Records, seed: int) -> tuple[list[AdultResult], list[dict[str, Guessed]]]:
    """The models of every silo, and what its inputs tell; from the disk if the seed was measured before."""
    digests = "-".join(study(width).digest[:12] for width in (NARROW, WIDE))
    kept = KEPT / f"seed-{seed}-{digests}.json"
    if kept.exists():
        known = json.loads(kept.read_text(encoding="utf-8"))
        measured = [AdultResult(**{**one, "guessed": _of_document(one["guessed"])}) for one in known["measured"]]
        return measured, [_of_document(one) for one in known["raw"]]
    cohorts = deal(training, test, seed)
    on_models = []
    for width, models in ((NARROW, {PLAIN: 0.0, PROTECTED: PERSONAL["adversary"]}), (WIDE, {WIDER: 0.0})):
        shared = shared_models(study(width), cohorts, seed)
        for name, silo in cohorts.silos.items():
            for model, weight in models.items():
                on_models.append(on_silo(shared, silo, weight, seed=seed, name=name, model=model))
    raw = [on_inputs(silo) for silo in cohorts.silos.values()]
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(_document(on_models, raw)), encoding="utf-8")
    return on_models, raw


def _document(measured: Sequence[AdultResult], raw: Sequence[Mapping[str, Guessed]]) -> dict[str, Any]:
    inputs = [{name: asdict(one) for name, one in silo.items()} for silo in raw]
    return {"measured": [asdict(one) for one in measured], "raw": inputs}


def _of_document(document: Mapping[str, Mapping[str, float]]) -> dict[str, Guessed]:
    return {name: Guessed(**one) for name, one in document.items()}


def shared_models(private: Study, cohorts: Cohorts, seed: int) -> dict[int, SharedModel]:
    """The shared model after each round of a simulation."""
    models: dict[int, SharedModel] = {}

    def keep(model: SharedModel) -> None:
        models[model.round] = model

    keep(simulate(private, cohorts, seed=seed, after_round=keep).model)
    return models


def on_silo(
    shared: Mapping[int, SharedModel], silo: Silo, adversary: float, *, seed: int, name: str, model: str
) -> AdultResult:
    """Train one personal model through all rounds, as an agent does, and measure it on the held-out patients.

    `name` and `model` say which silo and which model it is.
    """
    private = shared[max(shared)].study
    if private.personal is None:
        msg = "the study has no personal model"
        raise ValueError(msg)
    plan = private.personal.model_copy(update={"adversary": adversary})
    own = personal_model(shared, silo.training, plan, entropy=RepeatableEntropy(seed, name))
    held, width = silo.held_out, private.model.representation
    said = own.predict(held.inputs, held.domains)

    def represent(records: Records) -> Floats:
        return features(own.network.encoder, records.inputs)[:, :width].numpy().astype(np.float64)

    chosen = said.argmax(axis=1)
    usual = int(silo.training.labels.mean() > 0.5)
    return AdultResult(
        seed,
        name,
        model,
        accuracy=100.0 * float((chosen == held.labels).mean()),
        majority=100.0 * float((held.labels == usual).mean()),
        area=_known(auc(said[:, 1], held.labels)),
        positive=float(chosen.mean()),
        guessed=guessed(silo, represent, crossed=adversary > 0.0),
    )


def on_inputs(silo: Silo) -> dict[str, Guessed]:
    """How well the attributes are guessed from the inputs themselves."""
    return guessed(silo, lambda records: np.array(records.inputs, np.float64))


def guessed(silo: Silo, represent: Callable[[Records], Floats], *, crossed: bool = False) -> dict[str, Guessed]:
    """Guesses of every attribute of the held-out patients; `represent` gives what the attackers see (n, k)."""
    x, asked = represent(silo.training), represent(silo.held_out)
    mean, deviation = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    x, asked = (x - mean) / deviation, (asked - mean) / deviation
    by_model = {}
    for place, attribute in enumerate(ATTRIBUTES):
        known, true = _protected(silo.training, place), _protected(silo.held_out, place)
        told = scores(x, known, asked, 2, np.random.default_rng(0))[:, 1]
        trees = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, random_state=0).fit(x, known)
        by_model[attribute] = Guessed(
            attacker=_known(auc(told, true)),
            trees=_known(auc(trees.predict_proba(asked)[:, 1], true)),
            crossed=_known(attacker_auc(asked.astype(np.float32), true)) if crossed else None,
        )
    return by_model


def _protected(records: Records, place: int) -> NDArray[np.int64]:
    if records.protected is None:
        msg = "the records have no protected attributes"
        raise ValueError(msg)
    return records.protected[:, place]


def _known(value: float | None) -> float:
    if value is None:
        msg = "a silo has no patient of one group; deal out more patients"
        raise ValueError(msg)
    return value


# --- what is told -----------------------------------------------------------------------------------------------------
def figures(measured: Sequence[AdultResult], raw: Sequence[Mapping[str, Guessed]], epsilon: float) -> list[Criterion]:
    """The rows: what is wanted, then the controls without which it would mean nothing."""
    of = {model: [one for one in measured if one.model == model] for model in (PLAIN, PROTECTED, WIDER)}
    rows = [_guess_row(of[PROTECTED], attribute) for attribute in ATTRIBUTES]
    rows += [_lost_row(of[PROTECTED], of[other], other) for other in (PLAIN, WIDER)]
    rows.append(_beyond_majority(of[PROTECTED]))
    for model in (PLAIN, WIDER):
        for attribute in ATTRIBUTES:
            value = _mean(one.guessed[attribute].attacker for one in of[model])
            rows.append(
                Criterion(
                    f"control: attacker's AUC for {attribute}, {model}",
                    f">= {LEAST_CONTROL:g}",
                    _guesses([one.guessed[attribute] for one in of[model]]),
                    value >= LEAST_CONTROL,
                )
            )
    for attribute in ATTRIBUTES:
        told = _guesses([one[attribute] for one in raw])
        rows.append(Criterion(f"control: attacker's AUC for {attribute}, inputs themselves", "shown", told, met=True))
    for model, own in of.items():
        shown = (
            f"accuracy {_mean(one.accuracy for one in own):.2f} %, AUC {_mean(one.area for one in own):.3f},"
            f" {100.0 * _mean(one.positive for one in own):.1f} % predicted positive"
        )
        rows.append(Criterion(f"outcome, {model}", "shown", shown, met=True))
    rows.append(Criterion("epsilon of the shared model", f"<= {EPSILON:g}", f"{epsilon:.3f}", epsilon <= EPSILON))
    return rows


def _guess_row(own: Sequence[AdultResult], attribute: str) -> Criterion:
    values = by_seed(own, lambda one: one.guessed[attribute].attacker)
    each = [one.guessed[attribute].attacker for one in own]
    over = sum(value > MOST_AUC for value in each)
    shown = f"{_guesses([one.guessed[attribute] for one in own])}; seeds {_text(values, 3)}"
    return Criterion(
        f"attacker's AUC for {attribute}, {PROTECTED}",
        f"<= {MOST_AUC:g}",
        f"{shown}; {over} of {len(each)} models above, most {max(each):.3f}",
        bool(values.mean() <= MOST_AUC),
    )


def _guesses(own: Sequence[Guessed]) -> str:
    known = [one.crossed for one in own if one.crossed is not None]
    crossed = f"cross-validated {_mean(known):.3f}, " if known else ""
    return f"{_mean(one.attacker for one in own):.3f} ({crossed}trees {_mean(one.trees for one in own):.3f})"


def _lost_row(own: Sequence[AdultResult], other: Sequence[AdultResult], name: str) -> Criterion:
    lost = by_seed(other, lambda one: one.accuracy) - by_seed(own, lambda one: one.accuracy)
    return Criterion(
        f"accuracy lost to the model {name}",
        f"<= {MOST_LOST:g} points",
        f"{_text(lost, 2)} points",
        bool(lost.mean() <= MOST_LOST),
    )


def _beyond_majority(own: Sequence[AdultResult]) -> Criterion:
    gained = by_seed(own, lambda one: one.accuracy - one.majority)
    constant = sum(one.positive in (0.0, 1.0) for one in own)
    low = Interval.of(gained).least
    return Criterion(
        "accuracy above always saying the more frequent outcome",
        "> 0, no model constant",
        f"{_text(gained, 2)} points above {_mean(one.majority for one in own):.2f} %, {constant} models constant",
        low > 0.0 and not constant,
    )


def by_seed(own: Sequence[AdultResult], of: Callable[[AdultResult], float]) -> Floats:
    """The mean over the silos of each seed, (seeds,)."""
    return np.array([_mean(of(one) for one in own if one.seed == seed) for seed in sorted({one.seed for one in own})])


def _mean(values: Any) -> float:
    return float(np.mean(list(values)))


def _text(values: Floats, places: int) -> str:
    each = ", ".join(f"{value:.{places}f}" for value in values)
    return f"{values.mean():.{places}f} +- {Interval.of(values).half:.{places}f} ({each})"


if __name__ == "__main__":
    sys.exit(main())
