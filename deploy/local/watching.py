"""Progress bars while a study runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from deploy.local.federation import Federation
from deploy.local.processes import FederationError
from policies.plan.release import plan
from protos.status import StudyStatus

OVER = ("finished", "ended", "aborted")


def bars(console: Console) -> Progress:
    """The progress display."""
    return Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


@contextlib.contextmanager
def stage(progress: Progress, name: str) -> Iterator[None]:
    """A progress bar for one piece of work. The bar is full when the work is done."""
    task = progress.add_task(name, total=1, note="")
    yield
    progress.update(task, completed=1)


def watch(federation: Federation, progress: Progress, *, limit: float, pause: float = 0.2) -> StudyStatus:
    """Follow a study to its end. Raises `FederationError` if it does not finish within `limit` seconds."""
    study = federation.study
    rounds = plan(study).last + 1
    task = progress.add_task("training: rounds", total=rounds, note="")
    until = time.monotonic() + limit
    with federation.author() as author:
        while True:
            federation.check()
            status = author.status(study.digest)
            finished = status.state == "finished"
            waiting = f", waiting for {len(status.waiting_for)}" if status.waiting_for else ""
            tensor = f" {status.tensor}" if status.tensor else ""
            attempt = f", attempt {status.attempt}" if status.attempt > 1 else ""
            state = "" if status.state == "running" else f"{status.state}: "
            note = "" if finished else f"{state}{status.phase}{tensor}{waiting}{attempt}"
            progress.update(task, completed=rounds if finished else status.round, note=note)
            if status.state in OVER:
                break
            if time.monotonic() > until:
                msg = f"the study did not finish within {limit:g} s; it is in round {status.round}, {status.phase}"
                raise FederationError(msg)
            time.sleep(pause)
    if status.state != "finished":
        msg = f"the study {status.state}: {status.why}"
        raise FederationError(msg)
    return status
