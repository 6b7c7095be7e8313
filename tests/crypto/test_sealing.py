from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crypto import ckks_public, ring
from crypto.agreement import PairSecrets
from crypto.ckks_secret import CkksKey
from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.labels import Label
from crypto.packages import GroupKeys, deal, take
from crypto.pads import Pads
from crypto.sealing import Sealer, content_size, max_value
from support.entropy import SeededEntropy

NAMES = ("a", "b", "c")
LABEL = Label("study", "roster", "model", 1, 0, "heads")
KEYS = GroupKeys(CkksKey.create().to_bytes(), b"g" * 32, b"c" * 32)
RINGS = {"ckks": ckks_public, "ring": ring}
KINDS = pytest.mark.parametrize("kind", RINGS)


def sealers(keys=KEYS, seed=b""):
    def pads(me):
        secrets = {other: SeededEntropy(seed + "".join(sorted(me + other)).encode()) for other in NAMES if other != me}
        return Pads(me, PairSecrets({name: entropy.bytes(32) for name, entropy in secrets.items()}), keys.group)

    return [Sealer(keys, pads(me)) for me in NAMES]


SILOS = sealers()
ATTEMPTS = itertools.count()


def add(kind, uploads):
    total = bytearray(uploads[0])
    for upload in uploads[1:]:
        RINGS[kind].add_frames(total, upload)
    return bytes(total)


@KINDS
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_the_sum_of_what_is_sealed_opens_to_the_sum(kind, data):
    size = data.draw(st.sampled_from([0, 1, 7, 2048, 2049]))
    bound, label = max_value(kind, 3), dataclasses.replace(LABEL, attempt=next(ATTEMPTS))
    values = [data.draw(arrays(np.int64, size, elements=st.integers(-bound, bound))) for _ in NAMES]
    uploads = [silo.seal(kind, row, label) for silo, row in zip(SILOS, values, strict=True)]
    assert {len(upload) for upload in uploads} == {content_size(kind, size)}
    if not size:
        return
    total = add(kind, uploads)
    for silo in SILOS:
        opened = silo.open(kind, total, size, label, NAMES)
        assert opened.dtype == np.int64
        np.testing.assert_array_equal(opened, sum(values))


def test_masked_and_unmasked_ckks_sums_open_alike_and_one_upload_does_not():
    silos = sealers()
    uploads = [silo.seal("ckks", np.arange(100), LABEL) for silo in silos]
    holder = CkksKey.from_bytes(KEYS.ckks)
    np.testing.assert_array_equal(holder.decrypt(add("ckks", uploads), 100), 3 * np.arange(100))
    for part in (uploads[:1], uploads[:2]):
        with pytest.raises(OpeningRefused):
            holder.decrypt(add("ckks", part), 100)


@pytest.mark.parametrize("change", [{"roster": "r"}, {"model": "m"}, {"round": 9}, {"attempt": 9}, {"tensor": "t"}])
def test_a_silo_that_saw_something_else_makes_the_sum_unusable(change):
    silos, other = sealers(), dataclasses.replace(LABEL, **change)
    values = np.arange(1000)
    uploads = [silo.seal("ckks", values, label) for silo, label in zip(silos, (LABEL, LABEL, other), strict=True)]
    with pytest.raises(OpeningRefused):
        silos[0].open("ckks", add("ckks", uploads), 1000, LABEL, NAMES)
    silos = sealers()
    uploads = [silo.seal("ring", values, label) for silo, label in zip(silos, (LABEL, LABEL, other), strict=True)]
    opened = silos[0].open("ring", add("ring", uploads), 1000, LABEL, NAMES)
    assert np.count_nonzero(opened == 3 * values) < 5


@KINDS
def test_a_label_seals_once(kind):
    silo = sealers()[0]
    silo.seal(kind, np.zeros(3, np.int64), LABEL)
    for again in RINGS:
        with pytest.raises(SealError, match="used already"):
            silo.seal(again, np.ones(3, np.int64), LABEL)
    silo.seal(kind, np.zeros(3, np.int64), dataclasses.replace(LABEL, attempt=1))


@KINDS
@pytest.mark.parametrize("sign", [1, -1])
def test_nothing_that_could_overflow_is_sealed(kind, sign):
    bound = max_value(kind, 3)
    sealers()[0].seal(kind, np.array([sign * bound]), LABEL)
    with pytest.raises(SealError, match="could overflow"):
        sealers()[0].seal(kind, np.array([0, sign * (bound + 1)]), LABEL)


def test_bounds_fit_the_rings():
    assert max_value("ring", 3) * 3 <= 2**31 - 1
    assert max_value("ckks", 256) == 2**30
    assert max_value("ckks", 512) * 512 <= 2**38


@KINDS
@pytest.mark.parametrize("values", [np.zeros((2, 2), np.int64), np.zeros(2), np.zeros(2, np.int32)])
def test_only_vectors_of_int64_are_sealed(kind, values):
    with pytest.raises(SealError, match="int64"):
        SILOS[0].seal(kind, values, LABEL)


@KINDS
@pytest.mark.parametrize("names", [(), ("a", "b"), ("a", "b", "c", "d"), ("a", "b", "b"), ("a", "b", "c", "c")])
def test_only_a_sum_over_this_roster_is_opened(kind, names):
    with pytest.raises(OpeningRefused, match="roster"):
        SILOS[0].open(kind, bytes(content_size(kind, 5)), 5, LABEL, names)


@KINDS
def test_lengths_are_checked(kind):
    for size in (0, content_size(kind, 5) - 4, content_size(kind, 5) * 2):
        with pytest.raises(FrameError, match="another length"):
            SILOS[0].open(kind, bytes(size), 5, LABEL, NAMES)


def test_keys_and_pads_belong_together():
    pads = Pads("a", PairSecrets({"b": bytes(32)}), b"x" * 32)
    with pytest.raises(SealError, match="different rosters"):
        Sealer(KEYS, pads)
    with pytest.raises(SealError, match="CKKS key"):
        Sealer(dataclasses.replace(KEYS, ckks=b"nothing", group=b"x" * 32), pads)


def test_there_is_no_third_ring():
    for refused in (
        lambda: sealers()[0].seal("clear", np.zeros(1, np.int64), LABEL),
        lambda: sealers()[0].open("clear", bytes(4), 1, LABEL, NAMES),
    ):
        with pytest.raises(AssertionError, match="unreachable"):
            refused()


def test_nothing_secret_prints():
    shown = repr(sealers()[0]) + repr(KEYS)
    assert shown == "Sealer(secret)GroupKeys()"


def test_from_certificates_to_an_opened_sum(meeting):
    roster, pairs = meeting
    package = deal(KEYS, pairs["north"], "north", roster, SeededEntropy(2))
    silos = {"north": Sealer(KEYS, Pads("north", pairs["north"], KEYS.group))}
    for name in ("south", "west"):
        taken = take(package, pairs[name], name, "north", roster)
        silos[name] = Sealer(taken, Pads(name, pairs[name], taken.group))
    label = Label(roster.study, roster.digest, "0" * 64, 0, 0, "counts")
    for kind in RINGS:
        used = dataclasses.replace(label, tensor=kind)
        total = add(kind, [silo.seal(kind, np.arange(5), used) for silo in silos.values()])
        for silo in silos.values():
            np.testing.assert_array_equal(silo.open(kind, total, 5, used, roster.names), 3 * np.arange(5))
