"""A small study whose heads read the inputs themselves, with every kind of column."""

import pytest

from support.studies import tiny_study

COLUMNS = [
    {"kind": "number", "column": "age", "minimum": 0, "maximum": 120},
    {"kind": "number", "column": "lactate", "minimum": 0, "maximum": 10, "fill": 1},
    {"kind": "number", "column": "smoker", "minimum": 0, "maximum": 1},
    {"kind": "category", "column": "pain", "values": [1, 2, 3], "optional": True},
]
RAW = {
    "model": {"encoder": "raw", "hidden": [], "representation": 8},
    "encoder": {"rounds": 0},
    "heads": {"pooled_rounds": 2, "domain_rounds": 2, "pooled_noise": 2.0, "domain_noise": 2.0, "clip": 0.5},
}


@pytest.fixture
def raw_study():
    """Makes the study with changes."""

    def make(**changes):
        whole = {name: part | changes.pop(name, {}) for name, part in RAW.items()}
        return tiny_study(data={"features": COLUMNS, **changes.pop("data", {})}, **whole, **changes)

    return make
