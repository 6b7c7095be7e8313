"""What the pages of the hospital's console show. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from common.digests import is_sha256
from crypto.rings.rings import ring_of
from crypto.secagg.layout import sealed_values
from policies.accounting.planning import Prices
from policies.documents.study import Study
from policies.ledger.chain import Entry, Genesis
from policies.ledger.events import Approved, Cleared, Debit, Fault, kind_of
from policies.plan.release import plan
from policies.reports import study_sections
from policies.reports.blocks import BarRow, Bars, Cell, Grid, Paragraph, Section, grid
from policies.web.blocks import Badge, PlaceCell
from policies.web.words import size
from silo_agent.oversight.ledger_tables import called, shown
from silo_agent.review.asking import AskingStudy
from silo_agent.review.shown import ShownStudy
from silo_agent.review.standing import HospitalOutlook

BADGES: Final[Mapping[str, Badge]] = {
    "waiting": "wait",
    "no_data": "wait",
    "refused": "bad",
    "declined": "off",
    "undecided": "busy",
    "allowed": "good",
}
_SHORT: Final = 12
_WIDTH, _HEIGHT = 1000.0, 100.0
"""Of the plot of what is spent, in its own units."""


def studies(found: Iterable[AskingStudy]) -> Grid:
    """Every study that asked or has begun."""
    rows: list[tuple[str | Cell, ...]] = []
    for one in found:
        known = one.study
        badge: Badge = "off" if known.why else BADGES[one.verdict]
        why = "; ".join(text for _, text in one.said) or "; ".join(one.warnings)
        rows.append(
            (
                PlaceCell(
                    known.name or known.digest[:_SHORT], note=known.digest[:_SHORT], to=f"/studies/{known.digest}"
                ),
                one.author.rpartition("/")[2] or "nobody",
                PlaceCell("over" if known.why else one.stands.split(":")[0], badge=badge),
                str(known.committed) if known.committed >= 0 else "none yet",
                one.asked[:16].replace("T", " ") if one.asked else "has begun here",
                why or known.why,
            )
        )
    return grid(("Study", "Author", "Stands", "Model of round", "Offered last", "Why"), rows)


def price_sections(found: ShownStudy) -> list[Section]:
    """What a study costs here, against the budget that is left."""
    if found.prices is None:
        return [Section("Price", (Paragraph("It has no price: this version could not carry it out.", "warning"),))]
    return [*_budget(found.outlook), _parts(found.prices, found.study)]


def _budget(outlook: HospitalOutlook | None) -> list[Section]:
    if outlook is None:
        return []
    top = outlook.budget if math.isfinite(outlook.budget) else None
    bars = Bars(
        "epsilon",
        (
            BarRow("Spent now", outlook.spent, shown(outlook.spent), top),
            BarRow("After this study", outlook.after, shown(outlook.after), top),
        ),
    )
    told = f"The budget is {shown(outlook.budget)}; {shown(outlook.left)} would be left."
    return [Section("Against the budget", (bars, Paragraph(told)))]


def _parts(prices: Prices, study: Study) -> Section:
    rows: list[tuple[str | Cell, ...]] = [(tensor, shown(alone)) for tensor, alone in prices.alone.items()]
    rows += [(f"{cohort} patients, together", shown(cost)) for cohort, cost in prices.cohorts.items()]
    rows += [
        ("the study", shown(prices.total)),
        ("with one round repeated", shown(prices.repeated)),
        *((f"a patient of {many} of its hospitals", shown(bound)) for many, bound in prices.several.items()),
    ]
    said = "Epsilons do not add up. Each patient is in one cohort, so the larger of the two is the study's."
    heads = (f"What is released, at delta {prices.delta:g}", "Epsilon alone")
    return Section(f"What {study.name} costs a patient", (grid(heads, rows, numbers=1), Paragraph(said, "small")))


def releases(study: Study) -> Section:
    """What leaves this hospital in which round, if it takes part."""
    rows: list[tuple[str | Cell, ...]] = [
        (
            str(number),
            release.tensor,
            release.cohort,
            f"{release.values:,}",
            f"{release.count:,}",
            f"{release.noise:g}" if release.noise else "none",
        )
        for number, round_ in enumerate(plan(study).rounds)
        for release in round_
    ]
    heads = ("Round", "What", "Whose patients", "Numbers", "Draws", "Noise")
    said = "Sealed, masked, and noised before they leave. No record leaves, and no upload can be opened alone."
    return Section("What leaves in which round", (grid(heads, rows, numbers=3), Paragraph(said, "small")))


def about(study: Study) -> list[Section]:
    """What a study asks."""
    asks, invited = study_sections.asked(study), study_sections.who_took_part(study, ())
    return [replace(asks, title="What it asks"), replace(invited, title="Who is invited")]


@dataclass(frozen=True)
class Stairs:
    """What is spent over time, as a plot: points of a line of steps, its limit if one binds, and its words."""

    edge: str
    under: str
    limit: float | None
    first: str
    last: str
    top: str
    text: str


def stairs(genesis: Genesis, entries: Sequence[Entry], budget: float) -> Stairs | None:
    """The plot of a ledger; None if nothing was spent, or without a bound."""
    spent = [(datetime.fromisoformat(one.at).timestamp(), one.epsilon) for one in entries]
    if not spent or not all(math.isfinite(value) for _, value in spent) or spent[-1][1] <= 0:
        return None
    begin, end = spent[0][0], spent[-1][0]
    limit = None if genesis.public else budget
    top = 1.05 * max(limit or 0.0, spent[-1][1])
    width = (end - begin) or 1.0
    points, height = [], _HEIGHT
    for at, value in spent:
        x = _WIDTH * (at - begin) / width
        points.append((x, height))
        height = _HEIGHT * (1.0 - value / top)
        points.append((x, height))
    points.append((_WIDTH, height))
    edge = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    text = f"From {entries[0].at[:10]} to {entries[-1].at[:10]} {spent[-1][1]:.3f} was spent" + (
        f" of a budget of {limit:g}." if limit is not None else "."
    )
    return Stairs(
        edge,
        f"0,{_HEIGHT} {edge} {_WIDTH},{_HEIGHT}",
        None if limit is None else _HEIGHT * (1.0 - limit / top),
        entries[0].at[:10],
        entries[-1].at[:10],
        f"{top:.3g}",
        text,
    )


def ledger(entries: Sequence[Entry], names: Mapping[str, str]) -> Grid:
    """Entries of the ledger, the newest first."""
    rows: list[tuple[str | Cell, ...]] = [
        (str(one.sequence), one.at[:19].replace("T", " "), _what(one), _about(one, names), shown(one.epsilon))
        for one in reversed(entries)
    ]
    return grid(("Entry", "Time (UTC)", "What", "About", "Epsilon after"), rows, numbers=1)


def _what(entry: Entry) -> str:
    event = entry.event
    if isinstance(event, Debit):
        return f"charge, round {event.round}, attempt {event.attempt}: {', '.join(event.costs)}"
    if isinstance(event, Approved):
        return f"{event.verdict} by a person"
    return kind_of(event).replace("_", " ")


def _about(entry: Entry, names: Mapping[str, str]) -> str:
    study = getattr(entry.event, "study", "")
    return called(study, names) if is_sha256(study) else ""


def left(entries: Sequence[Entry], studies_: Mapping[str, Study], names: Mapping[str, str]) -> Grid:
    """What was charged to leave: when, for which study and round, what, how many numbers, and how large."""
    rows: list[tuple[str | Cell, ...]] = []
    for one in reversed(entries):
        event = one.event
        if not isinstance(event, Debit):
            continue
        study = studies_.get(event.study)
        for tensor in event.costs:
            values, sealed = (0, 0) if study is None else _sizes(study, event.round, tensor)
            rows.append(
                (
                    one.at[:19].replace("T", " "),
                    called(event.study, names),
                    str(event.round),
                    str(event.attempt),
                    tensor,
                    f"{values:,}" if values else "not known",
                    size(sealed) if sealed else "not known",
                )
            )
    heads = ("Charged at (UTC)", "Study", "Round", "Attempt", "What", "Noised numbers", "Sealed")
    return grid(heads, rows, numbers=2)


def _sizes(study: Study, round_number: int, tensor: str) -> tuple[int, int]:
    """Numbers of a release, and bytes of its sealed upload."""
    release = plan(study).release(round_number, tensor)
    return release.values, ring_of(release.ring).content_size(sealed_values(release.values, len(study.silos)))


def uncleared(entries: Iterable[Entry]) -> list[Entry]:
    """The faults that nobody has cleared."""
    found: list[Entry] = []
    for one in entries:
        if isinstance(one.event, Cleared):
            found = []
        elif isinstance(one.event, Fault):
            found.append(one)
    return found
