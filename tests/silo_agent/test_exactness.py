"""Every silo makes the same model of the same integers, whatever computes below; one that does not is set apart.

Equal sums do not give equal solutions (BLAS kernels differ in the last bits), so one silo solves and all adopt; what
each silo computes by itself must be the same bits everywhere.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from coordinator.config import CoordinatorConfig
from policies.plan.release import plan
from protos.messages import Tensor
from silo_agent.learning.releases.heads import HEAD_STEP, HEAD_TOLERANCE
from silo_agent.protocol.calls.client import AskedToStop, Client
from silo_agent.protocol.ledgers.witnessing import Witnessing
from support.databases import server_of
from support.epochs import fresh_epochs
from support.exact_path import walk, write
from support.local_federation import LocalFederation, write_patients
from support.local_silos import LocalSilo
from support.people import ops, signature
from support.studies import tiny_study
from support.unjudged import BelievingWitness

TESTS = Path(__file__).parent.parent
FIVE = ("east", "north", "polar", "south", "west")
SECONDS = 120.0
MACHINES = {
    "old": {
        "OPENBLAS_CORETYPE": "Prescott",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "OMP_NUM_THREADS": "1",
    },
    "middle": {
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "OMP_NUM_THREADS": "4",
    },
    "zen": {"OPENBLAS_CORETYPE": "Zen", "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "OMP_NUM_THREADS": "2"},
    "new": {
        "OPENBLAS_CORETYPE": "SkylakeX",
        "ATEN_CPU_CAPABILITY": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "OMP_NUM_THREADS": "2",
    },
}
"""Processors and threads as libraries may choose them."""
NEEDS = {"middle": {"AVX2", "AVX512"}, "zen": {"AVX2", "AVX512"}, "new": {"AVX512"}}
"""What PyTorch must see in the processor: OpenBLAS takes a kernel by name, and ends by SIGILL if it cannot run."""


def machines():
    """The settings that this processor can carry out."""
    own = torch.backends.cpu.get_cpu_capability()
    return {name: settings for name, settings in MACHINES.items() if own in NEEDS.get(name, {own})}


pytestmark = pytest.mark.slow


# --- the same bits on all machines ------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """A study of odd widths, above any vector register, with the sums of a whole run and its solutions."""
    folder = tmp_path_factory.mktemp("sums")
    study = tiny_study(
        model={"hidden": [67], "representation": 19},
        heads={"solver": "hierarchical", "pooled_rounds": 2, "domain_rounds": 2},
        encoder={"cmi": 0.01, "prior": "averaged", "sampling_rate": 0.5},
        publish=["accuracy", "patients"],
    )
    rng, slopes = np.random.default_rng(5), np.array([[4.0, -2.0], [-3.0, 2.0]])
    files = {name: write_patients(folder / f"{name}.csv", rng, slopes, patients=60) for name in study.silos}
    federation = LocalFederation.gather(study, files, folder).run()
    sums = {
        (number, tensor): np.sum(
            [federation.payloads[number, Tensor(tensor), silo] for silo in study.silos], axis=0, dtype=np.int64
        )
        for number in range(plan(study).last + 1)
        for tensor in plan(study).tensors(number)
    }
    here = walk(study, sums, {}, len(study.silos))
    solutions = {int(number): np.array(own, np.int64) for number, own in here["solutions"].items()}
    assert {model.digest for model in federation.models.values()} == {here["digests"]["5 metrics"][0]}
    return study, sums, solutions, here


@pytest.fixture(scope="module")
def elsewhere(opened, tmp_path_factory):
    """What the other machines make of the same sums and solutions."""
    study, sums, solutions, _ = opened
    file = write(tmp_path_factory.mktemp("walk") / "sums.json", study, sums, solutions, len(study.silos))

    def run(settings):
        given = {name: value for name, value in os.environ.items() if not name.startswith(("MKL", "OMP", "OPENBLAS"))}
        path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        command = [sys.executable, "-m", "support.exact_path", str(file)]
        environment = {**given, **settings, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(2) as pool:
        able = machines()
        return dict(zip(able, pool.map(run, able.values()), strict=True))


def test_the_machines_do_differ(elsewhere):
    """Else the tests below would compare one machine with itself."""
    below = [found["arithmetic"] for found in elsewhere.values()]
    assert {one["threads"] for one in below} == {int(one["OMP_NUM_THREADS"]) for one in machines().values()}
    if torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}:
        assert len({one["blas"] for one in below}) > 1, below
        assert len({one["torch"] for one in below}) > 1, below


def test_every_machine_makes_the_same_models_of_the_same_sums(opened, elsewhere):
    """The start, the adopted heads and the encoder's mean, in bits and in the keyed digest."""
    here = opened[3]["digests"]
    assert len({json.dumps(value) for value in here.values()}) == len(here), "every step changes a digest"
    for machine, found in elsewhere.items():
        assert found["digests"] == here, machine


def test_every_machine_accepts_what_another_has_solved(opened, elsewhere):
    """Own solutions lie on the public grid, within what `adopt` allows; they need not be the same."""
    study, sums, solutions, _ = opened
    slack = int(HEAD_TOLERANCE / HEAD_STEP)
    for found in elsewhere.values():
        for number, own in found["solutions"].items():
            difference = np.abs(np.array(own) - solutions[int(number)])
            assert difference.max() <= slack // 8, "far within the tolerance"
        theirs = {int(number): np.array(own, np.int64) for number, own in found["solutions"].items()}
        assert walk(study, sums, theirs, len(study.silos))["solutions"].keys() == found["solutions"].keys()


def test_every_machine_signs_the_same_figures(opened, elsewhere):
    assert {found["published"] for found in elsewhere.values()} == {opened[3]["published"]}
    assert '"metric":"accuracy"' in opened[3]["published"].replace(" ", "")


# --- a silo that diverges ---------------------------------------------------------------------------------------------
class Hub:
    """A real coordinator with agents that call it over TLS, each on a thread of its own."""

    def __init__(self, study, server, authority, enrolled, folder):
        self.authority = authority
        self.study, self.server, self.enrolled, self.folder = study, server, enrolled, folder
        self.agents, self.stop, self.errors, self.witnesses = {}, threading.Event(), [], []
        self.silos = {name: LocalSilo(folder / name, enrolled(name), self, min_silos=3) for name in study.silos}

    def connect(self, silo):
        address = f"127.0.0.1:{self.server.port}"
        client = Client([address], self.enrolled(silo), "0" * 32, self.stop, lambda _: None, epochs=fresh_epochs())
        self.witnesses.append(Witnessing(client, BelievingWitness(self.folder / silo, self.enrolled(silo)), self.stop))
        return client

    def run(self):
        """The whole study; returns how it stands then."""
        self.server.desk.create(self.study.canonical(), ops("create"), signature(self.authority, self.study))
        self.server.desk.act(self.study.digest, ops("start"))
        threads = [threading.Thread(target=self._run, args=(agent,)) for agent in self.agents.values()]
        for thread in (*self.witnesses, *threads):
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        self.stop.set()
        for thread in self.witnesses:
            thread.join()
        assert not self.errors
        return self.server.engine.status(self.study.digest)

    def _run(self, agent):
        try:
            agent.run(self.stop, until_finished=True)
        except AskedToStop:
            pass
        except BaseException as error:
            self.errors.append(error)
            raise

    def lost(self):
        """By phase, how many silos a round went on without."""
        families = [f for f in self.server.metrics.registry.collect() if f.name == "fedward_coordinator_lost"]
        return {s.labels["phase"]: s.value for f in families for s in f.samples if s.name.endswith("_total")}

    def close(self):
        self.stop.set()
        for silo in self.silos.values():
            silo.client.close()
            silo.die()


@pytest.fixture
def hub(authority, enrolled, quick_path):
    home = authority.credential("coordinator", quick_path.name)
    files = {name: home / f"{name}.pem" for name in ("certificate", "key", "authority")}
    server = server_of(CoordinatorConfig(port=0, metrics_port=0, data=quick_path / "hub", **files))
    server.start()
    heads = {"pooled_rounds": 2, "domain_rounds": 1}
    made = Hub(tiny_study(silos=list(FIVE), min_silos=4, heads=heads), server, authority, enrolled, quick_path)
    yield made
    made.close()
    server.close()


def before_round(silo, number, act):
    """Do something to a silo between two rounds."""
    decide = silo.agent._decide

    def first(work, place):
        if place.round == number:
            act()
        decide(work, place)

    silo.agent._decide = first


def in_round(silo, number, name, divert):
    """Have a silo's learner make something else of a round's sum than the others."""
    begin = silo.agent._begin

    def begun(digest):
        running = begin(digest)
        make = getattr(running.learner, name)

        def made(*arguments):
            model = make(*arguments)
            return divert(model) if running.turn.place.round == number else model

        setattr(running.learner, name, made)
        return running

    silo.agent._begin = begun


def one_bit(path):
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def finished_alike(hub, status):
    """In the first attempts, with one model, which all hold in the same bits."""
    assert status.state == "finished", status.why
    assert {time.attempt for time in status.times} == {1}
    last = hub.study.rounds
    for suffix in (".safetensors", ".digest"):
        assert len({silo.model(last).with_suffix(suffix).read_bytes() for silo in hub.silos.values()}) == 1
    for silo in hub.silos.values():
        assert len(silo.charges) == len(set(silo.charges))


def caught_up(status):
    return [time.round for time in status.times if time.phase == "catch_up"]


def unreadable(path):
    path.write_bytes(b"no model")


def without_digest(path):
    path.with_suffix(".digest").unlink()


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "damage",
    [one_bit, *(pytest.param(damage, marks=SLOW) for damage in (Path.unlink, unreadable, without_digest))],
)
def test_a_model_that_was_changed_on_the_disk_is_noticed_and_taken_from_a_peer(hub, damage):
    south = hub.silos["south"]
    before_round(south, 2, lambda: damage(south.model(1)))
    with capture_logs() as logs:
        status = hub.run()
    finished_alike(hub, status)
    assert caught_up(status) == [2]
    assert [entry["round"] for entry in logs if "not the one that was kept" in entry["event"]] == [1]
    assert hub.lost() == {}


def other_heads(model):
    return model.with_heads(model.heads + HEAD_STEP, model.round)


def other_encoder(opened):
    """Of the encoder's sum alone: that of the heads changes no model yet."""
    if opened.unsolved is not None:
        return opened
    encoder = np.nextafter(opened.model.encoder, np.float32(9))
    return replace(opened, model=replace(opened.model, encoder=encoder))


@pytest.mark.parametrize(
    ("name", "divert", "phase"),
    [pytest.param("adopt", other_heads, "adopt", marks=SLOW), ("open", other_encoder, "open")],
)
def test_a_silo_that_makes_another_model_of_a_sum_is_set_apart_and_catches_up(hub, name, divert, phase):
    """By one step of the grid, or the last bit: its digest is not most's, and the others go on at once."""
    in_round(hub.silos["south"], 1, name, divert)
    with capture_logs() as logs:
        status = hub.run()
    finished_alike(hub, status)
    assert hub.lost() == {phase: 1}
    (aside,) = [entry for entry in logs if entry["event"] == "silos set aside"]
    assert (aside["silos"], aside["round"]) == (("south",), 1)
    assert aside["why"] == f"south: another model than most silos after {phase}"
    assert caught_up(status) == [2]
