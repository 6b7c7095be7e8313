"""Counts what binds this silo, in the state folder and beside the ledger, so that an older copy of the folder shows.

Guarantees: a transaction that binds the silo (a draw, sealed bytes, a signed list, a reveal, a void, a sum that is
tried) raises the study's count, and the ledger knows the new count before the silo says anything that rests on it. If
the ledger knows of more than the folder, the folder was put back from an older copy: what it drew and said since is
unknown, so it takes no part in any round up to the last in which it said anything. From the next round on it catches up
as after a round that it missed (docs/design/noise.md, "Rolled back"). The same holds if folder and ledger were both put
back, once a peer shows a word of this silo that is in neither (docs/design/sums.md, "Rolled back").
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, delete, insert, select

from policies.ledger.anchors import Anchor
from protos.messages import Place
from silo_agent.storage.errors import StateOlderError, StateRolledBackError

_metadata = MetaData()
_said = Table(
    "said",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("words", Integer, nullable=False),
    Column("barred", Integer, nullable=False),
)
"""How often the silo has bound itself in a study, and the last round in which it takes no part; -1 for none."""


class KeptAnchors(Protocol):
    """The counts beside the ledger (`policies.ledger.anchors`)."""

    def of(self, study: str) -> Anchor:
        """What the ledger knows of a study."""
        ...

    def raise_to(self, study: str, anchor: Anchor) -> None:
        """Raise it, durably."""
        ...


class Anchored:
    """The transactions that bind the silo. Until `bind` names a ledger, they are counted in the folder alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._anchors: KeptAnchors | None = None
        _metadata.create_all(engine)

    def bind(self, anchors: KeptAnchors) -> None:
        """Compare with a ledger from now on, and write to it."""
        self._anchors = anchors

    def require(self, place: Place) -> None:
        """Raise `StateRolledBackError` if the silo may have said in this round what it does not know any more.

        Else the ledger knows afterwards of everything that is in the folder, also of what was stored before a death or
        a full disk kept it from the ledger. Raises `LedgerWriteError`.
        """
        with self._engine.begin() as connection:
            count, barred = self._known(connection, place.study)
        if place.round <= barred:
            msg = (
                f"the state folder is older than the ledger beside it: what this silo has said in the study"
                f" {place.study[:12]} up to round {barred} is not in it, so it sits these rounds out"
            )
            raise StateRolledBackError(msg)
        if self._anchors is not None and count > self._anchors.of(place.study).said:
            self._anchors.raise_to(place.study, Anchor(place.round, count))

    @contextmanager
    def binding(self, place: Place) -> Iterator[Connection]:
        """A transaction after which the silo is bound. Raises `StateRolledBackError`, `LedgerWriteError`."""
        self.require(place)
        with self._engine.begin() as connection:
            yield connection
            count, barred = self._known(connection, place.study)
            self._write(connection, place.study, count + 1, barred)
        if self._anchors is not None:
            self._anchors.raise_to(place.study, Anchor(place.round, count + 1))

    def say(self, place: Place) -> int:
        """Raise the study's count for a word of which the folder keeps nothing else. Returns the new count.

        Raises `StateRolledBackError`, `LedgerWriteError`.
        """
        with self.binding(place):
            pass
        return self.count(place.study)

    def count(self, study: str) -> int:
        """How much this silo has said in a study, as far as folder and ledger know. Raises `LedgerWriteError`."""
        with self._engine.begin() as connection:
            return self._known(connection, study)[0]

    def shown(self, place: Place, by: str, said: int) -> None:
        """Take note that a peer has shown a word of this silo, with the count `said`, that the folder does not know.

        Folder and ledger were put back together, and how far is unknown, so the silo sits this round out: raises
        `StateOlderError`, and `StateRolledBackError` whenever it is to say something in this round or an earlier one.
        Raises `LedgerWriteError`.
        """
        with self._engine.begin() as connection:
            count, barred = self._known(connection, place.study)
            said = max(said, count)
            self._write(connection, place.study, said, max(barred, place.round))
        if self._anchors is not None:
            self._anchors.raise_to(place.study, Anchor(place.round, said))
        msg = f"this state folder is older than what {by} last saw of it; restore the newer one, with its ledger"
        raise StateOlderError(msg)

    @staticmethod
    def _write(connection: Connection, study: str, count: int, barred: int) -> None:
        connection.execute(delete(_said).where(_said.c.study == study))
        connection.execute(insert(_said).values(study=study, words=count, barred=barred))

    def _known(self, connection: Connection, study: str) -> tuple[int, int]:
        """The count from which this silo goes on, and the last round that is barred."""
        row = connection.execute(select(_said.c.words, _said.c.barred).where(_said.c.study == study)).first()
        count, barred = (0, -1) if row is None else (int(row.words), int(row.barred))
        anchor = Anchor() if self._anchors is None else self._anchors.of(study)
        if anchor.said > count:
            return anchor.said, max(barred, anchor.round)
        return count, barred
