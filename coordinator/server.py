"""Puts the coordinator together and keeps it running: gRPC over mutual TLS, the door before it, health, metrics."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from wsgiref.simple_server import WSGIServer

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2
from prometheus_client import start_http_server

from common.systemd import StatusLine
from coordinator.config import CoordinatorConfig
from coordinator.console.serving import CoordinatorConsole
from coordinator.cosigning import KnownLedgers
from coordinator.door import files
from coordinator.door.connections import Connections
from coordinator.door.guard import Guard
from coordinator.engine import Engine
from coordinator.lease.holding import Lease, keep
from coordinator.metrics import CoordinatorMetrics
from coordinator.people.authors import require_author
from coordinator.people.desk import Desk
from coordinator.people.service import OperatorService
from coordinator.people.silo_book import SiloBook
from coordinator.service import Refusals, SiloService
from coordinator.spools import spool_of
from coordinator.storage.checkpoints import Checkpoints
from coordinator.storage.closing import close_to_others
from coordinator.storage.migrating import migrate
from coordinator.storage.store import Store
from coordinator.telemetry.current import CurrentFigures
from coordinator.telemetry.round_traces import RoundTraces
from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from crypto.pki.joining import renewal
from crypto.pki.joining.renewal import Renewal, Times
from crypto.pki.standing import CertificateStanding
from crypto.pki.tls import server_credentials
from protos.messages import MAX_MESSAGE
from protos.tracing import Spans
from protos.v1 import operator_pb2, silo_pb2

log = structlog.get_logger()
SILOS = silo_pb2.DESCRIPTOR.services_by_name["SiloService"]
OPERATORS = operator_pb2.DESCRIPTOR.services_by_name["OperatorService"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
SERVICES = (SILOS.full_name, OPERATORS.full_name)
OPERATOR_THREADS = 4
"""Threads that answer operators, whatever the silos do."""
RENEWAL_SECONDS = 3.0
"""How often the coordinator asks for newer revocation lists: a revoked party is out within seconds."""
QUEUE = 2048
"""Calls that may wait, most of them for work and without a thread. One address cannot have so many: it has few
connections with few streams each."""
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
    # A call that is in progress when its connection is an hour old has a quarter of an hour more; an upload then goes
    # on over a new connection.
    ("grpc.max_connection_age_ms", 3_600_000),
    ("grpc.max_connection_age_grace_ms", 900_000),
    ("grpc.max_concurrent_streams", 32),
    # The door refuses less than this, and counts it. What is above is refused by gRPC, which names no caller.
    ("grpc.max_metadata_size", 65_536),
    ("grpc.absolute_max_metadata_size", 65_536),
    # No party compresses what it sends, since sealed content has no redundancy. So gRPC refuses a compressed message by
    # its header: otherwise a few kilobytes would take the memory of a whole message before anything is checked.
    ("grpc.compression_enabled_algorithms_bitset", 1 << grpc.Compression.NoCompression),
    # By default gRPC widens the window of every stream as far as the network allows. Many large uploads at once would
    # then fill the coordinator's memory. 512 KiB for each stream still carry 10 MB/s over 50 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 19),
)


class Server:
    """A running coordinator. `port` and `metrics_port` are the bound ports (0 in the config asks for any free port)."""

    def __init__(self, config: CoordinatorConfig, lease: Lease) -> None:
        """Take the database whose lease was taken, bring it up to date, and read what was going on."""
        open_files = files.raise_limit()
        close_to_others(config.data)
        credential = renewal.load(config.files, config.authority_url, keeps=True)
        credential.tell_faults(lambda why: log.error("certificates not read", why=why))
        trust = credential.trust
        self.metrics = CoordinatorMetrics()
        self._lease, database = lease, lease.database
        spool = spool_of(config, lease.epoch)
        migrate(database)
        store, checkpoints = Store(database), Checkpoints(database)
        self._spans = Spans(
            config.traces,
            "fedward-coordinator",
            credential.identity.name,
            lambda why: log.warning("no traces", why=why),
        )
        self.engine = Engine(
            store,
            spool,
            self.metrics,
            revoked=RevocationCheck(trust),
            summed=checkpoints.keep_summed,
            traced=RoundTraces(self._spans, time.time).ended,
        )
        pool = ThreadPoolExecutor(config.threads, "call")
        self._server = grpc.server(
            pool,
            options=(
                *OPTIONS,
                ("grpc.max_allowed_incoming_connections", min(files.CONNECTIONS, open_files - files.RESERVED)),
            ),
            maximum_concurrent_rpcs=config.threads + QUEUE,
        )
        self._cosigning = KnownLedgers(checkpoints, credential, trust, studies=self.engine.catalogue)
        self._health = health.HealthServicer()
        try:
            self.port = self._server.add_secure_port(f"{config.host}:{config.port}", server_credentials(credential))
        except RuntimeError:
            msg = (
                f"{config.host}:{config.port} cannot be served; give another `host` or `port`, or stop the process that"
                " uses it"
            )
            raise OSError(msg) from None
        connections = Connections(self.port, self.metrics)
        passing = self._cosigning.pass_time
        self._guard = Guard(trust, connections, self.metrics, pool=pool, epoch=lease.epoch, passing=passing)
        refusals = Refusals(trust, self.metrics, connections, self.engine.shortages, database.require)
        release = version("fedward")
        self.desk = Desk(self.engine, store, config.quotas, require_author(trust), self.engine.now)
        audit, polls = store.audit, self.desk.polls
        self.silo_book = book = SiloBook()
        silos = SiloService(
            self.engine,
            spool,
            refusals,
            release,
            cosigning=self._cosigning,
            audit=audit,
            polls=polls,
            joined=book.note,
        )
        self._add(SILOS, silos)
        self.console = CoordinatorConsole(
            config, credential, self.desk, book, broken=_page_failed, active=database.require
        )
        self._operators = ThreadPoolExecutor(OPERATOR_THREADS, "operator")
        self._add(OPERATORS, OperatorService(self.desk, refusals, self.console.link), pool=self._operators)
        self._add(HEALTH, self._health, only=("Check",))
        self._server.add_generic_rpc_handlers((self._guard.unknown(),))
        self.metrics.registry.register(CurrentFigures(self.engine.under_way, self.engine.now, spool, database.errors))
        self._http, self._http_thread = serve_metrics(config, self.metrics)
        self.metrics_port = int(self._http.server_port)
        self._stop, self._line = threading.Event(), StatusLine()
        self._renewal = Renewal(
            credential,
            config.files,
            renewal.link_for(credential, config.authority_url),
            tell=lambda level, text: log.log(getattr(logging, level.upper()), text),
            on_times=self._tell_times,
        )
        self._renewing = threading.Thread(
            target=self._renewal.run, args=(self._stop, RENEWAL_SECONDS), name="renewal", daemon=True
        )
        self._keeping = threading.Thread(target=keep, args=(lease, self._stop), name="lease", daemon=True)

    def _tell_times(self, times: Times) -> None:
        self.metrics.tell_times(times)
        self._line.tell(str(times))

    def _add(
        self,
        service: ServiceDescriptor,
        servicer: object,
        *,
        pool: ThreadPoolExecutor | None = None,
        only: tuple[str, ...] = (),
    ) -> None:
        handlers = self._guard.handlers(service, servicer, pool=pool, only=only)
        # The stubs lack the method, by which gRPC's own generated code adds its handlers.
        self._server.add_registered_method_handlers(service.full_name, handlers)  # type: ignore[attr-defined]

    def start(self) -> None:
        """Begin to serve."""
        self.engine.start()
        self._guard.start()
        self._renewing.start()
        self._keeping.start()
        self._server.start()
        self.console.start()
        self.metrics.active.set(1)
        for name in ("", *SERVICES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info(
            "serving",
            version=version("fedward"),
            port=self.port,
            metrics_port=self.metrics_port,
            console_port=self.console.port,
            epoch=self._lease.epoch,
        )

    def close(self) -> None:
        """Finish the calls in progress, then stop, and give the lease back, so that another takes over at once."""
        self._stop.set()
        self._health.enter_graceful_shutdown()
        self.console.close()
        self._guard.release()
        self.engine.close()
        self._server.stop(grace=5.0).wait()
        self._guard.close()
        self._operators.shutdown()
        self._spans.close()
        self._http.shutdown()
        self._http.server_close()
        self._http_thread.join()
        if self._keeping.is_alive():
            self._keeping.join()
        self._lease.give_back()
        log.info("stopped")


def _page_failed(error: Exception) -> None:
    log.error("a page of the console failed", exc_info=error)


class RevocationCheck:
    """Says whether a certificate was revoked. It is checked once per change of the authorities and lists.

    For one thread: the engine asks under its lock, several times a second for each silo that is waited for.
    """

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._standing: CertificateStanding | None = None
        self._known: dict[bytes, bool] = {}

    def __call__(self, certificate_pem: bytes) -> bool:
        """`certificate_pem` may be of a root that was taken out meanwhile: the calls say so."""
        standing = self._trust.source()
        if standing is not self._standing:
            self._standing, self._known = standing, {}
        if certificate_pem not in self._known:
            try:
                self._known[certificate_pem] = self._trust.revoked(certificate_pem) is not None
            except CertificateError:
                self._known[certificate_pem] = False
        return self._known[certificate_pem]


def serve_metrics(config: CoordinatorConfig, metrics: CoordinatorMetrics) -> tuple[WSGIServer, threading.Thread]:
    """Serve the metrics page. Raises OSError with host and port."""
    try:
        return start_http_server(config.metrics_port, addr=config.metrics_host, registry=metrics.registry)
    except OSError as error:
        msg = (
            f"the metrics page cannot be served on {config.metrics_host}:{config.metrics_port} ({error.strerror}); give"
            " another metrics_host or metrics_port, or stop the process that uses it"
        )
        raise OSError(msg) from None
