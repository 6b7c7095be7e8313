"""A study through real processes: a coordinator and an agent for each silo, with TLS, ledgers and sealed sums.

Simulations give most figures of the benches. One run like this stands beside them and shows that hospitals that show
each other nothing get the same, and what their ledgers say it cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.table import Criterion
from deploy.demo import gather
from deploy.demo.report_data import SiloBudget
from deploy.local.federation import Federation
from deploy.local.folders import empty
from deploy.local.processes import FederationError
from deploy.local.watching import bars, watch
from policies.reports.published import PublishedFigure
from silo_agent.learning.model.shared import SharedModel


@dataclass(frozen=True)
class Ran:
    """What a federation left: the model that all silos hold, their ledgers, what they published, and what it took."""

    model: SharedModel
    budgets: tuple[SiloBudget, ...]
    sealed: tuple[PublishedFigure, ...]
    seconds: float
    bytes_sent: float
    """By a silo, in the mean."""


def federated(
    study_file: Path,
    files: Mapping[str, Path],
    policy: str,
    folder: Path,
    *,
    limit: float = 900.0,
    device: str = "auto",
) -> Ran:
    """Run a study with one agent for each file; `policy` is the common text of the silos' policies.

    Raises `FederationError`, also if the silos do not hold the same model in the end.
    """
    empty(folder)
    federation = Federation(folder, study_file, files, policy, device=device)
    study = federation.study
    federation.prepare()
    with bars(Console()) as progress, federation:
        began = time.monotonic()
        federation.begin()
        status = watch(federation, progress, limit=limit)
        seconds = time.monotonic() - began
        federation.wait_for_silos()
        models = [SharedModel.load(federation.state(silo) / f"model-{study.rounds}.safetensors") for silo in files]
        if len({model.digest for model in models}) != 1:
            msg = f"{study.name}: the silos do not hold the same model"
            raise FederationError(msg)
        sent = sum(upload.bytes for upload in status.uploads) / len(files)
        return Ran(models[0], gather.budgets(federation), gather.sealed_results(federation), seconds, sent)


def or_failure(name: str, run: Callable[[], list[Criterion]]) -> list[Criterion]:
    """The figures of a run through processes. One that fails is a missed figure, and the simulated ones stay."""
    try:
        return run()
    except FederationError as error:
        return [Criterion(f"{name}: through processes", "runs to its end", str(error), met=False)]


def budget_figures(budgets: Sequence[SiloBudget], epsilon: float, start: str = "") -> list[Criterion]:
    """What the study cost at most at a silo: by its ledger, and counted again from its training log."""
    spent, recomputed = (max(values) for values in zip(*((one.spent, one.recomputed) for one in budgets), strict=True))
    return [
        Criterion(f"{start}largest epsilon in a ledger", f"<= {epsilon:g}", f"{spent:.3f}", spent <= epsilon),
        Criterion(f"{start}the same counted again", f"<= {epsilon:g}", f"{recomputed:.3f}", recomputed <= epsilon),
    ]
