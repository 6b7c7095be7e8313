"""A file that later rounds read is read as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silo_agent.storage import checked
from silo_agent.storage.checked import digests_of, read_checked, write_checked
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


def test_after_a_crash_between_the_two_writes_the_file_is_the_one_before(tmp_path, monkeypatch):
    path, order = tmp_path / "kept-1.f64", []
    write_checked(path, b"before")

    def crash(target, content):
        order.append(target)
        if target == path:
            raise KeyboardInterrupt
        target.write_bytes(content)

    monkeypatch.setattr(checked, "write_whole", crash)
    with pytest.raises(KeyboardInterrupt):
        write_checked(path, b"after")
    assert order == [digests_of(path), path]
    assert read_checked(path) == b"before"


def test_what_was_damaged_is_not_right_because_it_was_to_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "kept-1.f64"
    write_checked(path, b"before")
    path.write_bytes(b"damaged")
    real = checked.write_whole
    monkeypatch.setattr(checked, "write_whole", lambda target, content: target != path and real(target, content))
    write_checked(path, b"after")
    with pytest.raises(LocalFileError):
        read_checked(path)
