"""`fedward-authority serve`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import structlog
import typer

from crypto.errors import CryptoError, EnrolmentError
from crypto.pki.authority.asking import diagnosed, passphrase
from crypto.pki.authority.issuing import IssuingAuthority

log = structlog.get_logger()
_DAY_SECONDS = 86_400.0


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of the issuing authority.")],
    host: Annotated[list[str], typer.Option(help="DNS name under which parties reach it; repeatable.")],
    listen: Annotated[str, typer.Option(help="Address and port to listen on.")] = "127.0.0.1:8443",
) -> None:
    """Certify and renew online, and hand out the lists, until stopped. Never on the coordinator's machine."""
    from crypto.pki.authority.service.server import Service  # noqa: PLC0415  # a silo has no cheroot
    from crypto.pki.authority.timestamping import TimestampingAuthority  # noqa: PLC0415  # nor asn1crypto

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
    with diagnosed():
        address, colon, port = listen.rpartition(":")
        if not colon or not port.isdecimal():
            msg = "--listen is written address:port"
            raise EnrolmentError(msg)
        given = passphrase(confirm=False)
        authority = IssuingAuthority.load(folder, passphrase=given)
        stamps = TimestampingAuthority.load(folder, passphrase=given)
        authority.lists_pem()
        try:
            service = Service(authority, address, int(port), host, stamps)
        except (OSError, OverflowError) as error:
            msg = f"{listen} cannot be served ({getattr(error, 'strerror', None) or error}); give another --listen"
            raise EnrolmentError(msg) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=service.close).start())
        stopped = threading.Event()
        stamping = stamps is not None
        log.info(
            "serving", version=version("fedward"), authority=authority.name, port=service.port, timestamps=stamping
        )
        threading.Thread(target=_warn, args=(authority, stopped), name="concerns", daemon=True).start()
        service.serve()
        stopped.set()
        log.info("stopped")


def _warn(authority: IssuingAuthority, stopped: threading.Event) -> None:
    """Tell the keeper daily what must be done soon."""
    while not stopped.is_set():
        try:
            for concern in authority.concerns():
                log.warning("look after the authority", why=concern)
        except CryptoError as fault:
            log.warning("look after the authority", why=str(fault))
        stopped.wait(_DAY_SECONDS)
