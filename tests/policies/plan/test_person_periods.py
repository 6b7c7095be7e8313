import pytest

from policies.plan.person_periods import time_at_risk, warning
from support.studies import tiny_study


def study(*columns, patient="patient"):
    features = [{"kind": "number", "column": column, "minimum": 0, "maximum": 10} for column in columns]
    return tiny_study(data={"features": features, "patient": patient})


@pytest.mark.parametrize(
    "column",
    ["interval", "Interval", "period_no", "followUp", "follow-up", "days_since_admission", "months.to.event",
     "time_at_risk", "personYears", "exposure", "timeSinceDiagnosis", "survival time"],
)  # fmt: skip
def test_a_column_that_looks_like_time_at_risk_is_named(column):
    assert time_at_risk(study("age", column)) == (column,)
    said = warning(study("age", column))
    assert said.startswith(f"Look at {column}: is there a row for each patient and period?")
    assert "docs/studies.md" in said


@pytest.mark.parametrize("column", ["age", "lactate", "days", "time", "periodontitis", "length_of_stay", "risk_score"])
def test_other_columns_are_not(column):
    assert time_at_risk(study(column)) == ()
    assert warning(study(column)) is None


def test_where_each_record_is_a_patient_of_its_own_nothing_is_said():
    assert time_at_risk(study("interval", patient=None)) == ()
