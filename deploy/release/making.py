"""Puts a release together in a folder."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec

from deploy.release import archives, signing
from deploy.release.bill import bill
from deploy.release.errors import ReleaseError
from deploy.release.locks import ROLES, ROOT, InstalledRole, PinnedPackage, pins

BESIDE: Final = (
    "install-silo.sh",
    "install-coordinator.sh",
    "common.sh",
    "fedward-silo.service",
    "fedward-coordinator.service",
    "fedward-authority.service",
    "gpu.conf",
)
"""Files of deploy/install that lie in a release as they are."""
CONTAINERS: Final = {
    "Containerfile-silo": "images/silo/Containerfile",
    "Containerfile-coordinator": "images/coordinator/Containerfile",
    "compose.yaml": "compose/compose.yaml",
}
"""The same for containers: name in the release, and file under deploy."""


def make(out: Path, key: ec.EllipticCurvePrivateKey, *, committed: bool = True) -> tuple[str, ...]:
    """Make a signed release of the repository's last commit in a new or empty folder. Return the names of its files.

    With `committed` False the tracked files are taken as they lie there, which only a test may want.
    Raises `ReleaseError`.
    """
    if out.exists() and any(out.iterdir()):
        msg = f"{out.name} is not empty; a release holds nothing else: remove the folder's files or name another one"
        raise ReleaseError(msg)
    if committed:
        archives.require_committed(ROOT)
    out.mkdir(parents=True, exist_ok=True)
    when = archives.commit_time(ROOT)
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        archives.copy_tracked(ROOT, Path(scratch))
        wheel, _ = archives.build(Path(scratch), out, when)
    version, digest = wheel.name.split("-")[1], hashlib.sha256(wheel.read_bytes()).hexdigest()
    for role in ROLES:
        packages = pins(role)
        (out / f"requirements-{role.name}.txt").write_text(_requirements(role, version, digest, packages))
        (out / f"fedward-{role.name}.cdx.json").write_text(bill(role.name, version, digest, packages, when))
    for name in BESIDE:
        shutil.copy(ROOT / "deploy" / "install" / name, out / name)
    for name, source in CONTAINERS.items():
        shutil.copy(ROOT / "deploy" / source, out / name)
    signing.sign(out, key)
    return tuple(sorted(file.name for file in out.iterdir()))


def _requirements(role: InstalledRole, version: str, digest: str, packages: tuple[PinnedPackage, ...]) -> str:
    lines = [
        f"# Install with: pip install --require-hashes -r requirements-{role.name}.txt",
        # Relative to this file. The hash keeps pip from taking a package of the same name from an index.
        "--find-links .",
        f"fedward[{','.join(role.extras)}]=={version} --hash=sha256:{digest}",
    ]
    return "\n".join([*lines, *map(_pinned, packages)]) + "\n"


def _pinned(one: PinnedPackage) -> str:
    return " \\\n    ".join([f"{one.name}=={one.version}", *(f"--hash=sha256:{found}" for found in one.hashes)])
