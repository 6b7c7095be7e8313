from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tenseal import sealapi

from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.rings import ckks_secret, seal_format
from crypto.rings.ckks_public import DEGREE, FRAME_VALUES, MARGIN, MAX_SUM, MAX_VALUE, PRIME, RESIDUES, SCALE
from crypto.rings.ckks_secret import SERIALIZED_BYTES, CkksKey
from crypto.rings.rings import ckks_public

KEY = CkksKey.create()


def raw(residues, key=KEY):
    """Slots before any rounding, which only a test may see."""
    ciphertext, plaintext = sealapi.Ciphertext(), sealapi.Plaintext()
    ckks_secret._load(ciphertext, seal_format.write_ciphertext(residues))
    key._decryptor.decrypt(ciphertext, plaintext)
    return np.array(key._encoder.decode_complex(plaintext)).view(np.float64)


def encrypted_slots(slots):
    """A ciphertext of any real slots, on the grid or off it."""
    plaintext, ciphertext = sealapi.Plaintext(), sealapi.Ciphertext()
    KEY._encoder.encode(np.asarray(slots, np.float64).view(np.complex128).tolist(), SCALE, plaintext)
    KEY._encryptor.encrypt_symmetric(plaintext, ciphertext)
    return seal_format.read_ciphertext(ckks_secret._saved(ciphertext))


def summed(parts):
    total = np.zeros(RESIDUES, np.uint64)
    for part in parts:
        ckks_public.add_residues(total, part)
    return total


@settings(deadline=None, max_examples=50)
@given(arrays(np.int64, st.integers(1, FRAME_VALUES), elements=st.integers(-MAX_VALUE, MAX_VALUE)))
def test_what_is_encrypted_opens(values):
    residues = KEY.encrypt(values)
    assert (residues.shape, residues.dtype) == ((RESIDUES,), np.uint64)
    through = ckks_public.read_frame(ckks_public.write_frame(residues))
    opened = KEY.decrypt(through, values.size)
    assert opened.dtype == np.int64
    np.testing.assert_array_equal(opened, values)


@settings(deadline=None, max_examples=20)
@given(arrays(np.int64, st.tuples(st.integers(1, 5), st.just(9)), elements=st.integers(-MAX_VALUE, MAX_VALUE)))
def test_a_sum_of_ciphertexts_opens_to_the_sum(vectors):
    np.testing.assert_array_equal(KEY.decrypt(summed(map(KEY.encrypt, vectors)), 9), vectors.sum(axis=0))


def test_value_2j_is_the_real_part_of_slot_j():
    values = np.array([5, 7, -11])
    slots = raw(KEY.encrypt(values)).view(np.complex128)
    assert np.abs(slots - np.array([5 + 7j, -11, *[0] * 1022])).max() < MARGIN


def worst_signs():
    """The signs that make one coefficient as large as corners of a square can: 4 / pi times a value."""
    angles = np.pi * np.array([pow(3, slot, 2 * DEGREE) for slot in range(DEGREE // 2)]) / DEGREE
    signs = np.empty(FRAME_VALUES, np.int64)
    signs[::2], signs[1::2] = np.where(np.cos(angles) > 0, 1, -1), np.where(np.sin(angles) > 0, 1, -1)
    coefficient = 2 / DEGREE * (signs.astype(np.float64).view(np.complex128) * np.exp(-1j * angles)).real.sum()
    assert coefficient == pytest.approx(4 / np.pi, rel=1e-5)
    assert SCALE * MAX_SUM * coefficient > 0.6 * PRIME / 2
    return signs


@pytest.mark.parametrize("signs", [np.ones(FRAME_VALUES, np.int64), worst_signs(), -worst_signs()])
def test_the_largest_sum_opens_exactly(signs):
    assert 32 * MAX_VALUE == MAX_SUM
    part = KEY.encrypt(MAX_VALUE * signs)
    total = summed([part] * 32)
    np.testing.assert_array_equal(KEY.decrypt(total, FRAME_VALUES), MAX_SUM * signs)
    ckks_public.add_residues(total, KEY.encrypt(signs))
    with pytest.raises(OpeningRefused, match="in range"):
        KEY.decrypt(total, FRAME_VALUES)


@pytest.mark.parametrize("signs", ["one", "worst", "drawn"])
def test_the_error_of_a_sum_of_64_at_the_limit_is_a_fifth_of_the_margin(signs):
    generator = np.random.default_rng(5)
    largest, parts, truth = MAX_SUM // 64, [], np.zeros(FRAME_VALUES, np.int64)
    for _ in range(64):
        drawn = generator.choice([-1, 1], FRAME_VALUES)
        values = largest * {"one": np.ones(FRAME_VALUES, np.int64), "worst": worst_signs(), "drawn": drawn}[signs]
        parts.append(KEY.encrypt(values))
        truth += values
    error = np.abs(raw(summed(parts)) - truth)
    assert error.max() < MARGIN / 5  # 6 standard deviations by the law of the module's docstring
    assert error.std() > 0


def test_the_error_has_the_variance_that_the_docstring_says():
    errors = np.concatenate([raw(KEY.encrypt(np.zeros(FRAME_VALUES, np.int64))) for _ in range(60)])
    expected = DEGREE / 2 * (21 / 2) / SCALE**2  # zero needs no rounding
    assert errors.var() == pytest.approx(expected, rel=0.05)


def test_the_same_values_never_have_the_same_ciphertext():
    values = np.arange(5)
    one, two = KEY.encrypt(values), KEY.encrypt(values)
    assert (one != two).mean() > 0.99


@pytest.mark.parametrize("value", [MAX_VALUE + 1, -MAX_VALUE - 1, np.iinfo(np.int64).min, np.iinfo(np.int64).max])
def test_a_value_out_of_range_is_not_encrypted(value):
    with pytest.raises(SealError, match="outside 2\\^30"):
        KEY.encrypt(np.array([0, value]))


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 2), np.int64), np.zeros(2), np.zeros(2, np.int32), np.zeros(0, np.int64), np.zeros(2049, np.int64)],
)
def test_only_short_vectors_of_int64_are_encrypted(values):
    with pytest.raises(SealError, match="int64"):
        KEY.encrypt(values)


def test_another_key_does_not_open():
    with pytest.raises(OpeningRefused, match="not consist of integers in range"):
        CkksKey.create().decrypt(KEY.encrypt(np.zeros(3, np.int64)), 3)


def test_a_mask_that_stays_does_not_open():
    residues = KEY.encrypt(np.zeros(3, np.int64))
    mask = np.zeros(RESIDUES, np.uint64)
    mask[:DEGREE] = np.random.default_rng(1).integers(0, PRIME, DEGREE, dtype=np.uint64)
    ckks_public.add_residues(residues, mask)
    with pytest.raises(OpeningRefused, match="not consist of integers in range"):
        KEY.decrypt(residues, 3)


def test_values_beyond_the_length_are_refused():
    residues = KEY.encrypt(np.arange(10))
    with pytest.raises(OpeningRefused, match="beyond its length"):
        KEY.decrypt(residues, 5)
    np.testing.assert_array_equal(KEY.decrypt(residues, 10), np.arange(10))
    np.testing.assert_array_equal(KEY.decrypt(KEY.encrypt(np.arange(6) % 5), 5), np.arange(5))


@pytest.mark.parametrize("off", [0.5, 0.3, -0.3])
@pytest.mark.parametrize("place", [0, 1, 2047])
def test_a_value_off_the_grid_is_refused(off, place):
    slots = np.arange(2048.0)
    slots[place] += off
    with pytest.raises(OpeningRefused, match="not consist of integers"):
        KEY.decrypt(encrypted_slots(slots), 2048)
    slots[place] = np.floor(slots[place]) + 0.2
    assert KEY.decrypt(encrypted_slots(slots), 2048)[place] == np.floor(slots[place])


@pytest.mark.parametrize("slot", [np.nan, np.inf, -np.inf, 2.0**63, 2.0**35 + 1, complex(0, np.nan)])
def test_what_is_no_number_in_range_is_refused(slot, monkeypatch):
    class Encoder:
        def decode_complex(self, plaintext):
            return [0j] * 1023 + [complex(slot)]

    key = CkksKey.create()
    monkeypatch.setattr(key, "_encoder", Encoder())
    with pytest.raises(OpeningRefused, match="in range"):
        key.decrypt(KEY.encrypt(np.arange(1)), 2048)


def test_only_a_ciphertext_is_opened():
    good = KEY.encrypt(np.arange(10))
    unreduced, transparent = good.copy(), good.copy()
    unreduced[0] = PRIME
    transparent[DEGREE:] = 0
    for bad in (unreduced, transparent, good[:-1], good[:0], good.reshape(2, -1), good.view(np.int64)):
        with pytest.raises(FrameError):
            KEY.decrypt(bad, 10)
    for values in (0, -1, 2049):
        with pytest.raises(SealError, match="1 to 2048"):
            KEY.decrypt(good, values)


def test_10000_mutated_frames_give_only_named_errors():
    values = np.arange(2048)
    frame, chance, opened = ckks_public.write_frame(KEY.encrypt(values)), random.Random(2), 0  # noqa: S311  # they repeat
    for _ in range(10_000):
        out = bytearray(frame)
        kind = chance.randrange(8)
        if kind == 0:
            del out[chance.randrange(len(out)) :]
        elif kind == 1:
            out[(at := chance.randrange(len(out))) : at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 2:
            at = chance.randrange(len(out))
            out[at : at + 27] = chance.choice([b"\0", b"\xff"]) * 27
        else:
            for _ in range(chance.choice([1, 3])):
                out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
        if len(out) == len(frame) and out != frame:
            try:
                residues = ckks_public.read_frame(out)
            except FrameError:
                continue
            opened += 1
            assert int(residues.max()) < PRIME
            assert ckks_public.write_frame(residues) == out
            with pytest.raises(OpeningRefused):
                KEY.decrypt(residues, 2048)
        elif out != frame:
            with pytest.raises(FrameError, match="bytes"):
                ckks_public.read_frame(out)
    assert opened > 5_000


def test_a_key_survives_its_bytes_and_is_small():
    data = KEY.to_bytes()
    again = CkksKey.from_bytes(data)
    assert len(data) == SERIALIZED_BYTES == 13_824
    assert again.to_bytes() == data
    values = np.arange(-50, 50)
    np.testing.assert_array_equal(again.decrypt(KEY.encrypt(values), 100), values)
    np.testing.assert_array_equal(KEY.decrypt(again.encrypt(values), 100), values)
    assert CkksKey.create().to_bytes() != data


@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:-1], lambda d: d + b"0", lambda d: bytes(len(d))])
def test_what_is_no_key_is_refused(change):
    with pytest.raises(SealError, match="CKKS key"):
        CkksKey.from_bytes(change(KEY.to_bytes()))


def test_an_unreduced_key_is_refused():
    with pytest.raises(SealError, match="not a CKKS key"):
        CkksKey.from_bytes(b"\xff" * SERIALIZED_BYTES)


def test_a_key_does_not_print():
    assert repr(KEY) == str(KEY) == "CkksKey(secret)"


def test_seal_takes_54_bits_and_refuses_55():
    level = sealapi.SEC_LEVEL_TYPE.TC128
    assert sealapi.CoeffModulus.MaxBitCount(DEGREE, level) == PRIME.bit_length() == 54
    context = ckks_secret._new_context(PRIME)
    data = context.key_context_data()
    assert data.total_coeff_modulus_bit_count() == 54
    assert [prime.value() for prime in data.parms().coeff_modulus()] == [PRIME]
    assert data.qualifiers().sec_level == level
    assert not context.using_keyswitching()
    (larger,) = sealapi.CoeffModulus.Create(DEGREE, [55])
    assert larger.bit_count() == 55
    with pytest.raises(SealError, match="security standard"):
        ckks_secret._new_context(larger.value())


def test_nothing_touches_a_disk_and_no_file_stays_open(monkeypatch):
    paths, create, descriptors = [], os.memfd_create, Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))

    def recorded(name):
        descriptor = create(name)
        paths.append(str((descriptors / str(descriptor)).readlink()))
        return descriptor

    monkeypatch.setattr(os, "memfd_create", recorded)
    key = CkksKey.from_bytes(CkksKey.create().to_bytes())
    key.decrypt(key.encrypt(np.arange(9)), 9)
    assert len(paths) == 4
    assert all(path.startswith("/memfd:") for path in paths)
    assert len(list(descriptors.iterdir())) == before


def test_threads_do_not_disturb_each_other():
    wrong = []

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(50):
            values = generator.integers(-MAX_VALUE, MAX_VALUE, FRAME_VALUES)
            if not np.array_equal(KEY.decrypt(KEY.encrypt(values), FRAME_VALUES), values):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_seal_is_quiet(capfd):
    KEY.decrypt(KEY.encrypt(np.zeros(2048, np.int64)), 2048)
    assert "".join(capfd.readouterr()) == ""
