"""A proxy that knows CONNECT alone, as hospitals have them."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy(socketserver.ThreadingTCPServer):
    """`asked` has the first lines of all requests. With a `refusal` it connects to nothing and answers that."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connecting)
        self.asked: list[str] = []
        self.refusal = b""

    @property
    def url(self) -> str:
        """As agent.yaml names it."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class Connecting(socketserver.StreamRequestHandler):
    """One connection."""

    server: Proxy

    def handle(self) -> None:
        asked = self.rfile.readline().decode()
        while self.rfile.readline().strip():
            pass
        self.server.asked.append(asked)
        if self.server.refusal:
            self.wfile.write(self.server.refusal)
            return
        host, _, port = asked.split()[1].rpartition(":")
        with socket.create_connection((host, int(port))) as further:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(further, self.connection))
            back.start()
            self.copy(self.connection, further)
            back.join()

    @staticmethod
    def copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def proxying() -> Iterator[Proxy]:
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
