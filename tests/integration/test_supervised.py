"""Two data sets of one institution under one command: one of its agents is killed, comes back, the study finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.processes import script
from support.party_federation import SECONDS
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml

pytestmark = [pytest.mark.slow, pytest.mark.as_installed]
TOGETHER = ("north", "south")
BOTH = "both"


def said(federation, event, **fields):
    """What the log of both agents and their supervisor says."""
    lines = federation.log(BOTH).read_text().splitlines() if federation.log(BOTH).exists() else []
    found = [json.loads(line) for line in lines if line[:1] == "{"]
    return [one for one in found if one["event"] == event and fields.items() <= one.items()]


def wait_for(federation, count, event, **fields):
    end = time.monotonic() + SECONDS
    while len(said(federation, event, **fields)) < count:
        assert time.monotonic() < end, federation.log(BOTH).read_text()[-3000:]
        time.sleep(0.05)
    return said(federation, event, **fields)


def follow(federation, until):
    end = time.monotonic() + SECONDS
    with federation.author() as author:
        while time.monotonic() < end:
            status = author.status(federation.study.digest)
            if until(status):
                return status
            time.sleep(0.05)
    pytest.fail(federation.log(BOTH).read_text()[-3000:])


def test_a_study_finishes_with_two_silos_of_one_command_although_one_is_killed(tmp_path):
    study = write_yaml(tmp_path / "study.yaml", study_document(personal=None))
    policy = yaml.safe_dump(policy_document())
    federation = Federation(tmp_path / "federation", study, write_sites(tmp_path / "data"), policy)
    prepare(federation)
    configs = {silo: str(federation.config(silo)) for silo in TOGETHER}
    try:
        federation.start_coordinator()
        federation.configure()
        federation.place.party(BOTH).mkdir()
        words = [word for config in configs.values() for word in ("-c", config)]
        federation.parties.start(BOTH, federation.log(BOTH), "fedward-silo", "run", *words, threads=1)
        federation.start_silo("west")
        wait_for(federation, 2, "joined")
        federation.begin()
        follow(federation, lambda status: status.round >= 1)
        (first,) = wait_for(federation, 1, "silo started", config=configs["south"])
        os.kill(first["pid"], signal.SIGKILL)
        (ended,) = wait_for(federation, 1, "silo ended")
        assert (ended["config"], ended["code"]) == (configs["south"], -signal.SIGKILL)
        wait_for(federation, 2, "silo started", config=configs["south"])
        status = follow(federation, lambda status: status.state in ("finished", "ended", "aborted"))
        assert status.state == "finished", status.why
        wait_for(federation, 2, "study over")
        pids = [one["pid"] for one in said(federation, "silo started")][-2:]
        supervisor = federation.processes[BOTH]
        supervisor.terminate()
        assert supervisor.wait(120) == 0
        assert len(said(federation, "agent stops")) == 2, "each ended as if it had been told itself"
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    finally:
        federation.stop()
    models = {(federation.state(silo) / "model-3.safetensors").read_bytes() for silo in SILOS}
    assert len(models) == 1
    assert {one["config"] for one in said(federation, "agent starts")} == set(configs.values())
    for silo in SILOS:
        command = [script("fedward-silo"), "ledger", "show", "--format", "json", "-c", federation.config(silo)]
        done = subprocess.run(command, capture_output=True, check=True)
        debits = [one for one in json.loads(done.stdout)["entries"] if one["kind"] == "debit"]
        charged = [(one["round"], tensor) for one in debits for tensor in one["costs"]]
        assert len(charged) == len(set(charged)), "the one that was killed is not charged again"
