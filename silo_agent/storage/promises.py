"""What a silo has bound itself to in the sums, for ever: lists that it signed or voided, reveals, and opened sums.

Guarantees: for one sum of one round only one list of survivors is signed, in whatever attempt, until T silos have
voided it, or it is proven that a sum was spoilt. Who has revealed does not void, and who has voided never reveals in
the attempts that it voided. Of all sums that are offered under one label, only one is ever tried. A sum is called
spoilt only if this silo has refused it. Every promise is durable before this silo says anything that rests on it
(docs/design/sums.md, "Voided lists", "Spoilt sums"). `bonds` has the rules of the lists; `tasks` checks signatures and
counts them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, delete, insert, select, update

from protos.messages import Place, Tensor
from silo_agent.core.bonds import Bonds
from silo_agent.storage.errors import SecondSumError
from silo_agent.storage.keyed.anchored import Anchored
from silo_agent.storage.keyed.digests import Digests

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
_refusals = Table(
    "refusals",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("tensor", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("culprit", String(63), nullable=False),
)
_epochs = Table(
    "epochs",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("spoilt", Integer, nullable=False),
)

_spent = Table(
    "spent",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("tensor", String(16), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("names", String, nullable=False),
)
"""Lists that bind nobody any more, because a sum of their round was spoilt. Their sums count as opened for ever."""
_among = Table(
    "among",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("round", Integer, primary_key=True),
    Column("tensor", String(16), primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("names", String, nullable=False),
)
"""The last attempt in which this silo contributed, and the participants among whom it did."""


@dataclass(frozen=True)
class KeptRefusal:
    """A sum that this silo opened and refused."""

    sha256: str
    """Digest of the sum (`protos.chunks`)."""
    culprit: str
    """The silo whose own signed notes show the fault; empty if none show one."""


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
            return _read(connection, place, tensor).list

    def lists_of(self, silo: str) -> list[tuple[Place, Tensor]]:
        """The sums whose lists this silo has signed and that name `silo`, of all rounds; none that were voided.

        Those of rounds that were begun anew after a spoilt sum are among them: they count as opened.
        """
        with self._engine.begin() as connection:
            rows = connection.execute(select(_survivors)).all()
            found = [
                (Place(row.study, row.round, row.attempt), Tensor(row.tensor))
                for row in connection.execute(select(_spent))
                if silo in json.loads(row.names)
            ]
            for row in rows:
                place = Place(row.study, row.round, 1)
                bonds = _read(connection, place, Tensor(row.tensor))
                if silo in bonds.list:
                    attempt = max(1, bonds.signed, bonds.revealed)
                    found.append((replace(place, attempt=attempt), Tensor(row.tensor)))
        return found

    def sign(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Record the survivors that this silo is about to sign. The same again changes nothing.

        Raises `SurvivorsError` if another list binds it: if two sums differ in one silo, their difference is that
        silo's contribution. Raises it also for an attempt whose sum was voided.
        """
        with self._anchored.binding(place) as connection:
            bonds = _read(connection, place, tensor)
            _write(connection, place, tensor, bonds.sign(place.attempt, names, _of(place, tensor)))

    def require(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Raise `SurvivorsError` if this silo is bound to another list than these names."""
        with self._engine.begin() as connection:
            _read(connection, place, tensor).require(names, _of(place, tensor))

    def contribute(self, place: Place, tensor: Tensor, names: tuple[str, ...]) -> None:
        """Record the participants among whom this silo is about to contribute. The same again changes nothing.

        Raises `SurvivorsError` if it has contributed in this attempt among others. A process that dies after it has
        sealed may be told of others, but the masks on the stored bytes stay.
        """
        with self._engine.begin() as connection:
            bonds = _read(connection, place, tensor)
            _write(connection, place, tensor, bonds.contribute(place.attempt, names, _of(place, tensor)))

    def reveal(self, place: Place, tensor: Tensor) -> None:
        """Record that this silo is about to reveal.

        Raises `SurvivorsError` if it has voided this attempt's sum, or if a spoilt sum has ended this attempt.
        """
        with self._anchored.binding(place) as connection:
            bonds = _read(connection, place, tensor)
            _write(connection, place, tensor, bonds.reveal(place.attempt, _of(place, tensor)))

    def void(self, place: Place, tensor: Tensor, through: int) -> bool:
        """Promise to reveal nothing of this round's tensor in the attempts up to `through`, if nothing was revealed.

        Returns False, and promises nothing, if this silo has revealed in an attempt that T silos have not closed and no
        spoilt sum has ended.
        """
        with self._anchored.binding(place) as connection:
            bonds = _read(connection, place, tensor).void(through)
            if bonds is not None:
                _write(connection, place, tensor, bonds)
        return bonds is not None

    def voided(self, place: Place, tensor: Tensor) -> int:
        """The last attempt of the round up to which this silo has voided the tensor's sums; 0 if none."""
        with self._engine.begin() as connection:
            return _read(connection, place, tensor).voided

    def close(self, place: Place, tensor: Tensor, through: int) -> None:
        """Record that T silos have voided the attempts up to `through`. A list that was signed there binds no more."""
        with self._engine.begin() as connection:
            _write(connection, place, tensor, _read(connection, place, tensor).close(through))

    def open(self, place: Place, label: str, sha256: str) -> None:
        """Record the sum that is about to be opened under a label. Raises `SecondSumError` if there was another."""
        if self._digests is None:
            msg = "the state was opened without the folder's secret, so no sum is opened"
            raise SecondSumError(msg)
        keyed = self._digests.keyed("sum", sha256)
        with self._anchored.binding(place) as connection:
            row = connection.execute(select(_sums.c.sha256).where(_sums.c.label == label)).first()
            if row is None:
                connection.execute(insert(_sums).values(label=label, sha256=keyed))
            elif row.sha256 != keyed:
                msg = "another sum was offered under this label before; only the first is ever tried"
                raise SecondSumError(msg)

    # --- spoilt sums ----------------------------------------------------------------------------------------------
    def refuse(self, place: Place, tensor: Tensor, refusal: KeptRefusal) -> None:
        """Record that this silo has opened an attempt's sum of a tensor and refused it. The first refusal stays."""
        with self._anchored.binding(place) as connection:
            if _refusal(connection, place, tensor) is None:
                key = _key(place, tensor) | {"attempt": place.attempt}
                connection.execute(insert(_refusals).values(**key, sha256=refusal.sha256, culprit=refusal.culprit))

    def refused(self, place: Place, tensor: Tensor) -> KeptRefusal | None:
        """The sum of a tensor that this silo has refused in an attempt; None if it has refused none."""
        with self._engine.begin() as connection:
            return _refusal(connection, place, tensor)

    def renew(self, place: Place, spoilt: int) -> None:
        """Record the proof that a sum of this round was spoilt in the attempt `spoilt`. The round begins anew."""
        if spoilt <= self.spoilt(place):
            return
        key = {"study": place.study, "round": place.round}
        with self._anchored.binding(place) as connection:
            _spend(connection, place, spoilt)
            connection.execute(delete(_epochs).where(*(_epochs.c[name] == value for name, value in key.items())))
            connection.execute(insert(_epochs).values(**key, spoilt=spoilt))

    def spoilt(self, place: Place) -> int:
        """The last attempt at this round with a proven spoilt sum; 0 for none. What was charged till then is over."""
        with self._engine.begin() as connection:
            return _spoilt(connection, place)


def key_sums(connection: Connection, digests: Digests) -> None:
    """Replace the plain digests that an earlier version stored."""
    for row in connection.execute(select(_sums)).all():
        keyed = digests.keyed("sum", row.sha256)
        connection.execute(update(_sums).where(_sums.c.label == row.label).values(sha256=keyed))


def _spend(connection: Connection, place: Place, spoilt: int) -> None:
    """Keep the lists that a spoilt sum frees. Another list will take their place, and their sums may be open."""
    of_round = (_survivors.c.study == place.study, _survivors.c.round == place.round)
    for row in connection.execute(select(_survivors).where(*of_round)).all():
        bonds = _read(connection, place, Tensor(row.tensor))
        if bonds.binds and bonds.signed <= spoilt:
            key = _key(place, Tensor(row.tensor)) | {"attempt": max(1, bonds.signed, bonds.revealed)}
            connection.execute(insert(_spent).values(**key, names=row.names))


def _refusal(connection: Connection, place: Place, tensor: Tensor) -> KeptRefusal | None:
    key = _key(place, tensor) | {"attempt": place.attempt}
    row = connection.execute(select(_refusals).where(*(_refusals.c[name] == key[name] for name in key))).first()
    return None if row is None else KeptRefusal(row.sha256, row.culprit)


def _spoilt(connection: Connection, place: Place) -> int:
    wanted = (_epochs.c.study == place.study, _epochs.c.round == place.round)
    row = connection.execute(select(_epochs.c.spoilt).where(*wanted)).first()
    return 0 if row is None else int(row.spoilt)


def _of(place: Place, tensor: Tensor) -> str:
    return f"{tensor} of round {place.round}"


def _key(place: Place, tensor: Tensor) -> dict[str, object]:
    return {"study": place.study, "round": place.round, "tensor": str(tensor)}


def _read(connection: Connection, place: Place, tensor: Tensor) -> Bonds:
    rows = []
    for table in (_survivors, _promises, _among):
        wanted = [table.c[column] == value for column, value in _key(place, tensor).items()]
        rows.append(connection.execute(select(table).where(*wanted)).first())
    listed, kept, among = rows
    bonds = Bonds(spoilt=_spoilt(connection, place))
    if listed is not None:
        bonds = replace(bonds, names=tuple(json.loads(listed.names)))
    if kept is not None:
        bonds = replace(bonds, signed=kept.signed, revealed=kept.revealed, voided=kept.voided, closed=kept.closed)
    if among is not None:
        bonds = replace(bonds, sent=among.attempt, among=tuple(json.loads(among.names)))
    return bonds


def _write(connection: Connection, place: Place, tensor: Tensor, bonds: Bonds) -> None:
    key = _key(place, tensor)
    kept = {name: getattr(bonds, name) for name in ("signed", "revealed", "voided", "closed")}
    for table, values in (
        (_survivors, {"names": json.dumps(bonds.names)} if bonds.names else None),
        (_promises, kept),
        (_among, {"attempt": bonds.sent, "names": json.dumps(bonds.among)} if bonds.sent else None),
    ):
        if values is not None:
            connection.execute(delete(table).where(*(table.c[column] == value for column, value in key.items())))
            connection.execute(insert(table).values(**key, **values))
