from __future__ import annotations

import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard
from tenseal import sealapi

from crypto.errors import FrameError, OpeningRefused
from crypto.rings import ckks_secret, seal_format
from crypto.rings.ckks_public import DEGREE, PRIME, RESIDUES, SCALE
from crypto.rings.ckks_secret import CkksKey

MEMORY = 12 << 20
"""No number of refused objects may make the process grow by more than so many bytes."""
SIZE = 73 + 16 + 8 + 8 * RESIDUES
"""Bytes of a ciphertext's body."""


@pytest.fixture(scope="module")
def key():
    return CkksKey.create()


@pytest.fixture(scope="module")
def saved(key):
    """A ciphertext as SEAL itself writes it: compressed."""
    plaintext, ciphertext = sealapi.Plaintext(), sealapi.Ciphertext()
    key._encoder.encode([complex(i, -i) for i in range(1024)], SCALE, plaintext)
    key._encryptor.encrypt_symmetric(plaintext, ciphertext)
    return ckks_secret._saved(ciphertext)


@pytest.fixture(scope="module")
def residues(saved):
    return seal_format.read_ciphertext(saved)


def array(words):
    """An array of SEAL, written from its description alone."""
    content = struct.pack(f"<Q{len(words)}Q", len(words), *map(int, words))
    return seal_object(content)


def seal_object(body, compression=0, *, version=(4, 3), magic=0xA15E, header=16, reserved=0, more=0):
    return struct.pack("<HBBBBHQ", magic, header, *version, compression, reserved, 16 + len(body) + more) + body


def facts(**changes):
    parms_id = struct.pack("<4Q", *ckks_secret._context().first_parms_id())
    values = {"parms": parms_id, "ntt": 1, "polynomials": 2, "degree": 2048, "primes": 1, "scale": 2.0**17, "factor": 1}
    return struct.pack("<32sBQQQdQ", *(values | changes).values())


def test_what_seal_wrote_reads_and_what_is_written_here_seal_loads(residues, saved):
    assert (residues.shape, residues.dtype) == ((RESIDUES,), np.uint64)
    written = seal_format.write_ciphertext(residues)
    assert written == seal_object(facts() + array(residues))
    np.testing.assert_array_equal(seal_format.read_ciphertext(written), residues)
    loaded = sealapi.Ciphertext()
    ckks_secret._load(loaded, written)
    assert loaded.is_ntt_form()
    assert (loaded.scale, loaded.size(), loaded.coeff_modulus_size()) == (SCALE, 2, 1)
    assert ckks_secret._saved(loaded) == saved


def test_seal_itself_takes_what_is_refused_here(residues):
    transparent = residues.copy()
    transparent[DEGREE:] = 0
    for foreign in (
        seal_object(facts(scale=SCALE * 2) + array(residues)),
        seal_object(facts() + array(transparent)),
    ):
        ckks_secret._load(sealapi.Ciphertext(), foreign)
        with pytest.raises(FrameError):
            seal_format.read_ciphertext(foreign)


@pytest.mark.parametrize(
    "change",
    [
        {"parms": bytes(32)},
        {"ntt": 0},
        {"ntt": 2},
        {"polynomials": 3},
        {"polynomials": 1 << 63},
        {"degree": 4096},
        {"primes": 2},
        {"scale": SCALE * 2},
        {"scale": float("nan")},
        {"factor": 2},
    ],
)
def test_every_fact_of_a_ciphertext_is_checked(residues, change):
    body = facts(**change) + array(residues)
    for foreign in (seal_object(body), seal_object(zstandard.compress(body), 2)):
        with pytest.raises(FrameError, match="object"):
            seal_format.read_ciphertext(foreign)


def test_the_array_inside_is_checked(residues):
    words = array(residues)
    inner = bytearray(words)
    inner[16] ^= 1  # its count
    for bad in (
        array(residues[:-1]),
        array([*residues, 0]),
        bytes(inner),
        seal_object(words[16:], 2),
        seal_object(words[16:], version=(4, 2)),
        seal_object(zstandard.compress(words[16:]), 2),
    ):
        with pytest.raises(FrameError, match="object"):
            seal_format.read_ciphertext(seal_object(facts() + bad))


def test_residues_are_checked(residues):
    unreduced, transparent = residues.copy(), residues.copy()
    unreduced[5] = PRIME
    transparent[DEGREE:] = 0
    for bad, sentence in ((unreduced, "not reduced"), (transparent, "transparent")):
        with pytest.raises(FrameError, match=sentence):
            seal_format.read_ciphertext(seal_object(facts() + array(bad)))
        with pytest.raises(FrameError, match=sentence):
            seal_format.write_ciphertext(bad)
    for bad in (residues.reshape(2, DEGREE), residues[:-1], residues.astype(np.float64)):
        with pytest.raises(FrameError, match="4096 residues"):
            seal_format.write_ciphertext(bad)


def test_other_headers_are_refused(residues):
    body = facts() + array(residues)
    packed = zstandard.compress(body)
    for good in (seal_object(body), seal_object(packed, 2)):
        np.testing.assert_array_equal(seal_format.read_ciphertext(good), residues)
    for bad in (
        seal_object(body, 1),
        seal_object(body, 3),
        seal_object(body, 2),
        seal_object(packed, 0),
        seal_object(body, version=(4, 1)),
        seal_object(body, version=(3, 3)),
        seal_object(body, magic=0xA15F),
        seal_object(body, header=17),
        seal_object(body, reserved=1),
        seal_object(body, more=1),
        seal_object(body, more=-1),
        b"",
        b"short",
        seal_object(b""),
        seal_object(b"", 2),
    ):
        with pytest.raises(FrameError):
            seal_format.read_ciphertext(bad)


def test_nothing_may_be_missing_or_trail(residues):
    body = facts() + array(residues)
    packed = zstandard.compress(body)
    unannounced = zstandard.ZstdCompressor(write_content_size=False).compress(body)
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"more"
    for bad in (
        seal_object(body) + b"\0",
        seal_object(body)[:-1],
        seal_object(body + b"\0"),
        seal_object(body[:-1]),
        seal_object(packed + b"\0", 2),
        seal_object(packed[:-1], 2),
        seal_object(packed + packed, 2),
        seal_object(packed + skippable, 2),
        seal_object(skippable + packed, 2),
        seal_object(unannounced, 2),
        seal_object(zstandard.compress(body + b"\0"), 2),
        seal_object(zstandard.compress(body[:-1]), 2),
        seal_object(b"not compressed", 2),
    ):
        with pytest.raises(FrameError):
            seal_format.read_ciphertext(bad)


@pytest.mark.parametrize("exponent", [6, 7, 17, 31])
def test_a_window_that_is_not_the_object_itself_is_refused(residues, exponent):
    body = facts() + array(residues)
    block = struct.pack("<I", 1 | len(body) << 3)[:3] + body
    own = struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(body)) + block
    np.testing.assert_array_equal(seal_format.read_ciphertext(seal_object(own, 2)), residues)
    asked = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, exponent << 3, len(body)) + block  # 2^(10 + exponent) bytes
    with pytest.raises(FrameError, match="compressed object"):
        seal_format.read_ciphertext(seal_object(asked, 2))


def peak() -> int:
    """The largest resident size since `forget_peak`, in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def forget_peak():
    Path("/proc/self/clear_refs").write_text("5")


def bombs():
    """Compressed bodies that are far larger than they look, or announce it."""
    compressor, zeros = zstandard.ZstdCompressor(), bytes(1 << 24)
    many = compressor.compressobj()
    unannounced = b"".join(many.compress(zeros) for _ in range(16)) + many.flush()
    announced = compressor.compress(zeros)
    frame = struct.pack("<I", 0xFD2FB528)
    last_run_of_zeros = struct.pack("<I", 1 | 1 << 1 | SIZE << 3)[:3] + b"\0"
    return [
        unannounced,
        announced,
        # Single-segment frames with eight bytes of content size: as much as there is in the world, and just enough.
        frame + b"\xe0" + struct.pack("<Q", (1 << 64) - 3) + last_run_of_zeros,
        frame + b"\xe0" + struct.pack("<Q", 1 << 40) + last_run_of_zeros,
        frame + b"\xe0" + struct.pack("<Q", SIZE) + last_run_of_zeros,
        # A window of 2^41 bytes, then of 2^27, with the right size.
        frame + b"\xc0" + b"\xf8" + struct.pack("<Q", SIZE) + last_run_of_zeros,
        frame + b"\xc0" + b"\x88" + struct.pack("<Q", SIZE) + last_run_of_zeros,
        # A block of the largest size that a header can say.
        frame + b"\xe0" + struct.pack("<Q", SIZE) + b"\xfb\xff\xff\0",
    ]


def test_decompression_bombs_take_no_memory():
    packed = [seal_object(bomb, 2) for bomb in bombs()]
    assert all(len(bomb) < seal_format.MAX_OBJECT for bomb in packed)
    forget_peak()
    before = peak()
    for bomb in packed:
        with pytest.raises(FrameError):
            seal_format.read_ciphertext(bomb)
    assert peak() - before < MEMORY


def mutate(blob, chance):
    out = bytearray(blob)
    kind = chance.randrange(10)
    if kind == 0:
        del out[chance.randrange(len(out)) :]
    elif kind == 1:
        out[(at := chance.randrange(len(out))) : at] = chance.randbytes(chance.randrange(1, 9))
    elif kind == 2:
        field = chance.choice([(0, "H"), (2, "B"), (3, "B"), (4, "B"), (5, "B"), (6, "H"), (8, "Q")])
        struct.pack_into("<" + field[1], out, field[0], chance.getrandbits(8 * struct.calcsize(field[1])))
    elif kind == 3:
        del out[chance.randrange(16, len(out)) :]
        struct.pack_into("<Q", out, 8, len(out))
    elif kind == 4:
        out += chance.randbytes(chance.choice([1, 8, 1 << 16]))
        struct.pack_into("<Q", out, 8, len(out))
    else:
        reach = chance.choice([16, 40, 200, len(out)])
        for _ in range(chance.choice([1, 3])):
            out[chance.randrange(reach)] ^= 1 << chance.randrange(8)
    return bytes(out)


def test_10000_mutated_ciphertexts_give_only_named_errors_and_take_no_memory(key, saved, residues):
    chance, read = random.Random(1), 0  # noqa: S311  # mutations that repeat
    plain = seal_format.write_ciphertext(residues)
    compressor = zstandard.ZstdCompressor()
    forget_peak()
    before = peak()
    for number in range(10_000):
        if number % 3 == 2:  # what decompresses well, and then is wrong
            out = seal_object(compressor.compress(mutate(plain, chance)[16:]), 2)
        else:
            out = mutate((saved, plain)[number % 3], chance)
        try:
            found = seal_format.read_ciphertext(out)
        except FrameError:
            continue
        assert found.shape == (RESIDUES,)
        assert int(found.max()) < PRIME
        assert found[DEGREE:].any()
        if np.array_equal(found, residues):
            continue
        read += 1
        with pytest.raises(OpeningRefused):
            key.decrypt(found, 2048)
    assert peak() - before < MEMORY
    assert read > 1_000


def test_a_secret_key_reads_and_loads(key):
    saved = ckks_secret._saved(key._secret)
    residues = seal_format.read_secret_key(saved)
    assert (residues.shape, residues.dtype) == ((DEGREE,), np.uint64)
    written = seal_format.write_secret_key(residues)
    parms_id = struct.pack("<4Q", *ckks_secret._context().key_parms_id())
    assert written == seal_object(struct.pack("<32sQd", parms_id, DEGREE, 1.0) + array(residues))
    loaded = sealapi.SecretKey()
    ckks_secret._load(loaded, written)
    assert ckks_secret._saved(loaded) == saved


@pytest.mark.parametrize("fact", [("parms", bytes(32)), ("words", 4096), ("scale", 2.0), ("scale", float("nan"))])
def test_every_fact_of_a_secret_key_is_checked(key, fact):
    residues = seal_format.read_secret_key(ckks_secret._saved(key._secret))
    parms_id = struct.pack("<4Q", *ckks_secret._context().key_parms_id())
    values = {"parms": parms_id, "words": DEGREE, "scale": 1.0}
    good = seal_object(struct.pack("<32sQd", *values.values()) + array(residues))
    np.testing.assert_array_equal(seal_format.read_secret_key(good), residues)
    foreign = seal_object(struct.pack("<32sQd", *(values | dict([fact])).values()) + array(residues))
    with pytest.raises(FrameError, match="object"):
        seal_format.read_secret_key(foreign)


def test_what_cannot_be_a_secret_key_is_refused(key, saved):
    good = seal_format.read_secret_key(ckks_secret._saved(key._secret))
    zero, unreduced = good.copy(), good.copy()
    zero[7] = 0
    unreduced[7] = PRIME
    for bad in (zero, unreduced, good[:-1], np.concatenate([good, good])):
        with pytest.raises(FrameError, match="secret key"):
            seal_format.write_secret_key(bad)
    parms_id = struct.pack("<4Q", *ckks_secret._context().key_parms_id())
    for bad in (zero, unreduced):
        with pytest.raises(FrameError, match="secret key"):
            seal_format.read_secret_key(seal_object(struct.pack("<32sQd", parms_id, DEGREE, 1.0) + array(bad)))
    for other in (b"", saved):
        with pytest.raises(FrameError):
            seal_format.read_secret_key(other)
    with pytest.raises(FrameError):
        seal_format.read_ciphertext(ckks_secret._saved(key._secret))
