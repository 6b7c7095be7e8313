"""Child processes: what they print, what they complain of, and that each is ended by whoever started it."""

import sys
import time

import pytest

from deploy.local import processes
from deploy.local.processes import FederationError, Parties, log_tail, run, script


@pytest.fixture
def python(monkeypatch):
    """Every program is this interpreter; nothing bounds its threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(processes, "script", lambda _: sys.executable)


@pytest.fixture
def parties():
    made = Parties()
    yield made
    made.stop()


def test_a_script_is_that_of_the_environment_that_runs():
    assert script("fedward-silo").startswith(sys.prefix)


def test_a_command_is_run_to_its_end_with_its_own_environment(python):
    assert run("any", "-c", "import os; print(os.environ['WORD'])", env={"WORD": "heard"}) == "heard\n"


def test_a_command_that_fails_says_what_it_complained_of(python):
    with pytest.raises(FederationError, match=r"any -c .* ended with code 1:\nno such silo"):
        run("any", "-c", "raise SystemExit('no such silo')")


def test_a_party_is_awaited_by_what_it_logs_and_ended_by_whoever_started_it(python, parties, tmp_path):
    says = 'import time; print("no JSON"); print(\'{"event": "serving", "port": 7}\'); time.sleep(60)'
    parties.start("hub", tmp_path / "log", "any", "-c", says, threads=1)
    process = parties.processes["hub"]
    assert parties.await_event("hub", tmp_path / "log", "serving")["port"] == 7
    parties.check()
    parties.stop()
    assert process.poll() is not None
    assert parties.processes == {}


@pytest.mark.parametrize(("threads", "word"), [(3, "3"), (None, "None")])
def test_a_party_has_the_threads_that_it_is_given(python, parties, tmp_path, threads, word):
    says = "import os; print(os.environ.get('OMP_NUM_THREADS'))"
    parties.start("north", tmp_path / "log", "any", "-c", says, threads=threads)
    parties.wait("north", 60)
    assert log_tail(tmp_path / "log") == word


def test_a_party_that_failed_is_named_with_the_end_of_its_log(python, parties, tmp_path):
    parties.start("north", tmp_path / "log", "any", "-c", "raise SystemExit('the ledger is locked')", threads=None)
    parties.wait("north", 60)
    with pytest.raises(FederationError, match="north ended with code 1:\nthe ledger is locked"):
        parties.check()
    with pytest.raises(FederationError, match="north ended with code 1"):
        parties.await_event("north", tmp_path / "log", "agent starts")


def test_a_party_that_does_not_end_or_does_not_start_is_named(python, parties, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "START_SECONDS", 0.2)
    parties.start("north", tmp_path / "log", "any", "-c", "import time; time.sleep(60)", threads=1)
    with pytest.raises(FederationError, match=r"north has not ended 0\.1 s after the study"):
        parties.wait("north", 0.1)
    with pytest.raises(FederationError, match="north did not start within"):
        parties.await_event("north", tmp_path / "log", "agent starts")


def test_a_party_that_does_not_end_when_asked_is_killed(python, parties, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.2)
    says = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(\'{"event": "deaf"}\'); '
    parties.start("north", tmp_path / "log", "any", "-c", says + "time.sleep(60)", threads=1)
    parties.await_event("north", tmp_path / "log", "deaf")
    process, began = parties.processes["north"], time.monotonic()
    parties.stop()
    assert process.returncode == -9
    assert time.monotonic() - began < 30
