import pytest

from policies.plan.rare_columns import cut_by_outcome, warning
from support.studies import tiny_study

RAW = {"model": {"encoder": "raw", "hidden": [], "representation": 2}, "encoder": {"rounds": 0}}


def study(*, low=0.0, high=1.0, scale="linear", **changes):
    features = [
        {"kind": "number", "column": "age", "minimum": 0, "maximum": 120},
        {"kind": "number", "column": "smokes", "minimum": low, "maximum": high, "scale": scale},
    ]
    return tiny_study(**{"data": {"features": features}, **RAW, **changes})


def test_a_number_from_0_to_1_that_heads_read_is_named():
    assert cut_by_outcome(study()) == ("smokes",)
    said = warning(study())
    assert said.startswith("Heads read smokes as numbers from 0 to 1")
    assert "heads.clip_by: worst" in said
    beside = study(model={"skip": True}, encoder={})
    assert cut_by_outcome(beside) == ("smokes",)


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": {"clip_by": "worst"}},
        {"high": 2.0},
        {"low": -1.0},
        {"scale": "log1p"},
        {"model": {}, "encoder": {}},
    ],
)
def test_where_no_outcome_decides_or_no_such_column_is_read_nothing_is_said(changes):
    assert cut_by_outcome(study(**changes)) == ()
    assert warning(study(**changes)) is None
