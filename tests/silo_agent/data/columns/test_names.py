import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.data.columns import names as names_module
from silo_agent.data.columns.names import Names, Numbering

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=4) | st.sampled_from(["p1", "p2", "p3"])


@given(st.lists(TEXTS), st.data())
def test_names_are_a_sequence_of_texts(texts, data):
    names = Names(texts)
    assert (list(names), len(names)) == (texts, len(texts))
    assert names == tuple(texts)
    assert tuple(texts) == names
    assert names == pickle.loads(pickle.dumps(names))  # noqa: S301  # our own
    assert names != [*texts, "more"]
    assert [names[place] for place in range(len(texts))] == texts
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts))), np.bool_)
    assert names.at(chosen) == [text for text, kept in zip(texts, chosen, strict=True) if kept]
    assert names[1:] == texts[1:]
    assert ("x" in names) == ("x" in texts)
    assert names != "".join(texts) or not texts


def test_names_show_nothing_and_are_no_keys():
    assert repr(Names(["secret"])) == "Names(<private>)"
    with pytest.raises(TypeError):
        hash(Names(["secret"]))
    assert Names(["a"]) != 1


TABLES = st.lists(st.lists(TEXTS, max_size=6), max_size=5)


@given(TABLES, st.integers(1, 9), st.booleans())
def test_patients_are_numbered_as_they_first_come_however_many_are_told_apart_at_once(tables, at_once, one_each):
    numbering, alone = Numbering(one_each=one_each), []
    for table in tables:
        different = [*sorted(set(table)), "nobody's"]
        numbering.add(np.array([different.index(name) for name in table], np.int64), different)
        alone += table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names_module, "_TABLE", at_once)
        patients, names = numbering.all()
    first = list(range(len(alone))) if one_each else [list(dict.fromkeys(alone)).index(name) for name in alone]
    assert patients.dtype == np.int64
    assert patients.tolist() == first
    assert names == (alone if one_each else list(dict.fromkeys(alone)))


def test_no_more_names_are_told_apart_at_once_than_a_table_holds(monkeypatch):
    """A table of five million names takes half a gigabyte."""
    sizes, take = [], names_module.pa.LargeStringArray.take
    monkeypatch.setattr(names_module, "_TABLE", 1000)

    class Seen:
        def __init__(self, array):
            self.array = array

        def __len__(self):
            return len(self.array)

        def __getattr__(self, name):
            return getattr(self.array, name)

        def take(self, places):
            sizes.append(len(places))
            return take(self.array, places)

    texts = [f"p{place:06d}" for place in range(20_000)]
    numbers, first = names_module._numbered(Seen(names_module.pa.array(texts, names_module.pa.large_string())))
    assert numbers.tolist() == first.tolist() == list(range(20_000))
    assert max(sizes) <= 2000


def test_a_part_of_an_array_is_numbered_by_its_own_texts():
    texts = names_module.pa.array(["p1", "x", "", "p1", "x"], names_module.pa.large_string())[1:]
    numbers, first = names_module._numbered(texts)
    assert (numbers.tolist(), first.tolist()) == ([0, 1, 2, 0], [0, 1, 2])
