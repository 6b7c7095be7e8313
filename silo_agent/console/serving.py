"""The hospital's console as it runs: its pages by path, on loopback, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from policies.web.console import Console, Face
from policies.web.serving import ConsoleServer
from policies.web.sessions import Sessions
from silo_agent.console.pages import REFUSALS, HospitalPages, Officer

log = structlog.get_logger()
HOST: Final = "127.0.0.1"
"""The only address on which it listens: its pages have patients' figures."""
_FACE: Final = Face(
    title="FedWard hospital",
    owner="stays inside",
    places=(
        ("/", "Overview"),
        ("/studies", "Studies"),
        ("/budget", "Budget"),
        ("/left", "What left"),
        ("/data", "Data"),
        ("/models", "Models"),
        ("/health", "Health"),
    ),
    templates=Path(__file__).parent / "templates",
    sign_in="fedward-silo console",
)


class HospitalConsole:
    """The console of one agent's configuration, while `fedward-silo console` runs."""

    def __init__(self, config: Path, port: int) -> None:
        """Bind the port (0 for any free one). Raises OSError."""
        self._sessions: Sessions[Officer] = Sessions()
        app = application(HospitalPages(config), self._sessions, lambda: {f"{HOST}:{self.port}"})
        self._server = ConsoleServer(app, HOST, port)

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.port

    def link(self) -> str:
        """Return a one-time link."""
        return f"http://{HOST}:{self.port}/enter?link={self._sessions.link(Officer())}"

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop` is set."""
        self._server.start()
        try:
            self._server.wait(stop.wait)
        finally:
            self._server.close()


def application(handlers: HospitalPages, sessions: Sessions[Officer], hosts: Callable[[], set[str]]) -> Any:
    """Return the console as an ASGI application."""
    console = Console(_FACE, sessions, hosts, secure=False, refusals=REFUSALS, broken=_failed)
    console.page("/", handlers.overview)
    console.page("/studies", handlers.studies)
    console.live("/studies/live", handlers.studies_live)
    console.page("/studies/{study}", handlers.study)
    console.action("/studies/{study}/approve", handlers.approve)
    console.action("/studies/{study}/decline", handlers.decline)
    console.action("/studies/{study}/withdraw-approval", handlers.withdraw)
    console.page("/budget", handlers.budget)
    console.page("/left", handlers.left)
    console.page("/data", handlers.data)
    console.action("/data", handlers.check)
    console.page("/models", handlers.models)
    console.page("/models/{study}", handlers.model)
    console.action("/models/{study}", handlers.measure)
    console.page("/health", handlers.health)
    return console.app


def _failed(error: Exception) -> None:
    log.error("a page of the console failed", kind=type(error).__name__)
