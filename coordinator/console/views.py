"""What the pages of the console show of studies, silos, results and the audit log. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

from coordinator.console.steps import seconds_of_rounds, step_of
from coordinator.core.outlook import ends, per_cent
from coordinator.core.rights import MAY_ACT, Action
from crypto.pki.identity import Identity
from policies.documents.study import BINARY, Study
from policies.reports.blocks import BarRow, Bars, Cell, Dot, DotRow, Dots, Grid, Section, grid
from policies.reports.published import PublishedFigure
from policies.web.blocks import Badge, CurveLine, CurveLines, PlaceCell
from policies.web.words import size, span, time
from protos.audit import AuditEntry
from protos.status import MemberStatus, StudyStatus

BADGES: Final[Mapping[str, Badge]] = {
    "created": "off",
    "running": "busy",
    "paused": "wait",
    "waiting": "wait",
    "finished": "good",
    "ended": "bad",
    "aborted": "bad",
}
_MEMBERS: Final[Mapping[str, Badge]] = {
    "active": "good",
    "busy": "busy",
    "invited": "off",
    "away": "wait",
    "no data": "wait",
    "aside": "wait",
    "lost": "bad",
    "left": "bad",
}
_POSSIBLE: Final[Mapping[str, tuple[Action, ...]]] = {
    "created": (Action.START, Action.DELETE),
    "running": (Action.PAUSE, Action.ABORT),
    "paused": (Action.RESUME, Action.ABORT),
    "waiting": (Action.RESUME, Action.PAUSE, Action.ABORT),
    "finished": (Action.ARCHIVE,),
    "ended": (Action.ARCHIVE,),
    "aborted": (Action.ARCHIVE,),
}
CONFIRMED: Final[Mapping[Action, str]] = {
    Action.ABORT: "The study stops for good. What silos were charged stays charged, and every silo reads the reason.",
    Action.DELETE: "The study is forgotten. No silo has heard of it.",
}
"""Actions that are asked about on a page of their own, with what they do."""
_SHORT: Final = 12
_NAMED: Final = 3
_ROC_POINTS: Final = 40


@dataclass(frozen=True)
class StudyLook:
    """A study on a page: what the templates read beside the status itself."""

    status: StudyStatus
    badge: Badge
    per_cent: int
    step: str
    waits: str
    ends: str
    said: str
    """The state in one sentence, for a screen reader that hears of changes."""


def look(one: StudyStatus) -> StudyLook:
    """Return how a study is shown."""
    end, step = ends(one), step_of(one.phase)
    names = ", ".join(one.waiting_for[:_NAMED])
    more = len(one.waiting_for) - _NAMED
    waits = f"{names} and {more} more" if more > 0 else names
    said = f"{one.name} is {one.state}, round {one.round} of {one.rounds}"
    said += f", step {step}" if step and one.state == "running" else ""
    return StudyLook(
        one, BADGES.get(one.state, "off"), per_cent(one), step, waits, "" if end is None else time(end), said
    )


def actions(one: StudyStatus, who: Identity) -> list[Action]:
    """Return what this person may do to a study in its state."""
    may = MAY_ACT.get(who.role, frozenset())
    return [
        action
        for action in _POSSIBLE.get(one.state, ())
        if action in may and not (action is Action.ARCHIVE and one.archived)
    ]


def members(one: StudyStatus) -> Grid:
    """The silos of a study: state, whether it is waited for, when it was heard, and what it says."""
    rows = [
        (
            PlaceCell(member.silo, to=f"/silos#{member.silo}"),
            PlaceCell(member.state, badge=_MEMBERS.get(member.state, "off")),
            "yes" if member.silo in one.waiting_for else "",
            time(member.last_seen),
            slowness(member),
            member.why,
        )
        for member in one.members
    ]
    return grid(("Silo", "State", "Waited for", "Last heard", "Slow", "Why"), rows)


def slowness(member: MemberStatus) -> str:
    """What waiting for a silo has cost a study, if it has cost anything."""
    parts = [f"{span(member.slow_seconds)} of {span(member.slow_budget)}"] if member.slow_seconds >= 1 else []
    parts += [f"{member.lost_attempts} attempts"] if member.lost_attempts else []
    return ", ".join(parts)


def history(one: StudyStatus) -> list[Section]:
    """How long rounds took, and what silos uploaded."""
    found = []
    if rounds := seconds_of_rounds(one.times):
        rows = tuple(BarRow(f"Round {number}", seconds, span(seconds)) for number, seconds in rounds.items())
        found.append(Section("How long rounds took", (Bars("seconds in ended phases, repeats included", rows[-20:]),)))
    sent: defaultdict[str, int] = defaultdict(int)
    for upload in one.uploads:
        sent[upload.silo] += upload.bytes
    if sent:
        bars = tuple(BarRow(silo, float(count), size(count)) for silo, count in sorted(sent.items()))
        found.append(Section("What silos uploaded", (Bars("sealed bytes", bars),)))
    return found


def discrimination(study: Study, figures: Sequence[PublishedFigure]) -> list[Section]:
    """Plots of how well a model of two classes separates, and of whether its risks fit, by domain.

    A published study has no curve, only figures. The curve that is drawn is the one of two normal scores with the
    published AUC (Hanley and McNeil 1982); the point on it is what was published of the study's threshold.
    """
    if study.data.label.count != BINARY:
        return []
    known = {(one.domain, one.metric): one for one in figures}
    domains = list(dict.fromkeys(one.domain for one in figures))
    found: list[Any] = []
    drawn = [(domain, one.value) for domain in domains if (one := known.get((domain, "auc"))) and one.value is not None]
    if drawn:
        curves = tuple(CurveLine(domain, roc(area), _threshold(known, domain)) for domain, area in drawn)
        text = "ROC by domain: the curve of two normal scores with the published AUC"
        text += (
            "; the point is what was published at the study's threshold." if any(one.mark for one in curves) else "."
        )
        found.append(CurveLines("false alarms among the well", "ill found", curves, text))
    rows = []
    for domain in domains:
        ratio = known.get((domain, "expected_observed"))
        if ratio is not None and ratio.value is not None:
            said = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
            rows.append(DotRow(domain, (Dot(ratio.value, ratio.low, ratio.high),), said))
    if rows:
        top = max(2.0, *(dot.high or dot.value for row in rows for dot in row.dots))
        found.append(Dots("Predicted over happened, 1 is right", 0.0, min(top, 4.0), tuple(rows), reference=1.0))
    return [Section("ROC and calibration", tuple(found))] if found else []


def roc(area: float) -> tuple[tuple[float, float], ...]:
    """The ROC curve of two normal scores of equal spread with this area, from (0, 0) to (1, 1)."""
    normal = NormalDist()
    apart = 2**0.5 * normal.inv_cdf(min(max(area, 0.001), 0.999))
    inner = (number / _ROC_POINTS for number in range(1, _ROC_POINTS))
    return ((0.0, 0.0), *((x, normal.cdf(apart + normal.inv_cdf(x))) for x in inner), (1.0, 1.0))


def _threshold(known: Mapping[tuple[str, str], PublishedFigure], domain: str) -> tuple[float, float] | None:
    """(false alarms, ill found) at the study's threshold, if both can be told from what was published."""
    missed, balanced = known.get((domain, "false_negatives")), known.get((domain, "balanced_accuracy"))
    if missed is None or balanced is None or missed.value is None or balanced.value is None:
        return None
    found = 1.0 - missed.value
    alarms = 1.0 - (2.0 * balanced.value - found)
    return (alarms, found) if 0.0 <= alarms <= 1.0 else None


def audit(entries: Iterable[AuditEntry]) -> Grid:
    """Entries of the audit log, the newest first."""
    rows: list[tuple[str | Cell, ...]] = []
    for one in entries:
        about = one.name or one.silo
        rows.append(
            (
                str(one.number),
                one.at[:19].replace("T", " "),
                PlaceCell(one.who.removeprefix("fedward://") or "the coordinator", note=one.certificate[:_SHORT]),
                one.action,
                PlaceCell(about, note=one.study[:_SHORT], to=f"/studies/{one.study}" if one.study else ""),
                PlaceCell(one.outcome, badge="good" if one.outcome == "done" else "bad"),
                PlaceCell(one.reason, note=one.why),
            )
        )
    return grid(("Entry", "Time (UTC)", "Who", "Action", "About", "Outcome", "Reason"), rows)
