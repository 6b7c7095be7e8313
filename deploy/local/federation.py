"""A whole federation on one machine: an authority, a coordinator and one agent per data file, each its own process.

It calls the commands that authors and hospitals use. The processes talk over mutual TLS on loopback.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from deploy.local.parties import (
    COORDINATOR,
    Enrolment,
    FederationPaths,
    configure_author,
    configure_coordinator,
    configure_silo,
)
from deploy.local.processes import Parties, log_tail, run
from deploy.local.silo_policies import Policies, silo_policy, silo_text
from policies.documents.policy import Policy
from policies.documents.study import Study, load_study
from silo_agent.storage import approvals, offered
from silo_agent.storage.folders import StateFolder


@dataclass
class Federation:
    """One federation: `prepare` sets it up; as a context manager it runs."""

    folder: Path
    study_file: Path
    data: Mapping[str, Path]
    policy: Policies
    """The common text of all silos' policies, or one for each; `silo_policies.DATA_SET` stands for a silo's name."""
    threads: int | None = 1
    device: str = "auto"
    """Of every agent."""
    parties: Parties = field(default_factory=Parties)
    _passphrase: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def place(self) -> FederationPaths:
        """The paths of all parts."""
        return FederationPaths(self.folder)

    @property
    def study(self) -> Study:
        """The study to run."""
        return load_study(self.study_file)

    @property
    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """The running parties by name."""
        return self.parties.processes

    def policy_of(self, silo: str) -> Policy:
        """The policy of one silo. Raises `DocumentError` if the text is not a policy."""
        return silo_policy(self.policy, silo, self.study_file)

    # --- setting up -----------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Make the authority, enrol all parties and sign their certificates. Raises `FederationError`."""
        enrolment = Enrolment(self.place, self._passphrase)
        enrolment.enrol({silo: self.policy_of(silo).data_set.id for silo in self.data})
        configure_coordinator(self.place)

    # --- running --------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start every process and wait until all are ready; if one fails, stop them again."""
        try:
            self.start_coordinator()
            self.configure()
            for name in self.data:
                self.start_silo(name)
            for name in self.data:
                self.await_ready(name)
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start_coordinator(self) -> None:
        """Start the coordinator and read its port from its log."""
        self._start(COORDINATOR, "fedward-coordinator", "serve", "-c", self.place.coordinator_file)
        self.port = int(self._await_log(COORDINATOR, "serving")["port"])
        configure_author(self.place, self.port)

    def configure(self) -> None:
        """Write every silo's configuration and policy, open its ledger, and let the study use the silo's data."""
        study = self.study.name
        for silo, file in self.data.items():
            policy = silo_text(self.policy, silo)
            configure_silo(
                self.place, silo, port=self.port, policy=policy, data={study: file}, threads=self.threads,
                device=self.device,
            )  # fmt: skip
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(self._open_ledger, self.data))
        self.approve()

    def approve(self) -> None:
        """Let the study use every silo's data, as `fedward-silo study approve STUDY.yaml` does."""
        now = datetime.now(UTC)
        for silo in self.data:
            folder = StateFolder(self.place.state(silo))
            approvals.approve(folder, self.study, approvals.made(self.study, self.study.name, now))
            offered.keep(folder, self.study, now, approved={self.study.digest})

    def start_silo(self, name: str) -> None:
        """Start one silo's agent."""
        self._start(name, "fedward-silo", "run", "--until-finished", "-c", self.config(name))

    def config(self, silo: str) -> Path:
        """A silo's `agent.yaml`."""
        return self.place.agent_file(silo)

    def state(self, silo: str) -> Path:
        """The folder of the study at a silo: models, results, training log."""
        return self.place.state(silo) / "studies" / self.study.digest

    def metrics_port(self, name: str) -> int:
        """The port at which a running process shows its metrics."""
        return int(self.await_ready(name)["metrics_port"])

    def await_ready(self, name: str) -> dict[str, Any]:
        """The log entry that a process writes once it can work. Raises `FederationError` if none comes in time."""
        return self._await_log(name, "serving" if name == COORDINATOR else "agent starts")

    @contextlib.contextmanager
    def author(self) -> Iterator[CoordinatorClient]:
        """The connection of the study's author."""
        client = CoordinatorClient(OperatorConfig.load(self.place.author_file))
        try:
            yield client
        finally:
            client.close()

    def begin(self) -> None:
        """Create and start the study with its author's own commands."""
        author = ("-o", self.place.author_file)
        run("fedward-coordinator", "study", "create", self.study_file, *author)
        run("fedward-coordinator", "study", "start", self.study.digest, *author)

    def check(self) -> None:
        """Raise `FederationError` if a process has failed. An agent that ends with code 0 has not failed."""
        self.parties.check()

    def wait_for_silos(self, seconds: float = 600.0) -> None:
        """Wait until every agent has ended because its study is over. Raises `FederationError` after `seconds`.

        An agent ends when its personal model is trained. That has the lowest priority, so on a busy machine it may take
        minutes.
        """
        for name in self.data:
            self.parties.wait(name, seconds)
        self.check()

    def stop(self) -> None:
        """End every process that was started."""
        self.parties.stop()

    def log(self, name: str) -> Path:
        """The file that a process logs to."""
        return self.place.party(name) / "log.jsonl"

    def log_tail(self, name: str) -> str:
        """The end of a process's log."""
        return log_tail(self.log(name))

    # --- inside ---------------------------------------------------------------------------------------------------
    def _open_ledger(self, name: str) -> None:
        if not (self.place.state(name) / "ledger.sqlite3").exists():
            run("fedward-silo", "ledger", "create", "-c", self.config(name))

    def _start(self, name: str, program: str, *arguments: str | Path) -> None:
        self.parties.start(name, self.log(name), program, *arguments, threads=self.threads)

    def _await_log(self, name: str, event: str) -> dict[str, Any]:
        return self.parties.await_event(name, self.log(name), event)
