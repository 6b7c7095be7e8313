"""Serves a console on one port, from a thread of its own (uvicorn).

Guarantees: a connection that sends no whole call within `SECONDS` is closed, and so is one above `CONNECTIONS`. Those
whose handshake lasts count among `SOCKETS`, and one above these is closed, too. So nobody holds files or memory by
waiting. Whoever shows a certificate of the consortium in the handshake is told to the application
(`request.state.certificate`, DER).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from policies.errors import PolicyError

SECONDS: Final = 20.0
CONNECTIONS: Final = 128
SOCKETS: Final = 256
"""Connections of all consoles of a process, those whose handshake lasts among them."""
_MAX_HEADERS: Final = 1 << 14


class _CrowdedError(PolicyError):
    """One connection more than there may be. It is closed."""


class _Connection(H11Protocol):
    """One connection, which is not waited for without end."""

    _alive: ClassVar[weakref.WeakSet[_Connection]] = weakref.WeakSet()

    def __init__(self, *given: Any, **named: Any) -> None:
        """Made when a connection is accepted, before its handshake. Raises `_CrowdedError` if there are too many."""
        if len(self._alive) >= SOCKETS:
            raise _CrowdedError
        super().__init__(*given, **named)
        self._alive.add(self)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's is narrower
        """Take the connection, with the certificate that it shows."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.close()
            return
        secure = transport.get_extra_info("ssl_object")
        shown = None if secure is None else secure.getpeercert(binary_form=True)
        self.app_state = {**self.app_state, "certificate": shown}
        self.loop.call_later(SECONDS, self._close_unless_heard, transport)

    def _close_unless_heard(self, transport: asyncio.Transport) -> None:
        if self.cycle is None:
            transport.close()


class ConsoleServer:
    """A console that is served. `port` is the bound port (0 asks for any free one)."""

    def __init__(self, app: Any, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Bind the port. Raises OSError with host and port."""
        try:
            self._socket = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            why = os.strerror(error.errno or 0)  # that of `create_server` repeats the address
            msg = f"the console cannot be served on {host}:{port} ({why}); give another address or port"
            raise OSError(msg) from None
        # Accepted ones inherit it. Head and body of an answer are two writes. Without it the second one waits for the
        # other side's delayed acknowledgement, 40 ms. asyncio sets it only on sockets that were made with a protocol.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=_MAX_HEADERS,
        )
        config.load()
        config.ssl = context
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """End the calls in progress, and stop."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        self._socket.close()

    def wait(self, asked: Callable[[float], bool]) -> None:
        """Wait until `asked`, which is given how long to wait, says yes, or until the server has ended."""
        while self._thread.is_alive() and not asked(0.5):
            pass

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_unless_crowded)
        await self._server.serve(sockets=[self._socket])


def _unless_crowded(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what asyncio has to say, but for a connection too many: a crowd would fill the log."""
    if not isinstance(context.get("exception"), _CrowdedError):
        loop.default_exception_handler(context)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
