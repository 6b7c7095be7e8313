"""The operator forgives a silo: the real command, a coordinator that is a process of its own, mutual TLS.

Four silos speak the protocol and send random bytes, which a coordinator cannot tell from sealed ones. The noise is
distributed, so an attempt ends at a silo that does not contribute; two such attempts set it aside.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from deploy.local.processes import script
from policies.documents.study import Study
from protos.messages import Tensor
from protos.status import MemberStatus
from protos.steps import Task
from support import moving_clock, party_process
from support.certificates import Authority, make_authority
from support.moving_clock import LIMITS
from support.party_federation import SECONDS
from support.silos import Caller, Scene
from support.small_cohort import write_yaml
from support.studies import tiny_study

FOUR = ("east", "north", "south", "west")
SILENT = "south"


def study() -> Study:
    privacy = {"mode": "distributed"}
    return tiny_study(name="forgiven", silos=list(FOUR), min_silos=3, deadlines=LIMITS, privacy=privacy)


@dataclass
class Hub:
    """A coordinator in a process of its own, whose clock moves on when a test says so."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        before = self._times_served()
        self.process = party_process.start("coordinator", self.folder, None)
        end = time.monotonic() + SECONDS
        while self._times_served() == before:
            assert time.monotonic() < end, (self.folder / "log.jsonl").read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def jump(self) -> None:
        moving_clock.jump(self.process.pid)

    def _times_served(self) -> int:
        log = self.folder / "log.jsonl"
        *lines, _ = log.read_text().split("\n") if log.exists() else [""]  # the last one may still be written
        return sum(line.startswith("{") and json.loads(line)["event"] == "serving" for line in lines)


class Far(Scene):
    """The scene at such a coordinator."""

    def __init__(self, hub: Hub, authority: Authority, of: Study, operator: Caller) -> None:
        super().__init__(SimpleNamespace(port=hub.port), authority, of, operator)  # type: ignore[arg-type]  # its port
        self.hub = hub

    def _jump(self) -> None:
        self.hub.jump()

    def member(self, name: str = SILENT) -> MemberStatus:
        return next(one for one in self.status().members if one.silo == name)

    def lose_attempts(self, count: int) -> None:
        """Have attempts at round 1 end at a silo that takes part and does not contribute."""
        for number in range(1, count + 1):
            self.play(lambda s, n=number: (s.round, s.attempt, s.phase) == (1, n, "gather"))
            self.play(lambda s, n=number: s.attempt > n, silent=(SILENT,))


@pytest.fixture
def authority(tmp_path) -> Authority:
    return make_authority(tmp_path / "consortium")


@pytest.fixture
def operator_folder(authority) -> Path:
    return authority.credential("operator", "ops")


@pytest.fixture
def scene(authority, operator_folder, tmp_path) -> Iterator[Far]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = authority.credential("coordinator", f"hub-{port}")
    pems = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    write_yaml(tmp_path / "hub" / "coordinator.yaml", {**pems, "port": port, "metrics_port": 0, "data": "data"})
    hub = Hub(tmp_path / "hub", port)
    hub.start()
    try:
        operator = Caller(port, operator_folder)
        made = Far(hub, authority, study(), operator)
        made.start()
        yield made
        made.close()
        operator.close()
    finally:
        hub.kill()


@pytest.fixture
def forgive(scene, operator_folder, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """Runs the command with a party's certificate; returns exit code, stdout, stderr."""

    def run(*arguments: str, folder: Path = operator_folder) -> tuple[int, str, str]:
        pems = {name: str(folder / f"{name}.pem") for name in ("certificate", "key", "authority")}
        file = tmp_path / "operator.yaml"
        file.write_text(yaml.safe_dump({"coordinator": f"127.0.0.1:{scene.hub.port}", **pems}))
        command = [script("fedward-coordinator"), "study", "forgive", *arguments, "-o", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.slow
def test_a_silo_that_was_set_aside_is_asked_again_once_the_operator_forgives_it(scene, forgive, operator_folder):
    scene.lose_attempts(2)
    cost = scene.member()
    assert (cost.set_aside, cost.lost_attempts) == (True, 2)
    assert cost.slow_seconds > 0
    assert "`fedward-coordinator study forgive` asks it again" in cost.why
    offered = scene.play(lambda s: (s.round, s.phase) == (2, "offer"))
    assert SILENT not in offered.waiting_for, "the third attempt was made without it, and so is the next round"
    assert scene.silos[SILENT].poll().task is Task.WAIT

    assert forgive("forgiven", SILENT) == (0, "", "")
    scene.hub.kill()
    scene.hub.start()
    operator = Caller(scene.hub.port, operator_folder)
    scene.reconnect(scene.hub.port, operator)
    forgiven = scene.member()
    assert (forgiven.set_aside, forgiven.lost_attempts, forgiven.slow_seconds, forgiven.why) == (False, 0, 0.0, "")
    assert SILENT in scene.status().waiting_for, "it is asked at once, and not with the next attempt"
    assert scene.silos[SILENT].poll().task is Task.DECIDE

    status = scene.play(lambda s: s.state == "finished")
    assert {time.attempt for time in status.times if time.round >= 2} == {1}
    heads = [one for one in status.uploads if one.tensor is Tensor.HEADS and one.kind == "ckks"]
    assert {one.silo for one in heads if (one.round, one.attempt) == (1, 3)} == set(FOUR) - {SILENT}
    assert {one.silo for one in heads if one.round == 2} == set(FOUR)
    operator.close()


@pytest.mark.slow
def test_what_cannot_be_forgiven_is_one_sentence_and_changes_nothing(scene, forgive, authority, tmp_path):
    scene.lose_attempts(2)
    before, of = scene.member(), scene.study.digest
    hub = authority.credential("coordinator", "other-hub")
    stranger = make_authority(tmp_path / "elsewhere").credential("operator", "ops")
    for said, sentence in (
        (forgive(of, "nobody"), "no silo nobody takes part in the study; those that do are east, north, south, west"),
        (forgive(of, "../south"), "forgive.silo: is not a name"),
        (
            forgive("nothing", SILENT),
            "0 studies match 'nothing'; give the whole name, or at least 12 digits of the digest",
        ),
        (forgive(of, SILENT, folder=scene.folders[SILENT]), "the certificate is for fedward://silo/south, but an "),
        (forgive(of, SILENT, folder=scene.folders["east"]), "the certificate is for fedward://silo/east, but an "),
        (forgive(of, SILENT, folder=hub), "a coordinator makes no calls; give the certificate of a silo or an "),
    ):
        assert_refused(said, sentence)
    code, out, err = forgive(of, SILENT, folder=stranger)
    assert (code, out, "check that authority.pem is the same" in err.splitlines()[-1]) == (1, "", True), err
    assert replace(scene.member(), last_seen=before.last_seen) == before, "nobody was forgiven"
    scene.abort("enough")
    assert_refused(forgive(of, SILENT), "the study is aborted; only in a study that goes on can a silo be forgiven")


def assert_refused(said: tuple[int, str, str], sentence: str) -> None:
    code, out, err = said
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert err.startswith("fedward-coordinator: ")
    assert sentence in err
