"""The folder that a local run fills, and the folder in which it finds the silos' data."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from deploy.local.processes import FederationError
from silo_agent.data.sources.opening import SUFFIXES

MARK: Final = ".made-by-fedward-demo"
"""Stands in a folder that a demo has made."""


def empty(folder: Path) -> None:
    """Begin with an empty folder. If it holds files, it is emptied only if an earlier demo made it.

    Raises `FederationError` otherwise.
    """
    if _holds_files(folder):
        if not (folder / MARK).exists():
            msg = f"{folder} holds files, and no demo made it; give another folder with OUT=<folder>"
            raise FederationError(msg)
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def begin(folder: Path) -> None:
    """Make a new folder. Raises `FederationError` if it holds anything, so that no ledger is deleted or mixed."""
    if _holds_files(folder):
        msg = f"{folder} is not an empty folder; give a new one, because the ledgers of an earlier run are kept"
        raise FederationError(msg)
    folder.mkdir(parents=True, exist_ok=True)


def find_data(folder: Path, silos: Iterable[str]) -> dict[str, Path]:
    """Each silo's file in `folder`, named after the silo. Raises `FederationError` if a silo has no file, or two."""
    return {silo: _file_of(silo, folder) for silo in silos}


def _file_of(silo: str, folder: Path) -> Path:
    found = [folder / f"{silo}{suffix}" for suffix in SUFFIXES if (folder / f"{silo}{suffix}").is_file()]
    names = " or ".join(f"{silo}{suffix}" for suffix in SUFFIXES)
    if len(found) != 1:
        msg = f"{folder} must hold exactly one file for the silo {silo}, {names}; it holds {len(found)}"
        raise FederationError(msg)
    return found[0]


def _holds_files(folder: Path) -> bool:
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
