"""What each role installs: every package with its version and the hashes of its files.

The files under `locked` are made by `make locked` from pyproject.toml and constraints.txt, and are kept in the
repository: a release made again next year pins the same bytes. Nothing else needs the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

ROOT: Final = Path(__file__).parents[2]
LOCKED: Final = Path(__file__).parent / "locked"
_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class InstalledRole:
    """One file of requirements."""

    name: str
    extras: tuple[str, ...]
    cpu: bool
    """Whether torch is its build without CUDA, which only PyTorch's own index has."""

    @property
    def file(self) -> Path:
        """Where its pins are kept."""
        return LOCKED / f"{self.name}.txt"


ROLES: Final = (
    InstalledRole("coordinator", ("coordinator", "postgres", "objects", "tracing"), cpu=True),
    InstalledRole("silo", ("silo", "dicom", "export", "tracing"), cpu=True),
    InstalledRole(
        "research",
        ("silo", "coordinator", "postgres", "objects", "dicom", "export", "demo", "cluster", "tracing"),
        cpu=True,
    ),
    InstalledRole("silo-cuda", ("silo", "dicom", "export", "tracing"), cpu=False),
)


@dataclass(frozen=True)
class PinnedPackage:
    """One package of a role."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed, in hex."""


def pins(role: InstalledRole) -> tuple[PinnedPackage, ...]:
    """The packages of a role, by name. Raises `ReleaseError` if one has no hash."""
    return tuple(_read(role))


def _read(role: InstalledRole) -> Iterator[PinnedPackage]:
    for entry in role.file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if not entry.strip() or entry.startswith("#"):
            continue
        found, hashes = _PIN.match(entry), tuple(_HASH.findall(entry))
        if found is None or not hashes:
            msg = f"{role.file.name}: {entry.split()[0]} is not pinned by version and hash; run `make locked`"
            raise ReleaseError(msg)
        yield PinnedPackage(found[1], found[2], hashes)


def lock(role: InstalledRole) -> None:
    """Resolve a role anew. It takes uv and the package index. Raises `ReleaseError`."""
    uv = shutil.which("uv", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if uv is None:
        msg = "uv is not installed; run `make locked`, which installs it"
        raise ReleaseError(msg)
    wheels = os.environ.get("PIP_FIND_LINKS", "").split() if role.cpu else []
    where = [part for folder in wheels for part in ("--find-links", folder)] or (
        ["--torch-backend", "cpu"] if role.cpu else []
    )
    extras = [part for extra in role.extras for part in ("--extra", extra)]
    command = [uv, "pip", "compile", "pyproject.toml", *extras, "-c", "constraints.txt", "--generate-hashes"]
    command += ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28", "--no-annotate"]
    command += ["--no-header", "--no-emit-index-url", "--no-emit-find-links", "--quiet", *where]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # our own words
    if made.returncode:
        msg = f"requirements of {role.name}: {made.stderr.strip()}"
        raise ReleaseError(msg)
    role.file.write_text(made.stdout, encoding="utf-8")
