"""Small contents of the spool, in memory while the silos of an attempt fetch them.

Guarantees: what is kept is what the spool holds under a final name, which never changes. Of a study only one attempt's
contents are kept, and `MOST` bytes of all studies. Every silo of a roster fetches the same notes, so without this the
files of n notes would be opened n^2 times in a phase.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from coordinator.storage.spool import Spool
from crypto.secagg.dealt.slices import Cutting, SliceForm
from policies.plan.note_sizes import MAX_NOTE
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, MessageError, Place

MOST: Final = 32 << 20
"""Bytes that are kept: a roster's largest notes of one kind, some times over."""
Stored = tuple[Place, str, str]
"""Place, slot and file name of a content."""


@dataclass(frozen=True)
class ShelvedContent:
    """A content of one chunk or none, or a note that is cut."""

    data: bytes = field(repr=False)
    chunks: ChunkList
    cuttings: dict[SliceForm, Cutting] = field(default_factory=dict, repr=False, compare=False)
    """The note's cutting, once somebody has read a slice of it. A note has one form."""


class Shelf:
    """The small contents that were fetched last. Thread-safe."""

    def __init__(self, spool: Spool, most: int = MOST) -> None:
        """`most`: bytes that are kept."""
        self._spool, self._most = spool, most
        self._guard = threading.Lock()
        self._kept: dict[Stored, ShelvedContent] = {}
        self._places: dict[str, Place] = {}
        """By study: the attempt whose contents are kept."""
        self._bytes = 0

    def get(self, stored: Stored) -> ShelvedContent | None:
        """Return a content that is complete; None if it has more than one chunk. Raises OSError, if it is gone too."""
        return self._get(stored, MAX_CHUNK)

    def cut(self, stored: Stored, form: SliceForm, about: Collection[str]) -> bytes:
        """Return a complete note of this form, cut for some silos.

        Raises OSError, if it is gone, and `MessageError` for what is no note by its length.
        A note of another length comes as it is: whoever reads it sees that it is none, and whose it is.
        """
        content = self._get(stored, MAX_NOTE)
        if content is None:
            msg = f"the note of {stored[2]} is larger than any note"
            raise MessageError(msg)
        if len(content.data) != form.note:
            return content.data
        if form not in content.cuttings:
            content.cuttings[form] = Cutting(content.data, form)
        return content.cuttings[form].cut(about)

    def _get(self, stored: Stored, most: int) -> ShelvedContent | None:
        with self._guard:
            kept = self._kept.get(stored)
        if kept is not None:
            return kept if len(kept.data) <= most else None
        path = self._spool.complete(*stored)
        if self._spool.length(path) > most:
            return None
        chunks = self._spool.chunk_list(self._spool.chunks(*stored)) or ChunkList.of(path)
        read = ShelvedContent(path.read_bytes(), chunks)
        self._keep(stored, read)
        return read

    def _keep(self, stored: Stored, read: ShelvedContent) -> None:
        place = stored[0]
        with self._guard:
            if self._places.get(place.study) != place:
                self._leave_out(lambda one: one[0].study != place.study)
                self._places[place.study] = place
            if self._bytes + len(read.data) > self._most:
                self._leave_out(lambda _: False)
                self._places = {place.study: place}
            if stored not in self._kept and len(read.data) <= self._most:
                self._kept[stored] = read
                self._bytes += len(read.data)

    def _leave_out(self, stays: Callable[[Stored], bool]) -> None:
        self._kept = {stored: content for stored, content in self._kept.items() if stays(stored)}
        self._bytes = sum(len(content.data) for content in self._kept.values())
