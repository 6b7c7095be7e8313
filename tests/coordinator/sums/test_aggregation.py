"""Blind addition: exact in every ring, in constant memory, and all or nothing."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coordinator.sums.aggregation
from coordinator.sums.aggregation import ContentAlteredError, check_content
from crypto.errors import FrameError
from crypto.rings.ckks_public import FRAME_BYTES, PRIME, RESIDUES, write_frame
from crypto.rings.rings import RINGS
from protos.chunks import ChunkList
from support.contents import digest_of

KINDS = pytest.mark.parametrize("kind", RINGS)
WORDS = {"ring32": "<u4", "ring64": "<u8"}


def sealed(kind, values, seed=0):
    """Well-formed content: uniform words, as masks make them."""
    rng = np.random.default_rng(seed)
    if kind in WORDS:
        return rng.bytes(values * np.dtype(WORDS[kind]).itemsize)
    frames = -(-values // 2048)
    return b"".join(write_frame(rng.integers(0, PRIME, RESIDUES, dtype=np.uint64)) for _ in range(frames))


def residues(content):
    """A frame's 54-bit numbers, read as its definition has them: one little-endian integer."""
    whole = int.from_bytes(content, "little")
    return [whole >> 54 * place & (1 << 54) - 1 for place in range(RESIDUES)]


def summed(kind, contents):
    """The sum of all contributions in one piece."""
    if kind in WORDS:
        return np.sum(
            [np.frombuffer(content, WORDS[kind]) for content in contents], axis=0, dtype=WORDS[kind]
        ).tobytes()
    frames = []
    for begin in range(0, len(contents[0]), FRAME_BYTES):
        columns = zip(*(residues(content[begin : begin + FRAME_BYTES]) for content in contents), strict=True)
        total = sum(sum(column) % PRIME << 54 * place for place, column in enumerate(columns))
        frames.append(total.to_bytes(FRAME_BYTES, "little"))
    return b"".join(frames)


def add(paths, kind, target):
    """Add what lies there, which is what was uploaded."""
    coordinator.sums.aggregation.add_contents(paths, [ChunkList.of(path).digest for path in paths], kind, target)


def write(folder, contents):
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number}.sealed" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("ckks", 1),
        ("ckks", 3 * 2048),
        *((kind, values) for kind in WORDS for values in (1, 1 << 14, 1 << 15, (2 << 15) + 1)),
    ],
)
@pytest.mark.parametrize("silos", [2, 5])
def test_the_sum_is_exact(tmp_path, kind, values, silos):
    contents = [sealed(kind, values, seed) for seed in range(silos)]
    assert {len(content) for content in contents} == {RINGS[kind].content_size(values)}
    target = tmp_path / "new" / "sum.partial"
    add(write(tmp_path, contents), kind, target)
    assert target.read_bytes() == summed(kind, contents)


@pytest.mark.parametrize("kind", WORDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_integers_wrap_around(tmp_path_factory, kind, data):
    bits = 8 * np.dtype(WORDS[kind]).itemsize
    row = st.lists(st.integers(0, 2**bits - 1), min_size=7, max_size=7)
    rows = data.draw(st.lists(row, min_size=2, max_size=6))
    folder = tmp_path_factory.mktemp("ring")
    contents = [np.array(row, WORDS[kind]).tobytes() for row in rows]
    add(write(folder, contents), kind, folder / "sum")
    expected = [sum(column) % 2**bits for column in zip(*rows, strict=True)]
    assert np.frombuffer((folder / "sum").read_bytes(), WORDS[kind]).tolist() == expected


def test_the_largest_residues_add_up(tmp_path):
    largest = write_frame(np.full(RESIDUES, PRIME - 1, np.uint64))
    add(write(tmp_path, [largest] * 4), "ckks", tmp_path / "sum")
    assert set(residues((tmp_path / "sum").read_bytes())) == {PRIME - 4}


def unreduced(values=2):
    content = bytearray(sealed("ckks", values))
    content[-7:] = b"\xff" * 7
    return bytes(content)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("ckks", unreduced()),
        ("ckks", sealed("ckks", 2)[:-1]),
        ("ckks", bytes(FRAME_BYTES)),
        ("ckks", b""),
        ("ring32", b"\0" * 7),
        ("ring32", b"\0" * 4),
        ("ring32", b""),
        ("ring64", b"\0" * 15),
        ("ring64", b"\0" * 8),
    ],
    ids=[
        "unreduced",
        "short",
        "transparent",
        "empty",
        "torn",
        "other length",
        "no words",
        "torn 64",
        "other length 64",
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_bad_frame_makes_no_sum(tmp_path, kind, bad, place):
    contents = [sealed(kind, 2), sealed(kind, 2)]
    contents[place] = bad
    target = tmp_path / "sum.partial"
    with pytest.raises(FrameError):
        add(write(tmp_path, contents), kind, target)
    assert not target.exists() or target.stat().st_size == 0


@pytest.mark.parametrize(
    ("kind", "bad"), [("ckks", unreduced(5000)), ("ring32", bytes((1 << 17) + 9)), ("ring64", bytes((1 << 17) + 4))]
)
def test_a_file_is_checked_to_its_end(tmp_path, kind, bad):
    (path,) = write(tmp_path, [bad])
    with pytest.raises(FrameError):
        check_content(path, kind)
    (path,) = write(tmp_path, [sealed(kind, 50_000)])
    check_content(path, kind)


def test_there_is_no_other_ring(tmp_path):
    paths = write(tmp_path, [b"1234", b"1234"])
    with pytest.raises(FrameError, match="is none of the rings"):
        check_content(paths[0], "clear")
    with pytest.raises(FrameError, match="is none of the rings"):
        add(paths, "clear", tmp_path / "sum")
    assert not (tmp_path / "sum").exists()


def test_adding_needs_no_secret_module():
    secret = {"tenseal", "cryptography", "crypto.secagg", "crypto.pki", "crypto.stream", "crypto.rings.ckks_secret"}
    code = f"import sys, coordinator.sums.aggregation; found = {secret!r} & set(sys.modules); assert not found, found"
    root = Path(coordinator.sums.aggregation.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=600)


def peak_of_adding(folder, kind, size):
    """Bytes that Python and numpy held at most while checking one contribution and adding four."""
    folder.mkdir()
    chunk = sealed(kind, RINGS[kind].frame_values)
    paths = [folder / name for name in "abcd"]
    for path in paths:
        with path.open("wb") as file:
            for _ in range(size // len(chunk)):
                file.write(chunk)
    tracemalloc.start()
    try:
        check_content(paths[0], kind)
        add(paths, kind, folder / "sum")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@KINDS
def test_memory_does_not_grow_with_the_model(tmp_path, kind):
    small, large = (peak_of_adding(tmp_path / str(size), kind, size) for size in (4_000_000, 40_000_000))
    assert (tmp_path / "40000000" / "sum").stat().st_size > 39_000_000
    assert large < 2_000_000
    assert large - small < 200_000


@KINDS
def test_what_the_disk_has_altered_is_named(tmp_path, kind):
    """Well-formed bytes, which no check of frames would notice."""
    contents = [sealed(kind, 3 * RINGS[kind].frame_values, seed) for seed in range(3)]
    paths = write(tmp_path, contents)
    digests = [digest_of(content) for content in contents]
    target = tmp_path / "sum"
    for number in range(3):
        content = bytearray(contents[number])
        content[len(content) // 2] ^= 1
        paths[number].write_bytes(content)
        with pytest.raises(
            ContentAlteredError, match=f"the contribution of {number} was altered on the coordinator's disk"
        ):
            coordinator.sums.aggregation.add_contents(paths, digests, kind, target)
        paths[number].write_bytes(contents[number])
    coordinator.sums.aggregation.add_contents(paths, digests, kind, target)
    assert target.read_bytes() == summed(kind, contents)
