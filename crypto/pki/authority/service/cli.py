"""`fedward-authority serve`."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from crypto.errors import CryptoError, EnrolmentError
from crypto.pki.authority.asking import diagnosed, passphrase
from crypto.pki.authority.issuing import IssuingAuthority

if TYPE_CHECKING:
    from crypto.pki.authority.service.metrics import AuthorityMetrics

log = structlog.get_logger()
_DAY_SECONDS = 86_400.0
_LOOK_SECONDS = 60.0
"""How often `fedward_authority_concerns` is counted anew."""


def serve(
    folder: Annotated[Path, typer.Argument(help="Folder of the issuing authority.")],
    host: Annotated[list[str], typer.Option(help="DNS name under which parties reach it; repeatable.")],
    listen: Annotated[str, typer.Option(help="Address and port to listen on.")] = "127.0.0.1:8443",
    metrics: Annotated[str, typer.Option(help="Address and port of the metrics page; none if left out.")] = "",
) -> None:
    """Certify and renew online, and hand out the lists, until stopped. Never on the coordinator's machine."""
    from prometheus_client import start_http_server  # noqa: PLC0415  # nor does another command serve metrics

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
        address, port = _address("--listen", listen)
        page = _address("--metrics", metrics) if metrics else None
        given = passphrase(confirm=False)
        authority = IssuingAuthority.load(folder, passphrase=given)
        stamps = TimestampingAuthority.load(folder, passphrase=given)
        authority.lists_pem()
        try:
            service = Service(authority, address, port, host, stamps)
        except (OSError, OverflowError) as error:
            raise _unserved(listen, "--listen", error) from None
        told = service.metrics
        told.ends.set(authority.certificate.not_valid_after_utc.timestamp())
        try:
            shown = None if page is None else start_http_server(page[1], addr=page[0], registry=told.registry)[0]
        except (OSError, OverflowError) as error:
            service.close()
            raise _unserved(metrics, "--metrics", error) from None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=service.close).start())
        stopped = threading.Event()
        stamping = stamps is not None
        log.info(
            "serving",
            version=version("fedward"),
            authority=authority.name,
            port=service.port,
            metrics_port=shown and shown.server_port,
            timestamps=stamping,
        )
        threading.Thread(target=_warn, args=(authority, told, stopped), name="concerns", daemon=True).start()
        service.serve()
        stopped.set()
        log.info("stopped")


def _address(option: str, text: str) -> tuple[str, int]:
    """Address and port that an option names. Raises `EnrolmentError`."""
    address, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal():
        msg = f"{option} is written address:port"
        raise EnrolmentError(msg)
    return address, int(port)


def _unserved(text: str, option: str, error: Exception) -> EnrolmentError:
    why = getattr(error, "strerror", None) or error
    return EnrolmentError(f"{text} cannot be served ({why}); give another {option}")


def _warn(authority: IssuingAuthority, metrics: AuthorityMetrics, stopped: threading.Event) -> None:
    """Tell the keeper what must be done soon: as a number every minute, and in the log daily or when it changes."""
    said, again = list[str](), 0.0
    while not stopped.is_set():
        try:
            concerns = authority.concerns()
        except CryptoError as fault:
            concerns = [str(fault)]
        metrics.concerns.set(len(concerns))
        if concerns != said or monotonic() >= again:
            for concern in concerns:
                log.warning("look after the authority", why=concern)
            said, again = concerns, monotonic() + _DAY_SECONDS
        stopped.wait(_LOOK_SECONDS)
