"""Encoders of 1, 10 and 100 million weights at one silo: start, examination, two steps, grid, sealing and the move.

Each encoder has a process of its own. Time is CPU time of one thread, without the noise's, which is drawn beside it.
Memory is the peak of each stage in bytes a weight, above the same process after a tiny encoder, and above one network
of float32: what a weight costs beyond the network and its optimizer, which has no momentum here. A sum is not opened:
the sealed integers themselves are what moves the model.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from bench.memory import begin_peak, resident
from bench.speed.noise import study_of
from bench.table import Criterion, judge
from crypto.entropy import SystemEntropy
from crypto.hkdf import KEY_BYTES
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.grid import to_grid_stochastic
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks
from crypto.secagg.packages import GroupKeys
from crypto.secagg.sealing import Sealer
from crypto.stream import KeyStream
from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.release import encoder_release
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd.training import Training, require_accountable, train_encoder
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.encoder import UPDATE_STEPS

INPUTS, RECORDS, STEPS, BATCH = 256, 64, 2, 4
HIDDEN: Final = {"1M": (1_000, 700), "10M": (2_048, 2_048, 2_048), "100M": (4_096,) * 7}
TINY: Final = (8, 8)
"""What a process does first, so that all libraries are loaded."""
SLOW: Final = ("gram-schmidt", ("1M", "10M"))
"""The other way to start, and the sizes at which anybody waits for it."""
WANTED_BYTES, WANTED_GROWTH = 12.0, 1.15
"""Bytes a weight in the largest encoder; exponent of the start's time in the number of weights."""


class Stages:
    """What one encoder took, by stage: CPU seconds, and bytes a weight at the peak beyond one network."""

    def __init__(self, weights: int) -> None:
        self.weights, self.seconds, self.above = weights, dict[str, float](), dict[str, float]()
        self._before = resident("VmRSS")

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what stands inside."""
        begin_peak()
        began = time.thread_time()
        yield
        self.seconds[name] = time.thread_time() - began
        self.above[name] = (resident("VmHWM") - self._before) * 1e6 / self.weights - 4.0


def measured(hidden: tuple[int, ...], start: str) -> Stages:
    """Do everything for a tiny encoder, then measure it for this one."""
    torch.set_num_threads(1)
    study = _study(hidden, start)
    run(_study(TINY, start), Stages(1))
    stages = Stages(shapes.encoder_values(study))
    run(study, stages)
    return stages


def run(study: Study, stages: Stages) -> None:
    """All that a silo does with an encoder in a round."""
    with stages.stage("start"):
        model = SharedModel.start(study)
    with stages.stage("examination"):
        require_accountable(study)
    with stages.stage("two steps"):
        vector = trained(study, model)
    with stages.stage("grid"):
        bound, ring = study.encoder.max_update, study.encoder.sealing
        step = bound / UPDATE_STEPS[ring]
        stream = KeyStream(SystemEntropy().bytes(KEY_BYTES), b"bench")
        integers = to_grid_stochastic(vector, step, bound, stream, in_place=True)
        del vector
    with stages.stage("sealing"):
        seal(study, integers)
    with stages.stage("move"):
        model = model.with_update(integers, 1, step)
        del integers
    with stages.stage("digest"):
        _ = model.digest


def trained(study: Study, model: SharedModel) -> NDArray[np.float64]:
    """The update of a few records."""
    training = Training(
        encoder=model.view_encoder(),
        heads=model.heads,
        records=records(),
        plan=study.encoder,
        release=encoder_release(study),
        family=model.family,
        domain_weights=np.ones(2),
    )
    return train_encoder(training, mode="local", entropy=SystemEntropy()).vector


def seal(study: Study, integers: NDArray[np.int64]) -> None:
    """Seal them frame by frame, as they are written to a file."""
    entropy, (me, *others) = SystemEntropy(), study.silos
    keys = GroupKeys(CkksKey.create().to_bytes(), entropy.bytes(KEY_BYTES), entropy.bytes(KEY_BYTES))
    masks = Masks(me, entropy.bytes(KEY_BYTES), {name: entropy.bytes(KEY_BYTES) for name in others}, keys.group)
    label = SumLabel("0" * 64, "0" * 64, "", 1, 1, "bench")
    for _ in Sealer(me, keys, study.silos).seal(study.encoder.sealing, integers, label, masks):
        pass


def _study(hidden: tuple[int, ...], start: str) -> Study:
    plan = {"steps": STEPS, "sampling_rate": BATCH / RECORDS, "batch_size": BATCH}
    return study_of(INPUTS, {"hidden": list(hidden), "representation": 16, "start": start}, plan)


def records() -> Records:
    """A few, always the same."""
    inputs, each = np.random.default_rng(1).uniform(-1, 1, (RECORDS, INPUTS)), np.arange(RECORDS)
    return Records(inputs.astype(np.float32), each % 2, each // 2 % 2, each, tuple(map(str, each)))


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=tuple(HIDDEN), nargs="+", default=tuple(HIDDEN), help="these sizes")
    sizes = arguments.parse_args().only
    found: dict[tuple[str, str], Stages] = {}
    for start, own in (("hadamard", sizes), (SLOW[0], [size for size in SLOW[1] if size in sizes])):
        for size in own:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[start, size] = pool.submit(measured, HIDDEN[size], start).result()
            print(f"{start}, {size}: {found[start, size].seconds}", file=sys.stderr, flush=True)
    details = [{"start": start, "size": size, **vars(one)} for (start, size), one in found.items()]
    return judge("encoder-scale", list(_figures(found)), details)


def _figures(found: dict[tuple[str, str], Stages]) -> Iterator[Criterion]:
    for (start, size), one in found.items():
        seconds = ", ".join(f"{stage} {value:.2f}" for stage, value in one.seconds.items())
        yield Criterion(f"{size} ({one.weights:,} weights), {start}: CPU s", "shown", seconds, met=True)
        peak, stage = max((value, stage) for stage, value in one.above.items())
        above = ", ".join(f"{stage} {value:.1f}" for stage, value in one.above.items())
        judged = (start, size) == ("hadamard", "100M")
        yield Criterion(
            f"{size}, {start}: bytes a weight beyond the network, at most in: {stage}",
            f"<= {WANTED_BYTES:g}" if judged else "shown",
            f"{peak:.1f} ({above})",
            not judged or peak <= WANTED_BYTES,
        )
    starts = [(one.weights, one.seconds["start"]) for (start, _), one in found.items() if start == "hadamard"]
    if len(starts) > 1:
        (few, little), (many, long) = starts[0], starts[-1]
        growth = math.log(long / little) / math.log(many / few)
        name = f"the start's time from {few:,} to {many:,} weights: exponent"
        yield Criterion(name, f"<= {WANTED_GROWTH:g}", f"{growth:.2f}", growth <= WANTED_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
