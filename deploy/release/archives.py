"""Builds wheel and sources from the files of a commit, so that the same commit gives the same bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

_BUILD: Final = (
    "import sys; from hatchling import build as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"
)


def commit_time(root: Path) -> int:
    """Seconds since 1970 of the last commit."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def require_committed(root: Path) -> None:
    """Raise `ReleaseError` if the working tree is not what the last commit is."""
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        msg = f"{len(changed)} files are not committed ({changed[0][3:]}); a release is made from a commit: commit them"
        raise ReleaseError(msg)


def copy_tracked(root: Path, to: Path) -> None:
    """Copy every tracked file. What git ignores by a list outside of the repository gets into no release."""
    for name in _git(root, "ls-files", "-z").split("\0"):
        source, target = root / name, to / name
        if name and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def build(sources: Path, out: Path, when: int) -> tuple[Path, Path]:
    """Build wheel and sources into a folder. `when` is the time that every file in them bears, seconds since 1970.

    Hatchling gives files one owner, one order and the plain modes. Raises `ReleaseError` with what the build said.
    """
    before = set(out.iterdir())
    made = subprocess.run(  # our own words
        [sys.executable, "-c", _BUILD, str(out.resolve())],
        cwd=sources,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(when)},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        msg = f"the wheel cannot be built: {made.stderr.strip()[-2000:]}"
        raise ReleaseError(msg)
    by_kind = {path.suffix: path for path in set(out.iterdir()) - before}
    return by_kind[".whl"], by_kind[".gz"]


def _git(root: Path, *words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        msg = "git cannot read this folder; a release is made in a clone of the repository"
        raise ReleaseError(msg) from None
