"""All that runs on a GPU, in one command: tests for CUDA, steady kernels, step times, a study through processes.

The study is the demo's nonlinear one with hospitals' own steps of an encoder: a coordinator and six agents with TLS,
ledgers and sealed sums, once on the device and once on the processor. What is wanted of it is that all silos hold the
same model in the end; its times and its AUC are shown. With `--device cpu` the same is done without a GPU, which shows
that the command works and nothing else.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import torch
import yaml

from bench.accuracy.encoder_pays import SHARE, study_of
from bench.places import DEMO, OUT, ROOT
from bench.processes import Ran, federated, or_failure
from bench.speed import step
from bench.table import Criterion, judge
from deploy.demo import cohort
from deploy.demo.sources import load_source
from policies.accounting import accountant, planning
from policies.documents.study import Study
from silo_agent.learning.device import describe_device
from silo_agent.learning.dpsgd.training import steady_rows
from silo_agent.learning.errors import LearningError

SEED: Final = 900
"""Of the study's patients."""
EPSILON: Final = 3.5
"""What training costs a patient. The demo's policies allow 4."""
PARTS: Final = ("tests", "kernels", "steps", "study")


def main() -> int:
    """Measure, print, judge."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments.add_argument("--only", choices=PARTS, nargs="+", default=PARTS)
    given = arguments.parse_args()
    details: dict[str, Any] = {"torch": torch.__version__}
    try:
        described = describe_device(given.device)
    except LearningError as error:
        return judge("gpu", [Criterion("a GPU", "present", str(error), met=False)], details)
    figures = [Criterion("device", "shown", f"{described}; torch {torch.__version__}", met=True)]
    if "tests" in given.only:
        figures.append(tests_of(given.device))
    if "kernels" in given.only:
        figures += kernels(given.device)
    if "steps" in given.only:
        found, details["steps"] = step.figures(tuple(step.NETWORKS), given.device)
        figures += found
    if "study" in given.only:
        figures += or_failure("the study", lambda: list(studies(given.device)))
    return judge("gpu", figures, details)


def tests_of(device: str) -> Criterion:
    """The tests that need a GPU. Without one all of them skip by name."""
    words = [sys.executable, "-m", "pytest", "-m", "cuda", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, file=sys.stderr)
    counted = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout)}
    met = done.returncode == 0 and counted.get("passed" if device == "cuda" else "skipped", 0) > 0
    met = met and (device != "cuda" or "skipped" not in counted)
    wanted = "all pass" if device == "cuda" else "all skip by name"
    return Criterion("tests for CUDA", wanted, ", ".join(f"{n} {what}" for what, n in counted.items()), met)


def kernels(device: str) -> Iterator[Criterion]:
    """Whether the rows of a chunk keep their bits whatever else is in it, by network."""
    for name, network in step.NETWORKS.items():
        study = step.scene(network, device).study
        rows, wanted = steady_rows(study, device)
        yield Criterion(f"{name}: rows of a steady chunk", str(wanted), str(rows), rows == wanted)


def studies(device: str) -> Iterator[Criterion]:
    """The study through processes, on the device and on the processor."""
    ran = {where: _run(where) for where in dict.fromkeys((device, "cpu"))}
    for where, one in ran.items():
        areas = ", ".join(f"{figure.value:.3f}" for figure in one.sealed if figure.metric == "auc" and figure.value)
        text = f"after round {one.model.round}; {one.seconds:.0f} s; AUC of the domains {areas}"
        yield Criterion(f"the study on {where}", "one model at all silos", text, met=True)


def _run(device: str) -> Ran:
    folder = OUT / f"gpu-{device}"
    made = cohort.generate(folder / "data", SEED, law="nonlinear", times=1)
    study = _study()
    study_file = folder / "study.yaml"
    study_file.write_text(yaml.safe_dump(study.model_dump(mode="json"), sort_keys=False), encoding="utf-8")
    files = dict(zip(study.silos, made.sites, strict=True))
    policy = load_source(DEMO / "nonlinear-30k").policy
    return federated(study_file, files, policy, folder / "federation", device=device)


def _study() -> Study:
    """The study of the bench `encoder-pays` with hospitals' own steps, as they are what a GPU computes."""
    document = study_of("encoder", 1).model_dump(mode="json")
    own = {"sealed_steps": False, "sampling_rate": 0.1, "batch_size": 100, "rounds": 3, "steps": 30}
    document["encoder"] |= own | {"learning_rate": 0.5, "momentum": 0.0, "max_update": 2.0, "sealing": "ring32"}
    document["model"]["random_features"] = 80  # the demo's policies let heads read 128 values
    study = Study.model_validate(document | {"name": "gpu"}, strict=False)
    return accountant.with_fields(study, planning.split(study, EPSILON, study.privacy.delta, SHARE).fields)


if __name__ == "__main__":
    sys.exit(main())
