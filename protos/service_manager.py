"""What a program tells systemd that has started it: ready, alive, stopping (sd_notify(3)).

Without systemd (no NOTIFY_SOCKET in the environment) nothing is told. Nothing here raises: a service manager that does
not listen keeps no program from its work.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_READY: Final = "READY=1"
_STOPPING: Final = "STOPPING=1"
_ALIVE: Final = "WATCHDOG=1"


def tell(state: str) -> bool:
    """Tell the service manager one thing. Return whether anybody was told."""
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name.startswith(("/", "@")):
        return False
    where = "\0" + name[1:] if name.startswith("@") else name
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect(where)
        out.sendall(state.encode())
        return True
    return False


def watchdog_seconds() -> float | None:
    """How often this process must tell that it is alive; None if nobody watches it."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or int(microseconds) == 0 or process not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6


def ready(alive: Callable[[], bool], stop: threading.Event) -> threading.Thread | None:
    """Tell that this process has started, and then that it is alive for as long as `alive` says so.

    The telling thread ends with `stop`. Once `alive` is false nothing is told any more, and systemd restarts the
    service. Returns None if nobody watches.
    """
    tell(_READY)
    seconds = watchdog_seconds()
    if seconds is None:
        return None

    def beat() -> None:
        while alive():
            tell(_ALIVE)
            if stop.wait(seconds / 3):
                tell(_STOPPING)
                return

    thread = threading.Thread(target=beat, name="watchdog", daemon=True)
    thread.start()
    return thread
