import numpy as np
import pyarrow as pa
import pytest

from silo_agent.data.cells import OwnCodes, number
from silo_agent.data.columns.arrow_cells import ArrowCells, cells_of
from silo_agent.data.columns.parsing import Parser, read_cells


def test_plain_numbers_are_read_along_and_all_others_once_each():
    """Also those that a mark or a code may mean."""
    asked = []

    def parse(cell):
        asked.append(cell)
        return float(number(cell) or -1.0)

    parser = Parser(parse, lambda values: (values, values < 50.0), frozenset({7.0}))
    found = read_cells(ArrowCells(pa.array(["1", "7", "7.0", "60", "x", "x", None, "2"])), parser, 0.0)
    assert found.values.tolist() == [1.0, 7.0, 7.0, 60.0, -1.0, -1.0, -1.0, 2.0]
    assert asked == ["7", "7.0", "60", "x", None]


def test_a_column_whose_numbers_fail_together_is_read_one_by_one():
    def along(values):
        raise FloatingPointError

    found = read_cells(cells_of([1.0, 2.0, -1.0]), Parser(lambda cell: 1 / (cell + 1), along), 0.0)
    assert found.values.tolist() == [1 / 2, 1 / 3, 0.0]
    assert (found.unfit.tolist(), [str(one.found) for one in found.reasons]) == ([2], ["ZeroDivisionError"])
    assert "private" in repr(found)


def test_own_codes_stand_for_what_a_study_means_also_where_they_are_numbers():
    own = OwnCodes({"7": 70, "8.0": None, "old": 90})
    parser = Parser(lambda cell: -1.0 if cell is None else float(cell), lambda values: (values, values >= 0.0))
    spelt = parser.spelt(own, parser.parse)
    assert read_cells(cells_of([7, 8, 9]), spelt, 0.0).values.tolist() == [70.0, -1.0, 9.0]
    assert read_cells(cells_of(["7.0", "8", "9", "old"]), spelt, 0.0).values.tolist() == [70.0, -1.0, 9.0, 90.0]


@pytest.mark.parametrize("kind", [int, float])
def test_the_type_of_all_values_is_that_of_what_stands_in_for_the_unfit(kind):
    for cells in ([], ["1"], ["x"]):
        assert read_cells(cells, Parser(kind), kind(0)).values.dtype == np.dtype(
            {int: np.int64, float: np.float64}[kind]
        )


def test_codes_are_not_taken_for_numbers_first(monkeypatch):
    monkeypatch.setattr(ArrowCells, "numbers", None)
    assert read_cells(cells_of(["1", "2", "1"]), Parser(int), 0).values.tolist() == [1, 2, 1]
