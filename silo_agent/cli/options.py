"""What commands of `fedward-silo` share: options, whole tables, and what a terminal says meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.output_format import OutputFormat

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table


ReplacesOption = Annotated[
    Path | None, typer.Option("--replaces", help="The policy in force, needed if the agent's state has lost it.")
]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_AGENT_CONFIG", help="agent.yaml")]
StudyArgument = Annotated[str, typer.Argument(help="Name of a study, or at least twelve digits of its digest.")]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people, or for programs.")]
TABLE, JSON = OutputFormat.TABLE, OutputFormat.JSON
DEFAULT = Path("agent.yaml")
_SHORT = 12
"""Digits of a digest in a table, as in logs and metrics."""
_ANY_WIDTH = 10_000
_BETWEEN = 3
"""Columns of padding and line, for each column of a table."""


def print_whole(table: Table, console: Console | None = None) -> None:
    """Print a table. What others wrote is text, even if it looks like markup.

    Words take more lines where the terminal is narrow. What a column keeps on one line (`no_wrap`), such as an
    interval, is never cut: if there is no room for it, the table is wider than the terminal.
    """
    from rich.console import Console

    out = Console(markup=False, emoji=False) if console is None else console
    seen = out.width
    out.width = max(seen, _keep_whole(table, out))
    out.print(table)
    out.width = seen


def _keep_whole(table: Table, console: Console) -> int:
    """Have each column keep its words, or its whole cells if it does not wrap. Return how wide the table must be."""
    from rich.measure import Measurement

    wide = console.options.update(max_width=_ANY_WIDTH, markup=False)
    for column in table.columns:
        sizes = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
        column.min_width = max(size.maximum if column.no_wrap else size.minimum for size in sizes)
        column.overflow = "fold"
    return 1 + sum(_BETWEEN + (column.min_width or 0) for column in table.columns)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], object]]:
    """Count on the terminal, while something lasts, what it gives; nothing where nobody looks.

    What is yielded is told how many more there are. The line is gone at the end, and after Ctrl-C.
    """
    with _line("{task.completed:,.0f} {task.description}") as bar:
        yield partial(bar.advance, bar.add_task(what, total=None))


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], object]]:
    """Say on the terminal what lasts, and for how long by now; nothing where nobody looks.

    What is yielded is told what comes next. The line is gone at the end, and after Ctrl-C.
    """
    with _line("{task.description}") as bar:
        task = bar.add_task(what, total=None)
        yield lambda other: bar.update(task, description=other)


@contextmanager
def _line(text: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), text, TimeElapsedColumn())
    # What a command prints goes where it always goes: to a file if its output is one, though the line is on a terminal.
    quiet = not console.is_terminal
    with Progress(
        *columns, console=console, transient=True, disable=quiet, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        yield bar


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()
