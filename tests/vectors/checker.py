"""The check of the vectors by a second implementation: `python -I tests/vectors/checker.py [folder]`.

The checker imports nothing of FedWard. `checker_keys` and `checker_sums` state the formats and compute them anew, so
the product and the checker can agree only if both do what is written there. Every file in the folder is checked; the
default is this folder. Files that do not hold are named, and the exit status is then 1.

Bytes in the vectors are hexadecimal. Long ones are `{"bytes": length, "begins": hexadecimal, "sha256": digest}`. In
`given.json`, which holds what came from a random generator, they are base64. A `refused` case is an input that must be
refused: `reason` is the checker's word, `error` the product's class; `refusals` says how the cases are written.

Long inputs follow from rules. Residue i of frame s is (i + 1 + 4096 s) 0x9E3779B97F4A7C15 mod 2^64 mod PRIME. Value k
of silo s (from 0, of the sorted members) is (7919 k^2 + 104729 (s + 1) k) mod (2 bound + 1) - bound. Byte i of a
content in chunks is (31 i + i // 256 + i // 65536) mod 256.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # which -I leaves out

import checker_keys as keys  # noqa: E402
import checker_sums as sums  # noqa: E402


class Differs(Exception):  # noqa: N818  # says what happened
    """A vector that is not what the formats give."""


def same(found, expected, what):
    """Compare with `expected`, as the vectors have it: bytes are compared as hexadecimal or by their digest."""
    if isinstance(found, bytes):
        long = {"bytes": len(found), "begins": found[:27].hex(), "sha256": hashlib.sha256(found).hexdigest()}
        found = long if isinstance(expected, dict) else found.hex()
    if found != expected:
        msg = f"{what} is {str(found)[:80]}, not {str(expected)[:80]}"
        raise Differs(msg)


def refuses(case, function, *arguments):
    try:
        function(*arguments)
    except keys.Refused as refusal:
        same(str(refusal), case["reason"], f"the reason to refuse {case.get('name', case)}")
    else:
        msg = f"{case.get('name', case)} is accepted"
        raise Differs(msg)


def edited(data, edit):
    """Bytes after an edit: `set` (place, bytes), `zero` (from, to), or `size` (cut, or filled up with zeros)."""
    out = bytearray(data)
    if "set" in edit:
        at, new = edit["set"]
        out[at : at + len(new) // 2] = bytes.fromhex(new)
    if "zero" in edit:
        begin, end = edit["zero"]
        out[begin:end] = bytes(end - begin)
    size = edit.get("size", len(out))
    return bytes(out[:size]).ljust(size, b"\0")


def check_bytes(v, _given):
    def encoded(case):
        read = {"s": str, "i": int, "b": bytes.fromhex}
        return keys.canonical(case["domain"], *(read[kind](of) for part in case["parts"] for kind, of in part.items()))

    for case in v["canonical"]:
        same(encoded(case), case["bytes"], f"the encoding of {case['parts']}")
    if len({case["bytes"] for case in v["canonical"]}) != len(v["canonical"]):
        msg = "two sequences of parts have the same bytes"
        raise Differs(msg)
    for case in v["labels"]:
        same(keys.label_bytes(case["label"]), case["bytes"], "a label")
        same(hashlib.sha256(bytes.fromhex(case["bytes"])).hexdigest(), case["digest"], "a label's digest")
    for case in v["refused"]:
        refuses(case, encoded, case)


def check_streams(v, _given):
    for case in v["derive"]:
        salt = case["salt"] and bytes.fromhex(case["salt"])
        same(keys.derive(bytes.fromhex(case["key"]), bytes.fromhex(case["info"]), salt), case["gives"], "a derived key")
    for case in v["streams"]:
        stream = keys.Stream(bytes.fromhex(case["secret"]), bytes.fromhex(case["label"]))
        for call in case["calls"]:
            what, n = call["call"], call["n"]
            if what == "bytes":
                gives = stream.bytes(n)
            else:
                gives = (
                    stream.uniform(call["q"], n) if what == "uniform" else stream.words(int(what[5:]) // 8, n).tolist()
                )
                if isinstance(call["gives"], dict):
                    gives = struct.pack(f"<{n}{'I' if what == 'words32' else 'Q'}", *gives)
            same(gives, call["gives"], f"{what} of {case['label']}")
    for case in v["refused"]:
        refuses(case, lambda of: keys.Stream(bytes.fromhex(of["secret"]), b"").uniform(of["q"], 1), case)


def check_rings(v, _given):
    for case in v["rings"]:
        for key in ("frame_values", "frame_bytes", "max_value", "max_sum"):
            same(vars(sums)[key.upper()][case["kind"]], case[key], f"{key} of {case['kind']}")
    for case in v["words"]:
        frame = bytes.fromhex(case["frame"])
        words = [value % sums.modulus(case["kind"]) for value in case["values"]]
        same(sums.read_frame(case["kind"], frame), words, "a frame's words")
        same(sums.write_frame(case["kind"], words), case["frame"], "a frame")
    for case in v["additions"]:
        same(sums.add(case["kind"], [bytes.fromhex(f) for f in case["frames"]]), case["sum"], "a sum of frames")
    for case in v["sizes"]:
        size = case["values"] + case["silos"] + sums.CHECKS * sums.LIMBS
        same(sums.content_size(case["kind"], size), case["bytes"], "a vector's size")
    for case in v["limits"]:
        same(sums.limit(case["kind"], case["silos"]), case["limit"], "a limit")
    for case in v["refused"]:
        frame = by_rule(4096) if case["kind"] == "ckks" else b""
        refuses(case, sums.read_frame, case["kind"], edited(frame, case["edit"]))


def by_rule(n, salt=0):
    multiplier = 0x9E3779B97F4A7C15
    residues = [(i + 1 + 4096 * salt) * multiplier % (1 << 64) % sums.PRIME for i in range(n)]
    return sums.write_frame("ckks", residues)


def check_ckks(v, given):
    same(sums.parameters_digest(), v["digest"], "the parameters' digest")
    for case in v["packing"]:
        same(sums.write_frame("ckks", case["residues"]), case["bytes"], "packed residues")
        same(sums.unpack(bytes.fromhex(case["bytes"])), case["residues"], "unpacked residues")
    frames = [by_rule(4096, salt) for salt in range(len(v["frames"]))]
    for frame, expected in zip(frames, v["frames"], strict=True):
        # The definition, for once: residue i is bits 54 i to 54 i + 53 of one integer.
        whole = int.from_bytes(frame, "little")
        same(
            [whole >> 54 * i & (1 << 54) - 1 for i in range(4096)], sums.read_frame("ckks", frame), "a frame's residues"
        )
        same(frame, expected, "a frame")
    same(sums.add("ckks", frames), v["addition"], "a sum of frames")
    written = {}
    for case in v["objects"]:
        opening, residues = sums.seal_opening(case["what"]), sums.unpack(frames[0])
        same(opening, case["opening"], f"the opening of a {case['what']}")
        count = (int.from_bytes(opening[8:16], "little") - len(opening)) // 8
        written[case["what"]] = opening + struct.pack(f"<{count}Q", *residues[:count])
        same(written[case["what"]], case["object"], f"a {case['what']}")
        same(sums.read_seal_object(case["what"], written[case["what"]]), residues[:count], "its residues")
    key = base64.b64decode(given["ckks_key"])
    same(sums.seal_opening("secret key") + struct.pack("<2048Q", *sums.unpack(key)), v["key"], "the given key")
    secret = sums.from_ntt(sums.unpack(key))
    if not set(secret) <= {-1, 0, 1} or sums.to_ntt(secret) != sums.unpack(key):
        msg = "the given key is not ternary"
        raise Differs(msg)
    for case in v["refused"]:
        refuses(case, sums.read_seal_object, case["what"], edited(written[case["what"]], case["edit"]))


def world_of(v, given):
    world = {key: v[key] for key in ("members", "participants", "survivors", "label")}
    world |= {key: bytes.fromhex(v[key]) for key in ("group", "check")}
    world |= {key: {name: bytes.fromhex(seed) for name, seed in v[key].items()} for key in ("own", "pairs")}
    world["ciphertexts"] = {name: base64.b64decode(frame) for name, frame in given["ciphertexts"].items()}
    return world | {"key": base64.b64decode(given["ckks_key"])}


def values_of(world, case):
    if "values" in case:
        return case["values"]
    bound, places = case["bound"], {name: place + 1 for place, name in enumerate(sorted(world["members"]))}
    return {
        name: [(7919 * k * k + 104_729 * places[name] * k) % (2 * bound + 1) - bound for k in range(case["count"])]
        for name in world["survivors"]
    }


def altered(kind, total, case):
    """The sum after `add`, `shift` and `edit`, as altered without any key: a plaintext is added to c0 alone."""
    if "add" in case or "shift" in case:
        words = sums.read_frame(kind, total)
        difference = [0] * len(words)
        for place, by in case.get("add", ()):
            difference[place] = by
        if kind == "ckks":
            difference = sums.to_ntt(sums.encode(difference[: sums.DEGREE]))
            difference = [d + case.get("shift", 0) for d in difference] + [0] * sums.DEGREE
        moved = [(w + d) % sums.modulus(kind) for w, d in zip(words, difference, strict=True)]
        total = sums.write_frame(kind, moved)
    return edited(total, case.get("edit", {}))


def check_sums(v, given):
    world = world_of(v, given)
    for case in v["cases"]:
        kind, count, values = case["kind"], case["count"], values_of(world, case)
        for name, plain in case.get("plain", {}).items():
            same(sums.plain_vector(world, kind, name, values[name]), plain, f"{name}'s vector in {kind}")
        uploads = {name: sums.upload(world, kind, name, of) for name, of in values.items()}
        for name, content in uploads.items():
            same(content, case["uploads"][name], f"{name}'s upload in {kind}")
        total = sums.add(kind, uploads.values())
        same(total, case["sum"], f"the sum in {kind}")
        frames = [sums.read_frame(kind, frame) for frame in sums.cut(kind, total)]
        plain = b"".join(sums.write_frame(kind, f) for f in sums.covered(kind, frames, sums.unmasking(world, kind)))
        same(plain, case["unmasked"], f"the unmasked sum in {kind}")
        found = sums.open_sum(world, kind, total, count)
        same(found, [sum(column) for column in zip(*values.values(), strict=True)], f"what opens in {kind}")
        same(found if "values" in case else struct.pack(f"<{count}q", *found), case["opened"], f"what opens in {kind}")
        for forged in case["refused"]:
            content = sums.add(kind, [uploads[name] for name in forged.get("uploads", world["survivors"])])
            other = world | {"label": world["label"] | forged.get("label", {})}
            other |= {"survivors": forged.get("survivors", world["survivors"])}
            other |= {"check": bytes.fromhex(forged.get("check", v["check"]))}
            refuses(forged, sums.open_sum, other, kind, altered(kind, content, forged), count)
    for case in v["refused"]:
        refuses(case, sums.plain_vector, world, case["kind"], "ash", case["values"])


def check_agreement(v, given):
    def roster_of(case):
        entries = [dict(v["roster"]["entries"][i]) for i in case.get("order", range(3))]
        if "same" in case:
            entries[1][case["same"]] = entries[0][case["same"]]
        for entry in entries:
            entry["certificate"] = entry["certificate"].encode()
            entry |= {key: bytes.fromhex(entry[key]) for key in ("public", "kem", "signature")}
        return {"study": v["roster"]["study"], "entries": entries}

    roster, ciphertext = roster_of({}), base64.b64decode(given["kem_ciphertext"])
    same(keys.roster_digest(roster), v["digest"], "the roster's digest")
    privates = {name: bytes.fromhex(key) for name, key in v["x25519"].items()}
    kems = {name: MLKEM768PrivateKey.from_seed_bytes(bytes.fromhex(seed)) for name, seed in v["kem_seeds"].items()}
    for entry in roster["entries"]:
        public = X25519PrivateKey.from_private_bytes(privates[entry["name"]]).public_key()
        same(public.public_bytes_raw(), entry["public"].hex(), "an X25519 key")
        same(kems[entry["name"]].public_key().public_bytes_raw(), entry["kem"].hex(), "an ML-KEM-768 key")
    publics = {entry["name"]: entry["public"] for entry in roster["entries"]}
    pair = v["pair"] | {"ciphertext": ciphertext}
    ends, shared = (pair["first"], pair["second"]), kems[pair["second"]].decapsulate(ciphertext)
    for one, other in (ends, ends[::-1]):
        same(
            keys.pair_secret(roster, pair, privates[one], publics[other], shared),
            pair["secrets"][one],
            "the pair secret",
        )
        called = keys.pair_secret(roster, pair, privates[one], publics[other], shared, "call")
        same(called, v["calls"][one], "the secret of a call")
    for case in v["circles"]:
        same(keys.circle(case), (case["shares"], case["holders"]), f"the circle of {case}")
    seed = keys.pair_seed(bytes.fromhex(pair["secrets"][pair["first"]]), v["attempt"], v["tensor"])
    same(seed, v["seed"], "the pair seed")
    names, notes = v["survivors"]["names"], {name: bytes.fromhex(of) for name, of in v["survivors"]["notes"].items()}
    signed = keys.survivors_bytes(v["attempt"], v["tensor"], names, notes)
    same(signed, v["survivors"]["bytes"], "the survivors' bytes")
    for case in v["refused"]:
        if "survivors" in case:
            refuses(case, keys.survivors_bytes, v["attempt"], v["tensor"], case["survivors"], notes)
        elif "public" in case:
            public = bytes.fromhex(case["public"])
            refuses(case, keys.pair_secret, roster, pair, privates[pair["first"]], public, shared)
        else:
            refuses(case, keys.roster_digest, roster_of(case))


def check_shamir(v, _given):
    for case in v["cases"]:
        secret, threshold, dealt = bytes.fromhex(case["secret"]), case["threshold"], case["shares"]
        entropy = bytes.fromhex(case["entropy"])
        same([s.hex() for s in keys.split(secret, threshold, len(dealt), entropy)], dealt, "shares")
        shares = {x: bytes.fromhex(share) for x, share in enumerate(dealt, 1)}
        for first in range(1, len(dealt) - threshold + 2):
            some = {x: share for x, share in shares.items() if x >= first}
            same(keys.combine(some, threshold), case["secret"], f"the secret of shares from {first}")
        for (name, expected), value in zip(case["commitments"].items(), [*shares.values(), secret], strict=True):
            same(keys.commitment(case["dealing"], name, value), expected, f"the commitment to {name!r}")
    for case in v["trees"]:
        slices = {name: bytes.fromhex(piece) for name, piece in case["slices"].items()}
        same(keys.slices_root(slices), case["root"], "the root of slices")
        for name, path in case["paths"].items():
            found = keys.root_of_one(list(slices), name, slices[name], [bytes.fromhex(beside) for beside in path])
            same(found, case["root"], f"the root by the slice of {name}")
    first = v["cases"][0]

    def recover(shares):
        secret = keys.combine(shares, first["threshold"])
        keys.require(keys.commitment(first["dealing"], "", secret).hex() == first["commitments"][""], "commitment")

    for case in v["refused"]:
        refuses(case, recover, {int(x): bytes.fromhex(share) for x, share in case["shares"].items()})


def check_digests(v, _given):
    for case in v["models"]:
        opened = [bytes.fromhex(of) for of in case["sums"]]
        found = keys.model_digest(bytes.fromhex(case["check"]), case["previous"], case["study"], opened)
        same(found, case["digest"], "a model's digest")

    def content(size):
        return bytes((i * 31 + (i >> 8) + (i >> 16)) & 255 for i in range(size))

    for case in v["chunks"]:
        same(keys.chunk_list(content(case["size"])), case["hashes"], "a list of chunks")
        same(keys.chunk_digest(case["size"], bytes.fromhex(case["hashes"])), case["digest"], "a content's digest")
    last = v["chunks"][-1]
    known, whole = bytes.fromhex(last["hashes"]), content(last["size"])

    def take(case):
        if "offset" in case:
            piece = edited(whole[case["begin"] : case["begin"] + keys.CHUNK], case.get("edit", {}))
            return keys.check_chunk(last["size"], known, case["offset"], piece)
        hashes = known[32:64] + known[:32] + known[64:] if "swapped" in case else edited(known, case.get("hashes", {}))
        return keys.require(keys.chunk_digest(case.get("size", last["size"]), hashes) == last["digest"], "digest")

    for case in v["refused"]:
        refuses(case, take, case)


CHECKS = {
    "bytes.json": check_bytes,
    "streams.json": check_streams,
    "rings.json": check_rings,
    "ckks.json": check_ckks,
    "sums.json": check_sums,
    "agreement.json": check_agreement,
    "shamir.json": check_shamir,
    "digests.json": check_digests,
}


def main(folder):
    given, failed = json.loads((folder / "given.json").read_text()), 0
    for name, check in CHECKS.items():
        try:
            check(json.loads((folder / name).read_text()), given)
        except (Differs, keys.Refused, ValueError, KeyError) as fault:
            failed += 1
            sys.stdout.write(f"{name}: {type(fault).__name__}: {fault}\n")
        else:
            sys.stdout.write(f"{name}: holds\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
