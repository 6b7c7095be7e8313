"""A sum lies under its final name, with its chunk list, only once it is whole; whatever fails, it can be made again."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.core.events import Add
from coordinator.storage.spool import SUM_FILE, Spool
from coordinator.sums.adding import make_sum
from coordinator.sums.aggregation import ContentAlteredError
from crypto.rings.ckks_public import FRAME_BYTES, RESIDUES, write_frame
from policies.plan.release import plan
from protos.chunks import ChunkList
from protos.messages import Part, Place, Tensor, UploadHeader
from protos.steps import SUM
from support.contents import digest_of
from support.databases import EPOCH, store_in
from support.studies import tiny_study

STUDY = tiny_study()
PLACE, SLOT, SILOS = Place(STUDY.digest, 1, 2), str(Tensor.COUNTS), STUDY.silos[:2]
WANTED = Add(PLACE, Tensor.COUNTS, SILOS)


def frame(number):
    """A ciphertext, all of whose residues are one number."""
    return write_frame(np.full(RESIDUES, number, dtype=np.uint64))


@pytest.fixture
def store(tmp_path):
    made = store_in(tmp_path / "data")
    yield made
    made.engine.dispose()


@pytest.fixture
def spool(tmp_path, store):
    """In it lies what two silos have uploaded."""
    spool, kind = Spool(tmp_path / "spool", EPOCH), plan(STUDY).ring(Tensor.COUNTS)
    for number, silo in enumerate(SILOS, 1):
        content = frame(number)
        partial = spool.partial(PLACE, SLOT, silo)
        spool.append(partial, 0, content)
        spool.publish(partial, spool.complete(PLACE, SLOT, silo))
        header = UploadHeader(PLACE, kind, Tensor.COUNTS, silo, 2048, len(content), digest_of(content))
        store.add_content(header, b"signature")
    return spool


def test_a_sum_and_its_chunk_list_lie_where_silos_fetch_them(store, spool):
    part = make_sum(store, spool, STUDY, WANTED)
    complete = spool.complete(PLACE, SLOT, SUM_FILE)
    assert complete.read_bytes() == frame(3)
    assert spool.chunk_list(spool.chunks(PLACE, SLOT, SUM_FILE)) == ChunkList.of(complete)
    assert part == Part(SUM, "", FRAME_BYTES, digest_of(complete.read_bytes()))
    assert not spool.partial(PLACE, SLOT, SUM_FILE).exists()
    assert make_sum(store, spool, STUDY, WANTED) == part, "the same again"


def test_a_contribution_that_was_altered_leaves_no_sum(store, spool):
    path = spool.complete(PLACE, SLOT, SILOS[1])
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    with pytest.raises(ContentAlteredError):
        make_sum(store, spool, STUDY, WANTED)
    assert not spool.complete(PLACE, SLOT, SUM_FILE).exists()
