"""What `fedward-silo evaluate` says below its table: calibration, whose records, choice, and one's own records."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import typer
from rich.console import Console
from rich.table import Table

from silo_agent.cli.options import print_whole

if TYPE_CHECKING:
    from silo_agent.learning.figures.calibration_curve import CalibrationPoint
    from silo_agent.learning.figures.calibration_line import Ends
    from silo_agent.learning.figures.decision_curve import NetBenefit
    from silo_agent.learning.figures.paired import PairedDifference
    from silo_agent.learning.figures.subgroup_risks import SubgroupRisk
    from silo_agent.models.beside_own import BesideOwn
    from silo_agent.models.evaluate import ModelEvaluation


def below(console: Console, evaluation: ModelEvaluation, *, held_against: bool) -> None:
    """What stands below the table: calibration, whose records they are, the choice, and the hospital's own records."""
    from silo_agent.learning.personal.choice import FEWEST
    from silo_agent.models.beside_own import sentences

    if any(evaluation.lines.values()):
        print_whole(_lines(evaluation), console)
    for name, curves in evaluation.curves.items():
        if curves[-1]:
            print_whole(_curve(name, curves[-1]), console)
    for name, curve in evaluation.decisions.items():
        if curve:
            typer.echo(_worth(name, curve[len(curve) // 2]))
    for name, groups in evaluation.subgroups.items():
        typer.echo("\n".join(_subgroups(name, groups)))
    typer.echo("\n".join([*_whom(evaluation), *_choice(evaluation)]))
    if evaluation.beside is not None:
        print_whole(_beside(evaluation.beside), console)
        for sentence in sentences(evaluation.beside):
            typer.echo(sentence)
    elif held_against and evaluation.patients is not None and evaluation.patients.held_out:
        typer.echo(
            "There is no model of this hospital's records alone beside it: a running agent fits one after the last"
            f" round, of a study of tables, if {FEWEST} patients or more train here."
        )


def _whom(evaluation: ModelEvaluation) -> list[str]:
    """Say whose records the figures are of, and what was skipped."""
    found, lines = evaluation.patients, []
    if found is None:
        lines.append(f"Scored: all records of {evaluation.file}.")
    else:
        training, held_out, all_of = found.training, found.held_out, f"{found.unit}s of {evaluation.file}"
        if evaluation.scored == "held out":
            lines.append(
                f"Scored: the {held_out} {all_of} that are held out, which training never sees. Not scored: the"
                f" {training} of the training cohort."
            )
        elif found.own:
            lines.append(
                f"Scored: all {all_of}. {training} of them are the training cohort, so the figures flatter;"
                f" {held_out} are held out, and --held-out scores these alone."
            )
        else:
            lines.append(
                f"Scored: all {all_of}. By the policy, {training} of them would train here and {held_out} would be"
                f" held out: if they are {found.unit}s of this hospital, --held-out scores the latter alone."
            )
    if evaluation.skipped:
        lines.append(f"Skipped: {evaluation.skipped} records that do not fit the study, such as")
        lines += [f"  {fault}" for fault in evaluation.faults]
    return lines


def _choice(evaluation: ModelEvaluation) -> list[str]:
    """Say which model this hospital chose and why, and how its own models do on patients whom none has seen."""
    lines = [] if evaluation.choice is None else [f"Chosen to predict: {evaluation.choice}; {evaluation.why}."]
    for name, found in evaluation.untouched.items():
        pairs = (("AUC", found.auc), ("loss", found.loss))
        figures = ", ".join(f"{figure} {difference(own)}" for figure, own in pairs if own is not None)
        if figures:
            lines.append(f"On {found.patients} held-out patients, {name} less shared: {figures}.")
    return lines


def _lines(evaluation: ModelEvaluation) -> Table:
    """The calibration lines of all models, by domain."""
    from silo_agent.learning.figures.calibration_line import FEWEST_OF_A_CLASS

    table = Table("domain", "model", "intercept", "slope", title="Can the risks be trusted? 0 and 1 are right")
    for m, domain in enumerate(evaluation.domains):
        for number, (name, lines) in enumerate(evaluation.lines.items()):
            line, head = lines[m], "" if number else domain
            ill, well = line.patients
            few = f"too few patients ({ill} with the outcome, {well} without)"
            if min(line.patients) >= FEWEST_OF_A_CLASS:
                few = "none: risks nearly alike, or classes apart"
            table.add_row(head, name, *(_ends(own, few) for own in (line.intercept, line.slope)))
    return table


def _curve(model: str, points: Sequence[CalibrationPoint]) -> Table:
    """The calibration curve of one model, all domains together."""
    title = f"Of patients with like risks by {model}, how many had the outcome (by domain: --format json)"
    table = Table("patients", "predicted", "happened", title=title)
    for one in points:
        happened = f"{one.observed:.3f} ({one.low:.3f} to {one.high:.3f})"
        table.add_row(str(one.patients), f"{one.predicted:.3f}", happened)
    return table


_WORTH: Final = {
    "better": "does more good than acting on everybody or on nobody",
    "worse": "does less good than acting on everybody or on nobody",
    "not told apart": "is not told apart from the better of acting on everybody and on nobody",
}


def _worth(model: str, at: NetBenefit) -> str:
    """Whether acting on a model's risks is worth it at the study's threshold."""
    return (
        f"Acting from a risk of {at.threshold:.3g} on, {model} {_WORTH[at.verdict]}: net benefit {at.model:.4f}, of"
        f" everybody {at.everybody:.4f}, gain {at.gain:+.4f} ({at.low:+.4f} to {at.high:+.4f})."
    )


def _subgroups(model: str, groups: Sequence[SubgroupRisk]) -> Iterator[str]:
    """Which groups of listed columns a model predicts at another risk than they have."""
    judged = [one for one in groups if one.ratio is not None]
    out = [one for one in judged if one.stands_out]
    few = len(groups) - len(judged)
    left = f" ({few} more have too few patients with the outcome)" if few else ""
    yield (
        f"Of {len(judged)} groups by listed columns{left}, {model} predicts {len(out) or 'none'} at another risk than"
        f" they have{':' if out else '.'}"
    )
    for one in out:
        value, low, high = one.ratio or (math.nan,) * 3
        yield (
            f"  {one.column} {one.group}: {value:.2f} of what happened ({low:.2f} to {high:.2f};"
            f" {one.patients} patients, {one.events} with the outcome)"
        )


def _ends(found: Ends | None, otherwise: str) -> str:
    return otherwise if found is None else f"{found.value:+.2f} ({found.low:+.2f} to {found.high:+.2f})"


def _beside(found: BesideOwn) -> Table:
    """The shared model beside one of this hospital's records alone."""
    title = f"On held-out patients, beside a model of this hospital's records alone ({found.kind})"
    table = Table("domain", "patients", f"{found.figure} shared", "alone", "difference", "shared is", title=title)
    for one in found.groups:
        table.add_row(
            one.domain or "all patients",
            str(one.patients),
            *("-" if value is None else f"{value:.3f}" for value in (one.shared, one.own)),
            "-" if one.difference is None else difference(one.difference),
            one.verdict,
        )
    return table


def difference(found: PairedDifference) -> str:
    """A difference with its interval, if it has one."""
    if found.low is None or found.high is None:
        return f"{found.value:+.4f}"
    return f"{found.value:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
