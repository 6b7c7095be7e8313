"""What a program tells the service manager that started it: that it is ready, that it lives, that it ends.

Source: sd_notify(3), the protocol of systemd's `Type=notify` and `WatchdogSec=`. Without `NOTIFY_SOCKET` in the
environment, nobody asked to be told, and nothing is sent. The watchdog ends a process whose interpreter stands still.
It does not judge the work: a training may rightly take hours.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_MICROSECONDS: Final = 1e6
_PINGS: Final = 3
"""Signs of life in one span of the watchdog."""
_WAIT_SECONDS: Final = 1.0
"""How long a word waits for a service manager that does not read. Then it is dropped, and the program goes on."""


@contextmanager
def notified(lives: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Tell that the program is ready, at the end that it stops, and between them that it lives, if it is asked to.

    No sign of life is sent while `lives` is false.
    """
    done = threading.Event()
    _tell("READY=1")
    span = _watchdog_seconds()
    thread = threading.Thread(target=_live, args=(done, span / _PINGS, lives), name="watchdog", daemon=True)
    if span:
        thread.start()
    try:
        yield
    finally:
        _tell("STOPPING=1")
        done.set()
        if span:
            thread.join()


class StatusLine:
    """One line of `systemctl status`: what a person should see of the program. Sent if it changed."""

    def __init__(self) -> None:
        self._said = ""

    def tell(self, text: str) -> None:
        """Show this line from now on."""
        if text != self._said:
            self._said = text
            _tell(f"STATUS={text}")


def _live(done: threading.Event, pause: float, lives: Callable[[], bool]) -> None:
    while not done.wait(pause):
        if lives():
            _tell("WATCHDOG=1")


def _watchdog_seconds() -> float:
    """Seconds within which a sign of life is wanted; 0 if none is, or if another process was meant."""
    try:
        span = float(os.environ.get("WATCHDOG_USEC", "0")) / _MICROSECONDS
        meant = int(os.environ.get("WATCHDOG_PID", os.getpid()))
    except ValueError:
        return 0.0
    return span if span > 0.0 and meant == os.getpid() else 0.0


def _tell(state: str) -> None:
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    # A leading @ stands for the zero byte of an abstract name.
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
        telling.settimeout(_WAIT_SECONDS)
        telling.connect(address)
        telling.send(state.encode())
