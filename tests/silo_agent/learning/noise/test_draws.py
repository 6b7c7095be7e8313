"""Noise that a charge draws: the same for the same charge and records, another for anything else."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from protos.messages import Place
from silo_agent.data.images import Images
from silo_agent.data.records import Records
from silo_agent.learning.errors import LearningError
from silo_agent.learning.noise.draws import NO_DRAW, FreshDraws, KeyedDraws, digest_of
from support.entropy import SeededEntropy

KEY = bytes(range(32))
STUDY = "5" * 64
PLACE = Place(STUDY, 2, 3)
READ = hashlib.sha256(b"rows").digest()
N = 6


def part(content):
    """One part of a canonical form, written out here a second time."""
    kind, raw = (b"i", content.to_bytes(8, "little")) if isinstance(content, int) else (b"s", content)
    if isinstance(content, bytes) and len(content) == 32:
        kind = b"b"
    return kind + len(raw).to_bytes(8, "little") + raw


def test_a_stream_is_aes_256_in_counter_mode_under_hkdf_of_the_charge_and_what_is_read():
    label = b"fedward/1" + part(b"draw") + part(STUDY.encode()) + part(2) + part(3) + part(b"heads") + part(READ)
    info = b"fedward/1" + part(b"stream") + b"b" + len(label).to_bytes(8, "little") + label
    key = hmac.digest(hmac.digest(bytes(32), KEY, "sha256"), info + b"\x01", "sha256")
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305  # a counter written out by hand
    expected = b"".join(block.update(counter.to_bytes(16, "big")) for counter in range(4))
    source = KeyedDraws(KEY).source(PLACE, "heads", READ)
    assert source.bytes(40) + source.bytes(24) == expected


def test_the_vector_of_a_stream_stays():
    """A later version must draw the same again for a charge of this one."""
    found = KeyedDraws(KEY).source(PLACE, "heads", READ).bytes(32).hex()
    assert found == "2e8a43e6221c6c09ccf5eee506b6bb7287dd7ee11f947d2e901ccdbc2a0d0991"


charges = st.tuples(
    st.sampled_from([KEY, bytes(32)]),
    st.sampled_from(["5" * 64, "6" * 64]),
    st.integers(0, 2),
    st.integers(1, 3),
    st.sampled_from(["heads", "counts"]),
    st.sampled_from([READ, bytes(32)]),
)


def drawn(charge):
    key, study, number, attempt, tensor, read = charge
    return KeyedDraws(key).source(Place(study, number, attempt), tensor, read).bytes(32)


@given(charges, charges)
def test_streams_are_equal_exactly_if_key_charge_and_records_are(one, other):
    assert (drawn(one) == drawn(other)) == (one == other)


def records(**changes):
    given = {
        "inputs": np.arange(2 * N, dtype=np.float32).reshape(N, 2),
        "labels": np.array([0, 1] * 3, np.int64),
        "domains": np.array([0, 1, 2] * 2, np.int64),
        "patients": np.arange(N, dtype=np.int64),
        "identities": tuple("abcdef"),
    }
    return Records(**given | changes)


def first(n):
    """The arrays of the first n records."""
    return {name: getattr(BASE, name)[:n] for name in ("inputs", "labels", "domains", "patients", "identities")}


def altered(array, place=0):
    changed = array.copy()
    changed[place] = changed[place] + 1
    return changed


BASE = records()
IMAGES = Images(np.arange(N * 12, dtype=np.uint8).reshape(N, 3, 2, 2))
OTHERS = {
    "an input": records(inputs=altered(BASE.inputs)),
    "a label": records(labels=altered(BASE.labels)),
    "a domain": records(domains=altered(BASE.domains)),
    "a patient's name": records(identities=tuple("abcdeg")),
    "whose record": records(patients=np.array([1, 0, 2, 3, 4, 5])),
    "environments": records(environments=np.zeros(N, np.int64)),
    "protected": records(protected=np.zeros((N, 1), np.int64)),
    "images": records(images=IMAGES),
    "another image": records(images=Images(altered(IMAGES.levels, (0, 0, 0, 0)))),
    "one record fewer": records(**first(N - 1)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_records_have_another_digest(what):
    digests = [digest_of(one, "m", 3) for one in (BASE, *OTHERS.values())]
    assert digests.count(digest_of(OTHERS[what], "m", 3)) == 1


def test_the_vector_of_records_stays():
    """A charge whose sum was lost draws the same again, also by a version that comes later."""
    assert digest_of(BASE, "m", 3).hex() == "6b906d2c049c2b2d14e2467677c5f2aafe0f27dcbf8f23a93672513524c22f87"


def test_another_model_or_number_of_silos_has_another_digest():
    assert len({digest_of(BASE, model, silos) for model in ("m", "n") for silos in (3, 4)}) == 4
    assert digest_of(records(), "m", 3) == digest_of(BASE, "m", 3)


def test_an_image_out_of_memory_counts_by_its_file_even_if_that_is_gone(tmp_path):
    files = tmp_path / "a.png", tmp_path / "b.png"
    for number, path in enumerate(files):
        path.write_bytes(b"%d" % number)
    images = Images(IMAGES.levels[:4], rest=files, order=np.arange(N), decode=lambda _: IMAGES.levels[0])
    cohort = records(images=images)
    found = [digest_of(cohort, "m", 3)]
    files[1].write_bytes(b"2")
    found.append(digest_of(cohort, "m", 3))
    files[1].unlink()
    found.append(digest_of(cohort, "m", 3))
    assert len(set(found)) == 3


def test_a_fresh_source_is_the_one_that_was_given():
    entropy = SeededEntropy(1)
    assert FreshDraws(entropy).source(PLACE, "heads", READ) is entropy


def test_nothing_is_drawn_without_a_charge():
    with pytest.raises(LearningError, match="without a charge"):
        NO_DRAW.bytes(32)


def test_its_repr_shows_no_key():
    assert repr(KeyedDraws(KEY)) == "KeyedDraws()"
