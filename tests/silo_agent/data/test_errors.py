"""Faults of a file: how many are kept, and which are shown."""

import pytest

from silo_agent.data.errors import LISTED, DataError, Faults, MisfitReason, Reasons, RecordFault


def fault(row, column, file="ward.csv"):
    return RecordFault(file, row, column, "'x'", "a number")


def test_of_each_column_the_first_faults_are_kept_and_all_are_counted():
    """A file of millions of faults takes no memory for them."""
    faults = Faults(listed=2)
    for row in range(5, 105):
        faults.add(fault(row, "age"))
    for row in range(3, 8):
        faults.add(fault(row, "group"))
    assert faults.total == 105
    assert len(faults._kept) == 4
    assert faults.first() == (fault(3, "group"), fault(4, "group"))
    assert repr(faults) == "Faults(<private>)"


def test_a_reason_has_the_first_fault_and_counts_its_rows_once():
    reasons = Reasons()
    for row, column in ((5, "age"), (5, "age"), (9, "age"), (7, "group")):
        reasons.add(fault(row, column))
    assert reasons.counted() == (
        MisfitReason("age", "a number", 2, "'x'", 5, "ward.csv"),
        MisfitReason("group", "a number", 1, "'x'", 7, "ward.csv"),
    )


@pytest.mark.parametrize(
    ("count", "total", "more"), [(2, None, 0), (2, 9, 7), (LISTED + 3, None, 3), (LISTED, LISTED, 0)]
)
def test_a_file_that_does_not_fit_says_how_many_faults_are_not_listed(count, total, more):
    faults = [fault(row, "age") for row in range(count)]
    error = DataError(faults, total)
    listed = min(count, LISTED)
    lines = [*map(str, faults[:listed]), *([f"and {more} more; fix these first"] if more else [])]
    assert str(error).splitlines() == lines
    assert error.total == listed + more
    assert (
        error.summary == "the silo's data does not fit the study's schema in 'age'; fedward-silo data check says where"
    )
    assert repr(error) == "DataError(<private>)"


def test_a_fault_says_where_it_is_as_far_as_that_is_known():
    assert str(fault(7, "age")) == "ward.csv, row 7, column 'age': found 'x', expected a number"
    assert str(fault(0, "")) == "ward.csv: found 'x', expected a number"
