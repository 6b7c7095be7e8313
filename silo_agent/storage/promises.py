"""What a silo has bound itself to in the sums, for ever: lists that it signed or voided, reveals, and opened sums.

Guarantees: for one sum of one round only one list of survivors is signed, in whatever attempt, until T silos have
voided it. Who has revealed does not void, and who has voided never reveals in the attempts that it voided. Of all sums
that are offered under one label, only one is ever tried. Every promise is durable before this silo says anything that
rests on it (docs/design/sums.md, "Voided lists"). `tasks` checks signatures and counts them.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, replace

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, delete, insert, select, update

from protos.messages import Place, Tensor
from silo_agent.storage.anchored import Anchored
from silo_agent.storage.digests import Digests
from silo_agent.storage.errors import SumError, SurvivorsError

_metadata = MetaData()
_survivors = Table(
    "survivors",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("tensor", String(16), primary_key=True),
    Column("names", String, nullable=False),
)
_promises = Table(
    "promises",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("tensor", String(16), primary_key=True),
    Column("signed", Integer, nullable=False),
    Column("revealed", Integer, nullable=False),
    Column("voided", Integer, nullable=False),
    Column("closed", Integer, nullable=False),
)
_sums = Table(
    "sums",
    _metadata,
    Column("label", String(64), primary_key=True),
    Column("sha256", String(64), nullable=False),
)


@dataclass(frozen=True)
class _Bound:
    """Latest attempts at a round, for one tensor; 0 for none."""

    signed: int = 0
    """In which this silo signed its list."""
    revealed: int = 0
    """In which this silo revealed."""
    voided: int = 0
    """Up to which this silo has promised to reveal nothing."""
    closed: int = 0
    """Up to which T silos have promised so: no sum of these attempts is ever opened."""


class Promises:
    """The promises that lie in the agent's database. Every method is one transaction."""

    def __init__(self, engine: Engine, digests: Digests | None = None, anchored: Anchored | None = None) -> None:
        """Without `digests` no sum can be opened. `anchored`: None for a count of their own."""
        self._engine, self._digests = engine, digests
        self._anchored = anchored or Anchored(engine)
        _metadata.create_all(engine)

    def binding(self, place: Place, tensor: Tensor) -> tuple[str, ...]:
        """The list to which this silo is bound for one sum of a round; empty if none that it signed still counts."""
        with self._engine.begin() as connection:
            names, bound = _read(connection, place, tensor)
        return names if _binds(names, bound) else ()

    def lists_of(self, silo: str) -> list[tuple[Place, Tensor]]:
        """The sums whose lists this silo has signed and that name `silo`, of all rounds; none that were voided."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(_survivors)).all()
            found = []
            for row in rows:
                place = Place(row.study, row.round, 1)
                names, bound = _read(connection, place, Tensor(row.tensor))
                if silo in names and _binds(names, bound):
                    attempt = max(1, bound.signed, bound.revealed)
                    found.append((replace(place, attempt=attempt), Tensor(row.tensor)))
        return found

    def sign(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Record the survivors that this silo is about to sign. The same again changes nothing.

        Raises `SurvivorsError` if another list binds it: if two sums differ in one silo, their difference is that
        silo's contribution. Raises it also for an attempt whose sum was voided.
        """
        with self._anchored.binding(place) as connection:
            before, bound = _read(connection, place, tensor)
            if place.attempt <= max(bound.voided, bound.closed):
                msg = (
                    f"the sum of {tensor} of round {place.round}, attempt {place.attempt}, was voided; it is not signed"
                )
                raise SurvivorsError(msg)
            if _binds(before, bound) and before != names:
                raise SurvivorsError(_second(place, tensor, before))
            if before and not bound.signed:
                # A version that kept no reveals stored the list, so this silo may have revealed it.
                bound = replace(bound, revealed=place.attempt)
            _write(connection, place, tensor, names, replace(bound, signed=max(bound.signed, place.attempt)))

    def require(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Raise `SurvivorsError` if this silo is bound to another list than these names."""
        bound = self.binding(place, tensor)
        if bound and bound != names:
            raise SurvivorsError(_second(place, tensor, bound))

    def reveal(self, place: Place, tensor: Tensor) -> None:
        """Record that this silo is about to reveal. Raises `SurvivorsError` if it has voided this attempt's sum."""
        with self._anchored.binding(place) as connection:
            names, bound = _read(connection, place, tensor)
            if place.attempt <= bound.voided:
                msg = f"this silo has voided the sum of {tensor} of round {place.round}, so it reveals nothing for it"
                raise SurvivorsError(msg)
            _write(connection, place, tensor, names, replace(bound, revealed=max(bound.revealed, place.attempt)))

    def void(self, place: Place, tensor: Tensor, through: int) -> bool:
        """Promise to reveal nothing of this round's tensor in the attempts up to `through`, if nothing was revealed.

        Returns False, and promises nothing, if this silo has revealed in an attempt that T silos have not closed.
        """
        with self._anchored.binding(place) as connection:
            names, bound = _read(connection, place, tensor)
            unknown = bool(names) and not bound.signed
            if unknown or bound.revealed > bound.closed:
                return False
            _write(connection, place, tensor, names, replace(bound, voided=max(bound.voided, through)))
        return True

    def voided(self, place: Place, tensor: Tensor) -> int:
        """The last attempt of the round up to which this silo has voided the tensor's sums; 0 if none."""
        with self._engine.begin() as connection:
            return _read(connection, place, tensor)[1].voided

    def close(self, place: Place, tensor: Tensor, through: int) -> None:
        """Record that T silos have voided the attempts up to `through`. A list that was signed there binds no more."""
        with self._engine.begin() as connection:
            names, bound = _read(connection, place, tensor)
            _write(connection, place, tensor, names, replace(bound, closed=max(bound.closed, through)))

    def open(self, place: Place, label: str, sha256: str) -> None:
        """Record the sum that is about to be opened under a label. Raises `SumError` if another was tried before."""
        if self._digests is None:
            msg = "the state was opened without the folder's secret, so no sum is opened"
            raise SumError(msg)
        keyed = self._digests.keyed("sum", sha256)
        with self._anchored.binding(place) as connection:
            row = connection.execute(select(_sums.c.sha256).where(_sums.c.label == label)).first()
            if row is None:
                connection.execute(insert(_sums).values(label=label, sha256=keyed))
            elif row.sha256 != keyed:
                msg = "another sum was offered under this label before; only the first is ever tried"
                raise SumError(msg)


def key_sums(connection: Connection, digests: Digests) -> None:
    """Replace the plain digests that an earlier version stored."""
    for row in connection.execute(select(_sums)).all():
        keyed = digests.keyed("sum", row.sha256)
        connection.execute(update(_sums).where(_sums.c.label == row.label).values(sha256=keyed))


def _binds(names: tuple[str, ...], bound: _Bound) -> bool:
    """Whether a signed list counts: T silos have not voided it. If its attempt is unknown, it counts for ever."""
    return bool(names) and not 0 < bound.signed <= bound.closed


def _second(place: Place, tensor: Tensor, names: tuple[str, ...]) -> str:
    return (
        f"this silo has signed a list of survivors for {tensor} of round {place.round}: {', '.join(names)}; it takes"
        " part in no sum of others, so these silos must take part, or enough silos must void the list"
    )


def _key(place: Place, tensor: Tensor) -> dict[str, object]:
    return {"study": place.study, "round": place.round, "tensor": str(tensor)}


def _read(connection: Connection, place: Place, tensor: Tensor) -> tuple[tuple[str, ...], _Bound]:
    rows = []
    for table in (_survivors, _promises):
        wanted = [table.c[column] == value for column, value in _key(place, tensor).items()]
        rows.append(connection.execute(select(table).where(*wanted)).first())
    listed, bound = rows
    names = () if listed is None else tuple(json.loads(listed.names))
    return names, _Bound() if bound is None else _Bound(bound.signed, bound.revealed, bound.voided, bound.closed)


def _write(connection: Connection, place: Place, tensor: Tensor, names: tuple[str, ...], bound: _Bound) -> None:
    key = _key(place, tensor)
    signed, revealed, voided, closed = astuple(bound)
    for table, values in (
        (_survivors, {"names": json.dumps(names)} if names else None),
        (_promises, {"signed": signed, "revealed": revealed, "voided": voided, "closed": closed}),
    ):
        if values is not None:
            connection.execute(delete(table).where(*(table.c[column] == value for column, value in key.items())))
            connection.execute(insert(table).values(**key, **values))
