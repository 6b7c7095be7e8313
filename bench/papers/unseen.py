"""FedSR on silos never seen: RotatedMNIST with 0 or with 75 degrees held out, and a picture of the representation.

The data of the paper (Nguyen, Torr, Lim 2022): 1,000 digits of a published index file, the same ones at six angles.
Five angles are the silos, the sixth is measured. FedAvg, with L2R, with CMI, and with both (FedSR) train the paper's
network on the same batches with FedWard's own terms (`silo_agent.learning.terms`), not through a study: it has
BatchNorm, which no study may have. `--studies` puts FedWard's own cnn beside it, as studies that agents would train.

The schedule is shorter than the paper's 500 epochs, the same for all four, with a cosine. It and the coefficients were
chosen on index set 5; sets 0 to 2 are reported. Each run is kept in `bench/out/unseen`, so a stopped bench goes
on where it was.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn import functional

from bench import idx
from bench.intervals import Interval
from bench.places import MNIST, OUT
from bench.table import Criterion, judge
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.silos import Cohorts, Silo
from policies.documents.study import Study
from silo_agent.data.images import Images
from silo_agent.data.records import Records
from silo_agent.learning.encoder.draws import public_draws
from silo_agent.learning.terms.losses.cmi import Prior, gaussian_kl
from silo_agent.learning.terms.losses.l2r import squared_norm

KEPT: Final = OUT / "unseen"
ANGLES: Final = (0, 15, 30, 45, 60, 75)
HELD_OUT: Final = (0, 75)
SETS: Final = (0, 1, 2)
WANTED: Final = 2.0
CLASSES, SIDE, REPRESENTATION = 10, 28, 64
SAMPLES: Final = 20
_DRAWN_DIGITS: Final = 200
"""Digits of each of two angles in the picture."""


@dataclass(frozen=True)
class PaperRow:
    """One row of the table: the coefficients of the two terms, and the paper's mean accuracy at 0 and 75 degrees."""

    name: str
    l2r: float = 0.0
    cmi: float = 0.0
    paper: tuple[float, float] | None = None


METHODS: Final = (
    PaperRow("FedAvg", paper=(85.9, 86.2)),
    PaperRow("FedL2R", l2r=0.01),
    PaperRow("FedCMI", cmi=0.01),
    PaperRow("FedSR", l2r=0.01, cmi=0.01, paper=(93.6, 93.5)),
)
PLAIN, FEDSR = METHODS[0], METHODS[-1]


@dataclass(frozen=True)
class Schedule:
    """How silos train: `steps` of SGD in a round, then the uniform mean of all weights. Momentum stays at a silo."""

    rounds: int = 100
    steps: int = 5
    batch: int = 64
    rate: float = 0.05
    momentum: float = 0.9
    clip: float = 5.0
    """Longest gradient of a batch: without it CMI's first steps diverge at this rate."""


@dataclass(frozen=True, repr=False, eq=False)
class TurnedDigits:
    """The 1,000 digits of one index set: images uint8 by angle, (1000, 28, 28) each, and labels int64 (1000,)."""

    images: Mapping[int, NDArray[np.uint8]]
    labels: NDArray[np.int64]

    def tensor(self, angle: int) -> torch.Tensor:
        """Images at an angle, (1000, 1, 28, 28) in [0, 1]."""
        return torch.from_numpy(self.images[angle].astype(np.float32) / 255.0)[:, None]


def main() -> int:
    """Train what is not kept yet, draw, and judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, default=MNIST, help="folder of MNIST's idx files and rotated_inds")
    arguments.add_argument("--sets", type=int, nargs="+", default=list(SETS), help="index sets, 0 to 9")
    arguments.add_argument("--rounds", type=int, default=Schedule.rounds)
    arguments.add_argument("--only", nargs="+", default=[], help="methods; without it all four")
    arguments.add_argument("--studies", action="store_true", help="also FedWard's own cnn, as studies; an hour")
    given = arguments.parse_args()
    if not (given.data / "rotated_inds").is_dir():
        print(f"there is no RotatedMNIST in {given.data}; give the folder of its files with DATA=<folder>")
        return 1
    torch.set_num_threads(1)
    schedule = Schedule(rounds=given.rounds)
    methods = [one for one in METHODS if not given.only or one.name in given.only]
    right = {one.name: _all(given.data, one, given.sets, schedule) for one in methods}
    figures = [_row(one, right[one.name]) for one in methods]
    figures += [_difference(one, right) for one in methods if one is not PLAIN and PLAIN.name in right]
    if {PLAIN.name, FEDSR.name} <= set(right):
        figures.append(draw(given.data, given.sets[0], HELD_OUT[-1], schedule))
    own: dict[str, list[list[float]]] = {}
    if given.studies:
        own = {one.name: _studies(given.data, one, given.sets) for one in methods}
        figures += [_row(one, own[one.name], "FedWard's cnn: ") for one in methods]
        figures += [
            _difference(one, own, "FedWard's cnn: ") for one in methods if one is not PLAIN and PLAIN.name in own
        ]
    details = {"methods": [asdict(one) for one in methods], "schedule": asdict(schedule), "sets": given.sets}
    return judge("unseen", figures, {**details, "held_out": HELD_OUT, "right": right, "studies": own})


# --- what is told -----------------------------------------------------------------------------------------------------
def _row(method: PaperRow, right: Sequence[Sequence[float]], start: str = "") -> Criterion:
    """Accuracy in per cent, (sets, held-out angles)."""
    values = np.array(right)
    paper = "" if method.paper is None or start else f"; paper {method.paper[0]}, {method.paper[1]}"
    by_angle = ", ".join(
        f"{mean:.1f} at {angle}" for mean, angle in zip(values.mean(axis=0).tolist(), HELD_OUT, strict=True)
    )
    return Criterion(
        f"{start}{method.name}, unseen angle", "shown", f"{values.mean():.1f} % ({by_angle}{paper})", met=True
    )


def _difference(method: PaperRow, right: Mapping[str, Sequence[Sequence[float]]], start: str = "") -> Criterion:
    """Points above FedAvg: mean over sets and angles of the paired differences, with a 95 % interval of Student's t."""
    gained = (np.array(right[method.name]) - np.array(right[PLAIN.name])).ravel()
    interval = Interval.of(gained)
    judged = method is FEDSR and not start
    wanted = f">= {WANTED:g} points" if judged else "shown"
    shown = f"{interval.mean:+.1f} +- {interval.half:.1f} ({', '.join(f'{one:+.1f}' for one in gained)})"
    return Criterion(f"{start}{method.name} above FedAvg", wanted, shown, met=not judged or interval.mean >= WANTED)


# --- the paper's network ----------------------------------------------------------------------------------------------
class PaperNetwork(nn.Module):
    """The paper's: two convolutions 5x5 with BatchNorm, ReLU and pooling, one layer to the representation, one to 10.

    With `stochastic` the representation has a mean and a deviation.
    """

    def __init__(self, *, stochastic: bool) -> None:
        super().__init__()
        self.stochastic = stochastic
        width = REPRESENTATION * (2 if stochastic else 1)
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, 32, 5), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(64 * 4 * 4, width)),
        )
        self.classifier = nn.Linear(REPRESENTATION, CLASSES)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # every one of these layers has a bias

    def moments(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mean (n, k) of the representation, and its deviation or None."""
        out: torch.Tensor = self.encoder(images)
        if not self.stochastic:
            return out, None
        return out[:, :REPRESENTATION], functional.softplus(out[:, REPRESENTATION:])

    def predict(self, images: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, 10), the mean over the draws if the representation is drawn."""
        with torch.no_grad():
            mean, deviation = self.moments(images)
            if deviation is None:
                return torch.softmax(self.classifier(mean), dim=1)
            draws = torch.from_numpy(public_draws(0, SAMPLES, REPRESENTATION))
            said = [torch.softmax(self.classifier(mean + deviation * one), dim=1) for one in draws]
            return torch.stack(said).mean(dim=0)


class _Silo:
    """A silo's copy of everything that is trained, with its own momentum."""

    def __init__(self, images: torch.Tensor, network: PaperNetwork, schedule: Schedule) -> None:
        self.images = images
        self.network = copy.deepcopy(network)
        self.tables = Prior(REPRESENTATION, CLASSES) if network.stochastic else None
        self._weights = [*self.network.parameters(), *(() if self.tables is None else self.tables.parameters())]
        self._clip = schedule.clip
        self._optimizer = torch.optim.SGD(self._weights, lr=schedule.rate, momentum=schedule.momentum)

    def step(self, rows: torch.Tensor, labels: torch.Tensor, method: PaperRow, rate: float) -> None:
        """One step on a batch."""
        self._optimizer.param_groups[0]["lr"] = rate
        mean, deviation = self.network.moments(self.images[rows])
        z = mean if deviation is None else mean + deviation * torch.randn_like(mean)
        loss = functional.cross_entropy(self.network.classifier(z), labels[rows])
        if method.l2r:
            loss = loss + method.l2r * squared_norm(z).mean()
        if deviation is not None and self.tables is not None:
            loss = loss + method.cmi * gaussian_kl(mean, deviation, *self.tables(labels[rows])).mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._weights, self._clip)
        self._optimizer.step()

    def modules(self) -> list[nn.Module]:
        """What is averaged: the network, and r(z|y), as a study does it unless it says `prior: local`."""
        return [self.network] if self.tables is None else [self.network, self.tables]


def train(digits: TurnedDigits, method: PaperRow, held_out: int, schedule: Schedule, seed: int) -> PaperNetwork:
    """FedAvg with the method's terms on all angles but one. Methods with the same seed see the same batches."""
    torch.manual_seed(seed)
    rng, labels = np.random.default_rng(seed), torch.from_numpy(digits.labels)
    network = PaperNetwork(stochastic=method.cmi > 0.0)
    silos = [_Silo(digits.tensor(angle), network, schedule) for angle in ANGLES if angle != held_out]
    for number in range(schedule.rounds):
        rate = schedule.rate * (1.0 + math.cos(math.pi * number / schedule.rounds)) / 2.0
        for silo in silos:
            silo.network.train()
            for _ in range(schedule.steps):
                rows = torch.from_numpy(rng.choice(len(labels), schedule.batch, replace=False))
                silo.step(rows, labels, method, rate)
        for parts in zip(*(silo.modules() for silo in silos), strict=True):
            _average(parts)
    return silos[0].network.eval()


def _average(modules: Sequence[nn.Module]) -> None:
    """Give all of them the uniform mean of weights and of BatchNorm's statistics."""
    states = [module.state_dict() for module in modules]
    mean = {
        name: torch.stack([state[name].float() for state in states]).mean(dim=0).to(value.dtype)
        for name, value in states[0].items()
    }
    for module in modules:
        module.load_state_dict(mean)


def _all(data: Path, method: PaperRow, sets: Sequence[int], schedule: Schedule) -> list[list[float]]:
    """Accuracy in per cent, (sets, held-out angles)."""
    return [[_right(data, method, number, angle, schedule) for angle in HELD_OUT] for number in sets]


def _right(data: Path, method: PaperRow, number: int, angle: int, schedule: Schedule) -> float:
    """Per cent of the held-out angle's digits that are recognised."""
    digits = read_digits(data, number)
    network = _trained(digits, method, number, angle, schedule)
    right = 100.0 * float((network.predict(digits.tensor(angle)).argmax(dim=1).numpy() == digits.labels).mean())
    print(f"{method.name}, set {number}, {angle} degrees: {right:.1f} %", flush=True)
    return right


def _trained(digits: TurnedDigits, method: PaperRow, number: int, angle: int, schedule: Schedule) -> PaperNetwork:
    """The network, from `bench/out/unseen` if it was trained before with the same settings."""
    told = repr((method.l2r, method.cmi, schedule, number, angle))
    path = KEPT / f"{method.name}-{number}-{angle}.pt"
    if path.is_file():
        kept = torch.load(path, weights_only=True)
        if kept["told"] == told:
            network = PaperNetwork(stochastic=method.cmi > 0.0)
            network.load_state_dict(kept["state"])
            return network.eval()
    network = train(digits, method, angle, schedule, number)
    KEPT.mkdir(parents=True, exist_ok=True)
    torch.save({"told": told, "state": network.state_dict()}, path)
    return network


def _read_kept(path: Path, told: Mapping[str, object]) -> float | None:
    """What an earlier run of the same settings found."""
    if not path.is_file():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    return float(content["right"]) if content["told"] == json.loads(json.dumps(told)) else None


# --- the picture ------------------------------------------------------------------------------------------------------
def draw(data: Path, number: int, held_out: int, schedule: Schedule) -> Criterion:
    """t-SNE of FedAvg's and FedSR's representations at the angle never seen and at the one next to it."""
    import matplotlib as mpl  # noqa: PLC0415  # takes a second, and only the picture needs it
    from matplotlib.figure import Figure  # noqa: PLC0415
    from sklearn.manifold import TSNE  # noqa: PLC0415

    path = OUT / "unseen.png"
    digits = read_digits(data, number)
    beside = min((angle for angle in ANGLES if angle != held_out), key=lambda angle: abs(angle - held_out))
    chosen = np.arange(0, len(digits.labels), len(digits.labels) // _DRAWN_DIGITS)
    drawing = Figure(figsize=(11.0, 5.4), layout="constrained")
    colours = mpl.colormaps["tab10"]
    for place, method in enumerate((PLAIN, FEDSR), start=1):
        network = _trained(digits, method, number, held_out, schedule)
        with torch.no_grad():
            seen = [network.moments(digits.tensor(angle)[chosen])[0].numpy() for angle in (beside, held_out)]
        flat = TSNE(init="pca", perplexity=30.0, random_state=0).fit_transform(np.concatenate(seen))
        axes = drawing.add_subplot(1, 2, place)
        for marker, angle, part in zip("ox", (beside, held_out), np.split(flat, 2), strict=True):
            said = f"{angle} degrees{', never seen' if angle == held_out else ''}"
            axes.scatter(
                part[:, 0],
                part[:, 1],
                c=colours(digits.labels[chosen]),
                marker=marker,
                s=16,
                linewidths=0.9,
                label=said,
            )
        axes.set_title(method.name)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.legend(frameon=False, fontsize=8)
    OUT.mkdir(exist_ok=True)
    drawing.savefig(path, dpi=150)
    return Criterion("representation by t-SNE, a colour for each digit", "shown", f"bench/out/{path.name}", met=True)


# --- FedWard's own network, as a study --------------------------------------------------------------------------------
def study_of(method: PaperRow, rounds: int = 60) -> Study:
    """FedAvg of FedWard's cnn without noise, with the method's terms and, if it draws, predictions over the draws."""
    document: dict[str, Any] = {
        "version": 1,
        "name": "unseen",
        "purpose": "digits at an angle that no silo has",
        "silos": ["amber", "birch", "cedar", "dune", "elm"],
        "min_silos": 5,
        "recipe": "fedavg",
        "data": {
            "label": {"column": "digit", "classes": [[digit] for digit in range(CLASSES)]},
            "domain": [{"column": "study", "values": [1], "names": ["all angles"]}],
            "features": [],
            "image": {"column": "image", "channels": 1, "height": SIDE, "width": SIDE, "minimum": 0, "maximum": 255},
        },
        "model": {
            "encoder": "cnn",
            "channels": [16, 32],
            "hidden": [],
            "representation": 16,
            "seed": 7,
            "samples": SAMPLES if method.cmi else 0,
        },
        "heads": {"pooled_rounds": rounds, "domain_rounds": 0, "pooled_noise": 0.0, "domain_noise": 0.0},
        "encoder": {
            "steps": 5,
            "sampling_rate": 0.064,
            "batch_size": 64,
            "learning_rate": 1.0,
            "schedule": "cosine",
            "momentum": 0.5,
            "clip": 100.0,
            "noise": 0.0,
            "weight_clip": 1.0,
            "l2r": method.l2r,
            "cmi": method.cmi,
            "sealing": "ring64",
        },
        "evaluation": {"noise": 0.0},
        "privacy": {"delta": 1e-5, "mode": "none", "count_noise": 0.0, "max_patients": 2000},
    }
    return Study.model_validate(document)


def _studies(data: Path, method: PaperRow, sets: Sequence[int]) -> list[list[float]]:
    """Accuracy in per cent of the studies' models, (sets, held-out angles)."""
    return [[_of_study(data, method, number, angle) for angle in HELD_OUT] for number in sets]


def _of_study(data: Path, method: PaperRow, number: int, held_out: int) -> float:
    study = study_of(method)
    told = {"study": study.digest, "set": number, "held_out": held_out}
    path = KEPT / f"study-{method.name}-{number}-{held_out}.json"
    if (kept := _read_kept(path, told)) is None:
        digits = read_digits(data, number)
        angles = [angle for angle in ANGLES if angle != held_out]
        sites = {silo: _records(digits, angle) for silo, angle in zip(study.silos, angles, strict=True)}
        first = np.arange(len(digits.labels)) < CLASSES  # the published figures are not read here
        silos = {silo: Silo(own, own.of_patients(first)) for silo, own in sites.items()}
        outcome = simulate(study, Cohorts(silos, _records(digits, held_out)), seed=1)
        kept = 100.0 * (outcome.exact[0].accuracy or 0.0)
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"told": told, "right": kept}), encoding="utf-8")
    print(f"study, {method.name}, set {number}, {held_out} degrees: {kept:.1f} %", flush=True)
    return kept


def _records(digits: TurnedDigits, angle: int) -> Records:
    count = len(digits.labels)
    rows = np.arange(count, dtype=np.int64)
    images = Images(digits.images[angle][:, None].copy())
    nothing = np.zeros((count, 0), np.float32)
    return Records(nothing, digits.labels, np.zeros(count, np.int64), rows, tuple(map(str, rows)), images)


# --- the data ---------------------------------------------------------------------------------------------------------
@cache
def read_digits(folder: Path, number: int) -> TurnedDigits:
    """The digits of an index set at all angles, rotated to the nearest pixel as in the published loader."""
    images, labels = idx.read(folder, "train")
    chosen = np.load(folder / "rotated_inds" / f"supervised_inds_{number}.npy")
    turned = {
        angle: np.stack(
            [np.asarray(Image.fromarray(one).rotate(angle, Image.Resampling.NEAREST)) for one in images[chosen]]
        )
        for angle in ANGLES
    }
    return TurnedDigits(turned, labels[chosen].astype(np.int64))


if __name__ == "__main__":
    sys.exit(main())
