"""`agent.yaml`: the places of the agent's identity, data and policy. Paths are relative to the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from policies import file_kinds
from policies.documents.document import COLLECTOR, Addresses, Closed, DocumentError, read_document
from policies.documents.study import Name
from silo_agent import dialects

if TYPE_CHECKING:
    from sqlalchemy import URL

    from crypto.pki.at_rest import FormerKey
    from crypto.pki.certificates import Credential
    from crypto.pki.joining.renewal import Files


class SqlSource(Closed):
    """One statement on one database, as `agent.yaml` has it."""

    user_may_only_read: bool | None = None
    """The hospital's word that the database user may only read, where nothing else keeps the agent from writing."""
    url: Annotated[str, Field(min_length=1, max_length=2000)]
    """SQLAlchemy URL without a password."""
    statement: Annotated[str, Field(min_length=1, max_length=100_000)]
    """One statement whose result has the study's columns."""
    credentials: Path | None = None
    """File with the password alone, mode 0600. If absent, the database asks for none."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, text: str, info: ValidationInfo) -> str:
        if faults := dialects.faults(text, promised=info.data.get("user_may_only_read")):
            raise ValueError("; ".join(faults))
        return text

    @field_validator("statement")
    @classmethod
    def _check_statement(cls, text: str) -> str:
        statement = text.strip().removesuffix(";").strip()
        if not statement or ";" in statement:
            msg = "write exactly one statement; a semicolon may stand only at its end (in a text write chr(59))"
            raise ValueError(msg)
        return statement

    @property
    def name(self) -> str:
        """The database's name, for messages."""
        return f"database {Path(self.parsed().database or '').name or '(default)'}"

    def beside(self, base: Path) -> Self:
        """The source with paths made absolute from the folder of the configuration."""
        changes: dict[str, object] = {}
        if self.credentials is not None:
            changes["credentials"] = base / self.credentials
        if (file := self.file) is not None:
            changes["url"] = self.parsed().set(database=str(base / file)).render_as_string(hide_password=False)
        return self.model_copy(update=changes)

    @property
    def file(self) -> Path | None:
        """The database's file; None if a server holds it."""
        url = self.parsed()
        return Path(url.database or "") if url.drivername in dialects.FILES else None

    @property
    def is_duckdb(self) -> bool:
        """Whether the file is DuckDB's."""
        return self.parsed().drivername in dialects.DUCKDB

    @property
    def missing(self) -> Path | None:
        """The first file that the source needs and that is not there."""
        return next((path for path in (self.file, self.credentials) if path is not None and not path.exists()), None)

    def parsed(self) -> URL:
        """The URL, read."""
        from sqlalchemy import make_url

        return make_url(self.url)


AUTHORITY: Final = r"^https://[a-z0-9.-]+:\d+$"
PROXY: Final = r"^http://[^\s/:@]+:\d+$"
_ENROLLED: Final = "fix its path; `fedward-silo enrol` makes it"
_MADE_BY: Final = {
    "policy": "fix its path, or make a policy: fedward-silo policy new",
    "crls": "fix its path, or leave the field out for crls.pem beside the authority's file",
    "key_passphrase": "fix its path; it is the file that `enrol --key-passphrase` was given",
}
"""What to do about a file that a field names and that is not there."""


class MailNotice(Closed):
    """A mail to the officer, by the hospital's own mail server."""

    server: str
    to: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)]
    sender: str
    port: Annotated[int, Field(ge=1, le=65535)] = 25
    tls: bool = False
    """Whether the connection is encrypted (STARTTLS)."""


class Notify(Closed):
    """How the officer is told that a study waits for a person. Public facts alone are told (oversight/telling.py)."""

    command: tuple[str, ...] = ()
    """A command with its arguments, which gets the text on its standard input. No shell reads it."""
    mail: MailNotice | None = None

    @model_validator(mode="after")
    def _somehow(self) -> Self:
        if not self.command and self.mail is None:
            msg = "name a command, mail, or both; or leave notify out"
            raise ValueError(msg)
        return self


class AgentConfig(Closed):
    """Configuration of one agent, which serves one data set."""

    KIND: ClassVar[str] = file_kinds.AGENT

    coordinator: Addresses
    """Address of the coordinator, or a list: its machines, of which one is active."""
    certificate: Path
    key: Path
    key_passphrase: Path | None = None
    """File with the key's passphrase (mode 0600, or a systemd credential), if the key has one."""
    authority: Path
    crls: Path | None = None
    """Revocation lists of all authorities; if absent, `crls.pem` beside the authority's file, if there is one."""
    authority_url: Annotated[str, Field(pattern=AUTHORITY)] | None = None
    """The issuing authority, as https://host:port, from which certificate and lists are renewed; absent if offline."""
    policy: Path
    """The hospital's policy. The agent does not start without it."""
    state: Path
    """Folder of ledger, models and outbox. It belongs to this agent alone."""
    data: dict[Name, Path] = Field(default_factory=dict)
    """Files and folders, each by a name of its own; an approval lets a study use one (storage/approvals.py). All of
    them hold patients of the policy's data set."""
    databases: dict[Name, SqlSource] = Field(default_factory=dict)
    """The same from databases. A name stands in one of the two."""
    proxy: Annotated[str, Field(pattern=PROXY)] | None = None
    """The hospital's proxy, such as http://proxy.example.org:3128, if the coordinator is only reached through one."""
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    traces: Annotated[str, Field(pattern=COLLECTOR)] | None = None
    """URL of the hospital's own OpenTelemetry collector, which takes OTLP over HTTP; absent for no traces."""
    notify: Notify | None = None
    """How the officer is told that a study waits; absent, nobody is told."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    """CPU threads for training. If absent, the library chooses."""

    @classmethod
    def load(cls, path: Path, *, whole: bool = True) -> AgentConfig:
        """Read a configuration. Raises `DocumentError`, also if it is `whole` and a file that it names does not exist.

        A study's data may be missing: that concerns the study alone, which is refused as long as they are. So may the
        key's passphrase: a systemd credential is there only while the service runs, and most commands open no key.
        """
        config = read_document(path, cls)
        base = path.resolve().parent
        names = ("certificate", "key", "authority", "policy", "state")
        paths: dict[str, object] = {name: base / getattr(config, name) for name in names}
        files = {name: base / file for name, file in config.data.items()}
        for name in ("crls", "key_passphrase"):
            if getattr(config, name) is not None:
                paths[name] = base / getattr(config, name)
        absent = [one for one in paths if whole and one not in ("state", "key_passphrase") and not _is_file(paths[one])]
        missing = [f"field {name}: there is no file {paths[name]}; {_MADE_BY.get(name, _ENROLLED)}" for name in absent]
        if not {"data", "databases"} & config.model_fields_set:
            missing.append("field data: this field is missing; add it, or databases (data: {} if there is none yet)")
        missing += [
            f"field databases.{name}: data has this name too; give one of them another name"
            for name in config.databases
            if name in files
        ]
        databases = {name: source.beside(base) for name, source in config.databases.items()}
        if missing:
            raise DocumentError(path, missing)
        return config.model_copy(update={**paths, "data": files, "databases": databases})

    def source(self, name: str) -> Path | SqlSource | None:
        """The data of that name; None if the configuration names none so."""
        return self.databases.get(name) or self.data.get(name)

    @property
    def named(self) -> str:
        """The names of all data, for a message."""
        return ", ".join(sorted((*self.data, *self.databases))) or "none"

    def credential(self, *, keeps: bool = False) -> Credential:
        """The silo's certificate and key. Stale lists are fetched if the issuing authority is online.

        The agent alone `keeps` the memory of others' keys. Raises `CertificateError`.
        """
        from crypto.pki.joining import renewal

        return renewal.load(self.files, self.authority_url, self.proxy, keeps=keeps)

    def key_holder(self) -> FormerKey:
        """The silo's key, whether its certificate still counts or not. Raises `CertificateError`, OSError."""
        from crypto.pki.at_rest import FormerKey
        from crypto.pki.key_files import open_key, read_passphrase
        from crypto.pki.reading import parse_certificate, subject_of

        secret = None if self.key_passphrase is None else read_passphrase(self.key_passphrase)
        subject = subject_of(parse_certificate(self.certificate.read_bytes()))
        return FormerKey(subject.identity, open_key(self.key.read_bytes(), secret))

    @property
    def files(self) -> Files:
        """Where certificate, key, authorities, lists and the memory of keys are."""
        from crypto.pki.joining.renewal import Files
        from crypto.pki.known_keys import MEMORY_FILE

        memory = self.state / MEMORY_FILE
        return Files.of(self.certificate, self.key, self.authority, self.crls, self.key_passphrase, memory)


def _is_file(path: object) -> bool:
    return Path(str(path)).is_file()


class _NamedDatabase(SqlSource):
    """A database of a configuration of whatever version."""

    model_config = ConfigDict(extra="ignore")


class _Named(Closed):
    """What tells that a file is an agent's configuration, of whatever version, and what data it names."""

    model_config = ConfigDict(extra="ignore")
    coordinator: str | list[str]
    policy: Path
    data: dict[str, Path] = Field(default_factory=dict)
    databases: dict[str, _NamedDatabase] = Field(default_factory=dict)


@dataclass(frozen=True)
class NamedData:
    """The data that an agent's configuration names: files and folders, and databases by their studies.

    Nothing that is named needs to exist.
    """

    paths: tuple[Path, ...]
    databases: Mapping[str, SqlSource]

    def __bool__(self) -> bool:
        return bool(self.paths or self.databases)


def named_data(path: Path) -> NamedData:
    """The data that an agent's configuration names; none if the file is no such configuration.

    Fields that this version does not know are passed over.
    """
    try:
        found = read_document(path, _Named)
    except DocumentError:
        return NamedData((), {})
    base = path.resolve().parent
    databases = {study: source.beside(base) for study, source in found.databases.items()}
    return NamedData(tuple(base / file for file in found.data.values()), databases)
