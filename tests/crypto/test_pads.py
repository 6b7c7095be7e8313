from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from crypto import ckks_public, ring
from crypto.agreement import PairSecrets
from crypto.ckks_public import DEGREE, FRAME_WORDS, PRIME
from crypto.errors import FrameError, SealError
from crypto.labels import Label
from crypto.pads import Pads, mask_ckks, open_ring, seal_ring
from support.entropy import SeededEntropy

LABEL = Label("study", "roster", "model", 1, 0, "encoder")
GROUP = b"g" * 32


def roster(silos, group=GROUP, seed=0):
    """Pads of so many silos, named so that their order is not that of their numbers."""
    entropy = SeededEntropy(seed)
    names = [f"silo-{(7 * i) % 11}-{i}" for i in range(silos)]
    secrets = {frozenset(pair): entropy.bytes(32) for pair in itertools.combinations(names, 2)}
    return [
        Pads(me, PairSecrets({other: secrets[frozenset((me, other))] for other in names if other != me}), group)
        for me in names
    ]


def add(kind, uploads):
    total = bytearray(uploads[0])
    for upload in uploads[1:]:
        kind.add_frames(total, upload)
    return bytes(total)


def frames(seed, count):
    residues = np.random.default_rng(seed).integers(0, PRIME, count * FRAME_WORDS, dtype=np.uint64)
    return residues.astype("<u8").tobytes()


@given(st.integers(2, 6), st.integers(0, 40), st.integers(0, 2**32))
def test_the_ring_opens_to_the_sum(silos, size, seed):
    values = np.random.default_rng(seed).integers(0, 2**32, (silos, size), dtype=np.uint32)
    pads = roster(silos)
    total = add(ring, [seal_ring(row, LABEL, own) for row, own in zip(values, pads, strict=True)])
    opened = open_ring(total, LABEL, [own.me for own in pads], GROUP)
    np.testing.assert_array_equal(opened, values.sum(axis=0, dtype=np.uint32))


def test_several_frames_and_signed_values():
    values = np.arange(-40_000, 40_000, dtype=np.int32)
    pads = roster(3)
    uploads = [seal_ring(values, LABEL, own) for own in pads]
    assert {len(upload) for upload in uploads} == {ring.content_size(80_000)}
    opened = open_ring(add(ring, uploads), LABEL, [own.me for own in pads], GROUP)
    np.testing.assert_array_equal(opened.view(np.int32), 3 * values)


@settings(deadline=None, max_examples=10)
@given(st.integers(2, 6), st.integers(1, 3))
def test_the_masked_ckks_sum_is_the_unmasked_one_bit_for_bit(silos, count):
    plain = [frames(seed, count) for seed in range(silos)]
    masked = [mask_ckks(frame, LABEL, own) for frame, own in zip(plain, roster(silos), strict=True)]
    assert add(ckks_public, masked) == add(ckks_public, plain)
    assert all(left != right for left, right in zip(masked, plain, strict=True))


def test_masks_touch_c0_alone_and_make_it_uniform():
    zeros_and_ones = np.zeros((20, 2, DEGREE), "<u8")
    zeros_and_ones[:, 1] = 1
    own = roster(2)[0]
    masked = np.frombuffer(mask_ckks(zeros_and_ones.tobytes(), LABEL, own), "<u8").reshape(20, 2, DEGREE)
    assert (masked[:, 1] == 1).all()
    assert stats.kstest(masked[:, 0].ravel().astype(np.float64) / PRIME, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("silos", [2, 3, 5])
def test_one_upload_or_all_but_one_look_random(silos):
    pads = roster(silos)
    uploads = [seal_ring(np.zeros(50_000, np.uint32), LABEL, own) for own in pads]
    names = [own.me for own in pads]
    for part, known in ((uploads[:1], names[:1]), (uploads[:-1], names[:-1])):
        opened = open_ring(add(ring, part), LABEL, known, GROUP)
        assert stats.kstest(opened.astype(np.float64) / 2**32, "uniform").pvalue > 1e-4


def test_the_sum_itself_is_hidden_by_the_group_pads():
    pads = roster(4)
    total = add(ring, [seal_ring(np.zeros(50_000, np.uint32), LABEL, own) for own in pads])
    words = np.frombuffer(total, "<u4")
    assert stats.kstest(words.astype(np.float64) / 2**32, "uniform").pvalue > 1e-4
    # Four equal pads would leave the two lowest bits of the sum in the clear.
    assert stats.chisquare(np.bincount(words % 4, minlength=4)).pvalue > 1e-4


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"roster": "other"}, {"round": 2}, {"attempt": 1}, {"tensor": "heads"}]
)
def test_a_silo_that_was_shown_something_else_spoils_the_sum(change):
    other = dataclasses.replace(LABEL, **change)
    pads = roster(3)
    labels = [LABEL, LABEL, other]
    zeros = np.zeros(1000, np.uint32)
    total = add(ring, [seal_ring(zeros, label, own) for label, own in zip(labels, pads, strict=True)])
    opened = open_ring(total, LABEL, [own.me for own in pads], GROUP)
    assert np.count_nonzero(opened) > 990
    plain = [frames(seed, 1) for seed in range(3)]
    masked = [mask_ckks(f, label, own) for f, label, own in zip(plain, labels, pads, strict=True)]
    total_words = np.frombuffer(add(ckks_public, masked), "<u8")
    assert np.count_nonzero(total_words != np.frombuffer(add(ckks_public, plain), "<u8")) > DEGREE - 10


def test_silos_with_other_secrets_do_not_cancel():
    ours, theirs = roster(3), roster(3, seed=1)
    zeros = np.zeros(1000, np.uint32)
    total = add(ring, [seal_ring(zeros, LABEL, own) for own in (*ours[:2], theirs[2])])
    assert np.count_nonzero(open_ring(total, LABEL, [own.me for own in ours], GROUP)) > 990


def test_labels_and_rings_have_masks_of_their_own():
    own = roster(2)[0]
    zeros = np.zeros(100, np.uint32)
    streams = [seal_ring(zeros, dataclasses.replace(LABEL, round=i), own) for i in range(3)]
    assert len(set(streams)) == 3
    assert own.pair_streams("ring", LABEL)[0][1].bytes(32) != own.pair_streams("ckks", LABEL)[0][1].bytes(32)


def test_a_mask_of_zero_subtracts_to_zero(monkeypatch):
    class Zero:
        def uniform(self, q, n):
            return np.zeros(n, np.uint64)

    monkeypatch.setattr(Pads, "pair_streams", lambda *_: [(False, Zero()), (True, Zero())])
    frame = frames(1, 1)
    assert mask_ckks(frame, LABEL, roster(2)[0]) == frame


def test_malformed_input_is_refused():
    own = roster(2)[0]
    for wrong in (np.zeros((2, 2), np.int32), np.zeros(2, np.int64), np.zeros(2)):
        with pytest.raises(SealError, match="32-bit"):
            seal_ring(wrong, LABEL, own)
    with pytest.raises(FrameError, match="whole words"):
        open_ring(b"12345", LABEL, [own.me], GROUP)
    for wrong in (b"1234", b"\xff" * 65536, bytes(65536)):
        with pytest.raises(FrameError):
            mask_ckks(wrong, LABEL, own)


def test_the_values_given_are_left_alone():
    values = np.arange(10, dtype=np.uint32)
    seal_ring(values, LABEL, roster(2)[0])
    assert values.tolist() == list(range(10))


def test_pads_belong_to_a_roster_and_do_not_print():
    own = roster(2)[0]
    assert repr(own) == f"Pads(me={own.me!r})"
    for change in ({"me": next(iter(own.pairs))}, {"pairs": PairSecrets({})}, {"group": b"short"}):
        with pytest.raises(SealError, match="agree on keys again"):
            dataclasses.replace(own, **change)
