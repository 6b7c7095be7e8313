"""Common options of the commands of `fedward-silo`, and the search for a study by its digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silo_agent.storage.errors import StateError

if TYPE_CHECKING:
    from silo_agent.storage.state import State

ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_AGENT_CONFIG", help="agent.yaml")]
StudyArgument = Annotated[str, typer.Argument(help="Digest of a study, or its beginning.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT = Path("agent.yaml")


def find_study(state: State, beginning: str) -> tuple[str, int]:
    """Return digest and last committed round of the one study whose digest begins so. Raises `StateError`."""
    found = [(digest, committed) for digest, committed, _ in state.studies() if digest.startswith(beginning)]
    if len(found) != 1:
        msg = f"{len(found)} studies match {beginning!r}; check the digest or give more of it"
        raise StateError(msg)
    return found[0]
