"""A real datagram socket stands in for systemd."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from common.systemd import StatusLine, notified


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path, monkeypatch):
    name = str(tmp_path / "notify") if request.param == "path" else f"@fedward-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def said(manager):
    found = []
    while True:
        try:
            found.append(manager.recv(100).decode())
        except BlockingIOError:
            return found


def test_a_program_is_ready_lives_and_stops(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    heard = []
    with notified():
        while heard.count("WATCHDOG=1") < 3:
            heard += said(manager)
            time.sleep(0.001)
    heard += said(manager)
    assert (heard[0], "STOPPING=1" in heard[-2:]) == ("READY=1", True)
    assert set(heard) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}


def test_the_line_that_people_see_is_sent_if_it_changes(manager):
    line = StatusLine()
    for text in ("certificate until May", "certificate until May", "certificate until June"):
        line.tell(text)
    assert said(manager) == ["STATUS=certificate until May", "STATUS=certificate until June"]


def test_a_program_that_stands_still_gives_no_sign_of_life(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000")
    asked = []
    with notified(lambda: bool(asked.append(None))):
        while len(asked) < 3:
            time.sleep(0.001)
    assert said(manager) == ["READY=1", "STOPPING=1"]


def watchdogs():
    return [thread for thread in threading.enumerate() if thread.name == "watchdog"]


def test_the_sign_of_life_ends_with_the_program_and_never_holds_it_up(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    with notified():
        (thread,) = watchdogs()
        assert thread.daemon
    assert watchdogs() == []
    assert said(manager) == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"WATCHDOG_USEC": "3000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "3000", "WATCHDOG_PID": f"{2**31}"},
        {"WATCHDOG_USEC": "-3000"},
        {"WATCHDOG_USEC": "soon"},
    ],
)
def test_without_a_watchdog_no_sign_of_life_is_sent(manager, monkeypatch, asked):
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    with notified():
        time.sleep(0.01)
    assert said(manager) == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("place", ["", "relative", "/no/such/socket"])
def test_nobody_who_listens_is_no_fault(monkeypatch, place):
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    with notified():
        pass


def test_a_service_manager_that_does_not_read_holds_up_nobody(manager, monkeypatch):
    monkeypatch.setattr("common.systemd._WAIT_SECONDS", 0.01)
    line = StatusLine()
    most = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 2
    for number in range(most):
        line.tell(str(number))
    heard = said(manager)
    assert heard == [f"STATUS={number}" for number in range(len(heard))]
    assert 0 < len(heard) < most, "what finds no room is dropped"
    line.tell("read again")
    assert said(manager) == ["STATUS=read again"]
