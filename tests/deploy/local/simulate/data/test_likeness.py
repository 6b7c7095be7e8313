"""Which tables are one another's copies, and which only look like it."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.simulate.data import likeness
from deploy.local.simulate.data.likeness import alike, as_cell, columns_of
from silo_agent.data.sources.opening import SUFFIXES

CELL = st.one_of(st.none(), st.booleans(), st.integers(-5, 2**40), st.floats(-1e6, 1e6), st.text("abc ", max_size=4))


def table(rows, seed=0, **more):
    drawn = random.Random(seed)  # noqa: S311  # made-up patients
    cells = {"patient": list(range(rows)), "age": [], "lactate": []}
    for _ in range(rows):
        cells["age"].append(drawn.randrange(30, 90))
        cells["lactate"].append(round(drawn.uniform(0.5, 20), 3))
    return cells | more


@given(
    st.lists(st.tuples(CELL, CELL, CELL), min_size=8, max_size=12, unique_by=repr), st.randoms(use_true_random=False)
)
def test_a_table_is_like_itself_in_any_order_and_as_text(rows, order):
    own = {name: [*cells, *range(50)] for name, cells in zip("abc", zip(*rows, strict=True), strict=True)}
    places = list(range(len(own["a"])))
    order.shuffle(places)
    written = {name: ["" if cells[i] is None else str(cells[i]) for i in places] for name, cells in own.items()}
    assert alike(dict(reversed(written.items())), own)
    assert alike(own, {f"{name}x": cells for name, cells in written.items()})


@pytest.mark.parametrize(
    ("shared", "others", "expected"), [(20, 20, True), (20, 21, False), (7, 0, False), (8, 0, True)]
)
def test_half_of_the_rows_make_a_copy_and_a_few_do_not(shared, others, expected):
    """Seen from the smaller table, of which the other rows are strangers'."""
    own, strangers = table(100), table(100, seed=1)
    part = {name: own[name][:shared] + strangers[name][50 : 50 + others] for name in own}
    part["patient"] = own["patient"][: shared + others]
    assert alike(part, own) is alike(own, part) is expected


def test_a_running_number_or_a_few_coarse_columns_make_no_copy():
    own = table(100)
    assert not alike({"patient": own["patient"], "weight": list(range(100))}, own)
    assert not alike({"patient": own["patient"]}, {"patient": own["patient"]})
    coarse = {"group": ["a", "b"] * 50, "ill": [0, 1, 1, 0] * 25}
    assert not alike(coarse, coarse)
    few = {"group": list("abcdefghij"), "ill": list(range(10))}
    assert not alike({name: cells * 10 for name, cells in few.items()}, few), "one of them is coarse"
    assert not alike(few, {name: cells * 10 for name, cells in few.items()})
    assert alike(coarse | {"age": [i / 7 for i in range(100)]}, coarse | {"age": [i / 7 for i in range(100)]})


def test_a_column_that_was_changed_throughout_does_not_hide_the_others():
    own = table(100)
    assert alike(own | {"patient": [f"x{i}" for i in range(100)]}, own)
    assert alike({name.upper(): cells for name, cells in own.items()}, own)
    changed = own | {"lactate": [cell + 0.05 for cell in own["lactate"]]}
    assert alike(changed, own), "patient and age are enough"
    assert not alike(changed | {"patient": [f"x{i}" for i in range(100)]}, own), "one column is not"


def test_numbers_are_alike_in_single_precision_and_empty_cells_whatever_stands_for_them():
    own = table(50, smoker=["yes", None] * 25, born=["1960-02-03"] * 50)
    single = pa.array(own["lactate"], pa.float32()).to_pylist()
    assert single != own["lactate"]
    other = own | {"lactate": single, "smoker": ["yes", "NA"] * 25, "born": ["1960-02-03 00:00:00"] * 50}
    assert alike({name: other[name] for name in ("lactate", "smoker", "born")}, own)


def test_whole_numbers_are_alike_only_in_all_their_digits():
    own = {"patient": [10**7 + i for i in range(100)], "ill": [i % 2 for i in range(100)]}
    assert alike(own, {"patient": [str(cell) for cell in own["patient"]], "ill": own["ill"]})
    assert not alike(own, own | {"patient": [10**7 + i for i in range(100, 200)]})


def test_files_are_read_with_whatever_delimiter_and_without_rows_that_cannot_be(tmp_path):
    path = tmp_path / "one.csv"
    for mark in ",;\t|":
        path.write_text(f'\ufeffa{mark}b{mark}a\n1{mark}2{mark}3\n1{mark}2\n"1{mark}2{mark}3\n')
        assert columns_of(path) == {"a": ["a", "1"], "b": ["b", "2"], "a 2": ["a", "3"]}
        path.write_text(f"a{mark}b{mark}c")
        assert columns_of(path) == {"a": ["a"], "b": ["b"], "c": ["c"]}, "one line without an end"
        path.write_text(f"a{mark}b{mark}c\n1{mark}2\n3{mark}4{mark}5\n")
        assert columns_of(path) == {"a": ["a", "3"], "b": ["b", "4"], "c": ["c", "5"]}
    path.write_text("")
    assert columns_of(path) == {}
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"x", b"\xff"], pa.binary()).buffers())
    pq.write_table(pa.table({"a": texts, "b": [1, 2.5]}), tmp_path / "one.parquet")
    assert columns_of(tmp_path / "one.parquet") == {"a": ["x", None], "b": [1.0, 2.5]}
    assert as_cell("\udcff") is None


def test_one_and_true_are_told_apart_whichever_comes_first():
    ages = [i / 7 for i in range(40)]
    truths = {"ill": [True, False] * 20, "age": ages}
    assert alike(truths, {"ill": ["True", "false"] * 20, "age": ages})
    assert alike({"ill": [1, 0] * 20, "age": ages}, {"ill": ["1", "0"] * 20, "age": ages})
    assert not alike(truths, {"ill": [1, 0] * 20, "age": ages})


def test_a_copy_in_any_format_that_a_silo_reads_is_looked_into():
    assert set(likeness._FORMATS) == set(SUFFIXES)
