"""A hospital behind a link of 1 Mbit/s that stalls and breaks, and one whose line is pulled out: real processes."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager

import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from support import moving_clock
from support.bad_link import bad_link
from support.moving_clock import LIMITS
from support.party_federation import SECONDS
from support.prepared import prepare
from support.small_cohort import policy_document, study_document, write_sites, write_yaml

pytestmark = pytest.mark.slow
FOUR = ("east", "north", "south", "west")
NEVER = 1 << 40


@contextmanager
def running(folder, link, silos, **changes):
    """A federation in which `south` reaches the coordinator through the link alone."""
    document = study_document(silos=list(silos), min_silos=3, personal=None, deadlines=LIMITS, **changes)
    policy = policy_document()
    policy["limits"]["encoder_weights"] = 1_000_000
    study, data = write_yaml(folder / "study.yaml", document), write_sites(folder / "data", silos=silos)
    federation = Federation(folder / "federation", study, data, yaml.safe_dump(policy))
    prepare(federation)
    try:
        federation.start_coordinator()
        federation.configure()
        config = federation.config("south")
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "proxy": link.url}))
        for silo in silos:
            federation.start_silo(silo)
        for silo in silos:
            federation.await_ready(silo)
        federation.begin()
        yield federation
    finally:
        federation.stop()


def follow(federation):
    """Every status until the study is over."""
    end = time.monotonic() + SECONDS
    with federation.author() as author:
        while time.monotonic() < end:
            status = author.status(federation.study.digest)
            yield status
            if status.state in ("finished", "ended", "aborted"):
                return
            time.sleep(0.1)
    pytest.fail(f"the study does not end: {status}\n{federation.log_tail('south')}")


def entries(federation, silo, event):
    lines = federation.log(silo).read_text().splitlines()
    return [entry for line in lines if line[:1] == "{" and (entry := json.loads(line))["event"] == event]


@pytest.mark.campaign
def test_an_agent_behind_a_slow_link_with_stalls_and_cuts_finishes(tmp_path):
    """Each encoder update takes longer to send than the link holds. It goes on where it broke off."""
    encoder = {**study_document()["encoder"], "sealing": "ckks"}
    model = {"hidden": [1024, 64], "representation": 4, "seed": 7}
    with (
        bad_link(1, stall_every=500_000, cut_every=800_000) as link,
        running(tmp_path, link, ("north", "south", "west"), encoder=encoder, model=model) as federation,
    ):
        *_, status = follow(federation)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
        models = {(federation.state(silo) / "model-3.safetensors").read_bytes() for silo in federation.data}
    assert len(models) == 1
    assert {time.attempt for time in status.times} == {1}, "nobody had to begin again"
    assert min(link.stalls, link.cuts) >= 2
    assert min(link.passed.values()) >= 2_000_000
    assert any(entry["offset"] > 0 for entry in entries(federation, "south", "upload goes on"))
    charged = [(one["round"], tensor) for one in entries(federation, "south", "charged") for tensor in one["tensors"]]
    assert len(charged) == len(set(charged)), "what was sent again was not drawn again"


def test_nobody_waits_longer_than_the_deadline_for_a_line_that_was_pulled_out(tmp_path, monkeypatch):
    """The coordinator's clock moves on by a time limit, each time when the others wait for that hospital alone."""
    for name, value in moving_clock.PRELUDE.items():
        monkeypatch.setenv(name, value)
    waited = []
    with (
        bad_link(2, stall_every=NEVER, cut_every=NEVER) as link,
        running(tmp_path, link, FOUR) as federation,
    ):
        for status in follow(federation):
            if status.round == 1 and status.phase == "gather":
                link.die()
            if link.dead.is_set() and status.waiting_for == ("south",):
                where = (status.round, status.attempt, status.phase)
                if where not in waited:
                    waited.append(where)
                    moving_clock.jump(federation.processes[COORDINATOR].pid)
        assert status.state == "finished", status.why
        assert federation.processes["south"].poll() is None, "it keeps trying"
    assert waited
    assert {time.attempt for time in status.times} == {1}
