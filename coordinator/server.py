"""Puts the coordinator together and keeps it running: gRPC over mutual TLS, health, metrics."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from prometheus_client import start_http_server

from coordinator.config import CoordinatorConfig
from coordinator.cosigning import Cosigning
from coordinator.engine import Engine
from coordinator.metrics import Metrics
from coordinator.service import OperatorService, SiloService
from coordinator.storage.checkpoints import Checkpoints
from coordinator.storage.spool import Spool
from coordinator.storage.store import Store
from crypto.pki.certificates import Credential, Trust
from crypto.pki.tls import server_credentials
from protos.messages import MAX_MESSAGE
from protos.v1 import operator_pb2_grpc, silo_pb2_grpc

log = structlog.get_logger()
SERVICES = ("fedward.v1.SiloService", "fedward.v1.OperatorService")
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
    # By default gRPC widens the window of every stream as far as the network allows. Many large uploads at once would
    # then fill the coordinator's memory. 512 KiB for each stream still carry 10 MB/s over 50 ms.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 1 << 19),
)


class Server:
    """A running coordinator. `port` and `metrics_port` are the bound ports (0 in the config asks for any free port)."""

    def __init__(self, config: CoordinatorConfig) -> None:
        credential = Credential.load(config.certificate, config.key, config.authority)
        trust = Trust(credential.authority_pem)
        self.metrics = Metrics()
        store = Store(config.database) if config.database else Store.in_folder(config.data)
        spool = Spool(config.data / "spool")
        self.engine = Engine(store, spool, self.metrics)
        self._server = grpc.server(
            ThreadPoolExecutor(config.threads, "call"), options=OPTIONS, maximum_concurrent_rpcs=config.threads
        )
        self._cosigning = Cosigning(Checkpoints(store.engine), credential, trust)
        silos = SiloService(self.engine, spool, trust, self.metrics, version("fedward"), cosigning=self._cosigning)
        silo_pb2_grpc.add_SiloServiceServicer_to_server(silos, self._server)
        operators = OperatorService(self.engine, trust, self.metrics)
        operator_pb2_grpc.add_OperatorServiceServicer_to_server(operators, self._server)
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        try:
            self.port = self._server.add_secure_port(f"{config.host}:{config.port}", server_credentials(credential))
        except RuntimeError:
            msg = (
                f"{config.host}:{config.port} cannot be served; give another `host` or `port`, or stop the process that"
                " uses it"
            )
            raise OSError(msg) from None
        self._http, self._http_thread = start_http_server(
            config.metrics_port, addr=config.metrics_host, registry=self.metrics.registry
        )
        self.metrics_port = int(self._http.server_port)

    def start(self) -> None:
        """Begin to serve."""
        self.engine.start()
        self._server.start()
        for name in ("", *SERVICES):
            self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        log.info("serving", port=self.port, metrics_port=self.metrics_port)

    def close(self) -> None:
        """Finish the calls in progress, then stop."""
        self._health.enter_graceful_shutdown()
        self.engine.close()
        self._cosigning.close()
        self._server.stop(grace=5.0).wait()
        self._http.shutdown()
        self._http.server_close()
        self._http_thread.join()
        log.info("stopped")


def serve(config: CoordinatorConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = Server(config)
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    server.start()
    asked.wait()
    server.close()
