"""FedWard's rings, ciphertexts, masks and sums a second time, written from their description alone.

It is written like `checker_keys` and uses its terms. A `world` is what one attempt at one tensor gives: `members` (the
study's silos), `participants` and `survivors` (names), `label`, `check` and `group` (keys), `own` (name -> seed),
`pairs` ("first second", sorted -> seed); for ciphertexts `key` and `ciphertexts` (name -> a frame not yet covered).
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
from checker_keys import Stream, canonical, label_bytes, require

# --- rings and frames -----------------------------------------------------------------------------------------------

DEGREE, PRIME, SCALE = 2048, 18014398509404161, 1 << 17
WORD = {"ring32": 4, "ring64": 8}
FRAME_VALUES = {"ckks": 2048, "ring32": 1 << 15, "ring64": 1 << 14}
FRAME_BYTES = {"ckks": 27_648, "ring32": 1 << 17, "ring64": 1 << 17}
MAX_VALUE = {"ckks": 1 << 30, "ring32": (1 << 31) - 1, "ring64": 1 << 46}
MAX_SUM = {"ckks": 1 << 35, "ring32": (1 << 31) - 1, "ring64": 1 << 46}
CHECKS, LIMBS, LIMB_BITS = 4, 4, 16


def limit(kind, silos):
    """Largest magnitude that one of `silos` silos may seal, so that no sum of theirs leaves [-MAX_SUM, MAX_SUM]."""
    return min(MAX_VALUE[kind], MAX_SUM[kind] // silos)


def content_size(kind, values):
    """A vector is cut into frames of FRAME_VALUES. The last one of integers is short; a ciphertext is always whole."""
    return FRAME_BYTES[kind] * -(-values // FRAME_VALUES[kind]) if kind == "ckks" else WORD[kind] * values


def cut(kind, data):
    """The frames of a vector, in order."""
    return [data[at : at + FRAME_BYTES[kind]] for at in range(0, len(data), FRAME_BYTES[kind])]


def read_frame(kind, frame):
    """A frame's words. Integers: v mod 2^32 or 2^64, so negative ones in two's complement, 1 to FRAME_VALUES of them.

    A ciphertext: 4096 residues below PRIME, those of c0, then those of c1, which are not all zero; as one integer,
    residue i is bits 54 i to 54 i + 53.
    """
    require(kind in FRAME_BYTES, "kind")
    if kind in WORD:
        require(0 < len(frame) <= FRAME_BYTES[kind] and len(frame) % WORD[kind] == 0, "length")
        return np.frombuffer(frame, f"<u{WORD[kind]}").tolist()
    require(len(frame) == FRAME_BYTES[kind], "length")
    residues = unpack(frame)
    check_residues(residues)
    return residues


def check_residues(residues):
    require(max(residues) < PRIME, "residue")
    require(any(residues[DEGREE:]), "transparent")


def unpack(data):
    # Four residues are 27 bytes. Reading the frame as a single integer gives the same residues, but more slowly.
    groups = (int.from_bytes(data[at : at + 27], "little") for at in range(0, len(data), 27))
    return [group >> 54 * i & (1 << 54) - 1 for group in groups for i in range(4)]


def write_frame(kind, words):
    if kind in WORD:
        return b"".join(word.to_bytes(WORD[kind], "little") for word in words)
    return sum(residue << 54 * i for i, residue in enumerate(words)).to_bytes(len(words) * 54 // 8, "little")


def modulus(kind):
    return PRIME if kind == "ckks" else 1 << 8 * WORD[kind]


def add(kind, contents):
    """The coordinator's sum: frame by frame, word by word, mod the ring's modulus."""
    total = b""
    for frames in zip(*(cut(kind, content) for content in contents), strict=True):
        columns = zip(*(read_frame(kind, frame) for frame in frames), strict=True)
        total += write_frame(kind, [sum(column) % modulus(kind) for column in columns])
    return total


# --- CKKS: X^2048 + 1, one prime, as SEAL 4.3 computes it -----------------------------------------------------------


def _reversed(i):
    return int(f"{i:011b}"[::-1], 2)


def _root():
    """The smallest primitive 4096th root of unity mod PRIME."""
    base = next(x for x in range(2, PRIME) if pow(x, (PRIME - 1) // 2, PRIME) == PRIME - 1)
    root = pow(base, (PRIME - 1) // 4096, PRIME)
    return min(pow(root, odd, PRIME) for odd in range(1, 4096, 2))


PSI = _root()


def _fourier(a, root):
    if len(a) == 1:
        return a
    even, odd = (_fourier(a[part::2], root * root % PRIME) for part in (0, 1))
    turned, power = [], 1
    for x in odd:
        turned.append(x * power % PRIME)
        power = power * root % PRIME
    both = list(zip(even, turned, strict=True))
    return [(x + y) % PRIME for x, y in both] + [(x - y) % PRIME for x, y in both]


def to_ntt(coefficients):
    """Residue i of a polynomial is its value at PSI^(2 r + 1), where r is i with its 11 bits reversed."""
    values = _fourier([c * pow(PSI, k, PRIME) % PRIME for k, c in enumerate(coefficients)], PSI * PSI % PRIME)
    return [values[_reversed(i)] for i in range(DEGREE)]


def from_ntt(residues):
    """The coefficients, in (-PRIME / 2, PRIME / 2)."""
    back, shrink = pow(PSI, -1, PRIME), pow(DEGREE, -1, PRIME)
    values = _fourier([residues[_reversed(i)] for i in range(DEGREE)], back * back % PRIME)
    coefficients = (c * shrink * pow(back, k, PRIME) % PRIME for k, c in enumerate(values))
    return [c - PRIME if c > PRIME // 2 else c for c in coefficients]


_TURN = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)
_PLACES = np.array([pow(3, j, 2 * DEGREE) // 2 for j in range(DEGREE // 2)])


def encode(values):
    """The polynomial of up to 2048 values: value 2 j is slot j's real part, value 2 j + 1 its imaginary part, or 0.

    Slot j is SCALE^-1 times the polynomial's value at exp(i pi 3^j / 2048); coefficients are rounded (implementations
    may differ by 1 if their floating point differs).
    """
    parts = np.zeros(DEGREE)
    parts[: len(values)] = values
    slots = np.zeros(DEGREE, complex)
    slots[_PLACES] = parts.view(complex)
    slots[DEGREE - 1 - _PLACES] = parts.view(complex).conj()
    return [round(c) for c in (np.fft.fft(slots) * _TURN.conj()).real * SCALE / DEGREE]


def decode(coefficients):
    """The 2048 values, real numbers."""
    at_odd_roots = np.fft.ifft(np.array(coefficients, float) * _TURN) * DEGREE / SCALE
    return at_odd_roots[_PLACES].view(float)


def phase(residues, key):
    """The polynomial that a ciphertext holds: c0 + c1 s. `key` has the residues of s, packed like a frame's.

    For a sum of n fresh ciphertexts it differs from the sum of their encoded vectors by at most 21 n per coefficient.
    """
    return from_ntt([(a + b * s) % PRIME for a, b, s in zip(residues, residues[DEGREE:], unpack(key), strict=False)])


def decrypt(residues, key, count):
    """The `count` integers of a ciphertext. All values lie within .25 of an integer in range, unused ones of 0."""
    values = decode(phase(residues, key))
    nearest = np.rint(values)
    require(np.all(np.abs(values) <= MAX_SUM["ckks"] + 0.25) and np.all(np.abs(values - nearest) <= 0.25), "noise")
    require(not nearest[count:].any(), "unused")
    return nearest[:count].astype(int).tolist()


PARAMETERS = {"degree": DEGREE, "prime": PRIME, "scale": SCALE, "frame_values": 2048, "frame_bytes": 27_648}
PARMS_ID = hashlib.blake2b(struct.pack("<4Q", 2, DEGREE, PRIME, 0), digest_size=32).digest()
"""SEAL's: scheme (2 is CKKS), degree, primes, plain modulus (none)."""


def parameters_digest():
    """Digest of canonical("ckks parameters", degree, prime, scale, values and bytes of a frame, MAX_VALUE, MAX_SUM)."""
    bounds = MAX_VALUE["ckks"], MAX_SUM["ckks"]
    return hashlib.sha256(canonical("ckks parameters", *PARAMETERS.values(), *bounds)).hexdigest()


def seal_opening(what):
    """What precedes the residues in an object that SEAL 4.3 loads, uncompressed.

    Header (16): magic 0xA15E (2), 16 (1), version 4, 3 (1 each), compression 0 (1; SEAL itself saves with zstd, 2), 0
    (2), size of all (8). Facts of a "ciphertext": PARMS_ID (32), NTT form 1 (1), polynomials 2, degree, primes 1 (8
    each), scale (8, double), correction 1 (8); of a "secret key": PARMS_ID, words 2048 (8), scale 1 (8, double). Then a
    header and the number of words (8) of the array whose words (8 each) follow.
    """
    count, facts = {
        "ciphertext": (4096, struct.pack("<32sBQQQdQ", PARMS_ID, 1, 2, DEGREE, 1, float(SCALE), 1)),
        "secret key": (2048, struct.pack("<32sQd", PARMS_ID, DEGREE, 1.0)),
    }[what]
    size = 16 + 8 + 8 * count
    headers = [struct.pack("<HBBBBHQ", 0xA15E, 16, 4, 3, 0, 0, n) for n in (16 + len(facts) + size, size)]
    return headers[0] + facts + headers[1] + struct.pack("<Q", count)


def read_seal_object(what, data):
    """The residues, in NTT form: those of c0 and c1, as in a frame, or those of the key, none of which is 0."""
    opening = seal_opening(what)
    size = int.from_bytes(opening[8:16], "little")
    require(data.startswith(opening) and len(data) == size, "object")
    residues = np.frombuffer(data, "<u8", offset=len(opening)).tolist()
    if what == "ciphertext":
        check_residues(residues)
    else:
        require(max(residues) < PRIME and all(residues), "residue")
    return residues


# --- sums -----------------------------------------------------------------------------------------------------------


def linear_checks(key, kind, label, numbers):
    """Check c of 4 is the sum over k of a_{k+c} v_k mod 2^64, over the tensor's values v, then its slots.

    a_0, a_1, ... are the 32-bit words of Stream(check key, canonical("linear check", kind, label)).
    """
    words = (
        Stream(key, canonical("linear check", kind, label_bytes(label))).words(4, len(numbers) + CHECKS - 1).tolist()
    )
    rows = (zip(words[c:], numbers, strict=False) for c in range(CHECKS))
    return [sum(a * v for a, v in row) % (1 << 64) for row in rows]


def to_limbs(checks):
    """Check by check, 4 limbs of 16 bits, the lowest first. In a sum the limbs are larger and mean the same."""
    return [check >> LIMB_BITS * i & (1 << LIMB_BITS) - 1 for check in checks for i in range(LIMBS)]


def plain_vector(world, kind, me, values):
    """Values || slots: for every silo of the study, sorted, 1 if it is this one, else 0 || limbs of both's checks."""
    most = limit(kind, len(world["members"]))
    require(all(-most <= value <= most for value in values), "range")
    numbers = [*values, *(int(name == me) for name in sorted(world["members"]))]
    return numbers + to_limbs(linear_checks(world["check"], kind, world["label"], numbers))


def _pair_stream(world, kind, one, other):
    seed = world["pairs"][" ".join(sorted((one, other)))]
    return Stream(seed, canonical("pair mask", kind, label_bytes(world["label"])))


def _own_streams(world, kind, name):
    label = label_bytes(world["label"])
    yield Stream(world["own"][name], canonical("self mask", kind, label))
    if kind != "ckks":
        yield Stream(world["group"], canonical("group pad", kind, name, label))


def masks(world, kind, me):
    """The streams that cover an upload, each as (sign, stream).

    For every other participant there is the stream of the pair seed, label canonical("pair mask", kind, label). The
    silo whose name sorts first adds it, the other one subtracts it. The stream of the silo's own seed,
    canonical("self mask", kind, label), is added. Except for ciphertexts, the stream of the group key,
    canonical("group pad", kind, own name, label), is added too.
    """
    others = [name for name in world["participants"] if name != me]
    pairs = [(1 if me < other else -1, _pair_stream(world, kind, me, other)) for other in others]
    return pairs + [(1, stream) for stream in _own_streams(world, kind, me)]


def unmasking(world, kind):
    """The streams that uncover the survivors' sum. Their own streams and group pads are subtracted. The pair stream of
    each survivor and each participant who dropped out is added with the sign that the dropped silo would have used."""
    survivors = world["survivors"]
    dropped = [name for name in world["participants"] if name not in survivors]
    own = [(-1, stream) for name in survivors for stream in _own_streams(world, kind, name)]
    return own + [
        (1 if gone < name else -1, _pair_stream(world, kind, gone, name)) for gone in dropped for name in survivors
    ]


def covered(kind, frames, terms):
    """The frames' words after every stream was added. Each stream runs through the frames once, in their order.

    Integers: a word of the stream for each word. Ciphertexts: uniform(PRIME, 2048), for the residues of c0 alone.
    """
    out = []
    for words in frames:
        total = list(words)
        for sign, stream in terms:
            drawn = stream.words(WORD[kind], len(words)).tolist() if kind in WORD else stream.uniform(PRIME, DEGREE)
            total[: len(drawn)] = [(w + sign * d) % modulus(kind) for w, d in zip(total, drawn, strict=False)]
        out.append(total)
    return out


def upload(world, kind, me, values):
    """A sealed vector: its frames, covered. The vectors' ciphertexts are given, since their noise is random."""
    plain = plain_vector(world, kind, me, values)
    frames = [plain[at : at + FRAME_VALUES[kind]] for at in range(0, len(plain), FRAME_VALUES[kind])]
    if kind == "ckks":
        fresh = [world["ciphertexts"][me]] if len(frames) == 1 else require(None, "given")
        words = [read_frame(kind, frame) for frame in fresh]
        for residues, part in zip(words, frames, strict=True):
            noise = (a - b for a, b in zip(phase(residues, world["key"]), encode(part), strict=True))
            require(max(map(abs, noise)) <= 21 + 1, "fresh")
    else:
        words = [[value % modulus(kind) for value in part] for part in frames]
    return b"".join(write_frame(kind, part) for part in covered(kind, words, masks(world, kind, me)))


def open_sum(world, kind, content, count):
    """The sum of the survivors' values, uncovered and decrypted. It is refused unless all of this holds.

    Every number lies in [-MAX_SUM, MAX_SUM]. The slots of survivors hold 1, all others 0; a slot below 0 or above the
    number of slots is refused as noise. The checks of values and slots are the sums of limb i times 2^16i.
    """
    silos = sorted(world["members"])
    size = count + len(silos) + CHECKS * LIMBS
    require(len(content) == content_size(kind, size), "length")
    frames = covered(kind, [read_frame(kind, frame) for frame in cut(kind, content)], unmasking(world, kind))
    if kind == "ckks":
        left = [min(FRAME_VALUES[kind], size - at) for at in range(0, size, FRAME_VALUES[kind])]
        numbers = [v for words, n in zip(frames, left, strict=True) for v in decrypt(words, world["key"], n)]
    else:
        half = modulus(kind) // 2
        numbers = [(word + half) % modulus(kind) - half for words in frames for word in words]
    require(all(abs(number) <= MAX_SUM[kind] for number in numbers), "noise")
    slots, limbs = numbers[count : count + len(silos)], numbers[count + len(silos) :]
    require(all(0 <= slot <= len(silos) for slot in slots), "noise")
    require(slots == [int(name in world["survivors"]) for name in silos], "slots")
    summed = [sum(limb << LIMB_BITS * i for i, limb in enumerate(limbs[c : c + LIMBS])) for c in range(0, 16, LIMBS)]
    checks = linear_checks(world["check"], kind, world["label"], numbers[: count + len(silos)])
    require([check % (1 << 64) for check in summed] == checks, "checks")
    return numbers[:count]
