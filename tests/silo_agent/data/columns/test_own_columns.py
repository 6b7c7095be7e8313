"""Columns that the file does not have: absent ones, and times between two dates of the same row."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.sections.spelling import Spelling
from silo_agent.data.columns.own_columns import OwnColumns
from silo_agent.data.table import Table, Written

SPELLING = Spelling.model_validate(
    {
        "absent": ["crp"],
        "dates": {"born": "%d.%m.%Y", "seen": "%Y-%m-%d", "left": "%Y-%m-%d %H:%M:%S"},
        "between": {
            "age": {"start": "born", "end": "seen", "unit": "years"},
            "stay": {"start": "seen", "end": "left", "unit": "days"},
        },
    }
)
OWN = OwnColumns(Written(",", (), spelling=SPELLING), ("", "?"))


def made(name, **cells):
    table = Table("ward.csv", {one: [cell] for one, cell in cells.items()}, [2])
    return OWN.table(table).columns[name][0]


def test_the_file_is_asked_for_what_it_has():
    assert OWN.needed(("id", "age", "crp", "seen", "stay")) == ("id", "born", "seen", "left")
    assert OwnColumns(None, ()).needed(("age", "id", "age")) == ("age", "id")


def test_an_absent_column_is_nothing_in_every_row():
    table = OWN.table(Table("ward.csv", {"id": ["p1", "p2"], "crp": [1, 2]}, [2, 3]))
    assert list(table.columns["crp"]) == [None, None]
    assert set(table.columns) == {"id", "crp"}, "nothing is made of columns that are not there"


def test_a_file_as_studies_ask_for_it_stays_as_it_is():
    table = Table("ward.csv", {"id": ["p1"]}, [2])
    assert OwnColumns(Written(",", ()), ()).table(table) is table


@pytest.mark.parametrize(
    ("born", "seen", "age"),
    [
        ("01.02.1953", "2020-01-31", 66),
        ("01.02.1953", "2020-02-01", 67),
        (" 1.2.1953 ", "2020-02-01", 67),
        ("29.02.2000", "2021-02-28", 20),
        ("29.02.2000", "2021-03-01", 21),
        ("01.02.2020", "2019-02-01", -1),
        ("?", "2020-01-31", None),
        ("01.02.1953", None, None),
        ("31.02.1953", "2020-01-31", "'31.02.1953' is not %d.%m.%Y"),
        ("01.02.1953", "31.01.2020", "'31.01.2020' is not %Y-%m-%d"),
        ("01.02.53", "2020-01-31", "'01.02.53' is not %d.%m.%Y"),
        (b"x", "2020-01-31", "b'x' is not %d.%m.%Y"),
    ],
)
def test_an_age_is_completed_years(born, seen, age):
    assert made("age", born=born, seen=seen) == age


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)), st.integers(-400, 40_000))
def test_days_are_counted_whatever_the_hour(day, days):
    left = f"{day + timedelta(days)} 23:59:59"
    assert made("stay", seen=str(day), left=left) == days


@given(st.dates(date(1900, 1, 1), date(2000, 1, 1)), st.integers(0, 100))
def test_a_year_is_completed_on_its_day_and_not_before(day, years):
    if (day.month, day.day) == (2, 29):
        return
    birthday = day.replace(year=day.year + years)
    born = day.strftime("%d.%m.%Y")
    assert made("age", born=born, seen=str(birthday)) == years
    assert made("age", born=born, seen=str(birthday - timedelta(1))) == years - 1
