import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from silo_agent.cli.preflight import dry_round
from silo_agent.cli.preflight.findings import Finding, Status

SUBJECT = SimpleNamespace(
    study=SimpleNamespace(canonical=lambda: b"the study"), silo="north", settings=SimpleNamespace(device="cpu")
)
FLAGS = ["--silo", "north", "--device", "cpu", "--limit", "1.0"]


@pytest.mark.parametrize(
    ("ended", "status", "found"),
    [
        ((0, "two rounds\n", "a warning\n"), Status.OK, "two rounds"),
        ((1, "one round\n", "a party failed\n"), Status.FAILS, "a party failed"),
        ((-9, "one round\n", "\n"), Status.FAILS, "it ended with code -9"),
    ],
)
def test_the_commands_end_is_the_finding(monkeypatch, ended, status, found):
    def run(command, seconds):
        study = command[5]
        assert command == [sys.executable, "-P", "-m", "deploy.local", "dry-round", study, *FLAGS]
        assert (Path(study).read_bytes(), seconds) == (b"the study", 121.0)
        return ended

    monkeypatch.setattr(dry_round, "_run", run)
    assert dry_round.dry_round(SUBJECT, 1.0) == Finding("dry round", status, found)


def test_what_the_command_prints_and_its_code_come_back():
    code, said, failed = dry_round._run([sys.executable, "-c", "import sys; print('a'); sys.exit('b')"], 60)
    assert (code, said, failed) == (1, "a\n", "b\n")


def sleeper(ended):
    """A command that takes long, and says so if it is asked to end."""
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(ended)!r}).touch(), sys.exit(3)))\n"
        "time.sleep(60)"
    )
    return [sys.executable, "-c", program]


def test_a_command_that_takes_too_long_is_asked_to_end(tmp_path):
    code, _, failed = dry_round._run(sleeper(tmp_path / "ended"), 2.0)
    assert (code, failed) == (1, "it was not done within 2 s")
    assert (tmp_path / "ended").exists()


def test_a_command_is_asked_to_end_if_this_program_is_interrupted(tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2.0)
        with pytest.raises(KeyboardInterrupt):
            dry_round._run(sleeper(tmp_path / "ended"), 60.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    until = time.monotonic() + 30  # the command has gone on alone for less than a second
    while not (tmp_path / "ended").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert (tmp_path / "ended").exists()


def test_the_command_that_is_called_is_there_whatever_lies_in_the_working_folder(tmp_path, monkeypatch):
    """Without -P a file of the folder that a person works in would stand in for a module."""
    asked = []
    monkeypatch.setattr(dry_round, "_run", lambda command, _: (asked.append(command), (0, "", ""))[1])
    dry_round.dry_round(SUBJECT, 1.0)
    (tmp_path / "random.py").write_text("raise SystemExit('the file of the working folder ran')")
    command = [*asked[0][: asked[0].index("dry-round") + 1], "--help"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    for option in (b"--silo", b"--device", b"--limit"):
        assert option in done.stdout
