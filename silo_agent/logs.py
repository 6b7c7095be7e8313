"""Logs of the agent: JSON lines on stderr for the operator, and for each study a training log for the auditor.

Neither log holds anything private: no norm, loss, weight or count of patients. The training log has one line for every
mechanism that really ran, so that epsilon can be recomputed without the ledger.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog

from common.durable import sync_file, sync_folder
from policies.plan.release import Release
from protos.core_log import CoreLine
from protos.messages import Place

SILO_VARIABLE = "FEDWARD_LOG_CONFIG"
"""Environment variable with the configuration's path, if one command runs several silos. Each line then has it."""


def configure(file: TextIO | None = None) -> None:
    """Set up structured logs as JSON lines on stderr, or in `file`."""
    config = os.environ.get(SILO_VARIABLE)
    if config:
        structlog.contextvars.bind_contextvars(config=config)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file or sys.stderr),
    )


def tell_core(line: CoreLine) -> None:
    """Log a line of gRPC's core. It speaks of connections alone."""
    getattr(structlog.get_logger(), line.level)("grpc", where=line.where, why=line.text)


class TrainingLog:
    """`training.jsonl` of one study. It says what was drawn, when, and with which noise."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, place: Place, ran: Release) -> None:
        """Write that a mechanism has run. `ran` is the release it was called with; tests measure the noise it draws.

        The log has one line for each draw that can be released. `place` names the charge. If a process was lost before
        it kept its draw, the draw is made again; its line is the same and is not written twice.
        """
        line = {
            "study": place.study,
            "round": place.round,
            "attempt": place.attempt,
            "tensor": ran.tensor,
            "cohort": ran.cohort,
            "sampling_rate": ran.sampling_rate,
            "noise_multiplier": ran.noise,
            "times": ran.count,
        }
        text = json.dumps(line, sort_keys=True) + "\n"
        written = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        if text in written.splitlines(keepends=True):
            return
        # If a crash cut the last line short, end it here, so that the new line stands on its own.
        torn = "" if not written or written.endswith("\n") else "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(torn + text)
            sync_file(file)
        if not written:
            sync_folder(self._path.parent)
