"""Many runs of a study as a table for people and as plain data for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from rich import box
from rich.table import Table

from deploy.local.simulate.data.reading import LeftOut
from deploy.local.simulate.outcome import Exact, Figure, Outcome, RunMetrics, epsilons, mean
from policies.documents.study import Study
from silo_agent.learning.figures.evaluation import Estimate

Runs = Sequence[RunMetrics]
RECORDS, TEST_RECORDS = "records", "test records"
"""What records that were left out were for."""
MOST_REASONS: Final = 10
"""Lines about records that are left out."""
FIGURES: Final[Mapping[Figure, str]] = {"auc": "AUC", "accuracy": "accuracy", "r2": "R2"}
"""What a study is judged by, as tables and drawings call it."""


@dataclass(frozen=True, repr=False, eq=False)
class Simulated:
    """What was run, and what came.

    `public`: why the records may be used freely; None if they were made up. `records`: how many each silo has.
    `left_out`: those that do not fit the schema, by what they are for. `others`: what was measured of the same seeds
    otherwise, by name.
    """

    study: Study
    runs: Sequence[Outcome]
    public: str | None
    records: Mapping[str, int]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    others: Mapping[str, Runs] = field(default_factory=dict)

    @property
    def every(self) -> Mapping[str, Runs]:
        """The study's runs, as `study`, and the others."""
        return {"study": self.runs, **self.others}


def table(found: Simulated) -> Table:
    """Metrics by domain: the mean over the seeds, and +- their standard deviation."""
    figure = FIGURES[found.runs[0].figure]
    shown = Table(title=title(found), title_justify="left", box=box.SIMPLE, pad_edge=False)
    shown.add_column("")
    for head in (figure, *found.others, "published", "95 % interval", "calibration", "test records"):
        shown.add_column(head, justify="right", no_wrap=True)
    for m, name in enumerate(found.study.data.domains):
        own = [spread([run.value(run.exact[m]) for run in runs]) for runs in found.every.values()]
        shown.add_row(name, *own, *_published(found.runs, m), *_risk([run.exact[m] for run in found.runs]))
    shown.add_section()
    shown.add_row("mean", *(spread([run.mean for run in runs]) for runs in found.every.values()))
    shown.add_row("worst domain", *(spread([run.worst() for run in runs]) for runs in found.every.values()))
    pooled = [spread([run.value(run.together) for run in runs]) for runs in found.every.values()]
    shown.add_row("all together", *pooled, "", "", *_risk([run.together for run in found.runs]))
    return shown


def title(found: Simulated) -> str:
    """What was simulated, on which records, at which price."""
    study = found.study
    price = ", ".join(f"{cohort} {cost:.2f}" for cohort, cost in epsilons(study).items())
    source = "made-up records" if found.public is None else f"public records ({found.public})"
    left = "".join(f", {own.records} {name} left out" for name, own in found.left_out.items() if own.records)
    return (
        f"{study.name} {study.digest[:12]}: {len(found.records)} silos, {len(found.runs)} seeds, {source}{left}\n"
        f"epsilon at delta {study.privacy.delta:g}: {price}"
    )


def why_left_out(found: Simulated) -> list[str]:
    """Lines for people: why records were left out, the most frequent reasons first. A record can have several."""
    lines = []
    for name, own in found.left_out.items():
        for reason in own.reasons[:MOST_REASONS]:
            column = f"{reason.column}: " if reason.column else ""
            example = f"{reason.file}, row {reason.row}: {reason.found}"
            lines.append(f"left out, {reason.records} {name}: {column}expected {reason.expected} ({example})")
        if len(own.reasons) > MOST_REASONS:
            lines.append(f"and {len(own.reasons) - MOST_REASONS} more reasons to leave out {name}; JSON has all")
    return lines


def as_json(found: Simulated) -> dict[str, Any]:
    """Everything as plain data; what is unknown or infinite is None."""
    study = found.study
    document = {
        "study": {"name": study.name, "digest": study.digest, "domains": study.data.domains},
        "source": "made up" if found.public is None else "public",
        "public": found.public,
        "silos": dict(found.records),
        **_left_out(found),
        "delta": study.privacy.delta,
        "epsilon": dict(epsilons(study)),
        "runs": {name: [_run(run) for run in runs] for name, runs in found.every.items()},
    }
    return dict(_plain(document))


def _left_out(found: Simulated) -> dict[str, Any]:
    """Counts and reasons, of records and of test records; without a test file the latter are none."""
    fields: dict[str, Any] = {}
    for name in (RECORDS, TEST_RECORDS):
        own, start = found.left_out.get(name, LeftOut()), "test_" if name == TEST_RECORDS else ""
        fields |= {f"{start}left_out": own.records, f"{start}reasons": [asdict(reason) for reason in own.reasons]}
    return fields


def spread(values: Sequence[float | None]) -> str:
    """The mean of what is known, with the standard deviation if there are several values."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return "-"
    return f"{mean(known):.3f}" + (f" +- {np.std(known, ddof=1):.3f}" if len(known) > 1 else "")


def _published(runs: Sequence[Outcome], m: int) -> tuple[str, str]:
    """The published figure of a domain, and the ends of its interval; means over the runs that could tell it."""
    found: list[Estimate | None] = [getattr(run.published.by_domain[m], run.figure) for run in runs]
    told = [own for own in found if own is not None and own.value is not None]
    if not told:
        return "-", "too few to tell"
    return spread(
        [own.value for own in told]
    ), f"{mean([o.low for o in told]):.3f} to {mean([o.high for o in told]):.3f}"


def _risk(own: Sequence[Exact]) -> tuple[str, str]:
    return spread([one.calibration for one in own]), f"{mean([one.records for one in own]):.0f}"


def _run(run: RunMetrics) -> dict[str, Any]:
    found: dict[str, Any] = {
        "seed": run.seed,
        "mean": run.mean,
        "worst": run.worst(),
        "exact": [asdict(own) for own in run.exact],
        "together": asdict(run.together),
    }
    if isinstance(run, Outcome):
        found |= {"model": run.model.digest, "published": [asdict(own) for own in run.published.by_domain]}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
