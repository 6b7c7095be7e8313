"""What this silo has heard last of each other silo: the words that it shows them again (`crypto.secagg.words`).

Guarantees: a count of a silo in a study never goes down. The words outlive the rounds in which they were heard, and
the process. The caller has checked the signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy import Column, Engine, Integer, LargeBinary, MetaData, String, Table, delete, insert, select

from crypto.secagg.words import Word, higher

_metadata = MetaData()
_heard = Table(
    "heard",
    _metadata,
    Column("study", String(64), primary_key=True),
    Column("silo", String(63), primary_key=True),
    Column("said", Integer, nullable=False),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)


class Heard:
    """The words in the agent's database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        _metadata.create_all(engine)

    def of(self, study: str) -> dict[str, Word]:
        """The last word of each other silo in a study, by silo."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(_heard).where(_heard.c.study == study)).all()
        return {row.silo: Word(row.said, row.round, row.attempt, row.signature) for row in rows}

    def keep(self, study: str, words: Mapping[str, Word]) -> None:
        """Keep the words that say more than those that are kept, durably, in one transaction."""
        known = self.of(study)
        with self._engine.begin() as connection:
            for name, word in higher(known, words).items():
                connection.execute(delete(_heard).where(_heard.c.study == study, _heard.c.silo == name))
                connection.execute(insert(_heard).values(study=study, silo=name, **asdict(word)))
