"""A small schema with every kind of column, and rows for it."""

from __future__ import annotations

from typing import Any

from policies.documents.study import CategoryFeature, DataSchema, DomainColumn, Image, Label, NumericFeature

HEADER = "id,age,crp,sex,smoker,scanner,died"
GOOD = "p1,50,10,f,yes,A,1"


def make_schema(**changes: Any) -> DataSchema:
    """The schema, with fields replaced."""
    fields: dict[str, Any] = {
        "patient": "id",
        "missing": ("", "?"),
        "label": Label(column="died", positive=(1,), negative=(0,)),
        "domain": (
            DomainColumn(column="scanner", values=("A", "B"), names=("a", "b")),
            DomainColumn(column="age", edges=(40.0, 65.0), names=("young", "middle", "old")),
        ),
        "features": (
            NumericFeature(column="age", kind="number", minimum=0.0, maximum=100.0),
            NumericFeature(
                column="crp", kind="number", minimum=1.0, maximum=100.0, scale="log", fill=10.0, missing=(-1,)
            ),
            CategoryFeature(column="sex", kind="category", values=("f", "m")),
            CategoryFeature(column="smoker", kind="category", values=("yes", "no"), optional=True),
        ),
    }
    return DataSchema(**(fields | changes))


def scans_schema(**changes: Any) -> DataSchema:
    """Age, chest X-ray and outcome of each visit, in the manner of EXAM."""
    return make_schema(
        features=make_schema().features[:1],
        image=Image(column="scan", height=8, width=8),
        **changes,
    )


SCANS = HEADER + ",scan"
