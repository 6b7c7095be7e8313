"""What the noise of training costs: one value on one core, and a network of 2 million weights with and without it.

The value's figure is CPU time of one thread, the least of some runs: what the sampler needs on an idle core. The
network trains 100 steps at batch 64 in turns of ten steps with and ten without noise, so that other work on the machine
falls on both; drawing the noise, in a thread of its own, is part of the turn.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.table import Criterion, judge
from crypto.entropy import SystemEntropy
from crypto.hkdf import KEY_BYTES
from crypto.stream import KeyStream
from policies.documents.study import Study
from policies.plan.release import encoder_release
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.rounded_gaussian import RoundedGaussian
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import Encoder, build_encoder, flatten
from silo_agent.learning.outcomes.registry import family_of

WANTED_NANOSECONDS, WANTED_RATIO = 40.0, 1.15
VALUES, RUNS = 2_000_000, 7
INPUTS, HIDDEN, BATCH, STEPS, TURN = 1_000, (1_400, 400), 64, 100, 10


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of some steps: on the clock, and of all threads together."""

    wall: float
    cpu: float


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=STEPS)
    steps = arguments.parse_args().steps
    nanoseconds = [sampled() for _ in range(RUNS)]
    weights, turns = trained(steps)
    wall, cpu = (
        {kind: sum(getattr(turn, clock) for turn in own) for kind, own in turns.items()} for clock in ("wall", "cpu")
    )
    ratios = [a.wall / b.wall for a, b in zip(turns["noise"], turns["none"], strict=True)]
    ratio = wall["noise"] / wall["none"]
    figures = [
        Criterion(
            "one value on one core",
            f"<= {WANTED_NANOSECONDS:g} ns",
            f"{min(nanoseconds):.1f} ns, median {statistics.median(nanoseconds):.1f}",
            min(nanoseconds) <= WANTED_NANOSECONDS,
        ),
        Criterion(
            f"{weights:,} weights, batch {BATCH}, {steps} steps: wall time with noise / without",
            f"<= {WANTED_RATIO:g}",
            f"{ratio:.3f} ({wall['noise']:.1f} / {wall['none']:.1f} s); turns' median {statistics.median(ratios):.3f}",
            ratio <= WANTED_RATIO,
        ),
        Criterion(
            "the same, CPU time",
            "shown",
            f"{cpu['noise'] / cpu['none']:.3f} ({cpu['noise']:.1f} / {cpu['none']:.1f} s)",
            met=True,
        ),
    ]
    details = {
        "nanoseconds": nanoseconds,
        "turns": {kind: [(turn.wall, turn.cpu) for turn in own] for kind, own in turns.items()},
    }
    return judge("noise", figures, details)


def sampled() -> float:
    """CPU nanoseconds of one value at the deviation of a noise of 1.1, in a vector as long as the network."""
    law, stream = RoundedGaussian(StepGrid.of(1.0, 1.1).sigma), KeyStream(SystemEntropy().bytes(KEY_BYTES), b"bench")
    began = time.thread_time()
    law.draw(stream, VALUES)
    return (time.thread_time() - began) / VALUES * 1e9


def trained(steps: int) -> tuple[int, dict[str, list[StepSeconds]]]:
    """Number of weights, and turns with noise and without, one after the other."""
    study, records = _study(), _records()
    turns: dict[str, list[StepSeconds]] = {"noise": [], "none": []}
    encoder = build_encoder(study.model, study.data, stochastic=False)
    _train(study, encoder, records, 1, noise=True)
    for turn in range(-(-steps // TURN)):
        own = min(TURN, steps - turn * TURN)
        order = ("noise", "none") if turn % 2 == 0 else ("none", "noise")
        for kind in order:
            turns[kind].append(_train(study, encoder, records, own, noise=kind == "noise"))
    return len(flatten(encoder)), turns


def _train(study: Study, encoder: Encoder, records: Records, steps: int, *, noise: bool) -> StepSeconds:
    plan = study.encoder.model_copy(update={"steps": steps} | ({} if noise else {"noise": 0.0}))
    before, began = _cpu(), time.monotonic()
    train_encoder(
        Training(
            encoder=encoder,
            heads=np.random.default_rng(2).normal(size=(2, study.model.representation + 1)),
            records=records,
            plan=plan,
            release=encoder_release(study.model_copy(update={"encoder": plan})),
            family=family_of(2),
            domain_weights=np.ones(2),
        ),
        mode="local" if noise else "none",
        entropy=SystemEntropy(),
    )
    return StepSeconds(time.monotonic() - began, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def study_of(inputs: int, model: Mapping[str, Any], encoder: Mapping[str, Any]) -> Study:
    """A study of three hospitals and two domains that trains this encoder on so many columns."""
    features = [{"kind": "number", "column": f"x{i}", "minimum": -1, "maximum": 1} for i in range(inputs)]
    return Study.model_validate(
        {
            "version": 1,
            "name": "bench",
            "purpose": "Measure what training costs.",
            "silos": ["north", "south", "west"],
            "min_silos": 3,
            "data": {
                "label": {"column": "y", "positive": [1], "negative": [0]},
                "domain": [{"column": "d", "values": [0, 1], "names": ["a", "b"]}],
                "features": features,
            },
            "model": {"seed": 1, **model},
            "heads": {"pooled_noise": 1.0, "domain_noise": 1.0},
            "encoder": {"learning_rate": 0.1, "noise": 1.1, **encoder},
            "evaluation": {"noise": 1.0},
            "privacy": {"delta": 1e-5, "mode": "local", "count_noise": 1.0},
        },
        strict=False,
    )


def _study() -> Study:
    plan = {"steps": STEPS, "sampling_rate": BATCH / 1_000, "batch_size": BATCH}
    return study_of(INPUTS, {"hidden": list(HIDDEN), "representation": 40}, plan)


def _records() -> Records:
    count = 1_000
    rng = np.random.default_rng(1)
    return Records(
        rng.uniform(-1, 1, (count, INPUTS)).astype(np.float32),
        np.arange(count) % 2,
        np.arange(count) // 2 % 2,
        np.arange(count),
        tuple(str(i) for i in range(count)),
    )


if __name__ == "__main__":
    sys.exit(main())
