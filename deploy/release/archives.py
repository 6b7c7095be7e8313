"""Builds wheel and sources from the files of a commit, so that the same commit gives the same bytes."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, Final

from deploy.release.errors import ReleaseError

_BUILD: Final = (
    "import sys; from setuptools import build_meta as b; out = sys.argv[1]; b.build_sdist(out); b.build_wheel(out)"
)
_WHOLE: Final = 0o755
_PLAIN: Final = 0o644


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
    """Copy every tracked file, with modes that do not depend on this machine."""
    for name in _git(root, "ls-files", "-z").split("\0"):
        source = root / name
        if not name or not source.is_file():
            continue
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(_WHOLE if os.access(source, os.X_OK) else _PLAIN)


def build(sources: Path, out: Path, when: int) -> tuple[Path, Path]:
    """Build wheel and sources into a folder. `when` is the time that every file in them bears, seconds since 1970.

    Raises `ReleaseError` with what the build said.
    """
    scratch = out / "building"
    scratch.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"}
    made = subprocess.run(  # our own words
        [sys.executable, "-c", _BUILD, str(scratch.resolve())],
        cwd=sources,
        env=environment,
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        msg = f"the wheel cannot be built: {made.stderr.strip()[-2000:]}"
        raise ReleaseError(msg)
    wheel, packed = next(scratch.glob("*.whl")), next(scratch.glob("*.tar.gz"))
    for built in (wheel, packed):
        built.rename(out / built.name)
    scratch.rmdir()
    _normalise(out / packed.name, when)
    return out / wheel.name, out / packed.name


def _normalise(packed: Path, when: int) -> None:
    """Give an archive of sources one time, one owner and one order."""
    loose = packed.with_suffix(".new")
    with (
        tarfile.open(packed) as old,
        loose.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=when, fileobj=file) as thin,
        tarfile.open(fileobj=thin, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            content: IO[bytes] | None = old.extractfile(member) if member.isfile() else None
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, when
            plain.mode = _WHOLE if member.isdir() or member.mode & 0o100 else _PLAIN
            new.addfile(plain, content)
    loose.rename(packed)


def _git(root: Path, *words: str) -> str:
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        msg = "git cannot read this folder; a release is made in a clone of the repository"
        raise ReleaseError(msg) from None
