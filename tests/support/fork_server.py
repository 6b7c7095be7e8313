"""Python programs that fork from one process, which has loaded their libraries: five to six seconds saved by each.

A program runs as `python SCRIPT ...` or `python -m MODULE ...` would: the same arguments, environment, folder and
files, a `__main__` of its own, an end by the interpreter's own rules. It is a child of the process that asked for it,
as with any other `Popen`: kill, wait and reading its memory work. Only what the libraries hold at import is shared.

The server forks before it has ever started a thread, a channel or a computation, so that nothing of them is copied.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRELOADED = (
    "coordinator.cli.main",
    "coordinator.server",
    "crypto.pki.authority.cli",
    "silo_agent.assembly",
    "silo_agent.cli.main",
    "silo_agent.learning.learner",
    "silo_agent.learning.dpsgd.examination",
    # What torch and Opacus load when the first gradient by record is taken.
    "torch._dynamo",
    "torch._functorch.deprecated",
    "torch.nn.utils._expanded_weights",
    "torch.onnx.operators",
    "torch.utils._device",
)
TESTS = Path(__file__).parent.parent
_PR_SET_CHILD_SUBREAPER = 36
_MESSAGE = 1 << 20
_SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Program:
    """What to run: `arguments` are the interpreter's, a script or -m and a module first."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str

    def run(self) -> None:
        """Become it; raises what it raises, SystemExit included."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream
        for prelude in self.environment.get("FEDWARD_TESTS_PRELUDE", "").split():
            importlib.import_module(prelude).install()
        first, *others = self.arguments
        if first == "-m":
            module, *others = others
            sys.argv = [module, *others]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.argv = [first, *others]
            runpy.run_path(first, run_name="__main__")


class ForkedPopen(subprocess.Popen[Any]):
    """A `Popen` whose Python programs of this environment come from the fork server; all others start as always."""

    def _execute_child(self, args: Any, *rest: Any) -> None:
        arguments = _program(args)
        if arguments is None:
            super()._execute_child(args, *rest)  # type: ignore[misc]  # no public name
            return
        _executable, _preexec, _close, _pass, folder, environment, _startup, _flags, _shell, *pipes = rest
        files = pipes[:6]
        standard = [own if own != -1 else default for own, default in zip((pipes[0], pipes[3], pipes[5]), range(3))]  # noqa: B905
        environment = os.environ if environment is None else environment
        program = Program(arguments, dict(environment), os.fspath(folder or Path.cwd()))
        self.pid = server().start(program, standard)
        self._child_created = True
        self._close_pipe_fds(*files)  # type: ignore[attr-defined]  # no public name


def _program(args: Any) -> tuple[str, ...] | None:
    """The interpreter's arguments, where it is this environment's Python or one of its console scripts that runs."""
    command = [os.fspath(part) for part in args]
    if command[0] == sys.executable and command[1:2] == ["-m"]:
        return tuple(command[1:])
    if Path(command[0]).parent == Path(sys.executable).parent and Path(command[0]).name.startswith("fedward"):
        return tuple(command)
    return None


# --- this side ------------------------------------------------------------------------------------------------------
class _Server:
    """The process that forks; it ends when this one does."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the server leaves becomes this process's child
        self._guard = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE)
        search = os.pathsep.join([str(TESTS.parent), str(TESTS)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from support import fork_server; fork_server.serve({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **_SINGLE, "PYTHONPATH": search},
            )

    def start(self, program: Program, standard: list[int]) -> int:
        """Process id of the program, with these as its standard files."""
        with self._guard:
            socket.send_fds(self._socket, [pickle.dumps(program)], standard)
            return int(self._socket.recv(_MESSAGE))


@functools.cache
def server() -> _Server:
    """The one of this process; it has loaded everything when it answers first."""
    return _Server()


# --- its side -------------------------------------------------------------------------------------------------------
def serve(number: int) -> None:
    """Fork what is asked for until nobody is there to ask; returns in every program's process, once it has ended."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=number)
    while True:
        content, files, _, _ = socket.recv_fds(requests, _MESSAGE, 3)
        if not content:
            return
        pid = _fork_away()
        if pid == 0:
            break
        requests.send(str(pid).encode())
        for file in files:
            os.close(file)
    requests.close()
    for file, standard in zip(files, range(3), strict=True):
        os.dup2(file, standard)
    for file in files:
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pickle.loads(content).run()  # noqa: S301  # from our own parent


def _fork_away() -> int:
    """Fork a process that is not this one's child; its id, 0 in the process itself."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.close(writing)
            return 0
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        pid = int(pipe.read())
    os.waitpid(between, 0)
    return pid
