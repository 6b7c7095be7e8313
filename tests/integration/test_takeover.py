"""A whole study over PostgreSQL while its active coordinator is killed in every phase, and the other one takes over."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import socket
import time

import pytest
import yaml

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.core.state import Phase
from coordinator.errors import OperatorError
from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from support.postgres import database_url
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml

pytestmark = pytest.mark.slow
LEASE_SECONDS = 3.0
SECONDS = 600
PHASES = {Phase.OFFER, Phase.EXCHANGE, Phase.GATHER, Phase.OPEN}
"""Each of them lasts long enough to be seen in any round; the others are killed in where they are met."""
MET = 8
"""Phases that are seen at least, of three rounds."""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Pair:
    """Two machines of one coordinator. One is active, the other stands by."""

    def __init__(self, federation, url):
        self.federation, self.ports = federation, (free_port(), free_port())
        self._author = None
        place = federation.place
        first = place.party(COORDINATOR)
        self.homes = (first, place.party("standby"))
        shutil.copytree(first, self.homes[1])
        for home, port in zip(self.homes, self.ports, strict=True):
            write_yaml(
                home / "coordinator.yaml",
                {
                    **{name: f"{name}.pem" for name in ("certificate", "key", "authority")},
                    "port": port,
                    "metrics_port": 0,
                    "data": "data",
                    "database": url,
                    "spool": str(place.root / "spool"),
                    "lease_seconds": LEASE_SECONDS,
                },
            )
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.names = (COORDINATOR, "standby")

    def start(self, number):
        name, home = self.names[number], self.homes[number]
        self.federation.parties.start(
            name, home / "log.jsonl", "fedward-coordinator", "serve", "-c", home / "coordinator.yaml", threads=1
        )

    def events(self, number, name):
        lines = (self.homes[number] / "log.jsonl").read_text().splitlines()
        return [one for one in map(json.loads, lines) if one["event"] == name]

    def kill_active(self):
        """Kill the one that serves, start it again at once, and return how long nobody served."""
        epochs = [max((one["epoch"] for one in self.events(number, "serving")), default=0) for number in (0, 1)]
        active = epochs.index(max(epochs))
        process = self.federation.processes[self.names[active]]
        process.send_signal(signal.SIGKILL)
        process.wait()
        began = time.monotonic()
        while not self.events(1 - active, "serving") or self.events(1 - active, "serving")[-1]["epoch"] < max(epochs):
            assert time.monotonic() - began < SECONDS
            time.sleep(0.05)
        took = time.monotonic() - began
        self.start(active)
        return took

    def status(self):
        """The study's status, over a connection that is kept for as long as it works."""
        try:
            if self._author is None:
                self._author = CoordinatorClient(OperatorConfig.load(self.federation.place.author_file))
            return self._author.status(self.federation.study.digest)
        except OperatorError:
            self.close()
            return None

    def close(self):
        if self._author is not None:
            self._author.close()
        self._author = None


def test_a_study_survives_the_death_of_its_coordinator_in_every_phase(tmp_path):
    study = write_yaml(
        tmp_path / "study.yaml",
        study_document(
            personal=None,
            max_attempts=9,
            heads={"pooled_rounds": 1, "domain_rounds": 1, "pooled_noise": 8.0, "domain_noise": 8.0},
        ),
    )
    federation = Federation(
        tmp_path / "federation", study, write_sites(tmp_path / "data"), yaml.safe_dump(policy_document())
    )
    prepare(federation)
    killed, gaps = {}, []
    with database_url() as url:
        pair = Pair(federation, url)
        try:
            pair.start(0)
            federation.parties.await_event(COORDINATOR, pair.homes[0] / "log.jsonl", "serving")
            pair.start(1)
            federation.parties.await_event("standby", pair.homes[1] / "log.jsonl", "standing by")
            federation.port = pair.ports[0]
            federation.configure()
            for file in (*map(federation.config, SILOS), federation.place.author_file):
                document = yaml.safe_load(file.read_text()) if file.exists() else {}
                given = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
                write_yaml(file, {**given, **document, "coordinator": pair.addresses})
            for silo in SILOS:
                federation.start_silo(silo)
            for silo in SILOS:
                federation.await_ready(silo)
            federation.begin()
            end = time.monotonic() + SECONDS
            for _ in itertools.count():
                assert time.monotonic() < end, (killed, pair.status())
                status = pair.status()
                if status is None:
                    continue
                if status.state != "running":
                    break
                if status.phase not in killed:
                    gaps.append(pair.kill_active())
                    killed[status.phase] = status.round
            assert status.state == "finished", status.why
            federation.wait_for_silos()
        finally:
            pair.close()
            federation.stop()
    assert set(killed) >= PHASES, killed
    assert len(killed) >= MET, killed
    assert max(gaps) < 30, "the takeover that is wanted, from the death on"
    models = {(federation.state(silo) / "model-2.safetensors").read_bytes() for silo in SILOS}
    assert len(models) == 1
    for number in (0, 1):
        assert not [one for one in map(json.loads, (pair.homes[number] / "log.jsonl").open()) if "exception" in one]
