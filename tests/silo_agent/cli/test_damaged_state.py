"""An agent's state folder that is not as it was left, at the start of a real process: one sentence, exit code 1."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from silo_agent.storage.folders import StateFolder, StudyFolder
from support.certificates import load
from support.local_federation import write_patients
from support.small_cohort import policy_document, write_yaml
from support.used_state import MISHAPS, STUDY, used

ROOT = Path(__file__).parents[3]
CODE = "from silo_agent.cli.main import main; main()"
SECONDS = 120
SAID = {
    ("state.sqlite3", "damaged"): "state.sqlite3 is damaged, or cannot be used",
    ("state.sqlite3", "gone"): "state.sqlite3 is gone, but the ledger has 1 charges",
    ("state.sqlite3", "foreign"): "state.sqlite3 belongs to another state folder than secret.sealed",
    ("secret.sealed", "cut"): "secret.sealed was sealed by another key, or was changed",
    ("secret.sealed", "gone"): "secret.sealed is gone",
    ("withdrawn.sealed", "damaged"): "withdrawn.sealed in the state folder was sealed by another key, or was changed",
    ("withdrawn.sealed", "gone"): "withdrawn.sealed is gone: 2 people had withdrawn, and 0 are on the list",
    ("withdrawn.sealed", "older"): "withdrawn.sealed is older than it was: 2 people had withdrawn, and 1 are on the",
    ("ledger.sqlite3", "damaged"): "ledger.sqlite3: the ledger's file is damaged",
    ("ledger.sqlite3", "cut"): "ledger.sqlite3: the ledger's file is damaged",
    ("ledger.sqlite3", "empty"): "ledger.sqlite3: the ledger's file is damaged",
    ("ledger.sqlite3", "gone"): "ledger.sqlite3",
}
"""A sentence for each file and mishap, of those that `tests/silo_agent/storage/test_opening.py` does not start."""
QUICK = {("state.sqlite3", "gone")}
"""A process takes seconds to start. The others are slow tests."""


@pytest.fixture(scope="module")
def left(tmp_path_factory, homes):
    """A hospital whose agent has charged, and the older files of its state folder."""
    folder = tmp_path_factory.mktemp("hospital")
    write_yaml(folder / "policy.yaml", policy_document("north-ward"))
    write_patients(folder / "north.csv", np.random.default_rng(1), np.eye(2), patients=20)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", "policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv"}}
    write_yaml(folder / "agent.yaml", {**document, **credential})
    older = used(folder / "state", 1, load(homes["north"]))
    return folder, older


@pytest.fixture
def hospital(left, tmp_path):
    shutil.copytree(left[0], tmp_path / "hospital")
    return tmp_path / "hospital", left[1]


def agent(folder):
    return [sys.executable, "-c", CODE, "run", "-c", str(folder / "agent.yaml")]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


CASES = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in SAID]


@pytest.mark.parametrize(("name", "mishap"), CASES)
def test_the_agent_ends_with_exit_code_1_and_one_sentence_and_makes_nothing_anew(hospital, name, mishap):
    folder, older = hospital
    state = folder / "state"
    MISHAPS[mishap](state, state / name, older)
    files = StateFolder(state)
    mine = [files.database, files.secret, files.withdrawn, files.ledger]
    before = {path: path.read_bytes() for path in mine if path.exists()}
    done = subprocess.run(
        agent(folder), cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 1, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("fedward-silo: ")]
    assert SAID[name, mishap] in told
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in mine if path.exists()} == before


@pytest.mark.slow
@pytest.mark.parametrize("mishap", ["gone", "damaged"])
def test_an_agent_whose_name_of_its_keys_is_lost_says_so_and_runs(hospital, mishap):
    """The rounds that are under way begin again: that is for the coordinator to see, and no reason to end."""
    folder, older = hospital
    files = StateFolder(folder / "state")
    files.session.write_bytes(bytes(80))
    StudyFolder(files.study(STUDY).path).keys.parent.mkdir(parents=True, exist_ok=True)
    StudyFolder(files.study(STUDY).path).keys.write_bytes(bytes(80))
    MISHAPS[mishap](files.path, files.session, older)
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(agent(folder), cwd=folder, env=environment(), stdout=out, stderr=out)
    try:
        end = time.monotonic() + SECONDS
        while "a new name is made; the rounds that are under way begin again" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(SECONDS)
    assert code == 0, log.read_text()
    assert "session.sealed" in log.read_text()
    assert files.session.stat().st_size > 0
