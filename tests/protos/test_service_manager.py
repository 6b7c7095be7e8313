"""What systemd hears, and that nobody else is needed."""

import os
import socket
import threading

import pytest

from protos import service_manager


@pytest.fixture(params=["path", "abstract"])
def heard(request, tmp_path, monkeypatch):
    """A service manager's socket that gives up after ten seconds."""
    name = f"@fedward-{os.getpid()}-{id(request)}" if request.param == "abstract" else str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name[1:] if name.startswith("@") else name)
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def test_systemd_hears_what_it_is_told(heard):
    assert service_manager.tell("READY=1")
    assert heard.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", ["", "vsock:2:3", "/nobody/listens/here"])
def test_without_systemd_nothing_is_told(monkeypatch, name):
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    assert not service_manager.tell("READY=1")


def test_a_program_tells_that_it_is_alive_until_it_is_not(heard, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    answers = iter([True, True, False])
    thread = service_manager.ready(lambda: next(answers), threading.Event())
    thread.join(10)
    assert [heard.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
    heard.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard.recv(100)


@pytest.mark.parametrize(("microseconds", "process"), [("", ""), ("0", ""), ("x", ""), ("1000", "1")])
def test_nobody_is_told_who_does_not_watch_this_process(monkeypatch, microseconds, process):
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.setenv("WATCHDOG_PID", process)
    assert service_manager.ready(lambda: True, threading.Event()) is None


def test_a_stop_ends_the_telling(heard, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    stop = threading.Event()
    thread = service_manager.ready(lambda: True, stop)
    assert [heard.recv(100), heard.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
    stop.set()
    thread.join(10)
    assert heard.recv(100) == b"STOPPING=1"
