"""Opens the spool that a configuration names: a folder, or a folder with a URL behind it."""

from __future__ import annotations

from coordinator.config import CoordinatorConfig
from coordinator.storage.spool import Spool, SpoolError
from coordinator.storage.words import SPOOL_FILE, word_in


def spool_of(config: CoordinatorConfig, epoch: int) -> Spool:
    """Open the spool. `epoch` is that of the lease. Raises `SpoolError`, OSError."""
    if config.spool_url is None:
        return Spool(config.spool_folder, epoch)
    from coordinator.storage.mirrored_spool import MirroredSpool, SpoolAwayError, SpoolObjects

    try:
        return MirroredSpool(config.spool_folder, epoch, SpoolObjects(config.spool_url))
    except SpoolAwayError as error:  # at a start the operator reads it, and no silo does
        raise SpoolError(error.shortage.told) from None


def spool_word(config: CoordinatorConfig) -> str:
    """Return the word by which the database knows the spool. Raises `WordDamagedError`, and as `spool_of`."""
    if config.spool_url is None:
        return word_in(config.spool_folder / SPOOL_FILE)
    from coordinator.storage.mirrored_spool import SpoolAwayError, SpoolObjects

    try:
        return SpoolObjects(config.spool_url).word()
    except SpoolAwayError as error:
        raise SpoolError(error.shortage.told) from None
