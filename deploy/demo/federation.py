"""A whole federation on one machine: an authority, a coordinator and one agent per data file, each its own process.

Uses the command lines that operators and hospitals use, over mutual TLS on loopback. Ends only the processes that it
has started, by their id.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coordinator.config import OperatorConfig
from coordinator.operating import Operator
from deploy.demo.sources import silo_policy, silo_text
from policies.documents.policy import Policy
from policies.documents.study import Study, load_study

START_SECONDS = 60.0
COORDINATOR = "coordinator"
OPERATOR = "operator"


class FederationError(Exception):
    """A process of the federation failed; says which, and the end of what it logged."""


@dataclass(frozen=True)
class Place:
    """Where the parts of a federation lie below one folder."""

    root: Path

    def party(self, name: str) -> Path:
        """Folder of one party: key, certificate, configuration, state, log."""
        return self.root / name

    @property
    def authority(self) -> Path:
        """The authority's folder; never given to the coordinator."""
        return self.root / "authority"


@dataclass
class Federation:
    """Set up by `prepare`, run as a context manager."""

    folder: Path
    study_file: Path
    data: Mapping[str, Path]
    policy: str
    """Text of every silo's policy; `sources.DATA_SET` stands for its data set."""
    threads: int | None = 1
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _passphrase: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def place(self) -> Place:
        """Where everything lies."""
        return Place(self.folder)

    @property
    def study(self) -> Study:
        """The study to run."""
        return load_study(self.study_file)

    def policy_of(self, silo: str) -> Policy:
        """A silo's policy. Raises `DocumentError`."""
        return silo_policy(self.policy, silo, self.study_file)

    # --- setting up -----------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Authority, enrolment and certificates, configurations, ledgers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run("fedward-authority", "init", self.place.authority, "--name", "demo", env=self._secret)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            parties = [("coordinator", COORDINATOR), ("operator", OPERATOR), *(("silo", name) for name in self.data)]
            list(pool.map(lambda party: self._enrol(*party), parties))

    def _enrol(self, role: str, name: str) -> None:
        folder = self.place.party(name)
        hosts = ["--host", "127.0.0.1"] if role == "coordinator" else []
        data_set: list[str] = []
        if role == "silo":
            data_set = ["--data-set", self.policy_of(name).data_set.id]
            run("fedward-silo", "enrol", folder, "--name", name, *data_set)
        else:
            run("fedward-coordinator", "enrol", folder, "--role", role, "--name", name, *hosts)
        run(
            "fedward-authority", "sign", self.place.authority, folder / "request.csr", "--role", role, "--name", name,
            "--out", folder / "certificate.pem", *hosts, *data_set, env=self._secret,
        )  # fmt: skip
        (folder / "authority.pem").write_bytes((self.place.authority / "authority.pem").read_bytes())
        if role == "coordinator":
            write_yaml(folder / "coordinator.yaml", {**_CREDENTIAL, "port": 0, "metrics_port": 0, "data": "data"})

    # --- running --------------------------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start every process; stops them again where one fails."""
        try:
            self.start_coordinator()
            self.configure()
            for name in self.data:
                self.start_silo(name)
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start_coordinator(self) -> None:
        """Start the coordinator and learn its ports."""
        folder = self.place.party(COORDINATOR)
        self._start(COORDINATOR, "fedward-coordinator", "serve", "-c", folder / "coordinator.yaml")
        serving = self._await_log(COORDINATOR, "serving")
        self.port = int(serving["port"])
        address = f"127.0.0.1:{self.port}"
        write_yaml(self.place.party(OPERATOR) / "operator.yaml", {**_CREDENTIAL, "coordinator": address})

    def configure(self) -> None:
        """Write every silo's configuration and policy, and open its ledger."""
        for name in self.data:
            self._configure(name)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            list(pool.map(self._open_ledger, self.data))

    def start_silo(self, name: str) -> None:
        """Start one silo's agent."""
        self._start(name, "fedward-silo", "run", "--until-finished", "-c", self.config(name))

    def config(self, silo: str) -> Path:
        """A silo's `agent.yaml`."""
        return self.place.party(silo) / "agent.yaml"

    def state(self, silo: str) -> Path:
        """A silo's state of the study: models, results, training log."""
        return self.place.party(silo) / "state" / "studies" / self.study.digest

    def metrics_port(self, name: str) -> int:
        """Where a running process shows its metrics."""
        started = "serving" if name == COORDINATOR else "agent starts"
        return int(self._await_log(name, started)["metrics_port"])

    @contextlib.contextmanager
    def operator(self) -> Iterator[Operator]:
        """The operator's connection."""
        client = Operator(OperatorConfig.load(self.place.party(OPERATOR) / "operator.yaml"))
        try:
            yield client
        finally:
            client.close()

    def begin(self) -> None:
        """Create and start the study with the operator's own commands."""
        operator = ("-o", self.place.party(OPERATOR) / "operator.yaml")
        run("fedward-coordinator", "study", "create", self.study_file, *operator)
        run("fedward-coordinator", "study", "start", self.study.digest, *operator)

    def check(self) -> None:
        """Raise `FederationError` where a process has failed; an agent ends well when its study is over."""
        for name, process in self.processes.items():
            if process.poll():
                msg = f"{name} ended with code {process.returncode}:\n{self.log_tail(name)}"
                raise FederationError(msg)

    def wait_for_silos(self, seconds: float = 60.0) -> None:
        """Wait until every agent has heard that the study is over and has ended."""
        for name in self.data:
            try:
                self.processes[name].wait(seconds)
            except subprocess.TimeoutExpired:
                msg = f"{name} has not ended {seconds:g} s after the study:\n{self.log_tail(name)}"
                raise FederationError(msg) from None
        self.check()

    def stop(self) -> None:
        """End what was started."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def log(self, name: str) -> Path:
        """What a process writes."""
        return self.place.party(name) / "log.jsonl"

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The end of a process's log."""
        return "\n".join(self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    # --- inside ---------------------------------------------------------------------------------------------------
    @property
    def _secret(self) -> dict[str, str]:
        return {"FEDWARD_AUTHORITY_PASSPHRASE": self._passphrase}

    def _configure(self, name: str) -> None:
        folder = self.place.party(name)
        (folder / "policy.yaml").write_text(silo_text(self.policy, name), encoding="utf-8")
        config: dict[str, object] = {
            **_CREDENTIAL,
            "coordinator": f"127.0.0.1:{self.port}",
            "policy": "policy.yaml",
            "state": "state",
            "data": {self.study.name: str(self.data[name].resolve())},
        }
        if self.threads is not None:
            config["threads"] = self.threads
        write_yaml(self.config(name), config)

    def _open_ledger(self, name: str) -> None:
        if not (self.place.party(name) / "state" / "ledger.sqlite3").exists():
            run("fedward-silo", "ledger", "create", "-c", self.config(name))

    def _start(self, name: str, program: str, *arguments: str | Path) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.threads is not None:
            # Six agents share one machine here; without this each would spin up a pool for all of its cores.
            environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(self.threads))
        with self.log(name).open("ab") as log:
            command = [script(program), *map(str, arguments)]
            self.processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment
            )

    def _await_log(self, name: str, event: str) -> dict[str, Any]:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            for line in self.log(name).read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    entry = json.loads(line)
                    if entry.get("event") == event:
                        return dict(entry)
            self.check()
            time.sleep(0.05)
        msg = f"{name} did not start within {START_SECONDS:g} s:\n{self.log_tail(name)}"
        raise FederationError(msg)


_CREDENTIAL = {"certificate": "certificate.pem", "key": "key.pem", "authority": "authority.pem"}


def script(program: str) -> str:
    """A console script of the environment that runs this."""
    return str(Path(sys.executable).parent / program)


def run(program: str, *arguments: str | Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return what it printed. Raises `FederationError` with what it complained of."""
    done = subprocess.run(
        [script(program), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )
    if done.returncode != 0:
        msg = f"{program} {' '.join(map(str, arguments))} ended with code {done.returncode}:\n{done.stderr.strip()}"
        raise FederationError(msg)
    return done.stdout


def write_yaml(path: Path, content: Mapping[str, object]) -> None:
    """Write a configuration file; JSON is YAML."""
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
