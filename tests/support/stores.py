"""Where a study's rows lie in tests: in memory, in the clear."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

from silo_agent.data.cells import Cell
from silo_agent.data.sources.snapshot import unpack


class Memory:
    """A `data.sources.snapshot.SnapshotStore`. `people` have withdrawn; `writes` counts how often rows were kept."""

    def __init__(self, people: Collection[str] = (), content: bytes | None = None) -> None:
        self.people, self.content, self.writes = set(people), content, 0

    def kept(self) -> bool:
        return self.content is not None

    def recall(self) -> Iterator[bytes]:
        assert self.content is not None
        return iter([self.content])

    def keep(self, content: Iterable[bytes]) -> None:
        self.content, self.writes = b"".join(content), self.writes + 1

    def cells(self, column: str) -> list[Cell]:
        """What is kept of a column."""
        return [cell for table in unpack(self.recall()).tables for cell in table.columns[column]]

    def withdrawn(self) -> Collection[str]:
        return self.people

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stamp(self) -> object:
        return len(self.people)

    def require_whole(self, *, begun: bool) -> None:
        """Nothing is sealed."""
