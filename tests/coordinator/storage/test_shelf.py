"""Small contents stay in memory for one attempt of a study, and never more than so many bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.storage import shelf as shelves
from coordinator.storage.shelf import MOST, Shelf
from coordinator.storage.spool import Spool
from crypto.secagg.dealt.slices import Cutting, Layout
from policies.plan.note_sizes import MAX_NOTE
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, MessageError, Place
from support.databases import EPOCH

PLACE = Place("5" * 64, 1, 1)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, EPOCH)


def put(spool, content, name="north", place=PLACE):
    path = spool.complete(place, "note-reveal-heads", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return place, "note-reveal-heads", name


def gone(spool, *places):
    for place in places or (PLACE,):
        spool.clear(place)


def test_what_was_fetched_once_is_read_from_memory_and_its_list_is_made_where_none_is(spool):
    shelf, one = Shelf(spool), put(spool, b"a note")
    first = shelf.get(one)
    assert (first.data, first.chunks) == (b"a note", ChunkList.of(spool.complete(*one)))
    gone(spool)
    assert shelf.get(one) is first
    assert repr(first) == f"ShelvedContent(chunks={first.chunks!r})"


@pytest.mark.parametrize(("size", "small"), [(0, True), (MAX_CHUNK, True), (MAX_CHUNK + 1, False)])
def test_longer_contents_are_left_to_the_disk(spool, size, small):
    assert (Shelf(spool).get(put(spool, bytes(size))) is not None) is small


def test_another_attempt_of_the_study_takes_the_place_of_the_one_before_and_other_studies_stay(spool):
    shelf, later, other = Shelf(spool), replace(PLACE, attempt=2), Place("6" * 64, 1, 1)
    one, elsewhere, then = put(spool, b"1"), put(spool, b"2", place=other), put(spool, b"3", place=later)
    for stored in (one, elsewhere, then):
        shelf.get(stored)
    gone(spool, PLACE, other, later)
    assert [shelf.get(stored).data for stored in (elsewhere, then)] == [b"2", b"3"]
    with pytest.raises(FileNotFoundError):
        shelf.get(one)


def test_no_more_bytes_are_kept_than_are_allowed(spool):
    shelf = Shelf(spool, most=10)
    stored = {name: put(spool, bytes(size), name) for name, size in {"a": 4, "b": 6, "c": 1, "d": 11}.items()}
    for name in "ab":
        shelf.get(stored[name])
    shelf.get(stored["c"])
    gone(spool)
    assert len(shelf.get(stored["c"]).data) == 1
    for name in "ab":
        with pytest.raises(FileNotFoundError):
            shelf.get(stored[name])
    assert MOST > 128 * 64 * 1024, "the largest notes of a large roster fit"


def test_a_note_is_cut_whoever_reads_it_however_long_it_is(spool):
    for tensors, holders in ((("heads",), 3), (tuple(f"t{number:03}" for number in range(50)), 40)):
        form = Layout.of(tensors, [f"silo-{number}" for number in range(holders)]).form
        note = bytes(number % 251 for number in range(form.note))
        shelf, one = Shelf(spool), put(spool, note)
        for about in (("silo-1",), ("silo-2", "silo-0"), ()):
            assert shelf.cut(one, form, about) == Cutting(note, form).cut(about)
        assert (shelf.get(one) is None) == (len(note) > MAX_CHUNK), "a content of several chunks is read from the disk"
    assert len(note) > MAX_CHUNK
    gone(spool)
    assert shelf.cut(one, form, ("silo-3",)) == Cutting(note, form).cut(("silo-3",)), "from memory"
    with pytest.raises(FileNotFoundError):
        Shelf(spool).cut(one, form, ())


def test_the_tree_of_a_note_is_computed_once(spool, monkeypatch):
    form, made = Layout.of(("heads",), ("a", "b", "c")).form, []
    monkeypatch.setattr(shelves, "Cutting", lambda *given: made.append(given) or Cutting(*given))
    shelf, one = Shelf(spool), put(spool, bytes(form.note))
    for name in "abc":
        shelf.cut(one, Layout.of(("heads",), ("a", "b", "c")).form, (name,))
    assert made == [(bytes(form.note), form)]


@pytest.mark.parametrize("size", [0, 5, MAX_CHUNK + 1])
def test_what_is_no_note_of_the_form_comes_as_it_is(spool, size):
    """Whoever reads it says whose it is. The coordinator would only fail."""
    form = Layout.of(("heads",), ("a", "b")).form
    assert Shelf(spool).cut(put(spool, bytes(size)), form, ("a",)) == bytes(size)


def test_what_is_larger_than_any_note_is_not_read_into_memory(spool):
    form = Layout.of(("heads",), ("a", "b")).form
    assert Shelf(spool).cut(put(spool, bytes(MAX_NOTE)), form, ("a",)) == bytes(MAX_NOTE)
    with pytest.raises(MessageError, match="the note of south is larger than any note"):
        Shelf(spool).cut(put(spool, bytes(MAX_NOTE + 1), "south"), form, ("a",))


def test_what_is_longer_than_all_that_may_be_kept_is_read_and_not_kept(spool):
    shelf, one = Shelf(spool, most=10), put(spool, bytes(11))
    assert len(shelf.get(one).data) == 11
    gone(spool)
    with pytest.raises(FileNotFoundError):
        shelf.get(one)
