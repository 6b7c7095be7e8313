"""Write the vectors with the product's code: `python -m tests.vectors.generate`, from the repository's root.

`--check` writes nothing and names the files that differ from the committed ones; the exit status is 1 if there are any.
`--capture` first draws anew what comes from random generators, `given.json` (a CKKS key, three ciphertexts, an
ML-KEM-768 ciphertext). It is needed only if those ciphertexts must carry something else. Everything else follows from
fixed names. `checker` says what the files mean; `refusals` says what must be refused, and why.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from crypto.canonical import canonical
from crypto.hkdf import derive
from crypto.rings import seal_format
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import RINGS, ckks_public
from crypto.secagg import unmasking
from crypto.secagg.agreement import _CALL, _GREETING, EphemeralKey, KeyOffer, Roster, RosterEntry
from crypto.secagg.circle import Circle, reach_of
from crypto.secagg.dealt import shamir, slices
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.layout import sealed_values
from crypto.secagg.packages import model_digest
from crypto.secagg.survivors import SurvivorList
from crypto.stream import KeyStream
from protos.chunks import ChunkList
from tests.vectors import refusals
from tests.vectors.attempt import (
    ATTEMPT,
    LABEL,
    MEMBERS,
    PARTICIPANTS,
    SURVIVORS,
    added,
    by_rule,
    drawn,
    few,
    group_keys,
    opened,
    plain_vector,
    seeds,
    uncovered,
    upload,
)

HERE = Path(__file__).resolve().parent
SHOWN = 600
"""Bytes longer than this are committed as a digest."""


def shown(data):
    if len(data) <= SHOWN:
        return data.hex()
    return {"bytes": len(data), "begins": data[:27].hex(), "sha256": hashlib.sha256(data).hexdigest()}


class Written:
    """Entropy that follows from a name and is recorded, so that it can be written into a vector."""

    def __init__(self, name):
        self._name, self.drawn = name, b""

    def bytes(self, n):
        self.drawn += (new := drawn(f"{self._name} {len(self.drawn)}", n))
        return new


def one_sum(given, kind, values, refused):
    uploads = {name: upload(given, kind, name, of) for name, of in values.items()}
    total = added(kind, uploads.values())
    count = len(values["ash"])
    case = {"kind": kind, "count": count}
    if count < SHOWN:
        case["values"] = {name: list(of) for name, of in values.items()}
        case["plain"] = {name: plain_vector(kind, name, of) for name, of in case["values"].items()}
    sums = opened(given, kind, total, count)
    return case | {
        "uploads": {name: shown(content) for name, content in uploads.items()},
        "sum": shown(total),
        "unmasked": shown(uncovered(kind, total)),
        "opened": sums.tolist() if count < SHOWN else shown(sums.astype("<i8").tobytes()),
        "refused": refused,
    }


def long_values(kind):
    """Reach into a second frame: exactly one frame of values, or slots at the first one's end and limbs across it."""
    count = 1 << 15 if kind == "ring32" else (1 << 14) - 14
    return count, RINGS[kind].limit(len(MEMBERS))


def sums_file(given):
    own, pairs = seeds()
    hexes = [{name: seed.hex() for name, seed in part.items()} for part in (own, pairs)]
    cases = []
    for kind in RINGS:
        values = {name: few(kind, name) for name in SURVIVORS}
        cases.append(one_sum(given, kind, values, refusals.sums(kind, len(values["ash"]))))
    for kind in ("ring32", "ring64"):
        count, bound = long_values(kind)
        values = {name: by_rule(name, count, bound).tolist() for name in SURVIVORS}
        cases.append(one_sum(given, kind, values, []) | {"bound": bound})
    most = RINGS["ring32"].limit(len(MEMBERS))
    unsealable = [{"kind": "ring32", "values": [most + 1]}, {"kind": "ring32", "values": [0, -most - 1]}]
    unsealable += [{"kind": "ckks", "values": [(1 << 30) + 1]}, {"kind": "ring64", "values": [-(1 << 46)]}]
    return {
        "members": MEMBERS,
        "participants": PARTICIPANTS,
        "survivors": SURVIVORS,
        "label": asdict(LABEL),
        "group": drawn("group").hex(),
        "check": drawn("check").hex(),
        "own": hexes[0],
        "pairs": hexes[1],
        "cases": cases,
        "refused": [case | {"reason": "range", "error": "SealError"} for case in unsealable],
    }


# --- the other files ------------------------------------------------------------------------------------------------


def part(value):
    """How the vectors write a part of `canonical`."""
    return {"b": value.hex()} if isinstance(value, bytes) else {"i" if isinstance(value, int) else "s": value}


def bytes_file():
    inputs = [
        ("label",),
        ("", "", b"", 0),
        ("label", "ab", "c"),
        ("label", "a", "bc"),
        ("label", b"ab", b"c"),
        ("label", "1"),
        ("label", 1),
        ("label", b"1"),
        ("label", 1, 256, (1 << 64) - 1),
        ("Kürzel", "Zürich, 北京", b"\x00\xff", canonical("label", "a")),
    ]
    labels = [LABEL, *(replace(LABEL, **change) for change in ({"round": 0, "attempt": 0}, {"tensor": ""}))]
    wrong = [{"domain": "label", "parts": [part(value)]} for value in (-1, 1 << 64)]
    return {
        "canonical": [
            {"domain": domain, "parts": [part(value) for value in parts], "bytes": canonical(domain, *parts).hex()}
            for domain, *parts in inputs
        ],
        "labels": [{"label": asdict(of), "bytes": of.canonical().hex(), "digest": of.digest} for of in labels],
        "refused": [case | {"reason": "integer", "error": "SealError"} for case in wrong],
    }


def stream_case(name, *calls):
    stream = KeyStream(drawn(f"stream {name}"), name.encode())
    done = []
    for method, *arguments in calls:
        result = getattr(stream, method)(*arguments)
        if method != "bytes" and len(result) > SHOWN // 8:
            result = result.tobytes()
        given = dict(zip(("q", "n") if method == "uniform" else ("n",), arguments, strict=True))
        done.append({"call": method, **given, "gives": shown(result) if isinstance(result, bytes) else result.tolist()})
    return {"secret": drawn(f"stream {name}").hex(), "label": name.encode().hex(), "calls": done}


def streams_file():
    # The first two are cases 1 and 3 of RFC 5869, appendix A.
    inputs = [(b"\x0b" * 22, bytes(range(0xF0, 0xFA)), bytes(range(13))), (b"\x0b" * 22, b"", None)]
    inputs += [(drawn("key"), b"info", drawn("salt")), (drawn("key"), b"info", None)]
    near = (1 << 63) + 1
    mixed = [("bytes", 3), ("words32", 5), ("uniform", 10, 7), ("words64", 3), ("bytes", 0), ("uniform", near, 3)]
    modest = [("uniform", q, 4) for q in (1, 2, 3, 1 << 32, ckks_public.PRIME, 1 << 64)]
    cases = [
        stream_case("mixed", *mixed, ("bytes", 5)),
        # About half of the words misfit, some of them several times.
        stream_case("rejection", ("uniform", near, 40), ("words64", 1)),
        stream_case("moduli", *modest),
        stream_case("long", ("words32", 20_001), ("uniform", ckks_public.PRIME, 2048), ("uniform", near, 3000)),
    ]
    wrong = [{"secret": "00" * 31}, {"secret": "00" * 33}, {"secret": ""}]
    moduli = [{"secret": "00" * 32, "q": q} for q in (0, (1 << 64) + 1)]
    return {
        "derive": [
            {
                "key": key.hex(),
                "info": info.hex(),
                "salt": salt and salt.hex(),
                "gives": derive(key, info, salt=salt).hex(),
            }
            for key, info, salt in inputs
        ],
        "streams": cases,
        "refused": [case | {"reason": "length", "error": "SealError"} for case in wrong]
        + [case | {"reason": "modulus", "error": "SealError"} for case in moduli],
    }


def rings_file():
    words, additions = [], []
    for kind, bits in (("ring32", 32), ("ring64", 64)):
        ring = RINGS[kind]
        ends = [0, 1, -1, 255, -256, (1 << (bits - 1)) - 1, -(1 << (bits - 1)), 0x01020304, -0x01020304]
        frame = ring.write(np.array(ends, np.int64).astype(ring.word))
        words.append({"kind": kind, "values": ends, "frame": frame.hex()})
        parts = [drawn(f"words {kind} {i}", 64) for i in range(3)]
        additions.append({"kind": kind, "frames": [p.hex() for p in parts], "sum": added(kind, parts).hex()})
    sizes = [
        {"kind": kind, "values": n, "silos": silos, "bytes": ring.content_size(sealed_values(n, silos))}
        for kind, ring in RINGS.items()
        for n, silos in ((0, 2), (1, 5), (2027, 5), (2028, 5), (478_410, 10))
    ]
    limits = [{"kind": k, "silos": n, "limit": ring.limit(n)} for k, ring in RINGS.items() for n in (2, 5, 32, 33, 256)]
    rings = [
        {"kind": kind, "frame_values": ring.frame_values, "frame_bytes": ring.frame_bytes}
        | {"max_value": ring.max_value, "max_sum": ring.max_sum}
        for kind, ring in RINGS.items()
    ]
    return {
        "rings": rings,
        "words": words,
        "additions": additions,
        "sizes": sizes,
        "limits": limits,
        "refused": refusals.frames(),
    }


def residues_by_rule(n, salt=0):
    i = np.arange(1 + 4096 * salt, 1 + 4096 * salt + n, dtype=np.uint64)
    return i * np.uint64(0x9E3779B97F4A7C15) % np.uint64(ckks_public.PRIME)


def rule_objects():
    return {
        "ciphertext": seal_format.write_ciphertext(residues_by_rule(4096)),
        "secret key": seal_format.write_secret_key(residues_by_rule(2048)),
    }


def ckks_file(given):
    few_residues = [0, 1, ckks_public.PRIME - 1, 1 << 53, 0x123456789ABCD, 54, 27, 2]
    rule = [ckks_public.write_frame(residues_by_rule(4096, salt)) for salt in (0, 1)]
    openings = {"ciphertext": 113, "secret key": 88}
    key = seal_format.write_secret_key(ckks_public.unpack(base64.b64decode(given["ckks_key"])))
    return {
        "digest": ckks_public.PARAMETERS_DIGEST,
        "packing": [{"residues": few_residues, "bytes": ckks_public.pack(np.array(few_residues, np.uint64)).hex()}],
        "frames": [shown(frame) for frame in rule],
        "addition": shown(added("ckks", rule)),
        "objects": [
            {"what": what, "opening": data[: openings[what]].hex(), "object": shown(data)}
            for what, data in rule_objects().items()
        ],
        "key": shown(key),
        "refused": refusals.objects(),
    }


def parties():
    """Keys of three silos of a roster: X25519 and ML-KEM-768 from fixed seeds."""
    for name in SURVIVORS:
        private = X25519PrivateKey.from_private_bytes(drawn(f"x25519 {name}"))
        yield name, private, MLKEM768PrivateKey.from_seed_bytes(drawn(f"ml-kem {name}", 64))


def roster():
    """A roster whose signatures and certificates are any bytes, because a digest verifies nothing."""
    return Roster(
        LABEL.study,
        tuple(
            RosterEntry(
                name,
                f"certificate of {name}\n".encode(),
                private.public_key().public_bytes_raw(),
                kem.public_key().public_bytes_raw(),
                drawn(f"signature {name}", 71),
            )
            for name, private, kem in parties()
        ),
    )


def pair_secret(me, other, ciphertext, letter=_GREETING):
    """The secret as `meet` or `answer` derives it, from a ciphertext that the first of the two sent to the second."""
    keys = {name: (private, kem) for name, private, kem in parties()}
    private, kem = keys[me]
    kem_secret = keys[max(me, other.name)][1].decapsulate(ciphertext)
    key = EphemeralKey(LABEL.study, KeyOffer(b"", b"", b""), None, private, kem)
    return key._secret(letter, roster(), me, other, kem_secret, ciphertext)


PAIR = ("ash", "fir")


def kem_ciphertext(given):
    """What the first of the pair sent to the second."""
    return base64.b64decode(given["kem_ciphertext"])


def circle_case(silos, colluders, threshold, size, silo):
    names = tuple(f"silo-{number:03}" for number in range(size))
    made = Circle(names, reach_of(silos, colluders, threshold))
    numbers = {"silos": silos, "colluders": colluders, "threshold": threshold, "roster": size, "silo": silo}
    holders = [names.index(name) for name in made.holders(names[silo])]
    return numbers | {"shares": made.shares(threshold), "holders": holders}


CIRCLES = (
    (128, 2, 120, 128, 0),
    (128, 2, 120, 121, 120),
    (256, 0, 256, 256, 77),
    (66, 1, 60, 65, 3),
    (66, 1, 60, 64, 3),
    (66, 1, 34, 66, 3),
    (70, 9, 46, 70, 5),
    (70, 9, 45, 70, 5),
    (70, 9, 44, 70, 5),
    (3, 1, 3, 3, 1),
)
"""Silos of the study, colluders, threshold, silos of the roster, and a place in it."""


def agreement_file(given):
    shared = roster()
    ends = {me: pair_secret(me, shared.entry(other), kem_ciphertext(given)) for me, other in (PAIR, PAIR[::-1])}
    calls = {me: pair_secret(me, shared.entry(other), kem_ciphertext(given), _CALL) for me, other in (PAIR, PAIR[::-1])}
    secret = ends[PAIR[0]]
    attempt = replace(ATTEMPT, roster=shared.digest)
    notes = {name: drawn(f"shares note {name}") for name in SURVIVORS}
    held = {name: ShareBundle(name, attempt, note, SURVIVORS, {}, {}, {}, {}) for name, note in notes.items()}
    survivors = SurvivorList(attempt, LABEL.tensor, SURVIVORS, unmasking.notes_digest(held, SURVIVORS))
    entries = [
        {key: value if key == "name" else value.decode() if key == "certificate" else value.hex() for key, value in of}
        for of in (
            [(key.removesuffix("_pem"), value) for key, value in vars(entry).items()] for entry in shared.entries
        )
    ]
    return {
        "roster": {"study": shared.study, "entries": entries},
        "digest": shared.digest,
        "x25519": {name: drawn(f"x25519 {name}").hex() for name in SURVIVORS},
        "kem_seeds": {name: drawn(f"ml-kem {name}", 64).hex() for name in SURVIVORS},
        "pair": {"first": PAIR[0], "second": PAIR[1], "secrets": {name: of.hex() for name, of in ends.items()}},
        "calls": {name: of.hex() for name, of in calls.items()},
        "circles": [circle_case(*numbers) for numbers in CIRCLES],
        "attempt": asdict(attempt),
        "tensor": LABEL.tensor,
        "seed": unmasking.pair_seed(secret, attempt, LABEL.tensor).hex(),
        "survivors": {
            "names": SURVIVORS,
            "notes": {name: note.hex() for name, note in notes.items()},
            "bytes": survivors.to_sign().hex(),
        },
        "refused": refusals.agreement(),
    }


def dealing(part_):
    return {"attempt": asdict(ATTEMPT), "owner": "elm", "tensor": LABEL.tensor, "part": part_}


def shamir_case(threshold, holders, secret, part_):
    entropy = Written(f"shamir {threshold} {holders}")
    shares = shamir.split(secret, threshold, holders, entropy)
    named = dict(zip(MEMBERS, shares, strict=False)) | {"": secret}
    spot = (LABEL.tensor, part_)
    return {
        "secret": secret.hex(),
        "threshold": threshold,
        "entropy": entropy.drawn.hex(),
        "shares": [share.hex() for share in shares],
        "dealing": dealing(part_),
        "commitments": {to: unmasking._commit(ATTEMPT, "elm", spot, to, value).hex() for to, value in named.items()},
    }


def shamir_file():
    cases = [
        shamir_case(3, 5, drawn("shared"), "own"),
        shamir_case(2, 2, bytes(32), "key"),
        shamir_case(1, 3, b"\xff" * 32, "own"),
        shamir_case(5, 5, drawn("key of the deposit"), "key"),
    ]
    trees = [tree_case(MEMBERS[:holders]) for holders in (1, 2, 3, 5)]
    return {"cases": cases, "trees": trees, "refused": refusals.shares(cases[0]["shares"])}


def tree_case(holders):
    """A note's slices, the root that its head has, and the path that comes with each slice."""
    pieces = {name: drawn(f"slice of {name}") for name in holders}
    tree = slices.Tree(pieces)
    paths = {name: [beside.hex() for beside in tree.path(place)] for place, name in enumerate(holders)}
    return {"slices": {name: piece.hex() for name, piece in pieces.items()}, "root": tree.root.hex(), "paths": paths}


def content(size):
    """Byte i is (31 i + i // 256 + i // 65536) mod 256."""
    i = np.arange(size)
    return ((i * 31 + (i >> 8) + (i >> 16)) & 255).astype(np.uint8).tobytes()


def listed(data):
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "content").write_bytes(data)
        return ChunkList.of(path)


def digests_file():
    sums = [[], [b""], [drawn("counts", 16), drawn("heads", 40)], [drawn("heads", 40), drawn("counts", 16)]]
    keys = group_keys({"ckks_key": base64.b64encode(b"any")})
    models = [
        {"check": keys.check.hex(), "previous": previous, "study": LABEL.study, "sums": [s.hex() for s in of]}
        | {"digest": model_digest(keys, previous, LABEL.study, of)}
        for previous, of in (("", sums[0]), ("", sums[1]), (LABEL.model, sums[2]), (LABEL.model, sums[3]))
    ]
    chunks = [
        {"size": size, "hashes": (of := listed(content(size))).hashes.hex(), "digest": of.digest}
        for size in (0, 1, 131_072, 131_073, 300_000)
    ]
    return {"models": models, "chunks": chunks, "refused": refusals.chunks()}


def capture():
    """Draw anew what comes from random generators."""
    key = CkksKey.create()
    plain = {name: np.array(plain_vector("ckks", name, few("ckks", name)), np.int64) for name in SURVIVORS}
    kem = {name: kem for name, _, kem in parties()}["fir"]
    fresh = {name: ckks_public.write_frame(key.encrypt(values)) for name, values in plain.items()}
    return {
        "ckks_key": base64.b64encode(key.to_bytes()).decode(),
        "ciphertexts": {name: base64.b64encode(frame).decode() for name, frame in fresh.items()},
        "kem_ciphertext": base64.b64encode(kem.public_key().encapsulate()[1]).decode(),
    }


def build(given):
    """Every file but `given.json`: name -> text."""
    files = {
        "bytes": bytes_file(),
        "streams": streams_file(),
        "rings": rings_file(),
        "ckks": ckks_file(given),
        "sums": sums_file(given),
        "agreement": agreement_file(given),
        "shamir": shamir_file(),
        "digests": digests_file(),
    }
    return {f"{name}.json": text(of) for name, of in files.items()}


def text(of):
    """JSON with one line for each key, or for each item of a list of objects under it."""
    lines = []
    for key, value in of.items():
        inner = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = "[\n" + ",\n".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n]"
        lines.append(f"{json.dumps(key)}: {inner}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    path = HERE / "given.json"
    if "--capture" in sys.argv[1:]:
        path.write_text(text(capture()))
    files = build(json.loads(path.read_text()))
    stale = [name for name, new in files.items() if not (HERE / name).exists() or (HERE / name).read_text() != new]
    if "--check" not in sys.argv[1:]:
        for name in stale:
            (HERE / name).write_text(files[name])
        return 0
    for name in stale:
        sys.stdout.write(f"{name} is not what the code writes\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
