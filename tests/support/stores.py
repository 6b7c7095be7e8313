"""Where a study's rows lie in tests: in memory, in the clear."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext


class Memory:
    """A `data.sources.snapshot.SnapshotStore`. `people` have withdrawn; `writes` counts how often rows were kept."""

    def __init__(self, people: Collection[str] = (), content: bytes | None = None) -> None:
        self.people, self.content, self.writes = set(people), content, 0

    def kept(self) -> bool:
        return self.content is not None

    def recall(self) -> bytes:
        assert self.content is not None
        return self.content

    def keep(self, content: bytes) -> None:
        self.content, self.writes = content, self.writes + 1

    def withdrawn(self) -> Collection[str]:
        return self.people

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stamp(self) -> object:
        return len(self.people)

    def require_whole(self, *, begun: bool) -> None:
        """Nothing is sealed."""
