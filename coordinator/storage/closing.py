"""Closes the coordinator's own folders and files to others on its machine, and says so in the log."""

from __future__ import annotations

from pathlib import Path

import structlog

from common.private_files import private_file, private_folder

log = structlog.get_logger()


def close_to_others(folder: Path, *files: Path) -> None:
    """Make a folder, and files in it, for their owner alone; narrow what is there. Raises OSError."""
    opened = [folder] if private_folder(folder) else []
    for path in (*opened, *(path for path in files if private_file(path))):
        log.warning("was open to others, and is closed to them now", path=str(path))
