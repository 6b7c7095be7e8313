"""Faults of a file: how many are kept, and which are shown."""

from silo_agent.data.errors import Fault, Faults


def fault(row, column, file="ward.csv"):
    return Fault(file, row, column, "'x'", "a number")


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


def test_a_fault_says_where_it_is_as_far_as_that_is_known():
    assert str(fault(7, "age")) == "ward.csv, row 7, column 'age': found 'x', expected a number"
    assert str(fault(0, "")) == "ward.csv: found 'x', expected a number"
