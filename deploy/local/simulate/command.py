"""`fedward simulate`: the options, and what is asked of whom."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from common.output_format import OutputFormat
from deploy.local.simulate.errors import SimulationError
from policies.documents.study import Study, load_study

if TYPE_CHECKING:
    from deploy.local.simulate.data.reading import LeftOut
    from deploy.local.simulate.engines.task import M_co, Run, SeedEngine
    from deploy.local.simulate.outcome import RunMetrics
    from deploy.local.simulate.silos import HeldRecords
    from deploy.local.simulate.summary import Simulated

MOST_SEEDS: Final = 10_000
_WIDTH: Final = 140
"""Columns of a table that goes to a file."""
NO_NOISE: Final = "without noise"
ALONE: Final = "alone"
OWN: Final = "own patients"
"""Of a recipe that keeps parts at the silos: what each silo's complete model gives for its own patients."""
ENSEMBLE: Final = "ensemble"
"""The mean of all silos' own models."""
PLOTS: Final = (".svg", ".png", ".pdf")

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")]
Data = Annotated[
    Path | None,
    typer.Option(help="Public records: a folder with one file for each silo, or one table with --silos-by."),
]
Public = Annotated[str | None, typer.Option(metavar="REASON", help="Why anybody may use --data. Kept in the output.")]
SilosBy = Annotated[str | None, typer.Option(metavar="COLUMN", help="Each value of this column is a silo of its own.")]
TestFile = Annotated[Path | None, typer.Option("--test", help="Measure on these public records, not on held-out ones.")]
HeldOut = Annotated[float, typer.Option(min=0.01, max=0.9, help="Share of each silo's patients who do not train.")]
Seeds = Annotated[str, typer.Option(help="How many, as 5; or which, as 1,2,7 or 200-219.")]
Workers = Annotated[int, typer.Option(min=1, max=256, help="Processes side by side.")]
EngineName = Annotated[
    Literal["processes", "dask"],
    typer.Option("--engine", help="Who computes seeds: processes of this machine, or a cluster of Dask's."),
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="tls://HOST:PORT", help="Of a cluster; without it --workers on this machine.")
]
Tls = Annotated[Path | None, typer.Option(metavar="FOLDER", help="With the cluster's ca.pem, cert.pem and key.pem.")]
Keep = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="Keep each seed's result here at once; a run that was stopped goes on with it."
    ),
]
Figures = Annotated[Path | None, typer.Option(help="Write every figure of every seed to this file, as JSON.")]
Form = Annotated[OutputFormat, typer.Option("--format", help="For people; or every figure of every seed, as JSON.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the metrics by domain to this file: .svg, .png or .pdf.")]
NoNoise = Annotated[bool, typer.Option("--without-noise", help="Run the same study without noise beside it.")]
Alone = Annotated[bool, typer.Option("--alone", help="Show what the mean silo reaches alone, without privacy.")]
Ensemble = Annotated[
    bool, typer.Option("--ensemble", help="Show the mean of all silos' own models, for patients of unknown origin.")
]
Agents = Annotated[
    list[Path] | None,
    typer.Option("--agent", help="agent.yaml of an agent whose records must not be used; repeatable."),
]
Model = Annotated[Path | None, typer.Option(metavar="FILE", help="The shared model that the study continues.")]
Patients = Annotated[
    list[int] | None,
    typer.Option(min=1, help="Made-up patients of each silo who train; repeat it, or give one number for every silo."),
]
Prevalence = Annotated[float | None, typer.Option(help="Share of made-up patients with the outcome, two classes.")]
Effect = Annotated[
    float | None, typer.Option(help="AUC (R2 of a number) that the study reaches on made-up patients without noise.")
]


def simulate(
    study: StudyFile,
    *,
    data: Data = None,
    public: Public = None,
    silos_by: SilosBy = None,
    test: TestFile = None,
    held_out: HeldOut = 0.25,
    seeds: Seeds = "5",
    workers: Workers = 1,
    engine: EngineName = "processes",
    scheduler: Scheduler = None,
    tls: Tls = None,
    keep: Keep = None,
    figures: Figures = None,
    plot: Plot = None,
    no_noise: NoNoise = False,
    alone: Alone = False,
    model: Model = None,
    ensemble: Ensemble = False,
    agent: Agents = None,
    patients: Patients = None,
    prevalence: Prevalence = None,
    effect: Effect = None,
    form: Form = OutputFormat.TABLE,
) -> None:
    """Run a whole study in this process, without keys or network, on public or on made-up records.

    Made-up patients are those that `expected` of the study says, as for `fedward-silo plan`, unless options say other.
    """
    asked, numbers = load_study(study), parse_seeds(seeds)
    require_reason(data, public, test, silos_by)
    require_places(figures, plot, keep)
    require_start(asked, model)
    chosen = engine_of(engine, workers, scheduler, tls)
    # What follows loads torch, for a second or two; the faults above are told at once.
    from silo_agent.learning.light_imports import load_lean

    load_lean()
    from deploy.local.simulate import alone as silos_alone
    from deploy.local.simulate import ensemble as of_silos
    from deploy.local.simulate.engine import simulate as simulated
    from deploy.local.simulate.expected_patients import ExpectedPatients, expected
    from deploy.local.simulate.keeping import keeper
    from deploy.local.simulate.many import each_seed
    from deploy.local.simulate.summary import Simulated
    from deploy.local.simulate.variants import without_noise
    from silo_agent.cli.options import counting
    from silo_agent.learning.model.shared import SharedModel

    run = partial(simulated, earlier=None if model is None else SharedModel.load(model))
    if ensemble:
        of_silos.require_local_models(asked)
    left_out: Mapping[str, LeftOut] = {}
    source: ExpectedPatients | HeldRecords
    if data is not None:
        asked, source, records, left_out = _read(asked, data, silos_by, test, share=held_out, agents=agent or [])
    else:
        with counting("draws to set the law of made-up patients") as drawn:
            source = expected(
                asked, patients=patients or (), prevalence=prevalence, effect=effect, held_out=held_out, done=drawn
            )
        records = dict(zip(asked.silos, source.sizes, strict=True))
    console = Console() if Console().is_terminal else Console(width=_WIDTH)
    with progress() as bar:

        def each(name: str, what: Run[M_co], variant: Study) -> tuple[M_co, ...]:
            done = partial(bar.advance, bar.add_task(name, total=len(numbers)))
            kept = keeper(keep, variant, source, f"{name}, ensemble {ensemble}")
            return each_seed(what, variant, source, numbers, workers=workers, engine=chosen, done=done, kept=kept)

        runs = each("study", partial(run, ensemble=ensemble), asked)
        own = [run.own for run in runs if run.own is not None]
        others: dict[str, Sequence[RunMetrics]] = {OWN: own} if own else {}
        together = [run.ensemble for run in runs if run.ensemble is not None]
        if together:
            others[ENSEMBLE] = together
        if no_noise:
            others[NO_NOISE] = each(NO_NOISE, run, without_noise(asked))
        if alone:
            others[ALONE] = each(ALONE, silos_alone.alone, asked)
    found = Simulated(asked, runs, public if data else None, records, left_out, others)
    _tell(found, console, form, figures)
    if plot is not None:
        from deploy.local.simulate.plot import draw

        draw(found, plot)


def _tell(found: Simulated, console: Console, form: OutputFormat, figures: Path | None) -> None:
    from deploy.local.simulate.summary import as_json, table, why_left_out
    from silo_agent.cli.options import print_whole

    written = json.dumps(as_json(found), indent=1)
    if figures is not None:
        figures.write_text(f"{written}\n", encoding="utf-8")
    if form is OutputFormat.JSON:
        typer.echo(written)
        return
    print_whole(table(found), console)
    for line in why_left_out(found):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `5` (1 to 5), `1,2,7` or `200-219`. Raises `SimulationError`."""
    ranges = re.fullmatch(r"[0-9]{1,9}(-[0-9]{1,9})?(,[0-9]{1,9}(-[0-9]{1,9})?)*", text.replace(" ", ""))
    found: set[int] = set()
    for part in text.replace(" ", "").split(",") if ranges else ():
        first, _, last = (f"1-{part}" if part == text.strip() and "-" not in part else part).partition("-")
        found |= set(range(int(first), min(int(last or first), int(first) + MOST_SEEDS) + 1))
    if not 0 < len(found) <= MOST_SEEDS:
        msg = f"--seeds {text!r}: write how many, as 5, or which, as 1,2,7 or 200-219, and at most {MOST_SEEDS}"
        raise SimulationError(msg)
    return tuple(sorted(found))


def require_reason(data: Path | None, public: str | None, test: Path | None, silos_by: str | None) -> None:
    """Raise `SimulationError` for records without a reason why they are public, and for options without records."""
    if data is not None and not (public or "").strip():
        msg = (
            f"a simulation is neither charged nor private, so {data} must hold public records: say why they are, with"
            ' --public "REASON"; the output keeps it'
        )
        raise SimulationError(msg)
    left = [name for name, value in (("--public", public), ("--test", test), ("--silos-by", silos_by)) if value]
    if data is None and left:
        msg = f"{' and '.join(left)} without --data: give the public records, or leave it out for made-up ones"
        raise SimulationError(msg)


def require_places(figures: Path | None, plot: Path | None, keep: Path | None = None) -> None:
    """Raise `SimulationError` if a file could not be written in the end, before anything is run."""
    for file in (figures, plot, keep):
        if file is not None and not file.parent.is_dir():
            msg = f"there is no folder {file.parent} for {file.name}; make it, or give another path"
            raise SimulationError(msg)
    if keep is not None and keep.exists() and not keep.is_dir():
        msg = f"--keep {keep} is a file; name a folder, which is made if it is not there"
        raise SimulationError(msg)
    if plot is not None and plot.suffix not in PLOTS:
        msg = f"--plot {plot} ends with none of {', '.join(PLOTS)}, which say what is drawn; give it one of these"
        raise SimulationError(msg)
    if plot is not None and find_spec("matplotlib") is None:
        msg = "--plot needs matplotlib; install requirements-research.txt of the release"
        raise SimulationError(msg)


def engine_of(name: str, workers: int, scheduler: str | None, tls: Path | None) -> SeedEngine | None:
    """Who computes seeds; None for processes of this machine. Raises `SimulationError` for what does not fit."""
    if name == "dask":
        from deploy.local.simulate.engines.cluster import DaskCluster

        return DaskCluster(workers, scheduler, tls)
    left = [option for option, value in (("--scheduler", scheduler), ("--tls", tls)) if value]
    if left:
        msg = f"{' and '.join(left)} without --engine dask: add it, or leave them out"
        raise SimulationError(msg)
    return None


def require_start(study: Study, model: Path | None) -> None:
    """Raise `SimulationError` if a study that continues another one has no model, or one is given for nothing."""
    if (study.continues is None) != (model is None):
        msg = (
            f"study.continues is {study.continues}: give that model's file with --model"
            if model is None
            else "--model is for a study with continues, and this one has none; leave it out"
        )
        raise SimulationError(msg)


def _read(
    study: Study, data: Path, silos_by: str | None, test: Path | None, *, share: float, agents: list[Path]
) -> tuple[Study, HeldRecords, Mapping[str, int], dict[str, LeftOut]]:
    """The study with the silos that were found, their records, how many fit, and which do not, by what they are for."""
    from deploy.local.simulate.data.guard import require_no_agents_data
    from deploy.local.simulate.data.reading import data_files, read_silos, read_test
    from deploy.local.simulate.silos import HeldRecords
    from deploy.local.simulate.summary import RECORDS, TEST_RECORDS
    from deploy.local.simulate.variants import renamed

    files = [file for file in data_files(data, silos_by) if test is None or file.resolve() != test.resolve()]
    for unseen in require_no_agents_data([*files, *([test] if test else [])], agents):
        typer.echo(unseen, err=True)
    silos = read_silos(files, study.data, silos_by)
    sizes = {name: len(own) for name, own in silos.records.items()}
    names = study.silos if set(study.silos) == set(sizes) else tuple(sizes)
    left_out, measured = {RECORDS: silos.left_out}, None
    if test:
        measured, left_out[TEST_RECORDS] = read_test(test, study.data)
    source = HeldRecords({name: silos.records[name] for name in names}, share, measured)
    return renamed(study, names), source, {name: sizes[name] for name in names}, left_out


def progress() -> Progress:
    """A bar for each variant of the study on the standard error, if that is a terminal; gone when all are done."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
