"""All benches: what each measures, how long it takes, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_NUMPY: Final[Mapping[str, str]] = {"OPENBLAS_NUM_THREADS": "1"}
_ONE_CORE: Final[Mapping[str, str]] = {**_NUMPY, "OMP_NUM_THREADS": "1"}
"""Numpy and torch start no threads: figures do not depend on the cores, and processes do not fight for them."""
_PROCESSES: Final = ("--processes",)
"""One seed is run with a coordinator and agents as well."""


@dataclass(frozen=True)
class Bench:
    """One row of the list."""

    name: str
    module: str
    """It is run as a script."""
    measures: str
    time: str
    """On two cores without a GPU."""
    options: tuple[str, ...] = ()
    """They come before those that are asked for."""
    environment: Mapping[str, str] = field(default_factory=dict)
    reads: bool = False
    """It reads published files and takes `--data` FOLDER."""


BENCHES: Final = (
    Bench(
        "consoles",
        "bench.speed.scale.consoles",
        "206 studies at one coordinator: `study list`, the console's first page, first paint and bytes in Chromium",
        "2 minutes",
    ),
    Bench(
        "exam",
        "bench.accuracy.exam",
        "The demo's study on eight seeds, one also as processes, beside FedAvg and the open fit",
        "3 minutes",
        _PROCESSES,
        _ONE_CORE,
    ),
    Bench(
        "private-heads",
        "bench.accuracy.private_heads",
        "Solvers of private heads and FedAvg with DP-SGD, 20 seeds at four epsilons",
        "10 minutes",
    ),
    Bench(
        "clip",
        "bench.accuracy.clip",
        "The outcome-blind clip beside the clip by a term's own length: risks of a rare column, AUC, R^2, diabetes-130",
        "20 minutes",
        (),
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "coverage",
        "bench.accuracy.coverage",
        "Coverage of every published interval over 1,000 draws on three laws",
        "10 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "encoder-pays",
        "bench.accuracy.encoder_pays",
        "Raw inputs, random features and a trained encoder at three sizes",
        "half an hour",
    ),
    Bench(
        "real",
        "bench.accuracy.real",
        "Three public data sets at four epsilons beside other ways to use them",
        "an hour",
        _PROCESSES,
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "mnist",
        "bench.accuracy.mnist",
        "Five private silos, MNIST under five angles",
        "half an hour",
        _PROCESSES,
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "recipes",
        "bench.accuracy.recipes",
        "A recipe of each paper through agents, heart disease, epsilon 8",
        "10 minutes",
        reads=True,
    ),
    Bench(
        "choice",
        "bench.accuracy.choice",
        "Shared, personal and chosen models of the hospitals of two data sets",
        "half an hour",
        (),
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "forecast",
        "bench.accuracy.forecast",
        "What `plan` forecasts of 40 studies against what they come to, ten on tables that ship with packages",
        "25 minutes",
        (),
        _NUMPY,
    ),
    Bench(
        "feddar",
        "bench.papers.feddar",
        "FedDAR's synthetic experiment, in the clear and through sealed sums",
        "45 minutes",
    ),
    Bench(
        "ablation",
        "bench.papers.ablation",
        "FedDAR's Table 2 on the demo's cohort, without privacy, five seeds",
        "half an hour",
    ),
    Bench(
        "invariance",
        "bench.papers.invariance",
        "Coloured MNIST at four silos: FedAvg, federated IRM and PerInvFL under other colours",
        "an hour",
        (),
        _NUMPY,
        reads=True,
    ),
    Bench(
        "unseen",
        "bench.papers.unseen",
        "FedSR on digits at an angle that no silo has, beside FedAvg; a picture",
        "half an hour",
        (),
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "two-sample",
        "bench.papers.two_sample",
        "Two-sample tests with MK-MMD and MMD-D beside the median kernel",
        "15 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "personal",
        "bench.papers.personal_models",
        "Personal models of the adaptive-MMD paper, and of hospitals",
        "an hour",
        (),
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "local-global",
        "bench.papers.local_global",
        "LG-FedAvg: two-class digits at 100 silos, and one whose digits are turned",
        "half an hour",
        (),
        _ONE_CORE,
        reads=True,
    ),
    Bench(
        "step",
        "bench.speed.step",
        "A step of two mlps, the cnn and ResNet-18 beside Opacus and plain torch, on a GPU if there is one",
        "6 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "gpu",
        "bench.speed.gpu",
        "All that runs on a GPU: tests, steady kernels, step times, a study through processes",
        "10 minutes, with --device cpu",
        (),
        _ONE_CORE,
    ),
    Bench(
        "noise",
        "bench.speed.noise",
        "Nanoseconds of a value of training noise, and training with noise against without",
        "minutes",
    ),
    Bench(
        "hessian",
        "bench.speed.hessian",
        "Hessians of the heads in closed form against torch.func.hessian",
        "minutes",
        (),
        _NUMPY,
    ),
    Bench(
        "sums",
        "bench.speed.sums",
        "Heads' sums of a million records beside numpy: time, and memory above the data",
        "2 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "data",
        "bench.speed.scale.data",
        "A hospital's table from file to cohorts, to ten million rows, beside pyarrow, polars, DuckDB; 100,000 images",
        "10 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "simulate",
        "bench.speed.scale.simulate",
        "Twenty seeds of a study in one process, in two, and on three workers of Dask's: time, and the same bits",
        "10 minutes",
        (),
        _NUMPY,
    ),
    Bench(
        "encoder-scale",
        "bench.speed.encoder_scale",
        "Encoders of 1, 10 and 100 million weights: start, steps, sealing and move; time, and memory a weight",
        "3 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "mmd",
        "bench.speed.mmd",
        "An MK-MMD step with 19 kernels beside one computation for each kernel",
        "minutes",
        (),
        _NUMPY,
    ),
    Bench(
        "startup",
        "bench.speed.startup",
        "CPU seconds of commands that neither train nor count, and of an agent until it is ready",
        "minutes",
    ),
    Bench(
        "takeover",
        "bench.speed.scale.takeover",
        "How long nobody serves when one of two coordinators dies, freezes or stops",
        "minutes",
    ),
    Bench(
        "round",
        "bench.speed.round",
        "Three rounds, two silos, 478,410 weights: what sealing costs beside training",
        "minutes",
    ),
    Bench(
        "sealed",
        "bench.speed.sealed",
        "Sealed sums beside NVFLARE's parameters: bytes, CPU, memory, error",
        "3 minutes",
    ),
    Bench(
        "silos",
        "bench.speed.silos",
        "What a study costs its coordinator from 4 to 128 silos: its steps, and over the wire",
        "half an hour",
        (),
        _ONE_CORE,
    ),
    Bench(
        "crowd",
        "bench.speed.crowd",
        "A sum of a thousand silos on a circle, in one process: that it opens, and what it costs a silo",
        "10 minutes",
        (),
        _ONE_CORE,
    ),
    Bench(
        "revocation",
        "bench.speed.revocation",
        "Seconds from a revocation to the coordinator's first refusal",
        "minutes",
    ),
    Bench(
        "poisoning",
        "bench.attacks.poisoning",
        "What one hospital's contributions, flipped or swapped by mistake, do to the demo's study",
        "10 minutes",
        (),
        _ONE_CORE,
    ),
)


def listed() -> str:
    """One line for each bench: its name, what it measures, and how long it takes."""
    width = max(len(bench.name) for bench in BENCHES)
    return "\n".join(
        f"{bench.name.ljust(width)}  {bench.measures}; {bench.time}{'; DATA=folder' if bench.reads else ''}."
        for bench in BENCHES
    )
