"""Key packages that carry a roster's keys between silos, and notes that only the roster can read.

Guarantees: the coordinator, who carries packages and notes, can neither read nor change them, nor use them for another
roster, dealer, silo or label (AES-256-GCM, NIST SP 800-38D, keys by HKDF-SHA256). Every malformed or foreign blob gives
`SealError`. `ckks_secret` defines the bytes of the CKKS key, and the protocol decides who deals.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.hkdf import KEY_BYTES, derive
from crypto.rings.ckks_public import PARAMETERS_DIGEST
from crypto.secagg.agreement import PairSecrets, Roster
from crypto.secagg.dealt.boxes import SEAL_BYTES, open_under, seal_under
from crypto.secagg.labels import SumLabel

_MAGIC = b"fedward keys 1\0\0"
_WRAP = KEY_BYTES + SEAL_BYTES
_LENGTH = 4


@dataclass(frozen=True)
class GroupKeys:
    """The keys that every silo of a roster holds, and nobody else. `repr` prints only its kind."""

    ckks: bytes = field(repr=False)
    """The CKKS key with its secret part (`CkksKey.to_bytes`)."""
    group: bytes = field(repr=False)
    """32 bytes, for group pads and notes."""
    check: bytes = field(repr=False)
    """32 bytes, for model digests and check values."""

    def __post_init__(self) -> None:
        if len(self.group) != KEY_BYTES or len(self.check) != KEY_BYTES or not self.ckks:
            msg = f"a roster's keys must be a CKKS key and two keys of {KEY_BYTES} bytes; deal them again"
            raise SealError(msg)


def deal(keys: GroupKeys, pairs: PairSecrets, me: str, roster: Roster, entropy: Entropy) -> bytes:
    """Package the keys for every other member of the roster, with whom `pairs` has a secret.

    These are the pair secrets where everybody is everybody's neighbour, and else the secrets of a call
    (`agreement.Call`), whose note goes with the package (`with_call`).

    Layout: magic (16), parameter digest (32), for every other silo in the roster's order a wrapped content key
    (nonce 12, key 32, tag 16), then the content (nonce 12, CKKS key, group key 32, check key 32, tag 16).
    Raises `SealError` if the secrets are not those with all others of the roster.
    """
    _require_secrets(pairs, {name for name in roster.names if name != me}, me, roster)
    content_key = entropy.bytes(KEY_BYTES)
    pieces = [_MAGIC, bytes.fromhex(PARAMETERS_DIGEST)]
    for name in roster.names:
        if name != me:
            wrap = _wrap_key(pairs[name], me, name)
            pieces.append(seal_under(wrap, content_key, _bound("wrap", roster, me, name), entropy))
    plain = keys.ckks + keys.group + keys.check
    pieces.append(seal_under(content_key, plain, _bound("keys", roster, me, ""), entropy))
    return b"".join(pieces)


def take(blob: bytes, pairs: PairSecrets, me: str, dealer: str, roster: Roster) -> GroupKeys:
    """Open a package that `dealer` made for the roster. Raises `SealError` for anything else.

    `pairs`: the pair secrets, or the one secret of the dealer's call.
    """
    if roster.circle.sparse:
        _require_secrets(pairs, {dealer}, me, roster)
    else:
        pairs.check(me, roster)
    others = [name for name in roster.names if name != dealer]
    if dealer not in pairs or len(others) == len(roster.names):
        msg = "a key package must come from another member of the roster; ask the coordinator who deals the keys"
        raise SealError(msg)
    head = _MAGIC + bytes.fromhex(PARAMETERS_DIGEST)
    body = len(head) + _WRAP * len(others)
    if not hmac.compare_digest(blob[: len(head)], head) or len(blob) <= body + 2 * KEY_BYTES + SEAL_BYTES:
        msg = "the key package has another version or length; all silos must run the same version of FedWard"
        raise SealError(msg)
    begin = len(head) + _WRAP * others.index(me)
    wrap = _wrap_key(pairs[dealer], dealer, me)
    content_key = open_under(wrap, blob[begin : begin + _WRAP], _bound("wrap", roster, dealer, me), "key package")
    plain = open_under(content_key, blob[body:], _bound("keys", roster, dealer, ""), "key package")
    return GroupKeys(plain[: -2 * KEY_BYTES], plain[-2 * KEY_BYTES : -KEY_BYTES], plain[-KEY_BYTES:])


def with_call(call: bytes, package: bytes) -> bytes:
    """Return a package behind the note of its dealer's call. Layout: length of the note (4), note, package."""
    return len(call).to_bytes(_LENGTH) + call + package


def without_call(blob: bytes) -> tuple[bytes, bytes]:
    """The inverse of `with_call`: the note and the package. Whoever reads the two finds out whether they are right."""
    end = _LENGTH + int.from_bytes(blob[:_LENGTH])
    return blob[_LENGTH:end], blob[end:]


def seal_note(keys: GroupKeys, label: SumLabel, plain: bytes, entropy: Entropy) -> bytes:
    """Seal bytes for the roster under a key of this label. Returns nonce (12), ciphertext, tag (16)."""
    return seal_under(_note_key(keys, label), plain, label.canonical(), entropy)


def open_note(keys: GroupKeys, label: SumLabel, blob: bytes) -> bytes:
    """Open a note of the roster for this label. Raises `SealError` if it is not authentic."""
    return open_under(_note_key(keys, label), blob, label.canonical(), "note")


def model_digest(keys: GroupKeys, previous: str, study: str, made: Sequence[bytes]) -> str:
    """HMAC-SHA256 under the check key over the previous digest, the study and what the step made, lowercase hex.

    `made` is the opened integers and the digest of the model that was computed from them. Silos that hold the same
    model get the same digest, and a silo that computed another model gets another digest at once. The coordinator
    cannot use the digest to test guesses of the model (docs/design/sums.md, "Labels").
    """
    return hmac.digest(keys.check, canonical("model", previous, study, *made), "sha256").hex()


def content_key(keys: GroupKeys, study: str, round_number: int) -> bytes:
    """The key, 32 bytes, under which the silos of a roster digest what they hold after a round.

    It goes with the model to silos that were away, which have not the roster's keys, and tells nothing about these.
    """
    return derive(keys.check, canonical("content key", study, round_number))


def content_digest(key: bytes, study: str, round_number: int, held: Sequence[bytes]) -> str:
    """HMAC-SHA256 under the content's key over what a silo holds after a round, lowercase hex.

    `held` is the model's keyed digest, the digest of its content, and the domains' noised sizes. The digest commits to
    key and content together: another key or another content with the same digest is a collision of SHA-256, because all
    keys have one length. So whoever is given the key by a peer may trust the digest nevertheless. Raises `SealError`
    for a key of another length.
    """
    if len(key) != KEY_BYTES:
        msg = f"a content's key has {KEY_BYTES} bytes; have the model shared again"
        raise SealError(msg)
    return hmac.digest(key, canonical("content", study, round_number, *held), "sha256").hex()


def _require_secrets(pairs: PairSecrets, wanted: set[str], me: str, roster: Roster) -> None:
    if set(pairs) != wanted or me in pairs or me not in roster.names:
        msg = "the secrets belong to another roster or dealer; agree on keys again"
        raise SealError(msg)


def _wrap_key(pair: bytes, dealer: str, member: str) -> bytes:
    return derive(pair, canonical("key wrap", dealer, member))


def _bound(purpose: str, roster: Roster, dealer: str, member: str) -> bytes:
    return canonical("package", purpose, bytes.fromhex(roster.digest), PARAMETERS_DIGEST, dealer, member)


def _note_key(keys: GroupKeys, label: SumLabel) -> bytes:
    return derive(keys.group, canonical("note", label.canonical()))
