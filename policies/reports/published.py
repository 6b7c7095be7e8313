"""A study's figures from its noised sums, for a board: a table with intervals, a drawing, calibration in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.figure_words import MOVED, told
from policies.documents.study import ALL_PATIENTS, BINARY, Metric, Study
from policies.reports.blocks import Block, Cell, Dot, DotRow, Dots, Paragraph, Section, grid

NAMES: Final[Mapping[Metric, str]] = {
    "auc": "AUC",
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "false_negatives": "Ill called well",
    "calibration": "Calibration error",
    "expected_observed": "Expected / observed",
    "patients": "Patients",
    "mae": "Mean absolute error",
    "r2": "R²",
    "mean_error": "Mean error",
}
_DRAWN: Final[tuple[Metric, ...]] = ("auc", "balanced_accuracy", "accuracy", "r2")
"""The first of these that is there is drawn."""
_MEANINGS: Final[Mapping[Metric, str]] = {
    "auc": "AUC is the chance that the model gives the higher risk to the ill one of two patients, one ill and one not."
    " Half is a coin's.",
    "balanced_accuracy": "Balanced accuracy is the mean over the classes of the share of patients with right answers.",
    "false_negatives": "Ill called well is the share of the patients with the outcome whom the model calls well.",
    "r2": "R² is the share of the outcome's variance that the model explains; at 0 it is no better than the mean.",
    "mae": "The mean absolute error is in the unit of the outcome (of its logarithm if the study says so).",
}
_VAGUE: Final = 2.0
"""An interval whose ends are further apart than by this factor says nothing of the risks in the mean."""


@dataclass(frozen=True)
class PublishedFigure:
    """One figure with its 95 % interval. `value` is None if too few patients count.

    `metric` may end in `_moved`: how far one hospital of the largest announced size could move the figure.
    """

    domain: str
    metric: str
    value: float | None
    low: float
    high: float


def quality_of(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A silo's `results.json` as a model card has it: metrics by domain, and of all patients if they are there.

    Raises KeyError, TypeError and ValueError if the results are not whole.
    """
    pairs = list(zip(results["domains"], results["by_domain"], strict=True))
    if results.get("together"):
        pairs.append((ALL_PATIENTS, results["together"]))
    return [{"domain": domain, "metrics": metrics} for domain, metrics in pairs]


def figures_of(quality: Iterable[Mapping[str, Any]]) -> list[PublishedFigure]:
    """The opened figures, as a model card has them: domain, and by metric a value with its interval."""
    return [
        PublishedFigure(entry["domain"], metric, one["value"], one["low"], one["high"])
        for entry in quality
        for metric, one in entry["metrics"].items()
        if isinstance(one, Mapping)
    ]


def sections(study: Study, figures: Sequence[PublishedFigure], *, source: str) -> tuple[Section, ...]:
    """How good the model is for whom, and whether its risks can be trusted. `source` says whose figures they are."""
    if not figures:
        text = "Not known: the study publishes no figures."
        return (Section("How good the model is, and for whom", (Paragraph(text),)),)
    by_place = {(one.domain, one.metric): one for one in figures}
    domains = list(dict.fromkeys(one.domain for one in figures))
    metrics = [name for name in NAMES if any(one.metric == name for one in figures)]
    shown = [name for name in metrics if name != "patients"]
    rows: list[tuple[str | Cell, ...]] = []
    for domain in domains:
        counted = by_place.get((domain, "patients"))
        patients = "-" if counted is None else told("patients", counted.value, counted.high, form=".0f")
        held_out = None if counted is None else counted.value
        cells = [_cell(by_place.get((domain, name)), held_out) for name in shown]
        rows.append((Cell(domain, "first" if domain == ALL_PATIENTS else ""), patients, *cells))
    heads = ("Whom", "Patients held out", *(NAMES[name] for name in shown))
    meanings = [_MEANINGS[name] for name in shown if name in _MEANINGS]
    blocks: list[Block] = [
        Paragraph(source),
        *_drawn(by_place, domains, metrics),
        grid(heads, rows, numbers=len(heads) - 1, caption="Figures with 95 % intervals, for noise and chance together"),
        Paragraph(" ".join([*meanings, *_threshold(study, shown)]), "small"),
        *_moved(figures),
    ]
    found = [Section("How good the model is, and for whom", tuple(blocks))]
    if sentences := _calibration(study, by_place, domains):
        found.append(Section("Can the predicted risks be trusted?", tuple(map(Paragraph, sentences))))
    return tuple(found)


def _cell(figure: PublishedFigure | None, patients: float | None) -> Cell:
    if figure is None:
        return Cell("-")
    value = told(figure.metric, figure.value, figure.high, patients=patients)
    note = "" if figure.value is None else f"{figure.low:.3f} to {figure.high:.3f}"
    return Cell(value, note=note)


def _drawn(
    figures: Mapping[tuple[str, str], PublishedFigure], domains: Iterable[str], metrics: Sequence[Metric]
) -> Iterable[Dots]:
    drawn = next((name for name in _DRAWN if name in metrics), None)
    if drawn is None:
        return ()
    rows = []
    for domain in domains:
        one = figures.get((domain, drawn))
        if one is None or one.value is None:
            rows.append(DotRow(domain, (), "too few held-out patients to tell"))
            continue
        text = f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"
        rows.append(DotRow(domain, (Dot(one.value, one.low, one.high),), text))
    low = min((dot.low or 0.0 for row in rows for dot in row.dots), default=0.0)
    start, reference = (0.5, None) if drawn == "auc" and low >= 0.5 else (0.0, 0.5)  # noqa: PLR2004  # a coin's AUC
    if drawn == "r2":
        start, reference = min(low, 0.0), 0.0
    return (Dots(NAMES[drawn], start, 1.0, tuple(rows), reference=reference),)


def _threshold(study: Study, shown: Iterable[Metric]) -> list[str]:
    if study.data.label.count != BINARY or not {"accuracy", "balanced_accuracy", "false_negatives"} & set(shown):
        return []
    return [f"A patient counts as ill from a risk of {study.threshold:g} on, as the study says."]


def _moved(figures: Sequence[PublishedFigure]) -> Iterable[Paragraph]:
    """How far one dishonest hospital could have moved the figures, if the study says how large hospitals are."""
    told_of = []
    for metric, name in NAMES.items():
        moved = [(one.value, one.domain) for one in figures if one.metric == f"{metric}{MOVED}" and one.value]
        if moved:
            most, domain = max(moved)
            told_of.append(f"{name} by {most:.3f} ({domain})")
    if not told_of:
        return ()
    text = f"One hospital that lies about its patients could have moved figures at most so far: {', '.join(told_of)}."
    return (Paragraph(text, "small"),)


def _calibration(study: Study, figures: Mapping[tuple[str, str], PublishedFigure], domains: Iterable[str]) -> list[str]:
    two = study.data.label.count == BINARY
    lines = []
    for domain in domains:
        ratio = figures.get((domain, "expected_observed"))
        error = figures.get((domain, "calibration"))
        if ratio is None and error is None:
            continue
        parts = []
        if ratio is not None and ratio.value is not None:
            what = "as many were predicted as fell ill" if two else "as many right answers were expected as came"
            parts.append(f"{ratio.value:.2f} times {what} ({ratio.low:.2f} to {ratio.high:.2f}): {_mean(ratio)}")
        elif ratio is not None:
            parts.append("too few patients to compare what was predicted with what happened")
        if error is not None and error.value is not None:
            value = told("calibration", error.value, error.high).replace("below", "less than")
            parts.append(f"predicted and true risks differ by {value} in the mean")
        if parts:
            lines.append(f"{domain[:1].upper()}{domain[1:]}: {'; '.join(parts)}.")
    return lines


def _mean(ratio: PublishedFigure) -> str:
    """What a ratio of predicted to observed patients says of the risks in the mean."""
    if ratio.low > 1.0:
        return "risks are too high in the mean"
    if ratio.high < 1.0:
        return "risks are too low in the mean"
    if ratio.high > _VAGUE * ratio.low:
        return "too uncertain to say whether risks are right in the mean"
    return "risks are right in the mean, as far as can be told"
