"""What every implementation must refuse: the data of the vectors' `refused` lists. Nothing of FedWard is imported.

`reason` is the checker's word and `error` the product's class. The case of a sum says how the sum of the survivors'
uploads is altered: `uploads` sums other uploads, `add` adds a difference at places of the vector (encoded in a
ciphertext), `shift` adds a number to every residue of c0, `edit` edits its bytes. Or the case says with which other
`label`, `survivors` or `check` the sum is opened. An edit is `set` (place, bytes), `zero` (from, to) or `size` (cut, or
filled up with zeros).
"""

from __future__ import annotations

import struct

PRIME = 18014398509404161


def sums(kind, count):
    """Cases of the first sum of each kind: `count` values of ash, fir and oak, without elm, in a study with yew."""

    def case(name, reason, error="OpeningRefused", **of):
        return {"name": name, **of, "reason": reason, "error": error}

    slots, limbs = count, count + 5
    cases = [
        case("a value altered", "checks", add=[[3, 1]]),
        case("a value altered by a limb's width", "checks", add=[[3, 65_536]]),
        case("the last value altered", "checks", add=[[count - 1, -1]]),
        case("a difference moved from one value to another", "checks", add=[[0, 5], [1, -5]]),
        *(case(f"limb {i} altered", "checks", add=[[limbs + i, 1]]) for i in (0, 3, 4, 15)),
        case("a limb moved to the next check", "checks", add=[[limbs + 3, -1], [limbs + 7, 1]]),
        case("a survivor twice", "slots", add=[[slots, 1]]),
        case("a survivor missing", "slots", add=[[slots + 2, -1]]),
        case("the one that dropped out is in it", "slots", add=[[slots + 1, 1]]),
        case("one is in it that does not take part", "slots", add=[[slots + 4, 1]]),
        case("a survivor's slot moved to another", "slots", add=[[slots + 3, -1], [slots + 4, 1]]),
        case("a negative slot", "noise", add=[[slots + 4, -1]]),
        case("an upload twice", "noise", uploads=["ash", "ash", "fir", "oak"]),
        case("an upload in another's place", "noise", uploads=["ash", "ash", "oak"]),
        case("an upload missing", "noise", uploads=["ash", "fir"]),
        case("too few survivors", "noise", survivors=["ash", "fir"]),
        case("too many survivors", "noise", survivors=["ash", "elm", "fir", "oak"]),
        case("another check key", "checks", check="00" * 32),
        *(case(f"another {key}", "noise", label={key: "0" * 64}) for key in ("study", "roster", "model")),
        *(case(f"another {key}", "noise", label={key: 8}) for key in ("round", "attempt")),
        case("another tensor", "noise", label={"tensor": "heads"}),
        case("empty", "length", "FrameError", edit={"size": 0}),
    ]
    if kind != "ckks":
        size = (count + 5 + 16) * {"ring32": 4, "ring64": 8}[kind]
        cases += [
            case("a word less", "length", "FrameError", edit={"size": size - size // (count + 21)}),
            case("a trailing byte", "length", "FrameError", edit={"size": size + 1}),
            case("a trailing word", "length", "FrameError", edit={"size": size + size // (count + 21)}),
        ]
    if kind == "ring64":
        cases.append(case("a sum out of range", "noise", add=[[3, 1 << 47]]))
    if kind == "ckks":
        cases += [
            case("halves", "noise", shift=1 << 16),
            case("sums out of range", "noise", shift=3 << 51),
            case("values beyond the length", "unused", shift=1 << 17),
            case("a byte less", "length", "FrameError", edit={"size": 27_647}),
            case("a trailing byte", "length", "FrameError", edit={"size": 27_649}),
            case("an unreduced residue", "residue", "FrameError", edit={"set": [27, "ff" * 27]}),
            case("a transparent ciphertext", "transparent", "FrameError", edit={"zero": [13_824, 27_648]}),
        ]
    return cases


def frames():
    """Cases of frames: of zeros for the integer rings, of the rule's residues for ciphertexts."""

    def case(name, kind, reason, **edit):
        return {"name": name, "kind": kind, "edit": edit, "reason": reason, "error": "FrameError"}

    return [
        *(case("empty", kind, "length", size=0) for kind in ("ckks", "ring32", "ring64")),
        *(case("no whole word", kind, "length", size=size) for kind, size in (("ring32", 6), ("ring64", 12))),
        *(case("too long", kind, "length", size=(1 << 17) + 8) for kind in ("ring32", "ring64")),
        case("no such ring", "ring16", "kind", size=4),
        case("a byte less", "ckks", "length", size=27_647),
        case("a trailing byte", "ckks", "length", size=27_649),
        case("two frames", "ckks", "length", size=2 * 27_648),
        case(
            "the first residue is the prime", "ckks", "residue", set=[0, (PRIME | 5 << 54).to_bytes(8, "little").hex()]
        ),
        case("the last residue is all ones", "ckks", "residue", set=[27_641, "ff" * 7]),
        case("transparent", "ckks", "transparent", zero=[13_824, 27_648]),
        case("all zero", "ckks", "transparent", zero=[0, 27_648]),
    ]


FOREIGN = "5a" * 32


def objects():
    """Cases of objects that SEAL loads, with the rule's residues."""

    def number(value, layout="<Q"):
        return struct.pack(layout, value).hex()

    def header(what):
        return {
            "magic": [0, "5fa1"],
            "header size": [2, "11"],
            "major version": [3, "03"],
            "minor version": [4, "02"],
        } | {
            "a compression there is not": [5, "01"],
            "zstd, but plain": [5, "02"],
            "reserved": [6, "0100"],
            "size less one": [8, number(SIZES[what] - 1)],
            "size more one": [8, number(SIZES[what] + 1)],
            "foreign parms_id": [16, FOREIGN],
        }

    facts = {
        "ciphertext": {
            "not in NTT form": [48, "00"],
            "three polynomials": [49, number(3)],
            "another degree": [57, number(4096)],
            "two primes": [65, number(2)],
            "another scale": [73, number(2.0**18, "<d")],
            "a scale that is no number": [73, number(float("nan"), "<d")],
            "a correction factor": [81, number(2)],
            "another array": [89, "5fa1"],
            "another count": [105, number(4095)],
        },
        "secret key": {
            "another number of words": [48, number(4096)],
            "a scale": [56, number(2.0, "<d")],
            "another array": [64, "5fa1"],
            "another count": [80, number(2049)],
        },
    }

    def case(what, name, reason, **edit):
        return {"what": what, "name": name, "edit": edit, "reason": reason, "error": "FrameError"}

    cases = []
    for what, size in SIZES.items():
        begin = {"ciphertext": 113, "secret key": 88}[what]
        cases += [case(what, name, "object", set=to) for name, to in (header(what) | facts[what]).items()]
        cases += [case(what, name, "object", size=n) for name, n in (("empty", 0), ("a byte less", size - 1))]
        cases += [case(what, "a trailing byte", "object", size=size + 1)]
        cases += [case(what, "an unreduced residue", "residue", set=[begin + 800, number(PRIME)])]
    return [
        *cases,
        case("ciphertext", "transparent", "transparent", zero=[113 + 16_384, SIZES["ciphertext"]]),
        case("secret key", "a residue of zero", "residue", zero=[88 + 80, 88 + 88]),
    ]


SIZES = {"ciphertext": 113 + 8 * 4096, "secret key": 88 + 8 * 2048}


def agreement():
    """Cases of the roster, the pair and the survivors."""

    def case(name, reason, **of):
        return {"name": name, **of, "reason": reason, "error": "RosterRefused"}

    return [
        case("one silo", "roster", order=[0]),
        case("not sorted", "roster", order=[1, 0, 2]),
        case("one twice", "roster", order=[0, 1, 1]),
        case("one X25519 key twice", "roster", same="public"),
        case("one ML-KEM-768 key twice", "roster", same="kem"),
        *(case(f"a weak X25519 key: {key:x}", "weak", public=key.to_bytes(32, "little").hex()) for key in (0, 1)),
        case("a short X25519 key", "weak", public="09" * 31),
        case("one survivor", "survivors", survivors=["ash"]),
        case("survivors not sorted", "survivors", survivors=["fir", "ash", "oak"]),
        case("a survivor twice", "survivors", survivors=["ash", "fir", "fir"]),
    ]


def shares(dealt):
    """Cases of the first dealing, three of five. A wrong share is found by its commitment or by the secret's."""
    first, second, third = dealt[:3]
    swapped = {"1": second, "2": first, "3": third}
    altered = {"1": first, "2": second, "3": third[:-2] + f"{int(third[-2:], 16) ^ 1:02x}"}
    field = (1 << 256) + 297
    beyond = {str(x): ((1 << 256) + 5 + x).to_bytes(33, "big").hex() for x in (1, 2, 3)}

    def case(name, given, reason, error="SealError"):
        return {"name": name, "shares": given, "reason": reason, "error": error}

    return [
        case("too few", {"1": first, "4": dealt[3]}, "share"),
        case("none", {}, "share"),
        case("holder 0", {"0": first, "2": second, "3": third}, "share"),
        case("a byte less", {"1": first[:-2], "2": second, "3": third}, "share"),
        case("a trailing byte", {"1": first + "00", "2": second, "3": third}, "share"),
        case("not reduced", {"1": field.to_bytes(33, "big").hex(), "2": second, "3": third}, "share"),
        case("of no dealing: the secret is 2^256 + 5", beyond, "secret"),
        case("swapped", swapped, "commitment", "RecoveryRefused"),
        case("altered", altered, "commitment", "RecoveryRefused"),
        case("of other holders", {"1": first, "3": second, "4": third}, "commitment", "RecoveryRefused"),
    ]


def chunks():
    """Cases of the content of 300,000 bytes in chunks of 131,072, and of its list."""

    def case(name, reason, **of):
        return {"name": name, **of, "reason": reason, "error": "MessageError"}

    return [
        case("altered", "chunk", offset=0, begin=0, edit={"set": [131_071, "00"]}),
        case("cut", "chunk", offset=131_072, begin=131_072, edit={"size": 131_071}),
        case("cut at the end", "chunk", offset=262_144, begin=262_144, edit={"size": 37_855}),
        case("a trailing byte", "chunk", offset=262_144, begin=262_144, edit={"size": 37_857}),
        case("elsewhere", "chunk", offset=131_072, begin=0),
        case("at no chunk's beginning", "chunk", offset=1, begin=0),
        case("beyond the end", "chunk", offset=393_216, begin=0),
        case("a hash less", "list", hashes={"size": 64}),
        case("a trailing hash", "list", hashes={"size": 128}),
        case("half a hash", "list", hashes={"size": 80}),
        case("another size", "digest", size=299_999),
        case("an altered hash", "digest", hashes={"set": [32, "00"]}),
        case("two hashes swapped", "digest", swapped=True),
    ]
