"""Run a bench by its name: `python -m bench NAME [OPTION ...]`. Without a name, list them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from bench.benches import BENCHES, Bench, listed


def command(bench: Bench, options: Sequence[str]) -> list[str]:
    """The words that start a bench as a script of its own: numpy reads the environment when it is loaded."""
    return [sys.executable, "-m", bench.module, *bench.options, *options]


def main(words: Sequence[str]) -> str:
    """Become the bench that is named. Returns what is wrong if there is none of this name, else nothing to say."""
    if not words or words[0] in {"-h", "--help"}:
        print(f"python -m bench NAME [OPTION ...], or make bench NAME=...\n\n{listed()}")
        return ""
    chosen = next((bench for bench in BENCHES if bench.name == words[0]), None)
    if chosen is None:
        return f"there is no bench {words[0]!r}; those that there are:\n{listed()}"
    sys.stdout.flush()
    os.execve(sys.executable, command(chosen, words[1:]), {**os.environ, **chosen.environment})  # noqa: S606 - no shell
    return ""  # only a test comes here


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
