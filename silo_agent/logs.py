"""Logs of the agent: JSON lines on stderr for the operator, and a training log for each study for the auditor.

Neither log holds anything private: no norm, loss, count of patients or weight. The training log has one line for every
mechanism that was really run, so that epsilon can be recomputed without the ledger.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

import structlog

from policies.plan.costs import Cost
from protos.messages import Place, Tensor


def configure() -> None:
    """Set up structured logs as JSON lines on stderr."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class TrainingLog:
    """`training.jsonl` of one study. It says what was drawn, when, and with which noise."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, place: Place, tensor: Tensor, ran: Cost) -> None:
        """Record that a mechanism has run. `ran` has its arguments; its tests measure that it draws such noise.

        There is one line for each draw that can be released. `place` names the charge. If a process was lost before it
        could store its draw, the new draw has the same line, and no second line is written.
        """
        line = {
            "study": place.study,
            "round": place.round,
            "attempt": place.attempt,
            "tensor": str(tensor),
            "cohort": ran.cohort,
            "sampling_rate": ran.sampling_rate,
            "noise_multiplier": ran.noise,
            "times": ran.count,
        }
        text = json.dumps(line, sort_keys=True) + "\n"
        written = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        if text in written.splitlines(keepends=True):
            return
        # End a line that was cut by a crash, so that the next entry begins on a new line.
        torn = "" if not written or written.endswith("\n") else "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(torn + text)
            file.flush()
            os.fsync(file.fileno())
