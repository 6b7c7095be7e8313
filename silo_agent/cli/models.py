"""`fedward-silo evaluate`, `fairness`, `predict`, `export`: what a silo does with the models of a finished round.

The learning libraries take seconds to load, so each command loads them itself, and all other commands stay fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from common.digests import means
from common.figure_words import told
from policies.documents.policy import load_policy
from silo_agent.cli.evaluated import below
from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, StudyArgument, print_whole, waiting
from silo_agent.config import AgentConfig
from silo_agent.review.charged import charged_of
from silo_agent.review.known import find_trained
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

if TYPE_CHECKING:
    from silo_agent.learning.figures.evaluation import Estimate, NumberQuality, Quality
    from silo_agent.models.chosen import Picked
    from silo_agent.models.groups import Released
    from silo_agent.models.jackknife import Spread
    from silo_agent.models.predict import Predictions

PersonalOption = Annotated[bool, typer.Option("--personal", help="Use this hospital's own model, which never leaves.")]
StudyFormOption = Annotated[
    bool, typer.Option("--study-form", help="The file is written as the study says, and not as this hospital's files.")
]
_BY_NAME = frozenset({"chosen", "shared", "personal"})
_OF_CLASSES = {
    "AUC": "auc",
    "accuracy": "accuracy",
    "balanced": "balanced_accuracy",
    "ECE": "calibration",
    "E/O": "expected_observed",
}
_OF_GROUPS = {"AUC": "auc", "E/O": "expected_observed", "ECE": "calibration", "FNR": "false_negatives"}
_OF_NUMBERS = {"absolute error": "mae", "R^2": "r2", "mean error": "mean_error"}
"""Columns of the table, and the figures in them."""


class UnknownDomain(StrEnum):
    """The same as `learning.unknown_domain.Way`, which is not loaded for the help."""

    ENSEMBLE = "ensemble"
    POOLED = "pooled"


class ExportFormat(StrEnum):
    """The same as `export.Format`."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"
    BOTH = "both"


def evaluate(
    study: StudyArgument,
    data: Annotated[
        Path | None, typer.Argument(help="A labelled file in the study's schema; by default this hospital's own.")
    ] = None,
    config: ConfigOption = DEFAULT,
    *,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Score only the patients whom training never saw, by the policy.")
    ] = False,
    study_form: StudyFormOption = False,
    form: FormatOption = TABLE,
) -> None:
    """Measure this silo's models on a labelled file, by domain. Nothing is released.

    n: records. Balanced: the mean of the classes' accuracies. ECE: the expected calibration error, 0 at best. E/O:
    expected over observed, the sum of the predicted risks over the number of ill records (more than two classes: the
    sum of the predictions' confidence over the number of right ones), 1 at best. Below a figure stands the 95 %
    interval that other patients of the same kind would give. Of two classes the intercept says whether risks are too
    low in the mean (above 0) or too high, and the slope whether they are too extreme (below 1).

    If the label is a number: the mean absolute error and the mean of prediction less outcome in the label's unit (of
    its natural logarithm with scale log), and the share of the variance that is explained.

    Below the table: which model this hospital chose to predict with and why, and its own models less the shared one on
    held-out patients, with paired 95 % intervals. Then, on the same patients and by domain, the shared model beside a
    regression or boosted trees of this hospital's records alone.
    """
    from silo_agent.models.evaluate import evaluate as evaluate_models
    from silo_agent.review.cohorts import cohorts_of
    from silo_agent.storage.opening import read_state

    settings = AgentConfig.load(config)
    cohorts = cohorts_of(settings)
    state = read_state(settings.state)
    digest, committed = find_trained(state, study)
    removed = state.removed(digest)
    with waiting("measuring the models"):
        evaluation = evaluate_models(
            state.study_folder(digest),
            committed,
            data,
            cohorts,
            held_out=held_out,
            in_study_form=study_form,
            personal_kept=removed is None,
        )
    if form is JSON:
        typer.echo(json.dumps(asdict(evaluation), indent=1, allow_nan=False))
        return
    figures = _OF_CLASSES if hasattr(evaluation.shared[0], "auc") else _OF_NUMBERS
    title = f"{evaluation.name}, round {evaluation.round}"
    table = Table("domain", "model", "n", title=title, pad_edge=False)
    for figure in figures:
        table.add_column(figure, no_wrap=True)  # figures stay whole; long names of domains take more lines
    for m, domain in enumerate(evaluation.domains):
        wanted = figures.values()
        table.add_row(domain, "shared", *_figures(evaluation.shared[m], evaluation.shared_intervals[m], wanted))
        if evaluation.personal is not None and evaluation.personal_intervals is not None:
            own = evaluation.personal[m], evaluation.personal_intervals[m]
            table.add_row("", "personal", *_figures(*own, wanted))
        if evaluation.chosen is not None and evaluation.chosen_intervals is not None:
            own = evaluation.chosen[m], evaluation.chosen_intervals[m]
            table.add_row("", "chosen", *_figures(*own, wanted))
    console = Console(markup=False, emoji=False)
    print_whole(table, console)
    below(console, evaluation, held_against=removed is None)
    if removed is not None:
        typer.echo(_gone(digest, removed), err=True)


def fairness(study: StudyArgument, config: ConfigOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """Compare the groups of `data.protected` under this silo's models, on the held-out patients. Nothing is released.

    Under "sums" stand the figures of all hospitals from the noised sums, with 95 % intervals, if the attribute is the
    study's domain. These are public, all others stay in this hospital.

    n: records. E/O: expected over observed. ECE: the expected calibration error. FNR: the share of the ill whom the
    model calls well. Gap: the largest less the smallest; below it stands what 19 of 20 gaps would not exceed if groups
    were dealt out at random. Attacker: AUC of a network trained to guess the group from the representation, .5 if it
    cannot.
    """
    from silo_agent.models.fairness import report
    from silo_agent.review.cohorts import cohorts_of
    from silo_agent.storage.opening import read_state

    settings = AgentConfig.load(config)
    cohorts = cohorts_of(settings)
    state = read_state(settings.state)
    digest, committed = find_trained(state, study)
    removed = state.removed(digest)
    with waiting("comparing the groups"):
        found = report(state.study_folder(digest), committed, cohorts, personal_kept=removed is None)
    if form is JSON:
        typer.echo(json.dumps(asdict(found), indent=1, allow_nan=False))
        return
    title = f"{found.name}, round {found.round}, {found.held_out} held-out patients of {found.file}"
    table = Table("attribute", "model", "group", "n", title=title, pad_edge=False)
    for figure in (*_OF_GROUPS, "attacker"):
        table.add_column(figure, no_wrap=True)
    for which, models in (("shared", found.shared), ("personal", found.personal or ())):
        for one in models:
            for number, group in enumerate(one.groups):
                head = (one.attribute, which) if number == 0 else ("", "")
                values = (_figure(getattr(group, figure), None) for figure in _OF_GROUPS.values())
                table.add_row(*head, group.group, str(group.records), *values, "")
            gaps = (one.gaps[figure] for figure in _OF_GROUPS.values())
            table.add_row(
                "", "", "gap", "", *(_gap(gap.gap, gap.by_chance) for gap in gaps), _figure(one.attacker, None)
            )
    if found.together is not None:
        _add_released(table, found.together)
    print_whole(table)
    if removed is not None:
        typer.echo(_gone(digest, removed), err=True)


def predict(
    study: StudyArgument,
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file in the study's schema; it needs no label.")],
    config: ConfigOption = DEFAULT,
    *,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="chosen|shared|personal|FILE",
            help="Which model predicts; by default the one that this hospital chose. A file implies --study-form.",
        ),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="The domain of all records.")] = None,
    unknown_domain: Annotated[
        UnknownDomain | None, typer.Option(help="How to predict records of no domain that the study knows.")
    ] = None,
    personal: PersonalOption = False,
    study_form: StudyFormOption = False,
    out: Annotated[Path | None, typer.Option(help="A new .csv or .parquet file, readable by you alone.")] = None,
    form: FormatOption = TABLE,
) -> None:
    """Predict every record of a file: the probability of every class, or a number. Without --out, print them as CSV."""
    from silo_agent.data.table import Written
    from silo_agent.learning.personal.unknown_domain import Way
    from silo_agent.models import predict as predicting
    from silo_agent.models.chosen import by_name

    if out is not None:
        predicting.check_output(out)
    file = None if model is None or model in _BY_NAME else Path(model)
    if file is None:
        if personal and model not in {None, "personal"}:
            msg = f"--personal and --model {model} exclude each other; give only one"
            raise StateError(msg)
        path, device = model_path(config, study, personal=personal or model == "personal")
        picked = _picked(config, study, path, "personal" if personal else model)
    else:
        path, device = file, "auto"
        picked = by_name(file, personal=personal)
    loaded = picked.model
    if not means(study, loaded.study.name, loaded.study.digest):
        msg = f"{path} is a model of study {loaded.study.digest[:12]}, not of {study}; give the study's own model"
        raise StateError(msg)
    written = None if file or study_form else Written.of(load_policy(AgentConfig.load(config).policy))
    with waiting("predicting"):
        predictions = predicting.predict(
            loaded,
            data,
            folder=path.parent,
            domain=domain,
            unknown=None if unknown_domain is None else Way(unknown_domain),
            written=written,
            device=device,
        )
        if out is not None:
            predictions.save(out)
    if form is JSON:
        typer.echo(json.dumps(_document(predictions, picked, out), indent=1, allow_nan=False))
    elif out is None:
        typer.echo(predictions.to_csv(), nl=False)
    typer.echo(_summary(predictions, out), err=True)
    typer.echo(f"Predicted by: {picked.name}; {picked.why}.", err=True)


def export(
    study: StudyArgument,
    config: ConfigOption = DEFAULT,
    *,
    out: Annotated[Path, typer.Option(help="New folder for the model and its card.")],
    files: Annotated[ExportFormat, typer.Option("--files", help="Which model files.")] = ExportFormat.BOTH,
    personal: PersonalOption = False,
    inside_hospital: Annotated[
        bool, typer.Option("--inside-hospital", help="Needed for --personal: the files stay in this hospital.")
    ] = False,
    form: FormatOption = TABLE,
) -> None:
    """Write the shared model as safetensors and ONNX, with a card that says how to use it."""
    from silo_agent.models import export as exporting
    from silo_agent.models.predict import load_model

    path, _ = model_path(config, study, personal=personal)
    loaded = load_model(path, personal=personal)
    charged = charged_of(StateFolder(AgentConfig.load(config).state).ledger, loaded.study.digest)
    with waiting("writing the model, and running what was written"):
        written = exporting.export(
            loaded,
            out,
            folder=path.parent,
            files=exporting.Format(files),
            charged=charged,
            inside_hospital=inside_hospital,
        )
    if form is JSON:
        typer.echo(json.dumps({"folder": str(out), "files": [file.name for file in written]}, indent=1))
        return
    for file in written:
        typer.echo(str(file))


# --- inside -----------------------------------------------------------------------------------------------------------
def model_path(config: Path, study: str, *, personal: bool) -> tuple[Path, str]:
    """Return the model file of the study's last finished round, and the device that the configuration names."""
    from silo_agent.storage.opening import read_state

    settings = AgentConfig.load(config)
    state = read_state(settings.state)
    digest, committed = find_trained(state, study)
    files = state.files.study(digest)
    path = files.personal if personal else files.model(committed)
    removed = state.removed(digest) if personal else None
    if removed is not None:
        raise StateError(_gone(digest, removed))
    if not path.exists():
        which = "personal model" if personal else "finished round"
        msg = f"there is no {which} of this study in {path.parent}; run the study first"
        raise StateError(msg)
    return path, settings.device


def _picked(config: Path, study: str, path: Path, asked: str | None) -> Picked:
    """The model at `path` if it was asked for by name, else the one that this hospital chose beside it."""
    from silo_agent.models.chosen import by_name, chosen
    from silo_agent.storage.opening import read_state

    if asked in {"shared", "personal"}:
        return by_name(path, personal=asked == "personal")
    state = read_state(AgentConfig.load(config).state)
    digest, committed = find_trained(state, study)
    return chosen(state.files.study(digest), committed, state.removed(digest))


def _gone(study: str, day: date) -> str:
    return (
        f"on {day} the private files of study {study[:12]}, with its personal model, were removed because of the"
        " policy's retention_days; shared models stay"
    )


def _document(predictions: Predictions, picked: Picked, out: Path | None) -> dict[str, object]:
    """Return predictions for programs. They have the records only if no file has them."""
    found: dict[str, object] = {
        "study": predictions.study.digest,
        "round": predictions.round,
        "model": picked.name,
        "why": picked.why,
        "records": len(predictions),
        "ways": _ways(predictions),
        "unknown_domain": predictions.note or None,
    }
    if out is not None:
        return found | {"file": str(out)}
    return found | {"predictions": [dict(zip(predictions.columns, row, strict=True)) for row in predictions.rows()]}


def _summary(predictions: Predictions, out: Path | None) -> str:
    ways = ", ".join(f"{number} {way}" for way, number in _ways(predictions).items()) or "none"
    note = f"; unknown domains: {predictions.note}" if predictions.note else ""
    where = f"{out}: " if out else ""
    return f"{where}{len(predictions)} records of {predictions.study.name}, round {predictions.round}: {ways}{note}"


def _ways(predictions: Predictions) -> dict[str, int]:
    return {way: predictions.ways.count(way) for way in sorted(set(predictions.ways))}


def _add_released(table: Table, found: Released) -> None:
    """Rows for the groups at all hospitals together."""
    for number, group in enumerate(found.groups):
        head = (found.attribute, "sums") if number == 0 else ("", "")
        figures = ((figure, found.figures[figure][number]) for figure in _OF_GROUPS.values())
        table.add_row(*head, group, "", *(_estimated(figure, own) for figure, own in figures))
    table.add_row("", "", "gap", "", *(_estimated("gap", found.gaps[figure]) for figure in _OF_GROUPS.values()))


def _estimated(figure: str, found: Estimate | None) -> str:
    """A published figure, with its interval below."""
    if found is None:
        return "-"
    return f"{told(figure, found.value, found.high)}\n{found.low:.2f}-{found.high:.2f}"


def _figures(quality: Quality | NumberQuality, spread: Spread, wanted: Iterable[str]) -> tuple[str, ...]:
    pairs = ((getattr(quality, figure), getattr(spread, figure, None)) for figure in wanted)
    return (str(quality.records), *(_figure(value, interval) for value, interval in pairs))


def _figure(value: float | None, interval: tuple[float, float] | None) -> str:
    """A figure, with its interval below."""
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f}\n{interval[0]:.2f}-{interval[1]:.2f}"


def _gap(gap: float | None, by_chance: float | None) -> str:
    """A gap, with what chance alone gives below."""
    return _figure(gap, None) if by_chance is None else f"{gap:.3f}\n<={by_chance:.2f}"
