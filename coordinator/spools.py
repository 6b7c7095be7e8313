"""Opens the spool that a configuration names: a folder, or a folder with a URL behind it."""

from __future__ import annotations

from coordinator.config import CoordinatorConfig
from coordinator.storage.spool import Spool
from coordinator.storage.words import SPOOL_FILE, word_in


def spool_of(config: CoordinatorConfig, epoch: int) -> Spool:
    """Open the spool. `epoch` is that of the lease. Raises `SpoolError`, `SpoolAwayError`, OSError."""
    if config.spool_url is None:
        return Spool(config.spool_folder, epoch)
    from coordinator.storage.mirrored_spool import MirroredSpool, SpoolObjects

    return MirroredSpool(config.spool_folder, epoch, SpoolObjects(config.spool_url))


def spool_word(config: CoordinatorConfig) -> str:
    """Return the word by which the database knows the spool. Raises `WordDamagedError`, and as `spool_of`."""
    if config.spool_url is None:
        return word_in(config.spool_folder / SPOOL_FILE)
    from coordinator.storage.mirrored_spool import SpoolObjects

    return SpoolObjects(config.spool_url).word()
