"""`agent.yaml`: the places of the agent's identity, data and policy. Paths are relative to the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field

from policies.documents.document import Closed, DocumentError, read_document
from policies.documents.study import Name

if TYPE_CHECKING:
    from crypto.pki.certificates import Credential


class AgentConfig(Closed):
    """Configuration of one agent, which serves one data set."""

    coordinator: Annotated[str, Field(pattern=r"^[^\s:]+:\d+$")]
    certificate: Path
    key: Path
    authority: Path
    policy: Path
    """The hospital's policy. The agent does not start without it."""
    state: Path
    """Folder of ledger, models and outbox. It belongs to this agent alone."""
    data: Annotated[dict[Name, Path], Field(min_length=1)]
    """File of each study, by the study's name. All of them hold patients of the policy's data set."""
    metrics_host: str = "127.0.0.1"
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(ge=1, le=256)] | None = None
    """CPU threads for training. If absent, the library chooses."""

    @classmethod
    def load(cls, path: Path) -> AgentConfig:
        """Read a configuration. Raises `DocumentError`, also if a file that it names does not exist."""
        config = read_document(path, cls)
        base = path.resolve().parent
        names = ("certificate", "key", "authority", "policy", "state")
        paths: dict[str, object] = {name: base / getattr(config, name) for name in names}
        files = {study: base / file for study, file in config.data.items()}
        missing = [f"field {n}: there is no file {paths[n]}" for n in names[:-1] if not Path(str(paths[n])).is_file()]
        missing += [
            f"field data.{study}: there is no file {file}" for study, file in files.items() if not file.is_file()
        ]
        if missing:
            raise DocumentError(path, missing)
        return config.model_copy(update={**paths, "data": files})

    def credential(self) -> Credential:
        """The silo's certificate and key. Raises `CertificateError`."""
        from crypto.pki.certificates import Credential

        return Credential.load(self.certificate, self.key, self.authority)


class _Named(Closed):
    """What tells that a file is an agent's configuration, of whatever version, and what data it names."""

    model_config = ConfigDict(extra="ignore")
    coordinator: str
    policy: Path
    data: dict[str, Path]


def named_data(path: Path) -> tuple[Path, ...]:
    """The data files that an agent's configuration names; none if the file is no such configuration.

    Fields that this version does not know are passed over, and nothing that is named needs to exist.
    """
    try:
        found = read_document(path, _Named)
    except DocumentError:
        return ()
    return tuple(path.resolve().parent / file for file in found.data.values())
