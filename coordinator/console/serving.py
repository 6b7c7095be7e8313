"""The coordinator's console as it runs: its pages by path, over TLS, for people of the consortium."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from coordinator.config import CoordinatorConfig
from coordinator.console import pages
from coordinator.console.pages import CoordinatorPages
from coordinator.console.people import Person, shown_by
from coordinator.console.tls import web_context
from coordinator.core.rights import AUDITORS
from coordinator.errors import CoordinatorError, NoConsoleError
from coordinator.people.desk import Desk
from coordinator.people.silo_book import SiloBook
from crypto.pki.certificates import Credential
from crypto.pki.identity import Identity
from crypto.pki.reading import hosts_in, parse_certificate
from policies.web.calls import Moved
from policies.web.console import Console, Face
from policies.web.serving import ConsoleServer
from policies.web.sessions import Sessions

_FACE: Final = Face(
    title="FedWard coordinator",
    owner="",
    places=(
        ("/studies", "Studies"),
        ("/silos", "Silos"),
        ("/prices", "Prices"),
        ("/audit", "Audit log"),
    ),
    templates=Path(__file__).parent / "templates",
    sign_in="fedward-coordinator console link",
)


class CoordinatorConsole:
    """The console of one running coordinator, if its configuration has a port for it."""

    def __init__(
        self,
        config: CoordinatorConfig,
        credential: Credential,
        desk: Desk,
        silos: SiloBook,
        *,
        broken: Callable[[Exception], object],
        active: Callable[[], object],
    ) -> None:
        """Bind the port. `broken` hears of what nobody foresaw. Raises OSError.

        `active` raises unless this coordinator is still the active one. Nothing is shown before it was asked.
        """
        self._config, self._credential = config, credential
        self._sessions: Sessions[Person] = Sessions()
        self._server: ConsoleServer | None = None
        if config.console_port is not None:
            app = application(
                CoordinatorPages(desk, silos), self._sessions, credential, self._hosts, active=active, broken=broken
            )
            self._server = ConsoleServer(app, config.console_host, config.console_port, web_context(credential))

    @property
    def port(self) -> int:
        """The bound port; 0 if there is no console."""
        return 0 if self._server is None else self._server.port

    def start(self) -> None:
        """Begin to serve."""
        if self._server is not None:
            self._server.start()

    def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()

    def link(self, who: Identity, certificate_pem: bytes) -> str:
        """Return a one-time link for a person. Raises `NoConsoleError`."""
        if self._server is None:
            msg = "this coordinator serves no console; its operator sets console_port in coordinator.yaml"
            raise NoConsoleError(msg)
        return f"{self._url()}/enter?link={self._sessions.link(Person(who, certificate_pem))}"

    def _url(self) -> str:
        if self._config.console_url is not None:
            return self._config.console_url
        hosts = hosts_in(parse_certificate(self._credential.certificate_pem))
        return f"https://{hosts[0] if hosts else self._config.console_host}:{self.port}"

    def _hosts(self) -> set[str]:
        """Under which names a browser reaches this console: those of the certificate, and the configured one."""
        named = hosts_in(parse_certificate(self._credential.certificate_pem))
        known = {f"{host}:{self.port}" for host in named} | {urlsplit(self._url()).netloc}
        return known | {host.removesuffix(":443") for host in known if host.endswith(":443")}


def application(
    handlers: CoordinatorPages,
    sessions: Sessions[Person],
    credential: Credential,
    hosts: Callable[[], set[str]],
    *,
    active: Callable[[], object] = lambda: None,
    broken: Callable[[Exception], object] = lambda _: None,
) -> Any:
    """Return the console as an ASGI application."""
    trust = credential.trust
    face = Face(_FACE.title, credential.identity.name, _FACE.places, _FACE.templates, _FACE.sign_in)

    def stands(person: Person) -> bool:
        active()
        return person.stands(trust)

    console = Console(
        face,
        sessions,
        hosts,
        known=lambda certificate: shown_by(trust, certificate),
        stands=stands,
        refusals=(CoordinatorError, *pages.REFUSALS),
        broken=broken,
        shows=lambda person, path: path != "/audit" or person.identity.role in AUDITORS,
    )
    console.page("/", lambda _: Moved("/studies"))
    console.page("/studies", handlers.studies)
    console.live("/studies/live", handlers.studies_live)
    console.page("/new", handlers.new)
    console.action("/new", handlers.create)
    console.action("/drain", handlers.drain)
    console.page("/silos", handlers.silo_list)
    console.page("/prices", handlers.price_list)
    console.page("/audit", handlers.audit)
    console.page("/studies/{study}", handlers.study)
    console.live("/studies/{study}/live", handlers.study_live)
    console.page("/studies/{study}/text", handlers.text)
    console.page("/studies/{study}/results", handlers.results)
    console.action("/studies/{study}/results", handlers.with_forecast)
    console.page("/studies/{study}/results.json", handlers.figures)
    console.page("/studies/{study}/{action}", handlers.confirm)
    console.action("/studies/{study}/{action}", handlers.act)
    return console.app
