"""Gathers a finished study for the report: from the coordinator's status, the silos' ledgers, logs and results."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.demo.recount import recount
from deploy.demo.report_data import (
    PersonalResult,
    RoundBytes,
    SiloBudget,
    TensorBytes,
    WorkSeconds,
)
from deploy.local import ledgers
from deploy.local.federation import Federation
from deploy.local.processes import run
from policies.documents.study import Study
from policies.plan.release import plan
from policies.reports.published import PublishedFigure, figures_of, quality_of
from protos.messages import RINGS, Tensor
from protos.status import StudyStatus

PHASES = {
    "offer": "offers and decisions",
    "greet": "keys",
    "deal": "keys",
    "take": "keys",
    "share": "catching up",
    "catch_up": "catching up",
    "exchange": "sharing what recovers a dropout",
    "gather": "training and uploads",
    "add": "adding sealed sums",
    "sign": "signing who is in a sum",
    "reveal": "revealing what opens a sum",
    "open": "opening sums",
    "solve": "solving heads",
    "adopt": "checking and adopting heads",
}


def budgets(federation: Federation) -> tuple[SiloBudget, ...]:
    """Each silo's ledger, and the epsilon counted again from its training log."""
    return tuple(
        SiloBudget(one.silo, one.spent, recount(federation.state(one.silo) / "training.jsonl", one.delta), one.budget)
        for one in ledgers.budgets(federation)
    )


def sealed_results(federation: Federation) -> tuple[PublishedFigure, ...]:
    """What every silo reads from the opened metric sums. All silos must read the same."""
    texts = {(federation.state(silo) / "results.json").read_text(encoding="utf-8") for silo in federation.data}
    if len(texts) != 1:
        msg = "the silos do not agree on the results of the study"
        raise ValueError(msg)
    return opened_figures(json.loads(texts.pop()))


def opened_figures(results: Mapping[str, Any]) -> tuple[PublishedFigure, ...]:
    """The figures of a silo's `results.json`, by domain and of all patients together."""
    return tuple(figures_of(quality_of(results)))


def uploads(study: Study, status: StudyStatus) -> tuple[TensorBytes, ...]:
    """What one silo uploaded, by kind."""
    found = []
    for tensor in Tensor:
        sizes = [upload for upload in status.uploads if upload.tensor is tensor and upload.kind in RINGS]
        if sizes:
            largest = max(sizes, key=lambda upload: upload.bytes)
            values = plan(study).release(largest.round, tensor).values
            times = len(sizes) // len({upload.silo for upload in sizes})
            sealing = "CKKS" if largest.kind == "ckks" else largest.kind
            found.append(TensorBytes(tensor, sealing, values, largest.bytes, times))
    return tuple(found)


def rounds(status: StudyStatus) -> tuple[RoundBytes, ...]:
    """The most that one silo sent and fetched in each round: tensors, sums, notes."""
    sent: dict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    fetched: defaultdict[int, int] = defaultdict(int)
    for upload in status.uploads:
        sent[upload.round][upload.silo] += upload.bytes
    for number in sent:
        uploads = [upload for upload in status.uploads if upload.round == number]
        sums = {(u.attempt, u.tensor): u.bytes for u in uploads if u.kind in RINGS}
        notes = [u.bytes for u in uploads if u.kind not in RINGS]
        fetched[number] = sum(sums.values()) + sum(notes)
    return tuple(RoundBytes(number, max(sent[number].values()), fetched[number]) for number in sorted(sent))


def phases(status: StudyStatus) -> tuple[WorkSeconds, ...]:
    """Where the time went."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for time in status.times:
        seconds[PHASES.get(time.phase, time.phase)] += time.seconds
    return tuple(WorkSeconds(name, spent) for name, spent in seconds.items())


def evaluations(federation: Federation, data: Path) -> dict[str, dict[str, Any]]:
    """Each silo's models on a labelled public file, by the agent's own command."""
    digest = federation.study.digest
    return {
        silo: _json(
            "fedward-silo", "evaluate", digest, str(data), "--format", "json", "-c", str(federation.config(silo))
        )
        for silo in federation.data
    }


def areas(domains: Sequence[Mapping[str, float | None]]) -> tuple[float, ...]:
    """AUC by domain of one model's evaluation; nan if a class is absent."""
    found = (one["auc"] for one in domains)
    return tuple(math.nan if area is None else area for area in found)


def personal(found: dict[str, dict[str, Any]]) -> tuple[PersonalResult, ...]:
    """Mean AUC over the domains of each silo's shared and personal model."""
    return tuple(
        PersonalResult(silo, _mean(one["shared"]), _mean(one["personal"]))
        for silo, one in found.items()
        if one["personal"] is not None
    )


def _mean(domains: Sequence[Mapping[str, float | None]]) -> float:
    known = [area for area in areas(domains) if not math.isnan(area)]
    return sum(known) / len(known)


def _json(program: str, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(program, *arguments))
    return found
