"""Runs one coordinator: it stands by while another one of its database is active, and takes its turn after it.

Guarantees: a second coordinator on one database serves nothing, and says so. One that was frozen, and finds that
another has taken over, ends all calls and stands by again.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from common.systemd import StatusLine, notified
from coordinator.config import CoordinatorConfig
from coordinator.door.core_log import CoreLog
from coordinator.lease.holding import Lease
from coordinator.metrics import CoordinatorMetrics
from coordinator.server import RENEWAL_SECONDS, Server, serve_metrics
from coordinator.spools import spool_word
from coordinator.storage.alone import alone_in
from coordinator.storage.closing import close_to_others
from coordinator.storage.database import Database
from coordinator.storage.shortage import DatabaseShortError
from coordinator.storage.words import INSTANCE_FILE, word_in
from crypto.pki.joining import renewal
from crypto.pki.joining.renewal import Renewal
from protos.core_log import Diverted

log = structlog.get_logger()
LOOK_SECONDS: Final = 1.0
"""How often a coordinator that stands by looks at the lease."""
_TURN_SECONDS: Final = 0.2
"""How long it may go unnoticed that another coordinator has taken over, or that this one is to stop."""


def database_of(config: CoordinatorConfig) -> Database:
    """Open the database that a configuration names. Raises `StoreError`, OSError."""
    return Database(config.database) if config.database else Database.in_folder(config.data)


def lease_of(config: CoordinatorConfig) -> Lease:
    """Open the database and the spool that a configuration names. Raises `StoreError`, `WordDamagedError`, OSError.

    The caller holds the lock of the folder of data.
    """
    close_to_others(config.data)
    database = database_of(config)
    at = f"{socket.gethostname()}, port {config.port}"[:255]
    close_to_others(config.spool_folder)
    instance, spool = word_in(config.data / INSTANCE_FILE), spool_word(config)
    return Lease(database, instance, at, spool, seconds=config.lease_seconds)


def serve(config: CoordinatorConfig, lines: Diverted) -> None:
    """Serve, or stand by, until SIGTERM or SIGINT. `lines` has what gRPC's core says."""
    close_to_others(config.data)
    with alone_in(config.data):
        asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: asked.set())
        lease = lease_of(config)
        # Before the service manager hears that this one is ready: what is wrong with the configuration shows at once.
        server = _activated(config, lease, lines) if lease.attempt() else None
        with notified(lambda: server is None or server.engine.passes()):
            while True:
                if server is None:
                    if not _stands_by(config, lease, asked):
                        return
                    server = _activated(config, lease, lines)
                while not asked.wait(_TURN_SECONDS) and not lease.database.lost.is_set():
                    pass
                if lease.database.lost.is_set():
                    log.error("another coordinator has taken over; this one stands by from now on")
                server.close()
                if asked.is_set():
                    return
                # Whatever a call of the former turn still does, it does with connections that have no lease any more.
                server, lease = None, lease_of(config)


def _activated(config: CoordinatorConfig, lease: Lease, lines: Diverted) -> Server:
    server = Server(config, lease)
    lines.tell(CoreLog(server.metrics).tell)
    server.start()
    return server


def _stands_by(config: CoordinatorConfig, lease: Lease, asked: threading.Event) -> bool:
    """Wait for this coordinator's turn. Return whether it has come; else it is to stop."""
    said = ""
    with _standing(config) as status:
        while not asked.is_set():
            try:
                if lease.attempt():
                    return True
                row = lease.row()
                told = "" if row is None else f"stands by; active: {row.at}, epoch {row.epoch}"
            except DatabaseShortError as error:
                told = f"stands by; the lease cannot be seen: {error}"
            if told != said:
                said = told
                log.warning("standing by", why=told)
                status.tell(told)
            asked.wait(LOOK_SECONDS)
    return False


@contextmanager
def _standing(config: CoordinatorConfig) -> Iterator[StatusLine]:
    """Serve the metrics page and keep the certificate alive meanwhile, as an active coordinator does."""
    metrics, stop, status = CoordinatorMetrics(), threading.Event(), StatusLine()
    metrics.active.set(0)
    credential = renewal.load(config.files, config.authority_url, keeps=True)
    renewing = Renewal(
        credential,
        config.files,
        renewal.link_for(credential, config.authority_url),
        tell=lambda level, text: log.warning(text) if level == "warning" else log.info(text),
        on_times=metrics.tell_times,
    )
    thread = threading.Thread(target=renewing.run, args=(stop, RENEWAL_SECONDS), name="renewal", daemon=True)
    http, http_thread = serve_metrics(config, metrics)
    thread.start()
    try:
        yield status
    finally:
        stop.set()
        thread.join()
        http.shutdown()
        http.server_close()
        http_thread.join()
