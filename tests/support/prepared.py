"""Federations whose parties were enrolled once for the whole run of the tests, by the commands that people use."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from deploy.local.federation import Federation


def prepare(federation: Federation) -> None:
    """Give the parties keys and certificates; those of the first federation with the same silos and data sets."""
    silos = tuple((silo, federation.policy_of(silo).data_set.id) for silo in sorted(federation.data))
    if silos not in _ENROLLED:
        folder = tempfile.TemporaryDirectory(prefix="fedward-enrolled-")
        replace(federation, folder=Path(folder.name)).prepare()
        _ENROLLED[silos] = folder
    shutil.copytree(_ENROLLED[silos].name, federation.folder, dirs_exist_ok=True)


_ENROLLED: dict[tuple[tuple[str, str], ...], tempfile.TemporaryDirectory[str]] = {}
"""Removed when the interpreter ends."""
