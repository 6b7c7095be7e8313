"""Keys of a roster on their way between silos, and notes that only the roster reads.

Guarantees: the coordinator, who carries packages and notes, can neither read nor change them, nor use them for another
roster, dealer, silo or label (AES-256-GCM, NIST SP 800-38D, keys by HKDF-SHA256). Every malformed or foreign blob gives
`SealError`. Leaves the meaning of the CKKS key bytes to `ckks_secret`, and who deals to the protocol.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from crypto.agreement import PairSecrets, Roster
from crypto.canonical import canonical
from crypto.ckks_public import PARAMETERS_DIGEST
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.labels import Label
from crypto.stream import KEY_BYTES, derive

_MAGIC = b"fedward keys 1\0\0"
_NONCE = 12
_TAG = 16
_WRAP = _NONCE + KEY_BYTES + _TAG


@dataclass(frozen=True)
class GroupKeys:
    """What every silo of a roster holds and nobody else. Prints only its kind."""

    ckks: bytes = field(repr=False)
    """The CKKS key with its secret part (`CkksKey.to_bytes`)."""
    group: bytes = field(repr=False)
    """32 bytes: group pads and notes."""
    check: bytes = field(repr=False)
    """32 bytes: model digests and check values."""

    def __post_init__(self) -> None:
        if len(self.group) != KEY_BYTES or len(self.check) != KEY_BYTES or not self.ckks:
            msg = f"a roster's keys are a CKKS key and two keys of {KEY_BYTES} bytes; deal them again"
            raise SealError(msg)


def deal(keys: GroupKeys, pairs: PairSecrets, me: str, roster: Roster, entropy: Entropy) -> bytes:
    """Package the keys for every other member of the roster.

    Layout: magic (16), parameter digest (32), for every other silo in the roster's order a wrapped content key
    (nonce 12, key 32, tag 16), then the content (nonce 12, CKKS key, group key 32, check key 32, tag 16).
    Raises `SealError` where the pair secrets are not those of the roster.
    """
    _check_members(pairs, me, roster)
    content_key = entropy.bytes(KEY_BYTES)
    pieces = [_MAGIC, bytes.fromhex(PARAMETERS_DIGEST)]
    for name in roster.names:
        if name != me:
            wrap = AESGCM(_wrap_key(pairs[name], me, name))
            pieces.append(_seal(wrap, content_key, _bound("wrap", roster, me, name), entropy))
    plain = keys.ckks + keys.group + keys.check
    pieces.append(_seal(AESGCM(content_key), plain, _bound("keys", roster, me, ""), entropy))
    return b"".join(pieces)


def take(blob: bytes, pairs: PairSecrets, me: str, dealer: str, roster: Roster) -> GroupKeys:
    """Open a package that `dealer` made for the roster. Raises `SealError` for anything else."""
    _check_members(pairs, me, roster)
    others = [name for name in roster.names if name != dealer]
    if dealer not in pairs or len(others) == len(roster.names):
        msg = "a key package comes from another member of the roster; ask the coordinator who deals"
        raise SealError(msg)
    head = _MAGIC + bytes.fromhex(PARAMETERS_DIGEST)
    body = len(head) + _WRAP * len(others)
    if not hmac.compare_digest(blob[: len(head)], head) or len(blob) <= body + _NONCE + 2 * KEY_BYTES + _TAG:
        msg = "the key package has another version or length; all silos must run the same version of FedWard"
        raise SealError(msg)
    begin = len(head) + _WRAP * others.index(me)
    wrap = AESGCM(_wrap_key(pairs[dealer], dealer, me))
    content_key = _open(wrap, blob[begin : begin + _WRAP], _bound("wrap", roster, dealer, me), "key package")
    plain = _open(AESGCM(content_key), blob[body:], _bound("keys", roster, dealer, ""), "key package")
    return GroupKeys(plain[: -2 * KEY_BYTES], plain[-2 * KEY_BYTES : -KEY_BYTES], plain[-KEY_BYTES:])


def seal_note(keys: GroupKeys, label: Label, plain: bytes, entropy: Entropy) -> bytes:
    """Seal bytes for the roster: nonce (12), ciphertext, tag (16), under a key of this label."""
    return _seal(_note_cipher(keys, label), plain, label.canonical(), entropy)


def open_note(keys: GroupKeys, label: Label, blob: bytes) -> bytes:
    """Open a note of the roster for this label. Raises `SealError` where it is not authentic."""
    return _open(_note_cipher(keys, label), blob, label.canonical(), "note")


def model_digest(keys: GroupKeys, previous: str, study: str, sums: Sequence[bytes]) -> str:
    """HMAC-SHA256 under the check key over the previous digest, the study and the opened integer sums, lowercase hex.

    All silos agree on it whatever their hardware, and the coordinator cannot test guesses with it (design:
    sealed-sums.md, layer 2).
    """
    return hmac.digest(keys.check, canonical("model", previous, study, *sums), "sha256").hex()


def _check_members(pairs: PairSecrets, me: str, roster: Roster) -> None:
    if {me, *pairs} != set(roster.names) or me in pairs:
        msg = "the pair secrets are not those of this roster; agree on keys again"
        raise SealError(msg)


def _wrap_key(pair: bytes, dealer: str, member: str) -> bytes:
    return derive(pair, canonical("key wrap", dealer, member))


def _bound(purpose: str, roster: Roster, dealer: str, member: str) -> bytes:
    return canonical("package", purpose, bytes.fromhex(roster.digest), PARAMETERS_DIGEST, dealer, member)


def _note_cipher(keys: GroupKeys, label: Label) -> AESGCM:
    return AESGCM(derive(keys.group, canonical("note", label.canonical())))


def _seal(cipher: AESGCM, plain: bytes, bound: bytes, entropy: Entropy) -> bytes:
    nonce = entropy.bytes(_NONCE)
    return nonce + cipher.encrypt(nonce, plain, bound)


def _open(cipher: AESGCM, blob: bytes, bound: bytes, what: str) -> bytes:
    try:
        return cipher.decrypt(blob[:_NONCE], blob[_NONCE:], bound)
    except (InvalidTag, ValueError):
        msg = f"the {what} is not authentic for this roster and purpose; have it sent again, then begin a new attempt"
        raise SealError(msg) from None
