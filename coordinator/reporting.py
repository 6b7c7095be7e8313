"""The operator's report of a finished study for a board: its document, who took part, its published figures.

Guarantees: all of it follows from what the coordinator shows its operators, the study's document, and a forecast that
was made before the study. Nothing of a hospital's own is in it, not even why it left, so it may be handed out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from coordinator.core.study import Life
from coordinator.errors import OperatorError
from policies.documents.study import Study
from policies.reports import forecast_section, study_sections, tripod
from policies.reports.blocks import BoardReport, Cards, Section
from policies.reports.guarantee import guarantee
from policies.reports.published import PublishedFigure, sections
from policies.reports.study_sections import TookPart
from protos.messages import StudyResults
from protos.status import MemberStatus, StudyStatus

_STATES: Final[Mapping[str, str]] = {
    "active": "took part to the end",
    "lost": "was missing from the last sum",
    "away": "was away at the end",
    "aside": "sat out at the end",
    "left": "left, or did not join",
    "invited": "did not join",
}
"""What became of a hospital, by its state in a finished study (`describing`)."""


def report(
    study: Study, status: StudyStatus, results: StudyResults | None, forecast: Mapping[str, Any] | None
) -> BoardReport:
    """Put the report together. `results` is None if the study publishes nothing. Raises as `require_finished` does."""
    require_finished(study, status)
    figures = () if results is None else figures_of(results)
    price = guarantee(study, None)
    source = "From the sums over the held-out patients of all hospitals. The coordinator saw no sum."
    if results is not None:
        source += (
            f" {len(results.publications)} hospitals signed what they read; a figure stands here if at least"
            f" {results.needed} of them signed exactly the same."
        )
    found = (
        Section("In short", (Cards(study_sections.headline(study, price)),)),
        study_sections.asked(study),
        study_sections.who_took_part(study, [_took_part(one) for one in status.members]),
        *sections(study, figures, source=source),
        forecast_section.section(forecast),
        study_sections.price(price),
        study_sections.protected(price),
        tripod.section(study, price, figures, version=version("fedward")),
    )
    return BoardReport(study.name, study.purpose, study.digest, study_sections.facts(study), found)


def require_finished(study: Study, status: StudyStatus) -> None:
    """Raise `OperatorError` if the coordinator's study of this name has not finished, or is another than the file's."""
    if status.study != study.digest:
        msg = (
            f"the coordinator's study {study.name} is {status.study[:12]}, and the file's is {study.digest[:12]}; give"
            " the file with which the study was created"
        )
        raise OperatorError(msg)
    if status.state != Life.FINISHED:
        msg = f"{study.name} is {status.state}; a report is of a finished study"
        raise OperatorError(msg)


def figures_of(results: StudyResults) -> Sequence[PublishedFigure]:
    """The figures on which enough silos agree."""
    return [
        PublishedFigure(one.figure.domain, one.figure.metric, one.figure.value, one.figure.low, one.figure.high)
        for one in results.agreed
    ]


def _took_part(member: MemberStatus) -> TookPart:
    return TookPart(member.silo, _STATES.get(member.state, member.state))
