"""A hospital's data set: where its records are, how they are written, whose each is, and who is held out.

It is read and divided here and nowhere else, so that the agent's own process and that of the personal model, and every
round, have the same two cohorts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from policies.documents.policy import Policy
from policies.documents.study import DataSchema
from silo_agent.config import SqlSource
from silo_agent.data.images import Levels
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.data.sources.snapshot import SnapshotStore, read_begun
from silo_agent.data.split import split
from silo_agent.data.table import Source, Written


@dataclass(frozen=True)
class Division:
    """What decides who trains and who is held out, by the policy: `data_set.id`, `.holdout` and `.identified_by`."""

    name: str
    holdout: float
    identified_by: tuple[str, ...]

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """What a policy says."""
        own = policy.data_set
        return cls(own.id, own.holdout, own.identified_by)

    def split(self, records: Records) -> tuple[Records, Records]:
        """The records for training and those held out (`split.split`). Raises ValueError for records of nobody."""
        return split(records, self.name, self.holdout)


@dataclass(frozen=True)
class DataSet:
    """The records of one study at this hospital. `written` says how the hospital writes them; None: as the study says.

    A source holds no password, so a data set may be an argument of a process.
    """

    source: Source
    division: Division
    written: Written | None = None

    @classmethod
    def of(cls, policy: Policy, source: Source) -> Self:
        """The data set that a policy is written for, with its records at this place."""
        return cls(source, Division.of(policy), Written.of(policy))

    def cohorts(
        self, schema: DataSchema, *, kept: SnapshotStore | None = None, room: Levels | None = None
    ) -> tuple[Records, Records]:
        """The records for training and those held out, of all that fit the schema.

        `kept` keeps the rows of the first reading for all later ones; without it the data are as they are now. `room`
        keeps images, as in `reader.read_records`. Raises what `read_begun` or `read_records` raises.
        """
        asked = self.source, schema, self.division.identified_by
        if kept is None:
            return self.division.split(read_records(*asked, room=room, written=self.written).records)
        return self.division.split(read_begun(*asked, kept, room=room, written=self.written))

    def document(self) -> dict[str, Any]:
        """The data set as JSON has it."""
        database = self.source.model_dump(mode="json") if isinstance(self.source, SqlSource) else None
        source = {"database": database} if database else {"file": str(self.source)}
        return source | {
            "division": asdict(self.division),
            "written": None if self.written is None else self.written.fields(),
        }

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Self:
        """Inverse of `document`, also after JSON, which has lists instead of tuples."""
        database, written = document.get("database"), document["written"]
        division = Division(**document["division"])
        return cls(
            Path(document["file"]) if database is None else SqlSource.model_validate(database),
            replace(division, identified_by=tuple(division.identified_by)),
            None if written is None else Written.parse(written),
        )
