"""Blocks are plain values that fit together."""

import json

import pytest

from policies.reports.blocks import BarRow, Bars, BoardReport, Cell, Paragraph, Section, grid


def test_a_table_has_as_many_cells_in_each_row_as_columns():
    assert grid(("a", "b"), [("x", Cell("y", "best"))]).rows == ((Cell("x"), Cell("y", "best")),)
    with pytest.raises(ValueError, match="a row has 1 cells, and the table 2 columns"):
        grid(("a", "b"), [("x",)])


def test_bars_end_at_the_largest_value_or_limit():
    assert Bars("e", (BarRow("a", 3.0, "3", 8.0), BarRow("b", 4.0, "4"))).top == 8.0
    assert Bars("e", (BarRow("a", 9.0, "9", 8.0),)).top == 9.0
    assert Bars("e", (BarRow("a", 0.0, "0"),)).top == Bars("e", ()).top == 1.0


def test_the_plain_form_has_every_kind_and_is_json():
    bars = Bars("e", (BarRow("a", 3.0, "3"),))
    report = BoardReport("t", "p", "d", ("f",), (Section("s", (Paragraph("x"), bars), inside=True),), warning="w")
    plain = json.loads(json.dumps(report.plain()))
    assert [block["kind"] for block in plain["sections"][0]["blocks"]] == ["paragraph", "bars"]
    assert plain["sections"][0]["blocks"][1]["top"] == 3.0
    assert (plain["warning"], plain["sections"][0]["inside"]) == ("w", True)
