"""Makes a silo's process hostile: in the place of every contribution it uploads residues of no meaning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crypto.rings.adding import added
from protos.messages import RINGS, Place
from silo_agent.protocol.mail import Mail


@dataclass(frozen=True)
class Spoiling:
    """Well-formed and signed, as a silo of the roster sends it."""

    def install(self) -> None:
        """Stand between the agent and its mail, for the life of the process."""
        send = Mail.send

        def spoilt(mail: Mail, silo: str, place: Place, kind: str, path: Path, **words: Any) -> None:
            if kind in RINGS:
                twice = path.with_name(path.name + ".spoilt")
                with path.open("rb") as one, path.open("rb") as other:
                    twice.write_bytes(b"".join(added(kind, [one, other])))
                path = twice
            send(mail, silo, place, kind, path, **words)

        Mail.send = spoilt  # type: ignore[method-assign]  # the same, hostile
