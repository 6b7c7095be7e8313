"""Whether a hospital's file, as its policy says it is written, can give what a study reads.

Guarantees: it follows from the policy and the study alone, so a refusal tells nothing about patients. What would leave
out every record is refused, and no number is read in another unit than the study's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from policies.documents.policy import OLDEST, Policy
from policies.documents.study import DataSchema, Study
from policies.refusals import Reason, Refused, Why

_STATE_IT: Final = (
    "A policy of version 3 means commas and a header line; put one of version 4 into force, whose data_set.file says"
    " how the file is parted"
)
_NAMED, _LETTERS = 6, 32
"""Most columns that a refusal lists, and most letters of each."""


def check_file(policy: Policy, study: Study) -> None:
    """Raise `Refused` if the file cannot be read for the study, with all reasons."""
    if found := list(unreadable(policy, study)):
        raise Refused.of(found)


def unreadable(policy: Policy, study: Study) -> Iterator[Why]:
    """Why the file cannot be read for the study.

    From version 4 on the policy says how it is parted, whatever the study expects.
    """
    yield from _parted_otherwise(policy, study) if policy.version <= OLDEST else ()
    yield from _absent(policy, study.data)
    yield from _in_other_units(policy, study.data)


def _parted_otherwise(policy: Policy, study: Study) -> Iterator[Why]:
    """Why a policy of version 3, which means commas and a header line, does not fit."""
    unit, named = policy.data_set.unit, study.data.columns
    file = policy.data_set.file
    yield from _unless(
        study.data.delimiter == file.delimiter,
        f"study.data.delimiter is {study.data.delimiter!r}, and policy.data_set.file.delimiter is {file.delimiter!r}:"
        f" the policy says how the file is parted into cells, because other cells would identify other {unit}s."
        f" {_STATE_IT}",
    )
    yield from _unless(
        named == file.columns,
        f"study.data.columns {_columns(named)}, and policy.data_set.file.columns {_columns(file.columns)}: the policy"
        f" says which cell has which name, because other names would identify {unit}s by other cells. {_STATE_IT}",
    )


def _columns(names: tuple[str, ...]) -> str:
    """What a list of columns says, cut for a refusal."""
    if not names:
        return "says that the file has a header line"
    listed = ", ".join(name[:_LETTERS] for name in names[:_NAMED]) + (
        f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    )
    return f"names the columns of a file without one ({listed})"


def _absent(policy: Policy, data: DataSchema) -> Iterator[Why]:
    """Why a column that the hospital does not have cannot be done without."""
    absent = set(policy.spelling.absent)
    decides = {data.label.column: "label"}
    decides |= {} if data.image is None else {data.image.column: "image"}
    decides |= {} if data.environment is None else {data.environment.column: "environment"}
    decides |= {one.column: "protected" for one in data.protected} | {one.column: "domain" for one in data.domain}
    for column, field in decides.items():
        yield from _unless(
            column not in absent,
            f"study.data.{field} is column {column!r}, and policy.spelling.absent lists it: without it no record can be"
            " read. If the file has it under another name, rename it there",
        )
    for feature in data.features:
        instead = feature.fill is not None if feature.kind == "number" else feature.optional
        lacks = "fill" if feature.kind == "number" else "optional: true"
        yield from _unless(
            feature.column not in absent or feature.column in decides or instead,
            f"study.data.features reads column {feature.column!r} without {lacks}, and policy.spelling.absent lists it:"
            f" every record would be left out; ask the study's authors for {lacks}",
        )


def _in_other_units(policy: Policy, data: DataSchema) -> Iterator[Why]:
    """Why numbers cannot be read in the study's units."""
    for column, own in policy.spelling.units.items():
        asked = data.units.get(column)
        if column not in data.numbers or own.conversion(asked) is not None:
            continue
        wanted = "names no unit of it" if asked is None else f"asks for {asked}"
        fix = (
            "ask the study's authors to name one"
            if asked is None
            else "add what makes that unit to policy.spelling.units, or ask the authors for another"
        )
        yield (
            Reason.FILE,
            f"policy.spelling.units says that column {column!r} is in {own.unit}, and the study {wanted}: {fix}",
        )


def _unless(holds: bool, text: str) -> Iterator[Why]:  # noqa: FBT001 - a condition is what it is given
    if not holds:
        yield Reason.FILE, text
