"""What every command line of FedWard does alike: it tells its version, and an error in one sentence."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from common.os_errors import explained
from common.output_format import without_old_words

INTERRUPTED: Final = 130
"""Exit code of a program that Ctrl-C has ended, as of a shell."""


def version_teller(program: str) -> Callable[[bool], None]:
    """Return what `--version` calls: if it was asked for, the program says its version and ends."""

    def tell(asked: bool) -> None:  # noqa: FBT001  # typer calls it so
        if asked:
            sys.stdout.write(f"{program} {version('fedward')}\n")
            sys.exit(0)

    return tell


def _end_quietly(commands: Callable[[], object]) -> None:
    """Run them. Whoever ends them by Ctrl-C may press it again while threads end: that is no error to be shown."""
    try:
        commands()
    except (KeyboardInterrupt, SystemExit) as end:
        if isinstance(end, SystemExit) and end.code != INTERRUPTED:
            raise
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(INTERRUPTED)


def run(
    program: str, commands: Callable[[], object], errors: tuple[type[Exception], ...] = (), fix: str | None = None
) -> None:
    """Run a command line. One of `errors` is a sentence on stderr and exit code 1.

    So is a package that is not installed, if `fix` says what to do about it.
    """
    sys.argv[1:], old = without_old_words(sys.argv[1:])
    if old:
        sys.stderr.write(f"{program}: --json is called --format json from version 0.7 on; change your scripts\n")
    try:
        _end_quietly(commands)
    except errors as error:
        said = explained(error)
    except ModuleNotFoundError as missing:
        if fix is None:
            raise
        said = f"{missing.name} is not installed here; {fix}"
    else:
        return
    sys.stderr.write(f"{program}: {said}\n")
    sys.exit(1)
