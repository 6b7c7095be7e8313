from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.cells import (
    MAX_TEXT,
    Absence,
    CodeTable,
    OwnCodes,
    identifier,
    identity_text,
    number,
    plain,
    shown,
    text,
)


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


def test_a_whole_number_is_a_token_or_a_code_whatever_type_its_column_has():
    """One patient's cell can make texts or floats of a column: the others' -9 must not become people or codes."""
    for token in ("-9", "-9.0"):
        absence = Absence((token,))
        assert all(absence.covers(cell) for cell in ("-9", "-9.0", -9, -9.0))
        assert not any(absence.covers(cell) for cell in ("9", 9, "-90", -9.5, "-9.5"))
    assert not Absence(("true", "1")).covers(cell=True)
    assert Absence(("1",)).covers(1e300) is False
    for codes in (("0", "1"), ("0.0", "1.0"), (0, 1)):
        assert [CodeTable(codes).find(cell) for cell in ("1", "1.0", 1, 1.0)] == [1] * 4
    assert [CodeTable(("1.0", "1")).find(cell) for cell in ("1.0", "1")] == [0, 1], "exactly as it is written, first"


def test_an_identifier_that_a_float_cannot_hold_is_none():
    for cell in (2.0**53, -(2.0**53), 1e300, float("inf")):
        with pytest.raises(ValueError, match="cannot hold"):
            identifier(cell)
    assert identifier(2.0**53 - 1) == "9007199254740991"
    assert identifier(2**60) == str(2**60)


def test_a_value_becomes_a_cell_or_is_none():
    assert [plain(value) for value in (None, True, 7, 7.5, "a", b"a", bytearray(b"a"), memoryview(b"a"))] == [
        *(None, True, 7, 7.5, "a", "b'a'", "b'a'", "b'a'")
    ]
    assert plain(Decimal("7.50")) == "7.50"
    assert plain("é" * MAX_TEXT) == "é" * MAX_TEXT
    for value in ("x" * (MAX_TEXT + 1), b"x" * MAX_TEXT, "\udcff"):
        with pytest.raises(ValueError, match=r"too long|surrogates not allowed"):
            plain(value)


def test_text_of_whole_numbers_has_no_fraction_and_long_cells_are_cut():
    assert text(7.0) == text(7) == "7"
    assert shown("x" * 100).endswith("...")
    assert shown(None) == shown("") == "nothing"


def test_a_patient_is_the_same_with_and_without_a_fraction_of_zeros():
    assert {identifier(cell) for cell in (7, 7.0, "7", "7.0", " 7.00 ", "7.")} == {"7"}
    assert identifier(-7.0) == identifier("-7.0") == "-7"


def test_other_identifiers_stay_as_they_are_written():
    for one in ("007", "3.10", "3.1", "7.01", "7.0a", "1e3", "a.0", ".0", "7,0", "1.0.0"):
        assert identifier(one) == one
    assert identifier("007.0") == "007"


@given(st.integers(1 - 2**53, 2**53 - 1))
def test_a_whole_number_identifies_alike_in_every_format(value):
    written = {identifier(value), identifier(float(value)), identifier(str(value)), identifier(f"{value}.0")}
    assert written == {str(value)}
    assert {identity_text(cell) for cell in (value, float(value), str(value), f"{value}.0")} == {identity_text(value)}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_tells_a_record_by_its_value_however_it_is_written(value):
    assert identity_text(value) == identity_text(repr(value)) == identity_text(f" {value:.17e} ")


def test_nothing_and_truth_tell_a_record_alike_in_csv_and_parquet():
    assert {identity_text(cell) for cell in (None, "", " ", float("nan"))} == {""}
    assert {identity_text(cell) for cell in (True, "true", "True", " TRUE ")} == {"true"}
    assert {identity_text(cell) for cell in (0.0, -0.0, "0", "-0.0", 0)} == {"0"}
    assert identity_text("?") == "?"
    assert identity_text("a") != identity_text("A")


def test_a_hospitals_own_code_is_found_as_text_and_as_number_in_csv_and_parquet():
    spelling = OwnCodes({"M": 1, "2": "f", "": 0, "u": None, "true": "yes"})
    assert [spelling.of(cell) for cell in ("M", " M ", "2", 2, 2.0, "2.0", "", None, "u", True)] == [
        *(1, 1, "f", "f", "f", "f", 0, 0, None, "yes")
    ]
    for other in ("m", "F", 3, "22", 2.5, float("inf")):
        assert spelling.of(other) == other
    assert OwnCodes({"007": "a", "7": "b"}).of("7") == "b"
