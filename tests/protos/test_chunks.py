import hashlib
import struct
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import chunks
from protos.chunks import ChunkHasher, ChunkList, read_chunks, whole_chunks
from protos.messages import MAX_CHUNK, MessageError

SIZE = 64
CONTENTS = st.binary(max_size=5 * SIZE)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunks, "MAX_CHUNK", SIZE)


def listed(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("content") / "content"
    path.write_bytes(content)
    return ChunkList.of(path)


def pieces(content):
    return [(at, content[at : at + SIZE]) for at in range(0, len(content), SIZE)]


@settings(deadline=None, max_examples=50)
@given(CONTENTS)
def test_the_digest_is_over_the_size_and_every_chunk(tmp_path_factory, content):
    listing = listed(tmp_path_factory, content)
    hashes = b"".join(hashlib.sha256(piece).digest() for _, piece in pieces(content))
    assert (listing.size, listing.hashes) == (len(content), hashes)
    expected = hashlib.sha256(b"fedward chunks 1" + hashes + struct.pack("<Q", len(content))).hexdigest()
    assert listing.digest == expected
    listing.require(expected)
    for offset, piece in pieces(content):
        listing.check(offset, piece)


@settings(deadline=None, max_examples=100)
@given(CONTENTS.filter(bool), st.data())
def test_no_other_chunk_passes_anywhere(tmp_path_factory, content, data):
    listing = listed(tmp_path_factory, content)
    offset, piece = data.draw(st.sampled_from(pieces(content)))
    at, bit = data.draw(st.integers(0, len(piece) - 1)), data.draw(st.integers(0, 7))
    altered = piece[:at] + bytes([piece[at] ^ 1 << bit]) + piece[at + 1 :]
    wrong = [(offset, altered), (offset, piece[:-1]), (offset, piece + b"\0"), (offset, b""), (offset + 1, piece)]
    wrong += [(other, piece) for other, same in pieces(content) if same != piece]
    wrong += [(len(content) + SIZE, piece)]
    for elsewhere, given_ in wrong:
        assert not listing.has(elsewhere, given_)
        told = f"are not chunk {elsewhere // SIZE + 1} of {listing.count} as it was announced"
        with pytest.raises(MessageError, match=told):
            listing.check(elsewhere, given_)


def test_another_list_or_size_is_refused(tmp_path_factory):
    listing = listed(tmp_path_factory, bytes(3 * SIZE))
    with pytest.raises(MessageError, match="not that of the announced content"):
        listing.require("0" * 64)
    shorter = ChunkList(3 * SIZE - 1, listing.hashes)
    assert shorter.digest != listing.digest
    for size, hashes in ((3 * SIZE, listing.hashes[:-1]), (3 * SIZE, listing.hashes * 2), (0, listing.hashes)):
        with pytest.raises(MessageError, match="do not list the chunks"):
            ChunkList(size, hashes)


@settings(deadline=None, max_examples=50)
@given(CONTENTS, st.lists(st.integers(0, 5 * SIZE)))
def test_the_digest_does_not_depend_on_how_the_content_comes(tmp_path_factory, content, cuts):
    hasher, edges = ChunkHasher(), sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    for begin, end in pairwise(edges):
        hasher.update(memoryview(content)[begin:end])
        assert hasher.digest == listed(tmp_path_factory, content[:end]).digest
    assert hasher.digest == listed(tmp_path_factory, content).digest


@given(CONTENTS)
def test_a_list_is_kept_as_bytes(tmp_path_factory, content):
    listing = listed(tmp_path_factory, content)
    blob = listing.to_bytes()
    assert ChunkList.from_bytes(blob) == listing
    for wrong in (blob[:-1], blob[1:], blob[:7], b"", blob + bytes(32), b"\xff" * len(blob)):
        with pytest.raises(MessageError, match=r"chunks: \d+ bytes (are no list|do not list the chunks)"):
            ChunkList.from_bytes(wrong)


@given(st.integers(0, 6))
def test_a_file_is_read_from_any_chunk_on(tmp_path_factory, at):
    path = tmp_path_factory.mktemp("content") / "content"
    path.write_bytes(content := bytes(range(256)))
    assert list(read_chunks(path, at * SIZE)) == [piece for _, piece in pieces(content)][at:]


@given(st.integers(0, 10 * SIZE))
def test_a_content_is_resumed_at_a_whole_chunk(length):
    at = whole_chunks(length)
    assert at % SIZE == 0
    assert 0 <= length - at < SIZE


def test_the_largest_contents_list_fits_a_message():
    from protos.messages import MAX_CONTENT, MAX_MESSAGE  # noqa: PLC0415  # the real sizes, not this file's small ones

    assert 32 * -(-MAX_CONTENT // MAX_CHUNK) <= MAX_MESSAGE // 2
