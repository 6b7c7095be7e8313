"""Runs tests against a copy of the repository, so that a fault never stands in the working tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.mutants.zygote import PROFILE

ARGUMENTS: Final = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow or sampled")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)

SYSTEM: Final = ("/etc", "/opt", "/usr", "/var/lib")
"""Folders of this machine that no fault may change: an install script that lost its `--root` would install here."""
_NOBODY: Final = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost", "-c", "commit.gpgsign=false")


@dataclass(frozen=True)
class TestsRun:
    """How a run of tests ended."""

    outcome: str
    """`passed`, `failed` or `late`."""
    seconds: float
    failed: str
    """The first test that failed, if pytest named one."""


class Copy:
    """A copy of the working tree, and the process that runs tests in it. Use it as a context manager."""

    def __init__(self, tree: Path, place: Path) -> None:
        """Copy what git knows or would add. `place` must not exist."""
        self.root = place
        self._log = place.with_name(place.name + ".log")
        self._times = place.with_name("times.json")
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=tree,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            if (tree / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, place / name)
        # A release is made of what git tracks, and the scripts that install one are tested from it.
        for words in (["init", "-q"], ["add", "-A"], [*_NOBODY, "commit", "-q", "--no-verify", "-m", "a copy"]):
            subprocess.run(["git", *words], cwd=place, check=True)
        environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._zygote = subprocess.Popen(
            guarded([sys.executable, "-m", "bench.mutants.zygote"]),
            cwd=place,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zygote.kill()
        self._zygote.wait()

    def test(self, tests: Sequence[str], seconds: float) -> TestsRun:
        """Run these tests until the first fails, for at most so many seconds."""
        if self._zygote.stdin is None or self._zygote.stdout is None:
            msg = "the process that runs the tests has no pipes"
            raise RuntimeError(msg)
        arguments = [*ARGUMENTS, f"--hypothesis-profile={PROFILE}", *tests]
        wish = {"arguments": arguments, "seconds": seconds, "log": str(self._log), "times": str(self._times)}
        self._zygote.stdin.write(json.dumps(wish) + "\n")
        self._zygote.stdin.flush()
        said = json.loads(self._zygote.stdout.readline())
        outcome = {None: "late", 0: "passed"}.get(said["code"], "failed")
        failed = _FAILED.search(self.told()) if outcome == "failed" else None
        return TestsRun(outcome, said["seconds"], failed[1] if failed else "")

    def told(self) -> str:
        """What the last run printed."""
        return self._log.read_text("utf-8", "replace")

    def test_with(self, path: str, source: str, stages: Sequence[tuple[Sequence[str], float]]) -> list[TestsRun]:
        """Run these tests, each with its limit, while a file has this content, up to the first that do not pass."""
        file = self.root / path
        before = file.read_bytes()
        file.write_text(source, encoding="utf-8")
        runs = []
        try:
            for tests, seconds in stages:
                runs.append(self.test(tests, seconds))
                if runs[-1].outcome != "passed":
                    break
        finally:
            file.write_bytes(before)
        return runs


def guarded(command: Sequence[str]) -> list[str]:
    """The command with the system's folders (`SYSTEM`) read-only, for it and all that it starts (unshare(1)).

    Only root could change them; for every other user it is the command itself. Raises RuntimeError if this system lets
    root make no mount namespace.
    """
    if os.geteuid() != 0:
        return list(command)
    folders = [folder for folder in SYSTEM if Path(folder).is_dir()]
    mounts = " && ".join(f"mount --bind {name} {name} && mount -o remount,ro,bind {name}" for name in folders)
    apart = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        msg = "a fault may install on this machine, and root cannot make its folders read-only here; be another user"
        raise RuntimeError(msg)
    return [*apart, *command]
