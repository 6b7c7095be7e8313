"""Blind addition: exact in both rings, in constant memory, and all or nothing."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.adding import RINGS, add_contents, check_content, ring_of
from crypto import ckks_public, ring
from crypto.errors import FrameError
from protos.messages import Tensor
from support.silos import content_size, sealed, summed


def write(folder, contents):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.sealed" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize("tensor", Tensor)
def test_a_ring_knows_its_sizes(tensor):
    its_ring = ring_of(tensor)
    assert its_ring is RINGS[tensor.ring]
    for values in (1, 2048, 2049, 100_000):
        assert its_ring.content_size(values) == content_size(tensor, values) == len(sealed(tensor, values))


@pytest.mark.parametrize(
    ("tensor", "values"),
    [
        (Tensor.HEADS, 1),
        (Tensor.HEADS, 3 * ckks_public.FRAME_VALUES),
        (Tensor.ENCODER, 1),
        (Tensor.ENCODER, ring.FRAME_VALUES),
        (Tensor.ENCODER, 2 * ring.FRAME_VALUES + 1),
    ],
)
@pytest.mark.parametrize("silos", [2, 5])
def test_the_sum_is_numpy_s(tmp_path, tensor, values, silos):
    contents = [sealed(tensor, values, seed) for seed in range(silos)]
    target = tmp_path / "new" / "sum.partial"
    add_contents(write(tmp_path, contents), tensor, target)
    assert target.read_bytes() == summed(tensor, contents)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=7, max_size=7), min_size=2, max_size=6))
def test_the_ring_wraps_around(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("ring")
    contents = [np.array(row, "<u4").tobytes() for row in rows]
    add_contents(write(folder, contents), Tensor.ENCODER, folder / "sum")
    expected = [sum(column) % 2**32 for column in zip(*rows, strict=True)]
    assert np.frombuffer((folder / "sum").read_bytes(), "<u4").tolist() == expected


def test_the_largest_residues_add_up(tmp_path):
    largest = np.full(ckks_public.FRAME_WORDS, ckks_public.PRIME - 1, "<u8").tobytes()
    add_contents(write(tmp_path, [largest] * 4), Tensor.COUNTS, tmp_path / "sum")
    assert set(np.frombuffer((tmp_path / "sum").read_bytes(), "<u8").tolist()) == {ckks_public.PRIME - 4}


def unreduced(values=2):
    words = np.frombuffer(sealed(Tensor.COUNTS, values), "<u8").copy()
    words[-1] = ckks_public.PRIME
    return words.tobytes()


@pytest.mark.parametrize(
    ("tensor", "bad"),
    [
        (Tensor.COUNTS, unreduced()),
        (Tensor.COUNTS, sealed(Tensor.COUNTS, 2)[:-1]),
        (Tensor.COUNTS, bytes(ckks_public.FRAME_BYTES)),
        (Tensor.COUNTS, b""),
        (Tensor.ENCODER, b"\0" * 7),
        (Tensor.ENCODER, b"\0" * 4),
        (Tensor.ENCODER, b""),
    ],
    ids=["unreduced", "short", "transparent", "empty", "torn word", "other length", "empty ring"],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_bad_frame_makes_no_sum(tmp_path, tensor, bad, place):
    contents = [sealed(tensor, 2), sealed(tensor, 2)]
    contents[place] = bad
    target = tmp_path / "sum.partial"
    with pytest.raises(FrameError):
        add_contents(write(tmp_path, contents), tensor, target)
    assert not target.exists() or target.stat().st_size == 0


@pytest.mark.parametrize(("tensor", "bad"), [(Tensor.COUNTS, unreduced(5000)), (Tensor.ENCODER, b"\0" * 9)])
def test_a_file_is_checked_to_its_end(tmp_path, tensor, bad):
    (path,) = write(tmp_path, [bad])
    with pytest.raises(FrameError):
        check_content(path, tensor)
    (path,) = write(tmp_path, [sealed(tensor, 5000)])
    check_content(path, tensor)


def peak_of_adding(folder, values):
    """Bytes that Python and numpy held at most while adding two contributions."""
    chunk = np.arange(1 << 18, dtype="<u4").tobytes()
    folder.mkdir()
    paths = [folder / "a", folder / "b"]
    for path in paths:
        with path.open("wb") as file:
            for start in range(0, 4 * values, len(chunk)):
                file.write(chunk[: 4 * values - start])
    tracemalloc.start()
    try:
        check_content(paths[0], Tensor.ENCODER)
        add_contents(paths, Tensor.ENCODER, folder / "sum")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_model(tmp_path):
    small, large = (peak_of_adding(tmp_path / str(values), values) for values in (1_000_000, 10_000_000))
    assert (tmp_path / "10000000" / "sum").stat().st_size == 40_000_000
    assert large < 5_000_000
    assert large - small < 1_000_000
