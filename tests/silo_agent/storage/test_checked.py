"""A file that later rounds read is read as it was written, or not at all."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.storage import checked
from silo_agent.storage.checked import checked_files, digests_of, read_checked, write_checked
from silo_agent.storage.errors import LocalFileError


@given(content=st.binary(min_size=1, max_size=40), place=st.integers(0, 39), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found(tmp_path_factory, content, place, bit):
    path = tmp_path_factory.mktemp("files") / "kept-1.f64"
    write_checked(path, content)
    assert read_checked(path) == content
    damaged = bytearray(content)
    damaged[place % len(content)] ^= 1 << bit
    path.write_bytes(damaged)
    with pytest.raises(LocalFileError, match=rf"{path} is damaged; restore it from a backup"):
        read_checked(path)


def test_a_file_that_is_gone_or_cut_is_told_by_name(tmp_path):
    path = tmp_path / "counts.json"
    write_checked(path, b"[1.0, 2.0]")
    path.write_bytes(b"")
    with pytest.raises(LocalFileError, match="is damaged"):
        read_checked(path)
    path.unlink()
    with pytest.raises(LocalFileError, match="is gone"):
        read_checked(path)


def test_a_file_of_the_version_before_has_no_digests_and_is_taken_until_it_is_written_anew(tmp_path):
    path = tmp_path / "counts.json"
    path.write_bytes(b"[1.0]")
    assert read_checked(path) == b"[1.0]"
    write_checked(path, b"[2.0]")
    path.write_bytes(b"[3.0]")
    with pytest.raises(LocalFileError):
        read_checked(path)


@pytest.mark.parametrize("before", [None, b"before"])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_after_a_crash_around_any_of_its_writes_the_file_is_the_one_before_or_this_one(
    tmp_path, monkeypatch, before, writes
):
    path, order, real = tmp_path / "kept-1.f64", [], checked.write_whole
    if before is not None:
        write_checked(path, before)

    def crash(target, content):
        if len(order) == writes:
            raise KeyboardInterrupt
        order.append(target)
        real(target, content)

    monkeypatch.setattr(checked, "write_whole", crash)
    with pytest.raises(KeyboardInterrupt):
        write_checked(path, b"after")
    assert order == [digests_of(path), path][:writes]
    monkeypatch.undo()
    found = b"after" if writes == 2 else before
    assert list(checked_files(tmp_path)) == ([] if found is None else [path])
    if found is not None:
        assert read_checked(path) == found
    write_checked(path, b"after")
    assert digests_of(path).read_text() == sha256(b"after").hexdigest()


def test_a_content_of_before_and_a_file_that_is_gone_are_found(tmp_path):
    path = tmp_path / "kept-1.f64"
    write_checked(path, b"before")
    write_checked(path, b"after")
    path.write_bytes(b"before")
    with pytest.raises(LocalFileError, match="is damaged"):
        read_checked(path)
    path.unlink()
    assert list(checked_files(tmp_path)) == [path]
    with pytest.raises(LocalFileError, match="is gone"):
        read_checked(path)


def test_what_was_damaged_is_not_right_because_it_was_to_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "kept-1.f64"
    write_checked(path, b"before")
    path.write_bytes(b"damaged")
    real = checked.write_whole
    monkeypatch.setattr(checked, "write_whole", lambda target, content: target != path and real(target, content))
    write_checked(path, b"after")
    with pytest.raises(LocalFileError):
        read_checked(path)
