"""One attempt at one tensor, sealed, added and opened by the product's code. Four silos take part; elm drops out.

Keys and seeds follow from names. Ciphertexts come from `given`, the content of `given.json`.
"""

from __future__ import annotations

import base64
import hashlib
import io

import numpy as np

from crypto.rings.rings import RINGS, ckks_public
from crypto.secagg.checks import LinearChecks
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks, Unmasking, apply
from crypto.secagg.packages import GroupKeys
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import AttemptRef

MEMBERS = ("ash", "elm", "fir", "oak", "yew")
PARTICIPANTS = MEMBERS[:4]
SURVIVORS = ("ash", "fir", "oak")


def drawn(name, n=32):
    """Bytes that follow from a name, by SHAKE-256."""
    return hashlib.shake_256(f"fedward vectors {name}".encode()).digest(n)


def digest(name):
    return drawn(name).hex()


LABEL = SumLabel(digest("study"), digest("roster"), digest("model"), 7, 2, "encoder.update")
ATTEMPT = AttemptRef(LABEL.study, LABEL.roster, LABEL.round, LABEL.attempt)


def seeds():
    """The seeds of this attempt, as agreement and unmasking would give them."""
    own = {name: drawn(f"own {name}") for name in PARTICIPANTS}
    pairs = {f"{a} {b}": drawn(f"pair {a} {b}") for a in PARTICIPANTS for b in PARTICIPANTS if a < b}
    return own, pairs


def towards_others(me):
    _, pairs = seeds()
    return {
        b if a == me else a: seed for (a, b), seed in ((tuple(k.split()), s) for k, s in pairs.items()) if me in (a, b)
    }


def masks(me):
    return Masks(me, drawn(f"own {me}"), towards_others(me), drawn("group"))


def unmasking(survivors=SURVIVORS):
    dropped = {name: towards_others(name) for name in PARTICIPANTS if name not in survivors}
    return Unmasking({name: drawn(f"own {name}") for name in survivors}, dropped, drawn("group"))


def by_rule(name, count, bound):
    """Values of the long vectors."""
    k = np.arange(count, dtype=np.int64)
    return (k * k * 7919 + k * 104729 * (MEMBERS.index(name) + 1)) % (2 * bound + 1) - bound


def few(kind, name):
    """Values with both bounds, signs and zero among them."""
    most = RINGS[kind].limit(len(MEMBERS))
    place = MEMBERS.index(name)
    ends = [most, -most, 0, 1, -1, most - place, 1000 * place - 1]
    return [*ends, *by_rule(name, 23, 10**6).tolist()] if kind == "ckks" else [*ends, 65_536 << place]


class GivenCiphertexts:
    """Stands in for a key: `encrypt` returns the ciphertexts that were captured for these very values."""

    def __init__(self, key, residues):
        self._key, self._residues = key, residues

    def encrypt(self, values):
        if not np.array_equal(self._key.decrypt(self._residues, values.size), values):
            msg = "the captured ciphertexts hold other values; run with --capture"
            raise SystemExit(msg)
        return self._residues.copy()


def group_keys(given, check=None):
    return GroupKeys(base64.b64decode(given["ckks_key"]), drawn("group"), check or drawn("check"))


def sealer(given, me, check=None):
    made = Sealer(me, group_keys(given, check), MEMBERS)
    if me in given["ciphertexts"]:
        residues = ckks_public.read_frame(base64.b64decode(given["ciphertexts"][me]))
        made._ckks = GivenCiphertexts(made._ckks, residues)
    return made


def upload(given, kind, me, values):
    return b"".join(sealer(given, me).seal(kind, np.array(values, np.int64), LABEL, masks(me)))


def frames(kind, data):
    size = RINGS[kind].frame_bytes
    return [data[at : at + size] for at in range(0, len(data), size)]


def added(kind, contents):
    """The coordinator's sum."""
    ring, total = RINGS[kind], []
    for column in zip(*(frames(kind, content) for content in contents), strict=True):
        words = ring.read(column[0])
        for frame in column[1:]:
            ring.add(words, ring.read(frame))
        total.append(ring.write(words))
    return b"".join(total)


def uncovered(kind, content):
    ring, terms, out = RINGS[kind], unmasking().terms(LABEL, kind), []
    for frame in frames(kind, content):
        words = ring.read(frame)
        apply(ring, words, terms)
        out.append(ring.write(words))
    return b"".join(out)


def opened(given, kind, content, count, label=LABEL, *, survivors=SURVIVORS, check=None):
    # A silo of the study that has a key, but no ciphertext of its own here.
    return sealer(given, "yew", check).open(kind, io.BytesIO(content), count, label, unmasking(survivors))


def plain_vector(kind, me, values):
    slots = np.array([name == me for name in MEMBERS], np.int64)
    checks = LinearChecks(drawn("check"), kind, LABEL)
    checks.update(np.array(values, np.int64))
    checks.update(slots)
    return [*values, *slots.tolist(), *checks.limbs().tolist()]
