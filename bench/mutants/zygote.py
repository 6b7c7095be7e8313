"""A process that has loaded the libraries, and forks for every run of the tests.

It is started inside a copy of the repository and loads nothing of the repository itself, so every run reads the files
as they are then. It reads one JSON line for each run ({"arguments", "seconds", "log", "times"}) and writes one
({"code", "seconds"}); the code is null if the run took longer than its seconds and was killed. The tests of a file that
took least when all passed come first, and the files in the same order: the file `times` remembers it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from hypothesis import Phase, settings

LIBRARIES: Final = (
    "xdist.scheduler",
    "pytest_timeout",
    "hypothesis.stateful",
    "hypothesis.extra.numpy",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "dp_accounting.pld.privacy_loss_distribution",
    "pydantic",
    "yaml",
    "sqlalchemy",
    "structlog",
    "cryptography.x509",
    "cryptography.hazmat.primitives.ciphers.aead",
    "tenseal.sealapi",
    "torch",
    "opacus",
)
PROFILE: Final = "mutants"
MEMORY: Final = 12 << 30
"""Bytes of address space of a run: a fault may ask for memory without end."""


class Fastest:
    """A plugin of pytest that runs the fastest tests first, by the times of runs in which all passed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, float] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self._seen: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Sort. A file's tests stay together, because they may share what is made once for the file."""
        files: defaultdict[Path, float] = defaultdict(float)
        for item in items:
            files[item.path] += self._known.get(item.nodeid, 0.0)
        items.sort(key=lambda item: (files[item.path], str(item.path), self._known.get(item.nodeid, 0.0)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count how long a test took with all that was made for it."""
        self._seen[report.nodeid] += report.duration

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Remember the times."""
        if exitstatus == pytest.ExitCode.OK:
            held = self._path.with_suffix(f".{os.getpid()}")
            held.write_text(json.dumps(self._known | self._seen), encoding="utf-8")
            held.replace(self._path)


def main() -> None:
    """Load, and run what is asked for until the input ends."""
    sys.dont_write_bytecode = True
    for library in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    _register_profile()
    for line in sys.stdin:
        wish = json.loads(line)
        begun = time.monotonic()
        code = _run(wish["arguments"], wish["seconds"], wish["log"], wish["times"])
        print(json.dumps({"code": code, "seconds": time.monotonic() - begun}), flush=True)


def _register_profile() -> None:
    """Register the properties' draws as `make test` makes them, without the search for the smallest failure."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(PROFILE, deadline=None, derandomize=True, phases=phases)


def _run(arguments: list[str], seconds: float, log: str, times: str) -> int | None:
    child = os.fork()
    if not child:
        _test(arguments, log, times)
    code: int | None = None
    late = time.monotonic() + seconds
    while time.monotonic() < late:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what the tests started and left
    if code is None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    return code


def _test(arguments: list[str], log: str, times: str) -> None:
    """In the child: run pytest and end."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, told), (2, told)):
        os.dup2(source, stream)
    code = 1
    try:
        code = int(pytest.main(arguments, plugins=[Fastest(Path(times))]))
        sys.stdout.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
