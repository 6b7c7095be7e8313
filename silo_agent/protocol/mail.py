"""What a silo sends to and fetches from the coordinator, by way of files: notes, shares of others, sums.

Guarantees: a fetched file has the size and digest that the coordinator announced. What other silos have dealt to this
one vouches for itself by their signatures, and stays on the disk, still sealed, until the round is committed
(`state.forget_round`). Every other fetched file is erased once it is read. `tasks` and `shares` interpret the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from protos.chunks import ChunkList
from protos.messages import Part, Place, Tensor, UploadHeader, Work
from protos.steps import SUM, Note
from silo_agent.core.turns import OutOfTurnError
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.calls.client import Client
from silo_agent.storage.own_files import own_files
from silo_agent.storage.state import State


class Mail:
    """One silo's inbox and outbox."""

    def __init__(self, client: Client, state: State, metrics: AgentMetrics) -> None:
        self._client, self._state, self._metrics = client, state, metrics

    def note_path(self, place: Place, note: Note, tensor: Tensor | None = None) -> Path:
        """The path of this silo's own note. The file stays until its round is committed."""
        return self._state.note_path(place, note if tensor is None else f"{note}-{tensor}")

    def send(
        self, silo: str, place: Place, kind: str, path: Path, *, tensor: Tensor | None = None, values: int = 0
    ) -> None:
        """Sign and upload a file: a note, or a sealed tensor of `values` values."""
        with own_files():
            chunks = ChunkList.of(path)
        self._client.upload(UploadHeader(place, kind, tensor, silo, values, chunks.size, chunks.digest), path, chunks)
        self._metrics.sent.labels(kind).inc(chunks.size)

    def fetch_note(self, work: Work, place: Place, note: Note) -> bytes:
        """The note of the silo that the work names as its actor. Raises `OutOfTurnError` if none is offered."""
        notes = self.fetch_notes(work, place, note)
        if work.actor not in notes:
            msg = f"the coordinator offers no {note} of {work.actor!r}"
            raise OutOfTurnError(msg)
        return notes[work.actor]

    def fetch_notes(self, work: Work, place: Place, note: Note, tensor: Tensor | None = None) -> dict[str, bytes]:
        """The notes of one kind that the work offers, by silo."""
        wanted = {
            part: self._state.received_path(place, f"{part.kind}-fetched", part.silo)
            for part in work.parts
            if part.kind == note
        }
        with own_files():
            try:
                self._download(place, tensor, wanted)
                return {part.silo: path.read_bytes() for part, path in wanted.items()}
            finally:
                for path in wanted.values():
                    path.unlink(missing_ok=True)

    def receive_shares(self, place: Place, owners: Sequence[str], me: str, limit: int) -> None:
        """Fetch and keep what these silos have dealt to this one. What was fetched before stays as it is.

        `limit`: most bytes of one note.
        """
        with own_files():
            paths = {owner: self._state.received_path(place, Note.SHARES, owner) for owner in owners}
            missing = [owner for owner, path in paths.items() if not path.exists()]
            for owner, note in (self.fetch_shares(place, missing, (me,), limit) if missing else {}).items():
                fresh = paths[owner].with_name(paths[owner].name + ".part")
                fresh.parent.mkdir(parents=True, exist_ok=True)
                fresh.write_bytes(note)
                fresh.replace(paths[owner])

    def fetch_shares(self, place: Place, owners: Sequence[str], about: Sequence[str], limit: int) -> dict[str, bytes]:
        """These silos' shares notes, by owner: cut for the silos of `about`, or whole if these are none."""
        return self._slices(place, Note.SHARES, owners, about, limit)

    def fetch_greetings(self, place: Place, owners: Sequence[str], me: str, limit: int) -> dict[str, bytes]:
        """What these silos' greetings have for this one, by owner."""
        return self._slices(place, Note.GREETING, owners, (me,), limit)

    def _slices(
        self, place: Place, note: Note, owners: Sequence[str], about: Sequence[str], limit: int
    ) -> dict[str, bytes]:
        found = self._client.notes(place, note, owners, about, limit)
        self._metrics.received.labels(note).inc(sum(map(len, found.values())))
        return found

    def shares(self, place: Place, silos: Sequence[str]) -> dict[str, bytes]:
        """What these silos have dealt to this one. Raises `OutOfTurnError` if any of it is missing."""
        paths = {silo: self._state.received_path(place, Note.SHARES, silo) for silo in silos}
        absent = sorted(silo for silo, path in paths.items() if not path.exists())
        if absent:
            msg = f"the coordinator never sent the shares of {', '.join(absent)}; begin a new attempt"
            raise OutOfTurnError(msg)
        with own_files():
            return {silo: path.read_bytes() for silo, path in paths.items()}

    @contextmanager
    def sum(self, work: Work, place: Place, tensor: Tensor) -> Iterator[tuple[BinaryIO, str]]:
        """The sealed sum, as a file that is erased afterwards, with its digest (`protos.chunks`).

        Raises `OutOfTurnError` if none is offered.
        """
        part = next((part for part in work.parts if part.kind == SUM), None)
        if part is None:
            msg = f"the coordinator offers no sum of {tensor}"
            raise OutOfTurnError(msg)
        path = self._state.received_path(place, f"sum-{tensor}", "all")
        try:
            self._download(place, tensor, {part: path})
            with own_files():
                file = path.open("rb")
            with file:
                yield file, part.sha256
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def upload(self, place: Place, tensor: Tensor, part: Part) -> Iterator[BinaryIO]:
        """One silo's sealed upload, as a file that is erased afterwards."""
        path = self._state.received_path(place, f"upload-{tensor}", part.silo)
        try:
            self._download(place, tensor, {part: path})
            with path.open("rb") as file:
                yield file
        finally:
            path.unlink(missing_ok=True)

    def _download(self, place: Place, tensor: Tensor | None, wanted: Mapping[Part, Path]) -> None:
        with own_files():
            self._client.download(place, tensor, tuple(wanted.items()))
        for part in wanted:
            self._metrics.received.labels(part.kind).inc(part.size)
