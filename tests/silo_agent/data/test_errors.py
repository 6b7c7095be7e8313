"""Faults of a file: how many are kept, and which are shown."""

import pytest

from silo_agent.data.errors import LISTED, CountedReason, DataError, Faults, MisfitReason, Reasons, RecordFault


def fault(row, column, file="ward.csv"):
    return RecordFault(file, row, column, "'x'", "a number")


def test_of_each_reason_the_first_faults_are_kept_and_all_are_counted():
    """A file of millions of faults takes no memory for them, and the first rows hide no other reason."""
    faults = Faults(listed=2)
    for row in range(5, 105):
        faults.add(fault(row, "age"))
    for row in range(3, 8):
        faults.add(fault(row, "group"))
    assert faults.total == 105
    assert sum(map(len, faults._kept.values())) == 4
    assert faults.first() == (fault(3, "group"), fault(5, "age"))
    assert faults.reasons() == (CountedReason("age", "a number", 100), CountedReason("group", "a number", 5))
    assert [str(reason) for reason in faults.reasons()] == [
        "column 'age': 100 cells, expected a number",
        "column 'group': 5 cells, expected a number",
    ]
    faults.add(RecordFault("ward.csv", 9, "", "2 cells", "5 cells"))
    assert str(faults.reasons()[-1]) == "1 rows, expected 5 cells"
    assert (repr(faults), repr(faults.reasons()[0])) == ("Faults(<private>)", "CountedReason(<private>)")


def test_faults_of_one_reason_are_listed_by_row_as_long_as_there_is_room():
    faults = Faults(listed=3)
    for row in (9, 4, 7):
        faults.add(fault(row, f"x{row}"))
    for row in (5, 6):
        faults.add(fault(row, "x4"))
    assert [one.row for one in faults.first()] == [4, 7, 9]
    faults = Faults(listed=4)
    for row, column in ((9, "a"), (2, "b"), (3, "b"), (4, "b"), (5, "b")):
        faults.add(fault(row, column))
    assert [one.row for one in faults.first()] == [2, 3, 4, 9]


def test_an_error_of_more_faults_than_it_lists_says_first_what_was_expected_how_often():
    faults = Faults()
    for row in range(LISTED + 3):
        faults.add(fault(row, "age"))
    error = DataError.of(faults)
    lines = str(error).splitlines()
    assert lines[:2] == [f"column 'age': {LISTED + 3} cells, expected a number", "for example:"]
    assert lines[2:] == [*(str(fault(row, "age")) for row in range(LISTED)), "and 3 more; fix these first"]
    assert (error.total, error.faults) == (LISTED + 3, faults.first())
    few = Faults()
    few.add(fault(1, "age"))
    assert str(DataError.of(few)) == str(fault(1, "age"))


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
