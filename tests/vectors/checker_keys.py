"""FedWard's keys, streams, labels, shares and digests a second time, written from their description alone.

Each function states one format in full. Together with the standards that it names, this is enough to write a third
implementation.
Integers are little-endian unless said otherwise; || joins bytes; digests are SHA-256. Nothing of FedWard is imported.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


class Refused(Exception):  # noqa: N818  # as in the product: the fault is another party's
    """An input that no implementation may accept. The argument is the `reason` in the vectors."""


def require(holds, reason):
    if not holds:
        raise Refused(reason)


# --- bytes, keys, streams -------------------------------------------------------------------------------------------


def canonical(domain, *parts):
    """b"fedward/1" || domain || parts; each part (the domain is a text) is type (1) || length (8) || content.

    Types: b"s" text in UTF-8, b"b" bytes, b"i" an integer of [0, 2^64) in 8 bytes.
    """
    out = b"fedward/1"
    for part in (domain, *parts):
        if isinstance(part, int):
            require(0 <= part < 1 << 64, "integer")
        kind, content = {
            str: lambda part: (b"s", part.encode()),
            bytes: lambda part: (b"b", part),
            int: lambda part: (b"i", part.to_bytes(8, "little")),
        }[type(part)](part)
        out += kind + len(content).to_bytes(8, "little") + content
    return out


def label_bytes(label):
    """canonical("label", study, roster, model, round, attempt, tensor): three digests (hexadecimal texts), two numbers.

    A silo stores the digest of these bytes so that it never uses a label again.
    """
    return canonical("label", *(label[key] for key in ("study", "roster", "model", "round", "attempt", "tensor")))


def derive(key, info, salt=None):
    """HKDF-SHA256 (RFC 5869), 32 bytes: a single expansion block. Without a salt, the salt is 32 zeros."""
    extracted = hmac.digest(salt or bytes(32), key, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")


class Stream:
    """AES-256-CTR of zeros, from counter 0, under derive(secret of 32 bytes, canonical("stream", label))."""

    def __init__(self, secret, label):
        require(len(secret) == 32, "length")
        key = derive(secret, canonical("stream", label))
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def bytes(self, n):
        """The next n bytes."""
        return self._cipher.update(bytes(n))

    def words(self, size, n):
        """The next n words of so many bytes."""
        return np.frombuffer(self.bytes(size * n), f"<u{size}")

    def uniform(self, q, n):
        """Draw n numbers of [0, q): the next n 64-bit words, cut to the bits of q - 1. Those above q - 1 misfit.

        All misfits of a pass are drawn again together, in their order, from the next words, until none misfits.
        """
        require(1 <= q <= 1 << 64, "modulus")
        mask = (1 << (q - 1).bit_length()) - 1
        numbers, misfits = [0] * n, list(range(n))
        while misfits:
            for place, word in zip(misfits, self.words(8, len(misfits)).tolist(), strict=True):
                numbers[place] = word & mask
            misfits = [place for place in misfits if numbers[place] >= q]
        return numbers


# --- agreement, sharing, digests ------------------------------------------------------------------------------------


def roster_digest(roster):
    """Digest of canonical("roster", study, then of each silo name, certificate, X25519 key, ML-KEM-768 key, signature).

    All but study and name are bytes, the certificate is PEM. A silo signs canonical("key offer", study, both keys).
    There are two silos or more, sorted by name, and no name or key comes twice.
    """
    entries = roster["entries"]
    names = [entry["name"] for entry in entries]
    keys = [len({entry[key] for entry in entries}) for key in ("public", "kem")]
    require(len(names) >= 2 and names == sorted(set(names)) and keys == [len(names)] * 2, "roster")
    parts = (entry[key] for entry in entries for key in ("name", "certificate", "public", "kem", "signature"))
    return hashlib.sha256(canonical("roster", roster["study"], *parts)).hexdigest()


def pair_secret(roster, pair, private, other_public, kem_secret, purpose="pair"):  # noqa: PLR0917  # as it is derived
    """derive(X25519 secret || ML-KEM secret, canonical("pair", first name, second name, ciphertext), salt).

    The salt is the roster's digest (32 bytes). `ciphertext` encapsulates the ML-KEM secret; the first name made it for
    the second. Who deals a roster's keys shares a secret with each other silo by its call: then it begins with "call".
    """
    try:
        shared = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(other_public))
    except ValueError:
        raise Refused("weak") from None  # noqa: EM101  # a reason, no message
    info = canonical(purpose, *sorted((pair["first"], pair["second"])), pair["ciphertext"])
    return derive(shared + kem_secret, info, bytes.fromhex(roster_digest(roster)))


def circle(case):
    """How many shares give a silo's secrets, and the places of those who hold shares of them, in the roster's order.

    Let the reach be silos of the study - threshold + colluders + 1, and 2 at least. A roster of more than 64 silos with
    2 reach < its size - 1 stands on a circle. There those hold shares whose place differs by the reach or less, counted
    around it, and so many shares as the reach are needed. In every other roster all hold shares, and `threshold` are
    needed.
    """
    near, size = max(2, case["silos"] - case["threshold"] + case["colluders"] + 1), case["roster"]
    if size <= 64 or 2 * near >= size - 1:
        return case["threshold"], list(range(size))
    apart = [(place - case["silo"]) % size for place in range(size)]
    return near, [place for place, steps in enumerate(apart) if min(steps, size - steps) <= near]


def attempt_bytes(attempt):
    """canonical("attempt", study, roster's digest, round, attempt)."""
    return canonical("attempt", *(attempt[key] for key in ("study", "roster", "round", "attempt")))


def pair_seed(secret, attempt, tensor):
    """derive(pair secret, canonical("pair seed", attempt, tensor)): what a pair's masks are drawn from."""
    return derive(secret, canonical("pair seed", attempt_bytes(attempt), tensor))


def notes_digest(notes):
    """SHA-256 of canonical("shares notes", then of each participant in order its name and its note head's SHA-256)."""
    named = [part for name in sorted(notes) for part in (name, notes[name])]
    return hashlib.sha256(canonical("shares notes", *named)).hexdigest()


def survivors_bytes(attempt, tensor, names, notes):
    """What survivors sign: canonical("survivors", attempt, tensor, notes' digest, names); two or more, sorted, once."""
    require(len(names) >= 2 and names == sorted(set(names)), "survivors")
    return canonical("survivors", attempt_bytes(attempt), tensor, notes_digest(notes), *names)


FIELD = (1 << 256) + 297


def split(secret, threshold, holders, entropy):
    """Shares of holders 1, 2, ...: the polynomial's values there mod FIELD, 33 bytes, big-endian.

    The secret (32 bytes, big-endian) is the constant coefficient; the next ones, in order, are 33 bytes of entropy
    each, big-endian, cut to 257 bits, and drawn again if they are FIELD or more.
    """
    require(len(secret) == 32 and 1 <= threshold <= holders, "share")
    drawn = (int.from_bytes(entropy[at : at + 33], "big") % (1 << 257) for at in range(0, len(entropy), 33))
    coefficients = [int.from_bytes(secret, "big"), *(c for c in drawn if c < FIELD)]
    require(len(coefficients) == threshold, "entropy")
    values = (sum(c * x**power for power, c in enumerate(coefficients)) for x in range(1, holders + 1))
    return [(value % FIELD).to_bytes(33, "big") for value in values]


def combine(shares, threshold):
    """The polynomial's value at 0 by Lagrange, from the `threshold` lowest holders (number -> share)."""
    points = [(x, int.from_bytes(shares[x], "big"), len(shares[x])) for x in sorted(shares)[:threshold]]
    require(len(points) == threshold and all(x > 0 and y < FIELD and size == 33 for x, y, size in points), "share")
    secret = 0
    for x, y, _ in points:
        others = [other for other, _, _ in points if other != x]
        below = math.prod(other - x for other in others)
        secret += y * math.prod(others) * pow(below, -1, FIELD)
    require(secret % FIELD < 1 << 256, "secret")
    return (secret % FIELD).to_bytes(32, "big")


def slices_root(slices):
    """The hash that stands for a note's slices (holder -> slice, in the roster's order).

    A leaf is SHA-256(0x00 || canonical("slice", holder, slice)), a node SHA-256(0x01 || left || right). Leaves of 32
    zero bytes make their number a power of two.
    """
    level = [hashlib.sha256(b"\0" + canonical("slice", *of)).digest() for of in slices.items()]
    level += [bytes(32)] * ((1 << (len(level) - 1).bit_length()) - len(level))
    while len(level) > 1:
        level = [hashlib.sha256(b"\1" + level[at] + level[at + 1]).digest() for at in range(0, len(level), 2)]
    return level[0]


def root_of_one(holders, holder, piece, path):
    """The root by one slice and its path: the hash beside it, the one beside their node, and so on."""
    node, place = hashlib.sha256(b"\0" + canonical("slice", holder, piece)).digest(), holders.index(holder)
    for beside in path:
        left, right = (beside, node) if place % 2 else (node, beside)
        node, place = hashlib.sha256(b"\1" + left + right).digest(), place // 2
    return node


def commitment(dealing, holder, value):
    """Digest of canonical("commitment", attempt, dealer, tensor, part, holder or "" for the secret itself, value).

    The part is "own" for the key of the self mask, "key" for the key under which the pair seeds are deposited.
    """
    of = (dealing[key] for key in ("owner", "tensor", "part"))
    return hashlib.sha256(canonical("commitment", attempt_bytes(dealing["attempt"]), *of, holder, value)).digest()


def model_digest(check, previous, study, sums):
    """HMAC-SHA256 under the check key of canonical("model", previous digest, study, opened sums), the sums as bytes."""
    return hmac.digest(check, canonical("model", previous, study, *sums), "sha256").hex()


CHUNK = 1 << 17


def chunk_list(content):
    """The digests of a content's chunks of 128 KiB, the last one shorter, one after the other."""
    return b"".join(hashlib.sha256(content[at : at + CHUNK]).digest() for at in range(0, len(content), CHUNK))


def chunk_digest(size, hashes):
    """The name of a content: the digest of b"fedward chunks 1" || its chunks' digests || size (8)."""
    require(len(hashes) == 32 * -(-size // CHUNK), "list")
    return hashlib.sha256(b"fedward chunks 1" + hashes + size.to_bytes(8, "little")).hexdigest()


def check_chunk(size, hashes, offset, piece):
    """Require that `piece` is the chunk that begins at `offset`, by its length and its digest."""
    expected = hashes[offset // CHUNK * 32 :][:32]
    fits = offset % CHUNK == 0 and len(piece) == min(CHUNK, size - offset)
    require(fits and hashlib.sha256(piece).digest() == expected, "chunk")
