"""The coordinator's and the operator's configuration files. Paths are relative to the file that they stand in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from crypto.pki.known_keys import MEMORY_FILE
from policies import file_kinds
from policies.documents.document import COLLECTOR, Addresses, Closed, read_document

if TYPE_CHECKING:
    from crypto.pki.joining.renewal import Files

Port = Annotated[int, Field(ge=0, le=65535)]
URL: Final = r"^https://[a-z0-9.-]+:\d+$"


class Quotas(Closed):
    """`quotas` of `coordinator.yaml`: how much the studies of one certificate may take."""

    open_studies: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Studies that are not over."""
    created_a_day: Annotated[int, Field(ge=1, le=10_000)] = 128
    """Studies that are created within 24 hours."""
    actions_a_day: Annotated[int, Field(ge=10, le=100_000)] = 1000
    """Actions within 24 hours. An abort is always possible."""
    polls_a_day: Annotated[int, Field(ge=0, le=10_000)] = 20
    """Polls within 24 hours."""
    gigabytes: Annotated[float, Field(gt=0, le=1e6)] = 500.0
    """Room on the spool's disk that one round of each open study takes, in all."""


class CoordinatorConfig(Closed):
    """`coordinator.yaml`."""

    KIND: ClassVar[str] = file_kinds.COORDINATOR

    host: str = "127.0.0.1"
    port: Port
    metrics_host: str = "127.0.0.1"
    metrics_port: Port
    console_host: str = "127.0.0.1"
    """Address on which the console listens, if `console_port` is there."""
    console_port: Port | None = None
    """Port of the console for people's browsers, over TLS; absent for no console."""
    console_url: Annotated[str, Field(pattern=URL)] | None = None
    """How browsers reach it, as https://host:port; by default the first host of the certificate and the port."""
    certificate: Path
    key: Path
    key_passphrase: Path | None = None
    """File with the key's passphrase (mode 0600, or a systemd credential), if the key has one."""
    authority: Path
    crls: Path | None = None
    """Revocation lists of all authorities; if absent, `crls.pem` beside the authority's file, if there is one."""
    authority_url: Annotated[str, Field(pattern=URL)] | None = None
    """The issuing authority, as https://host:port, from which certificate and lists are renewed; absent if offline."""
    data: Path
    """Folder of this coordinator alone: the database and the spool, if they are not said to be elsewhere."""
    database: str | None = Field(default=None, repr=False)
    """SQLAlchemy URL; if absent, the database is SQLite in `data`. It may hold a password, so it is never printed."""
    lease_seconds: Annotated[float, Field(ge=3, le=120)] = 15.0
    """How long nobody may have renewed the lease of the database before a coordinator that stands by takes over."""
    spool: Path | None = None
    """Folder of sealed uploads, which all coordinators of one database share; if absent, `spool` in `data`."""
    spool_url: Annotated[str, Field(pattern=r"^[a-z0-9]+://[^\s?#@]+$")] | None = None
    """URL of fsspec, such as s3://bucket/fedward, where sealed uploads lie as well: for machines that share no folder.
    The folder is then of each machine alone."""
    traces: Annotated[str, Field(pattern=COLLECTOR)] | None = None
    """URL of an OpenTelemetry collector that takes OTLP over HTTP; absent for no traces (`protos.tracing`)."""
    threads: Annotated[int, Field(ge=4, le=1024)] = 256
    """Threads that answer silos. A silo that waits holds none. No certificate can hold more than `door.seats.CALLS`.
    Operators have threads of their own."""

    quotas: Quotas = Quotas()
    """What each operator and author may take."""

    @model_validator(mode="after")
    def _one_spool(self) -> Self:
        if self.spool is not None and self.spool_url is not None:
            msg = "spool is a folder that machines share, and spool_url is in its place; leave one of them out"
            raise ValueError(msg)
        return self

    @classmethod
    def load(cls, path: Path) -> CoordinatorConfig:
        """Read the file. Raises `DocumentError`."""
        config = read_document(path, cls)
        base = path.resolve().parent
        names = ("certificate", "key", "authority", "data", "spool", "crls", "key_passphrase")
        return config.model_copy(update={n: base / getattr(config, n) for n in names if getattr(config, n) is not None})

    @property
    def spool_folder(self) -> Path:
        """Where sealed uploads lie."""
        return self.spool or self.data / "spool"

    @property
    def files(self) -> Files:
        """Where certificate, key, authorities, lists and the memory of keys are."""
        from crypto.pki.joining.renewal import Files

        memory = self.data / MEMORY_FILE
        return Files.of(self.certificate, self.key, self.authority, self.crls, self.key_passphrase, memory)


class OperatorConfig(Closed):
    """`operator.yaml`: the coordinator's address and the operator's certificate."""

    KIND: ClassVar[str] = file_kinds.OPERATOR

    coordinator: Addresses
    """Address of the coordinator, or a list: its machines, of which one is active."""
    certificate: Path
    key: Path
    key_passphrase: Path | None = None
    """File with the key's passphrase (mode 0600, or a systemd credential), if the key has one."""
    authority: Path
    crls: Path | None = None
    """As in `coordinator.yaml`."""
    authority_url: Annotated[str, Field(pattern=URL)] | None = None
    """As in `coordinator.yaml`. The operator's certificate is renewed when it is used."""

    @classmethod
    def load(cls, path: Path) -> OperatorConfig:
        """Read the file. Raises `DocumentError`."""
        config = read_document(path, cls)
        base = path.resolve().parent
        names = ("certificate", "key", "authority", "crls", "key_passphrase")
        return config.model_copy(update={n: base / getattr(config, n) for n in names if getattr(config, n) is not None})

    @property
    def files(self) -> Files:
        """Where certificate, key, authorities, lists and the memory of keys are."""
        from crypto.pki.joining.renewal import Files

        memory = self.authority.parent / MEMORY_FILE
        return Files.of(self.certificate, self.key, self.authority, self.crls, self.key_passphrase, memory)
