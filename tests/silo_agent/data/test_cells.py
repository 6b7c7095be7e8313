from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import Absence, CodeTable, number, shown, text


def test_numbers_are_plain_decimal_and_finite():
    assert number(" 1.5 ") == 1.5
    assert number("-2e3") == -2000.0
    assert number(".5") == 0.5
    assert number(3) == 3.0
    for cell in ("1,5", "1_000", "nan", "inf", "1e999", "0x10", "", "٣", None, True, float("nan"), float("inf")):
        assert number(cell) is None, cell


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_written_out_is_read_back(value):
    assert number(repr(value)) == value


def test_a_code_is_found_in_text_and_in_typed_cells():
    table = CodeTable(("F", 1, 2.5, True))
    assert table.find(" F ") == 0
    assert [table.find(cell) for cell in ("1", "1.0", 1, 1.0)] == [1, 1, 1, 1]
    assert [table.find(cell) for cell in ("2.5", 2.5)] == [2, 2]
    assert [table.find(cell) for cell in ("TRUE", True)] == [3, 3]
    assert [table.find(cell) for cell in ("f", "2", None, False, "false", "")] == [None] * 6


def test_text_codes_match_typed_numbers_by_their_text_and_truth_is_no_number():
    assert CodeTable(("0", "1")).find(1) == 1
    assert CodeTable(("0", "1")).find(1.0) == 1
    assert CodeTable((0, 1)).find(cell=True) is None
    assert CodeTable((True,)).find("1") is None


def test_absence_knows_null_tokens_and_codes():
    absence = Absence(("", "?"), (-9,))
    assert all(absence.covers(cell) for cell in (None, float("nan"), "", " ? ", "-9", -9.0))
    assert not any(absence.covers(cell) for cell in ("9", 0, "na", False))


def test_text_of_whole_numbers_has_no_fraction_and_long_cells_are_cut():
    assert text(7.0) == text(7) == "7"
    assert shown("x" * 100).endswith("...")
    assert shown(None) == shown("") == "nothing"
