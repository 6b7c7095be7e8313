"""Several silos in one command: real processes, one of which dies again and again while the others go on."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest
import yaml
from structlog.testing import capture_logs

from silo_agent import logs, supervisor
from silo_agent.config import AgentConfig
from silo_agent.errors import SiloError
from silo_agent.supervisor import Supervisor, require_apart

STEADY = """
import os, sys, time
open(sys.argv[1], "a").write(f"{os.getpid()} {os.environ[sys.argv[2]]}\\n")
time.sleep(600)
"""
DYING = "import sys; open(sys.argv[1], 'a').write('x\\n'); sys.exit(3)"


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_one_that_dies_is_started_again_and_the_others_do_not_notice(tmp_path):
    steady, dying, stop = tmp_path / "steady", tmp_path / "dying", threading.Event()

    def command(path):
        return (sys.executable, "-c", STEADY if path == steady else DYING, str(path), logs.SILO_VARIABLE)

    with capture_logs() as said:
        thread = threading.Thread(
            target=Supervisor([steady, dying], command=command, pauses=(0.01, 0.02)).run, args=(stop,)
        )
        thread.start()
        until = time.monotonic() + 300
        while len(lines(dying)) < 4 or not lines(steady):
            assert time.monotonic() < until
            time.sleep(0.05)
        (line,) = lines(steady)
        number, named = line.split()
        os.kill(int(number), 0)
        stop.set()
        thread.join(300)
    assert named == str(steady)
    with pytest.raises(ProcessLookupError):
        os.kill(int(number), 0)
    ended = [one for one in said if one["event"] == "silo ended"]
    assert {(one["config"], one["code"]) for one in ended} == {(str(dying), 3)}
    assert [one["again_in_seconds"] for one in ended[:3]] == [0.01, 0.02, 0.02]


def test_the_agents_command_is_this_programs():
    assert list(supervisor.agent("a.yaml"))[1:] == ["-P", "-m", "silo_agent.cli", "run", "-c", "a.yaml"]


def config(tmp_path, name, **changes):
    for file in (f"{name}.pem", f"{name}.key", f"{name}-policy.yaml", "authority.pem"):
        (tmp_path / file).touch()
    document = {
        "coordinator": "hub:1",
        "certificate": f"{name}.pem",
        "key": f"{name}.key",
        "authority": "authority.pem",
        "policy": f"{name}-policy.yaml",
        "state": f"{name}-state",
        "data": {},
    }
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**document, **changes}))
    return path


def test_what_belongs_to_one_silo_is_not_shared(tmp_path):
    def apart(*paths):
        require_apart({path: AgentConfig.load(path) for path in paths})

    lung, heart = config(tmp_path, "lung"), config(tmp_path, "heart")
    apart(lung, heart)
    (tmp_path / "linked").symlink_to("lung-state")
    with pytest.raises(SiloError, match=r"lung\.yaml and .*heart\.yaml have the same state"):
        apart(lung, config(tmp_path, "heart", state="x/../linked"))
    with pytest.raises(SiloError, match=r"the state of .*heart\.yaml lies in the state of .*lung\.yaml"):
        apart(lung, config(tmp_path, "heart", state="linked/heart"))
    both = {"state": "lung-state", "key": "lung.key", "metrics_port": 9444}
    with pytest.raises(SiloError) as refused:
        apart(config(tmp_path, "lung", metrics_port=9444), config(tmp_path, "heart", **both))
    for what in ("state", "key", "metrics_port"):
        assert f"lung.yaml and {tmp_path}/heart.yaml have the same {what}" in str(refused.value)
    assert "certificate" not in str(refused.value)
