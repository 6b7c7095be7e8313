"""The dry round, as `fedward dry-round` runs it: in processes of its own, on loopback, with made-up records.

The programs of a local federation are no part of the agent, so the agent calls their command. It is given the study's
document, the silo's name and the device, and no path of the hospital.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from common import durable
from silo_agent.cli.preflight.findings import Finding, Status
from silo_agent.cli.preflight.public_checks import CheckedSilo

_SPARE: Final = 120.0
"""Seconds beyond the limit that certificates, start and end of the parties may take."""


def dry_round(subject: CheckedSilo, limit: float) -> Finding:
    """Run the study's first rounds among throw-away parties on this machine."""
    with tempfile.TemporaryDirectory(prefix="fedward-preflight-") as name:
        study = Path(name) / "study.yaml"
        durable.write_over(study, subject.study.canonical())
        command = [sys.executable, "-P", "-m", "deploy.local", "dry-round", str(study), "--silo", subject.silo]
        command += ["--device", subject.settings.device, "--limit", str(limit)]
        code, said, failed = _run(command, limit + _SPARE)
    if code == 0:
        return Finding("dry round", Status.OK, said.strip())
    return Finding("dry round", Status.FAILS, failed.strip() or f"it ended with code {code}")


def _run(command: list[str], seconds: float) -> tuple[int, str, str]:
    """Run a command to its end. If it takes too long, or this program is interrupted, it is asked to end.

    It then ends the processes that it has started.
    """
    with subprocess.Popen(  # noqa: S603  # our own module
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            said, failed = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            said, failed = process.communicate()
            return 1, said, f"it was not done within {seconds:.0f} s"
        except BaseException:
            process.terminate()
            raise
    return process.returncode, said, failed
