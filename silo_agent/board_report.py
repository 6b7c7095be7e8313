"""A hospital's report of a finished study for its board: what all know of it, and what this hospital alone knows.

Guarantees: nothing is released and nothing is charged. The sections of this hospital's own figures say that they are
exact and stay inside, and so does a line above everything; files are for their owner alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from policies.documents.study import Study
from policies.plan.cost import Cost
from policies.reports import forecast_section, published, study_sections, tripod
from policies.reports.blocks import (
    Block,
    BoardReport,
    Bullets,
    Cards,
    Cell,
    Dot,
    DotRow,
    Dots,
    Paragraph,
    RiskCurve,
    RiskPoint,
    Section,
    grid,
)
from policies.reports.guarantee import guarantee
from silo_agent.learning.figures.evaluation import Quality
from silo_agent.learning.figures.paired import PairedDifference
from silo_agent.models.beside_own import BesideOwn, sentences
from silo_agent.models.evaluate import ModelEvaluation

INSIDE: Final = "This report has figures of this hospital's own patients: not noised, stays inside."
_SOURCE: Final = (
    "From the sums over the held-out patients of all hospitals. Each hospital sealed its share, and only the sum was"
    " opened."
)
_NOT_MEASURED: Final = "Not measured: no records of this study could be read here when the report was made."
_MEASURES: Final = (("AUC", "auc"), ("Accuracy", "accuracy"), ("Expected / observed", "expected_observed"))
_OF_NUMBERS: Final = (("Absolute error", "mae"), ("R²", "r2"), ("Mean error", "mean_error"))


@dataclass(frozen=True)
class FinishedStudy:
    """What a report is made of.

    `took_part` names the hospitals of the last sum, and is empty if it is not known any more. `card` is the model
    card's content. `evaluation` has this hospital's own figures, if its records can be read; why they cannot is not for
    the report, because the reason may quote a cell. `budget` is this hospital's whole budget.
    """

    study: Study
    took_part: Sequence[str]
    card: Mapping[str, Any]
    charged: Iterable[Cost] | None
    budget: float
    forecast: Mapping[str, Any] | None
    evaluation: ModelEvaluation | None


def report(found: FinishedStudy) -> BoardReport:
    """Put the report together."""
    study = found.study
    price = guarantee(study, found.charged)
    figures = published.figures_of(found.card["quality"] or ())
    limits = [str(line) for line in found.card["use"]["limits"]]
    parties = [study_sections.TookPart(silo, "in the last sum") for silo in found.took_part]
    parties += [
        study_sections.TookPart(silo, "not in the last sum")
        for silo in study.silos
        if found.took_part and silo not in found.took_part
    ]
    sections = [
        Section("In short", (Cards(study_sections.headline(study, price)),)),
        study_sections.asked(study),
        study_sections.who_took_part(study, parties),
        *published.sections(study, figures, source=_SOURCE),
        *_inside(found),
        forecast_section.section(found.forecast),
        study_sections.price(price, found.budget),
        study_sections.protected(price),
        _card(found.card),
        tripod.section(study, price, figures, version=version("fedward"), limits=limits),
    ]
    warning = "" if found.evaluation is None else INSIDE
    return BoardReport(
        study.name, study.purpose, study.digest, study_sections.facts(study), tuple(sections), warning=warning
    )


def own_figures(found: FinishedStudy) -> list[Section]:
    """The sections of figures alone: those that all know, and those of this hospital's own patients."""
    figures = published.figures_of(found.card["quality"] or ())
    return [*published.sections(found.study, figures, source=_SOURCE), *_inside(found)]


def _inside(found: FinishedStudy) -> Iterator[Section]:
    one = found.evaluation
    title = "How good it is for this hospital's own patients"
    if one is None:
        yield Section(title, (Paragraph(_NOT_MEASURED),))
        return
    counted = one.patients
    whom = "all records of the file, also of those who trained"
    if counted is not None:
        whom = f"{counted.held_out} held-out {counted.unit}s, whom training never saw"
    blocks: list[Block] = [Paragraph(f"Exact figures of {whom}."), *_quality(one)]
    blocks += _own_less_shared(one)
    if one.choice is not None:
        blocks.append(Paragraph(f"This hospital predicts with the model called {one.choice}: {one.why}."))
    yield Section(title, tuple(blocks), inside=True)
    if curves := {name: curve[-1] for name, curve in one.curves.items() if curve and curve[-1]}:
        yield Section("Its risks among this hospital's own patients", tuple(_curves(curves)), inside=True)
    if one.beside is not None:
        yield _beside(one.beside)
    if any(one.subgroups.values()):
        yield Section("Groups that are predicted at another risk than they have", tuple(_groups(one)), inside=True)


def _quality(one: ModelEvaluation) -> Iterator[Block]:
    measures = _MEASURES if isinstance(one.shared[0], Quality) else _OF_NUMBERS
    models = [("shared", one.shared, one.shared_intervals)]
    if one.personal is not None and one.personal_intervals is not None:
        models.append(("personal", one.personal, one.personal_intervals))
    if one.chosen is not None and one.chosen_intervals is not None:
        models.append(("chosen", one.chosen, one.chosen_intervals))
    rows: list[tuple[str | Cell, ...]] = []
    for m, domain in enumerate(one.domains):
        for name, quality, spreads in models:
            cells = [_cell(getattr(quality[m], figure), getattr(spreads[m], figure, None)) for _, figure in measures]
            rows.append((f"{domain}, {name}", str(quality[m].records), *cells))
    heads = ("Whom, and by which model", "Records", *(name for name, _ in measures))
    yield grid(heads, rows, numbers=len(heads) - 1, caption="With 95 % intervals for chance")


def _own_less_shared(one: ModelEvaluation) -> Iterator[Block]:
    """The hospital's own models less the shared one, on the same held-out patients, with paired intervals."""
    rows: list[tuple[str | Cell, ...]] = []
    for name, whole in one.untouched.items():
        for whom, found in zip(("all", *one.domains), (whole, *one.untouched_by[name]), strict=True):
            cells = [Cell("-") if own is None else _signed(own.value, _ends(own)) for own in (found.auc, found.loss)]
            rows.append((f"{whom}, {name} less shared", str(found.patients), *cells))
    if rows:
        heads = ("Whom, and which model", "Patients", "AUC, above 0 is better", "Loss, below 0 is better")
        yield grid(heads, rows, numbers=3, caption="Paired 95 % intervals on the same held-out patients")


def _ends(found: PairedDifference) -> tuple[float, float] | None:
    return None if found.low is None or found.high is None else (found.low, found.high)


def _cell(value: float | None, interval: tuple[float, float] | None) -> Cell:
    if value is None:
        return Cell("-")
    return Cell(f"{value:.3f}", note="" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}")


def _curves(curves: Mapping[str, Sequence[Any]]) -> Iterator[Block]:
    for name, points in curves.items():
        told = ", ".join(f"{one.predicted:.2f} and {one.observed:.2f}" for one in points)
        yield RiskCurve(
            tuple(RiskPoint(one.predicted, one.observed, one.low, one.high) for one in points),
            f"By the {name} model, predicted risk and share who had the outcome: {told}.",
        )


def _beside(found: BesideOwn) -> Section:
    rows: list[tuple[str | Cell, ...]] = []
    drawn = []
    for one in found.groups:
        whom, difference = one.domain or "all patients", one.difference
        interval = None if difference is None or difference.low is None else (difference.low, difference.high or 0.0)
        shared, own = (Cell("-" if value is None else f"{value:.3f}") for value in (one.shared, one.own))
        cell = Cell("-") if difference is None else _signed(difference.value, interval)
        rows.append((whom, str(one.patients), shared, own, cell, one.verdict))
        dots = () if difference is None or interval is None else (Dot(difference.value, *interval),)
        drawn.append(DotRow(whom, dots, one.verdict))
    ends = [abs(end) for row in drawn for dot in row.dots for end in (dot.low or 0.0, dot.high or 0.0)]
    most = max(ends, default=0.0) or 1.0
    blocks: list[Block] = [
        Paragraph(f"The other model is a {found.kind} of this hospital's training patients alone."),
        Dots(f"{found.figure}, shared less alone", -most, most, tuple(drawn), reference=0.0),
        grid(
            ("Whom", "Patients", f"{found.figure} shared", "Alone", "Difference", "Shared is"),
            rows,
            numbers=5,
            caption="Paired 95 % intervals",
        ),
    ]
    if worse := sentences(found):
        blocks.append(Bullets(tuple(worse)))
    return Section("Beside a model of this hospital's records alone", tuple(blocks), inside=True)


def _signed(value: float, interval: tuple[float, float] | None) -> Cell:
    return Cell(f"{value:+.3f}", note="" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}")


def _groups(one: ModelEvaluation) -> Iterator[Block]:
    for name, groups in one.subgroups.items():
        out = [group for group in groups if group.stands_out and group.ratio is not None]
        judged = sum(group.ratio is not None for group in groups)
        if not out:
            yield Paragraph(f"The {name} model: none of {judged} groups by listed columns.")
            continue
        rows: list[tuple[str | Cell, ...]] = [
            (
                f"{group.column} {group.group}",
                str(group.patients),
                str(group.events),
                _cell(group.ratio[0], group.ratio[1:]),
            )
            for group in out
            if group.ratio is not None
        ]
        heads = ("Group", "Patients", "With the outcome", "Predicted over happened")
        yield grid(heads, rows, numbers=3, caption=f"The {name} model: {len(out)} of {judged} groups by listed columns")


def _card(card: Mapping[str, Any]) -> Section:
    model, use = card["model"], card["use"]
    rows: list[tuple[str | Cell, ...]] = [
        ("Intended use", str(use["intended"])),
        ("Model (SHA-256)", str(model["sha256"])),
        ("Round", f"{model['round']} of {model['rounds']}"),
        ("Encoder", str(card["architecture"]["encoder"])),
        ("A record of unknown domain", str(card["unknown_domain"]["how"])),
        ("Made by", f"FedWard {card['fedward']}"),
    ]
    whole = Paragraph("fedward-silo export writes the whole card, with each input and each layer.", "small")
    return Section("Model card", (grid(("", ""), rows), Bullets(tuple(map(str, use["limits"]))), whole))
