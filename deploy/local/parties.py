"""The parties of a local federation: the folder, the certificate and the configuration of each.

The commands that authors and hospitals use make the certificates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.processes import run

COORDINATOR: Final = "coordinator"
AUTHOR: Final = "author"
"""Who writes the study, and signs it."""
AUTHOR_ROLE: Final = "author"
LOOPBACK: Final = "127.0.0.1"
_CREDENTIAL: Final = {"certificate": "certificate.pem", "key": "key.pem", "authority": "authority.pem"}


@dataclass(frozen=True)
class FederationPaths:
    """The paths of a federation's parts below one folder."""

    root: Path

    def party(self, name: str) -> Path:
        """Folder of one party: key, certificate, configuration, state, log."""
        return self.root / name

    @property
    def authority(self) -> Path:
        """The authority's folder; never given to the coordinator."""
        return self.root / "authority"

    @property
    def coordinator_file(self) -> Path:
        """The coordinator's configuration."""
        return self.party(COORDINATOR) / "coordinator.yaml"

    @property
    def author_file(self) -> Path:
        """The configuration of the study's author."""
        return self.party(AUTHOR) / "operator.yaml"

    def agent_file(self, silo: str) -> Path:
        """A silo's configuration."""
        return self.party(silo) / "agent.yaml"

    def state(self, silo: str) -> Path:
        """Folder of a silo's state: ledger, models, outbox."""
        return self.party(silo) / "state"


@dataclass(frozen=True)
class Enrolment:
    """Gives every party a key, and a certificate from one authority."""

    place: FederationPaths
    passphrase: str
    """The passphrase of the authority's key."""

    def enrol(self, data_sets: Mapping[str, str]) -> None:
        """Make the authority, then enrol coordinator, author and silos.

        `data_sets`: the data set of each silo.

        Raises `FederationError` if a command fails.
        """
        self.place.root.mkdir(parents=True, exist_ok=True)
        run("fedward-authority", "init", self.place.authority, "--name", "demo", env=self._secret)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            silos = [("silo", silo, ["--data-set", data_set]) for silo, data_set in data_sets.items()]
            hub = ("coordinator", COORDINATOR, ["--host", LOOPBACK])
            list(pool.map(lambda party: self._enrol(*party), [hub, (AUTHOR_ROLE, AUTHOR, []), *silos]))

    def _enrol(self, role: str, name: str, claims: list[str]) -> None:
        folder = self.place.party(name)
        if role == "silo":
            run("fedward-silo", "enrol", folder, "--name", name, *claims)
        else:
            run("fedward-coordinator", "enrol", folder, "--role", role, "--name", name, *claims)
        run(
            "fedward-authority", "sign", self.place.authority, folder / "request.csr", "--role", role, "--name", name,
            "--out", folder / "certificate.pem", *claims, env=self._secret,
        )  # fmt: skip
        (folder / "authority.pem").write_bytes((self.place.authority / "authority.pem").read_bytes())

    @property
    def _secret(self) -> dict[str, str]:
        return {"FEDWARD_AUTHORITY_PASSPHRASE": self.passphrase}


def configure_coordinator(place: FederationPaths) -> None:
    """Write `coordinator.yaml`; the coordinator picks free ports."""
    write_yaml(place.coordinator_file, {**_CREDENTIAL, "port": 0, "metrics_port": 0, "data": "data"})


def configure_author(place: FederationPaths, port: int) -> None:
    """Write the author's `operator.yaml`, for the coordinator at this port."""
    write_yaml(place.author_file, {**_CREDENTIAL, "coordinator": f"{LOOPBACK}:{port}"})


def configure_silo(
    place: FederationPaths,
    silo: str,
    *,
    port: int,
    policy: str,
    data: Mapping[str, Path],
    threads: int | None,
    device: str = "auto",
) -> None:
    """Write a silo's `policy.yaml` and `agent.yaml`. `data`: the silo's data file for each study's name."""
    (place.party(silo) / "policy.yaml").write_text(policy, encoding="utf-8")
    config: dict[str, object] = {
        **_CREDENTIAL,
        "coordinator": f"{LOOPBACK}:{port}",
        "policy": "policy.yaml",
        "state": "state",
        "device": device,
        "data": {study: str(file.resolve()) for study, file in data.items()},
    }
    if threads is not None:
        config["threads"] = threads
    write_yaml(place.agent_file(silo), config)


def write_yaml(path: Path, content: Mapping[str, object]) -> None:
    """Write a configuration file; JSON is YAML."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
