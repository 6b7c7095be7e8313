"""One step of training: FedWard's, with noise and without, beside Opacus as shipped and plain torch.

Three networks: an mlp on a table, the cnn on small images, ResNet-18. All four train the same network on the same batch
of records under the same frozen head, clip at 1 and draw noise of 1.1. FedWard draws its noise in a thread of its own,
while gradients are computed; a step with noise and one without should therefore take as long. Opacus is its
GradSampleModule and its DPOptimizer, plain torch its SGD, without clip and noise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

from bench.table import Criterion, judge
from crypto.entropy import SystemEntropy
from policies.documents.study import Study
from policies.plan.release import encoder_release
from silo_agent.data.images import Images
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import Encoder, build_encoder
from silo_agent.learning.outcomes.registry import family_of

NOISE, CLIP, RATE = 1.1, 1.0, 0.01
WANTED_RATIO: Final = 1.15
"""Of a step with noise to one without: then the noise is no bottleneck."""
GPU_STEPS = 20
"""Timed at once on a GPU, of every network."""
TURNS = 5
"""Every way is measured so many times, in turns. The least time is shown: other work on the machine only adds to it."""


@dataclass(frozen=True)
class TimedNetwork:
    """A network, how large its batches are, and over how many steps a CPU is timed at once."""

    batch: int
    steps: int
    model: dict[str, Any]
    inputs: int = 0
    image: dict[str, Any] | None = None
    most: tuple[float, float] | None = None
    """Times plain torch that a step may take at most, without noise and with it."""


NETWORKS: Final = {
    "mlp": TimedNetwork(256, 20, {"hidden": [256, 128], "representation": 32}, inputs=64),
    "cnn": TimedNetwork(
        64,
        10,
        {"encoder": "cnn", "channels": [16, 32], "hidden": [], "representation": 32},
        image={"column": "scan", "channels": 1, "height": 28, "width": 28},
    ),
    "resnet18": TimedNetwork(
        16,
        1,
        {"encoder": "resnet18", "hidden": [], "representation": 32},
        image={"column": "scan", "channels": 3, "height": 64, "width": 64},
        most=(6.0, 8.0),
    ),
    "mlp of 2.26 M": TimedNetwork(64, 5, {"hidden": [1400, 600], "representation": 30}, inputs=1000, most=(5.0, 6.0)),
    "resnet18 at 224": TimedNetwork(
        16,
        1,
        {"encoder": "resnet18", "hidden": [], "representation": 32},
        image={"column": "scan", "channels": 3, "height": 224, "width": 224},
    ),
}


@dataclass(frozen=True)
class Scene:
    """What is trained: a study, its encoder at the start, one batch of records."""

    study: Study
    encoder: Encoder
    records: Records
    heads: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    device: str


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--steps", type=int, help="timed at once; by default 20 on a GPU, on a CPU by network")
    arguments.add_argument("--only", choices=list(NETWORKS), action="append", help="one network; may be repeated")
    given = arguments.parse_args()
    found, details = figures(given.only or tuple(NETWORKS), given.device, given.steps)
    if not given.device.startswith("cuda"):
        found.append(Criterion("on a GPU", "shown", "not run: no CUDA device was chosen", met=True))
    return judge("step", found, details)


def figures(names: Sequence[str], device: str, steps: int | None = None) -> tuple[list[Criterion], dict[str, Any]]:
    """Measure these networks. `steps` are timed at once: by default 20 on a GPU, on a CPU by network."""
    found: list[Criterion] = []
    details: dict[str, Any] = {"device": device, "threads": torch.get_num_threads()}
    for name in names:
        usual = GPU_STEPS if device.startswith("cuda") else NETWORKS[name].steps
        seconds = measured(NETWORKS[name], device, steps or usual)
        details[name] = seconds
        least = {way: min(times) for way, times in seconds.items()}
        print(f"{name}: {least}", file=sys.stderr, flush=True)
        ratio = least["with noise"] / least["without noise"]
        weights = sum(one.numel() for one in scene(NETWORKS[name], device).encoder.parameters())
        title = f"{name}, {weights:,} weights, batch {NETWORKS[name].batch}, {device}"
        found.append(
            Criterion(
                f"{title}: with noise / without", f"<= {WANTED_RATIO:g}", f"{ratio:.2f}", met=ratio <= WANTED_RATIO
            )
        )
        found += [
            Criterion(f"{name}: {way}", "shown", f"{1000 * seconds_:.1f} ms a step", met=True)
            for way, seconds_ in least.items()
        ]
        found += list(_beside(name, NETWORKS[name], least))
    return found, details


def _beside(name: str, network: TimedNetwork, least: Mapping[str, float]) -> Iterator[Criterion]:
    """A step beside plain torch and beside Opacus as shipped."""
    for way, most in zip(("without noise", "with noise"), network.most or (), strict=False):
        times = least[way] / least["plain torch"]
        yield Criterion(f"{name}: {way} / plain torch", f"<= {most:g}", f"{times:.1f}", times <= most)
    times = least["with noise"] / least["Opacus as shipped"]
    yield Criterion(f"{name}: with noise / Opacus as shipped", "<= 1", f"{times:.2f}", times <= 1.0)


def measured(network: TimedNetwork, device: str, steps: int) -> dict[str, list[float]]:
    """Seconds of a step, each way, in turns. What is made once (the examination of a chunk) is made before."""
    own = scene(network, device)
    ways: dict[str, Callable[[int], None]] = {
        "with noise": lambda count: ours(own, count, NOISE),
        "without noise": lambda count: ours(own, count, 0.0),
        "Opacus as shipped": opacus(own),
        "plain torch": plain(own),
    }
    for way in ways.values():
        way(1)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for name, way in ways.items():
            _settle(device)
            began = time.perf_counter()
            way(steps)
            _settle(device)
            seconds[name].append((time.perf_counter() - began) / steps)
    return seconds


def ours(scene_: Scene, steps: int, noise: float) -> None:
    """Train with the code of a silo."""
    plan = scene_.study.encoder.model_copy(update={"steps": steps, "noise": noise})
    train_encoder(
        Training(
            encoder=scene_.encoder,
            heads=scene_.heads,
            records=scene_.records,
            plan=plan,
            release=encoder_release(scene_.study.model_copy(update={"encoder": plan})),
            family=family_of(2),
            domain_weights=np.ones(1),
            device=scene_.device,
        ),
        mode="local" if noise else "none",
        entropy=SystemEntropy(),
    )


def opacus(scene_: Scene) -> Callable[[int], None]:
    """The same with Opacus' own clipping and noise."""
    hooked = GradSampleModule(_copy(scene_), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(hooked.parameters(), lr=RATE),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=len(scene_.records),
        loss_reduction="sum",
    )
    return _loop(scene_, hooked, optimizer)


def plain(scene_: Scene) -> Callable[[int], None]:
    """The same without any privacy."""
    encoder = _copy(scene_)
    return _loop(scene_, encoder, torch.optim.SGD(encoder.parameters(), lr=RATE))


def _loop(scene_: Scene, network: torch.nn.Module, optimizer: Any) -> Callable[[int], None]:
    records = scene_.records
    x = torch.tensor(np.asarray(records.inputs), device=scene_.device)
    images = None
    if records.images is not None:
        images = torch.from_numpy(records.images.take(slice(0, len(records)))).to(scene_.device)
    labels = torch.tensor(records.labels, dtype=torch.float32, device=scene_.device)
    head = torch.tensor(scene_.heads[0], dtype=torch.float32, device=scene_.device)

    def train(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            logits = network(x, images) @ head[:-1] + head[-1]
            torch.autograd.backward(
                torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
            )
            optimizer.step()

    return train


def _copy(scene_: Scene) -> Encoder:
    return build_encoder(scene_.study.model, scene_.study.data, stochastic=False).to(scene_.device).train()


def _settle(device: str) -> None:
    """Wait for what a GPU still computes."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def scene(network: TimedNetwork, device: str) -> Scene:
    """A study with this network and one batch of made-up records, all of whom take part in every step."""
    features = [{"kind": "number", "column": f"x{i}", "minimum": -1, "maximum": 1} for i in range(network.inputs)]
    data = {
        "label": {"column": "y", "positive": [1], "negative": [0]},
        "domain": [{"column": "d", "values": [0], "names": ["all"]}],
        "features": features,
    }
    study = Study.model_validate(
        {
            "version": 1,
            "name": "step",
            "purpose": "Measure a step of training.",
            "silos": ["north", "south", "west"],
            "min_silos": 3,
            "data": data | ({} if network.image is None else {"image": network.image}),
            "model": network.model | {"seed": 1},
            "heads": {"pooled_noise": 1.0, "domain_noise": 1.0},
            "encoder": {
                "steps": 1,
                "sampling_rate": 1.0,
                "batch_size": network.batch,
                "learning_rate": RATE,
                "clip": CLIP,
                "noise": NOISE,
            },
            "evaluation": {"noise": 1.0},
            "privacy": {"delta": 1e-5, "mode": "local", "count_noise": 1.0},
        },
        strict=False,
    )
    encoder = build_encoder(study.model, study.data, stochastic=False)
    heads = np.random.default_rng(2).normal(size=(1, study.model.representation + 1))
    return Scene(study, encoder, _records(network), heads, device)


def _records(network: TimedNetwork) -> Records:
    count, rng = network.batch, np.random.default_rng(1)
    images = None
    if network.image is not None:
        size = (count, network.image["channels"], network.image["height"], network.image["width"])
        images = Images(rng.integers(0, 256, size).astype(np.uint8))
    return Records(
        rng.uniform(-1, 1, (count, network.inputs)).astype(np.float32),
        np.arange(count) % 2,
        np.zeros(count, np.int64),
        np.arange(count),
        tuple(str(i) for i in range(count)),
        images,
    )


if __name__ == "__main__":
    sys.exit(main())
