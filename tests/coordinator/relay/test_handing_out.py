"""What is fetched comes in order, in few messages, from memory where many fetch it."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.relay.handing_out import HandingOut, packed
from coordinator.storage.spool import SUM_FILE, Spool
from crypto.secagg.dealt.slices import Cutting, Layout
from protos.chunks import ChunkList
from protos.messages import MAX_CHUNK, MessageError, Place
from protos.v1 import silo_pb2
from support.databases import EPOCH

PLACE = Place("5" * 64, 1, 1)


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, EPOCH)


def stored(spool, size, name="north", place=PLACE, slot="note-shares"):
    """A complete content of so many bytes, with its list."""
    path = spool.complete(place, slot, name)
    spool.append(spool.partial(place, slot, name), 0, bytes(number % 251 for number in range(size)))
    spool.keep_chunk_list(spool.chunks(place, slot, name), ChunkList.of(spool.partial(place, slot, name)))
    spool.publish(spool.partial(place, slot, name), path)
    return place, slot, name


def pieces_of(messages):
    return [(one.offset, one.data, one.hashes) for message in messages for one in (message, *message.more)]


@pytest.mark.parametrize("size", [0, 1, MAX_CHUNK - 1, MAX_CHUNK, MAX_CHUNK + 1, 3 * MAX_CHUNK])
def test_a_content_comes_whole_with_its_list_and_from_any_chunk_on(spool, size):
    one = stored(spool, size)
    whole, hashes = spool.complete(*one).read_bytes(), ChunkList.of(spool.complete(*one)).hashes
    for offset in range(0, size + 1, MAX_CHUNK):
        pieces = pieces_of(HandingOut(spool).stream([one], offset))
        assert b"".join(data for _, data, _ in pieces) == whole[offset:]
        assert [at for at, _, _ in pieces] == [offset + MAX_CHUNK * number for number in range(len(pieces))]
        assert [listed for _, _, listed in pieces] == [hashes] + [b""] * (len(pieces) - 1)
    for offset in (size + 1, 1 << 63):
        with pytest.raises(MessageError, match="lies after the end; begin again at 0"):
            list(HandingOut(spool).stream([one], offset))


def test_only_the_first_content_begins_at_the_offset(spool):
    found = [stored(spool, 2 * MAX_CHUNK, "north"), stored(spool, 5, "south")]
    pieces = pieces_of(HandingOut(spool).stream(found, MAX_CHUNK))
    assert [(at, len(data)) for at, data, _ in pieces] == [(MAX_CHUNK, MAX_CHUNK), (0, 5)]


def test_what_is_gone_before_anybody_fetched_it_is_not_there(spool):
    one = stored(spool, 5)
    spool.clear(PLACE)
    with pytest.raises(FileNotFoundError):
        list(HandingOut(spool).stream([one], 0))
    big = stored(spool, MAX_CHUNK + 1, SUM_FILE)
    handing = HandingOut(spool)
    list(handing.stream([big], 0))
    spool.clear(PLACE)
    with pytest.raises(FileNotFoundError):
        list(handing.stream([big], 0))


@pytest.mark.parametrize("tensors", [("heads",), tuple(f"t{number}" for number in range(90))], ids=["small", "chunks"])
def test_notes_come_cut_for_whom_they_concern_each_with_its_list(spool, tensors):
    layouts = [Layout.of(tensors, [f"silo-{number}" for number in range(count)]).form for count in (30, 5)]
    found = [(stored(spool, of.note, name), of) for of, name in zip(layouts, ("north", "south"), strict=True)]
    about = frozenset(f"silo-{number}" for number in range(3, 12))
    expected = [Cutting(spool.complete(*one).read_bytes(), of).cut(about) for one, of in found]
    contents = []
    for offset, data, hashes in pieces_of(HandingOut(spool).cut(found, about)):
        if hashes:
            contents.append(b"")
            assert len(hashes) == 32 * -(-len(expected[len(contents) - 1]) // MAX_CHUNK)
        assert (offset, len(data) <= MAX_CHUNK) == (len(contents[-1]), True)
        assert sha256(data).digest() in hashes or not hashes
        contents[-1] += data
    assert contents == expected
    assert (max(map(len, expected)) > MAX_CHUNK) == (len(tensors) > 1)


PIECES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12)


@given(PIECES)
def test_pieces_keep_their_order_and_no_message_is_longer_than_a_chunk_unless_one_piece_is(drawn):
    sizes = (0, 40, MAX_CHUNK // 2, MAX_CHUNK)
    pieces = [
        silo_pb2.DownloadChunk(offset=number, data=bytes(sizes[size]), hashes=b"h" * 32 if first else b"")
        for number, (size, first) in enumerate(drawn)
    ]
    copies = [silo_pb2.DownloadChunk.FromString(piece.SerializeToString()) for piece in pieces]
    messages = list(packed(pieces))
    sent = [
        silo_pb2.DownloadChunk(offset=one.offset, data=one.data, hashes=one.hashes)
        for message in messages
        for one in (message, *message.more)
    ]
    assert sent == copies
    length = [sum(len(one.data) + len(one.hashes) for one in (message, *message.more)) for message in messages]
    assert all(size <= MAX_CHUNK or not message.more for size, message in zip(length, messages, strict=True))
    assert all(
        one + len(then.data) + len(then.hashes) > MAX_CHUNK for one, then in zip(length, messages[1:], strict=False)
    )
