"""Product and independent checker agree on the committed vectors, and refuse the same inputs."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crypto import errors
from crypto.canonical import canonical
from crypto.rings import seal_format
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import RINGS, ckks_public, ring_of
from crypto.secagg import unmasking
from crypto.secagg.agreement import Roster
from crypto.secagg.dealt import shamir
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.survivors import SurvivorList
from crypto.stream import KeyStream
from protos.chunks import ChunkList
from protos.messages import MessageError
from tests.vectors import attempt, generate

HERE = Path(__file__).resolve().parent
FILES = {path.stem: json.loads(path.read_text()) for path in HERE.glob("*.json")}
GIVEN = FILES.pop("given")
PROJECT = (
    "common",
    "protos",
    "crypto",
    "policies",
    "coordinator",
    "silo_agent",
    "deploy",
    "bench",
    "support",
    "tests",
    "vectors",
)

CLASSES = vars(errors) | {"MessageError": MessageError}
SAYS = {
    "integer": "integer of a label",
    "length": "bytes",
    "modulus": "modulus between",
    "kind": "is none of the rings",
    "residue": "not reduced|secret key has other",
    "transparent": "transparent",
    "object": "object has other|header has other",
    "noise": "masks do not cancel|not consist of integers in range",
    "unused": "beyond its length",
    "slots": "the sum holds",
    "checks": "check values do not fit",
    "range": "could overflow",
    "roster": "the roster must list",
    "weak": "no X25519 key or a weak one",
    "survivors": "survivors must be",
    "share": "a secret needs 3 shares",
    "secret": "do not come from one dealing",
    "commitment": "do not combine",
    "chunk": "are not chunk",
    "list": "do not list",
    "digest": "not that of the announced content",
}
"""What the product says for each of the checker's reasons: it refuses for that reason, and no other."""


def refused(name, keep=lambda case: True):
    cases = [case for case in FILES[name]["refused"] if keep(case)]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.get("name", ""))


def refusing(case):
    return pytest.raises(CLASSES[case["error"]], match=SAYS[case["reason"]])


def edited(data, edit):
    """The bytes after an edit, as `refusals` describes it."""
    out = bytearray(data)
    if "set" in edit:
        at, new = edit["set"][0], bytes.fromhex(edit["set"][1])
        out[at : at + len(new)] = new
    if "zero" in edit:
        out[slice(*edit["zero"])] = bytes(edit["zero"][1] - edit["zero"][0])
    size = edit.get("size", len(out))
    return bytes(out[:size]) + bytes(max(0, size - len(out)))


def check(folder):
    """Run the checker in a process that cannot import anything of the project."""
    guard = (
        "import runpy, sys\n"
        "class Guard:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] in {PROJECT!r}: raise AssertionError(name + ' is imported')\n"
        "sys.meta_path.insert(0, Guard())\n"
        f"sys.argv = ['checker', {str(folder)!r}]\n"
        f"runpy.run_path({str(HERE / 'checker.py')!r}, run_name='__main__')\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", guard], cwd="/", env={}, capture_output=True, text=True, check=False
    )


# --- the product writes them, the checker accepts them --------------------------------------------------------------


@pytest.fixture(scope="module")
def written():
    return generate.build(GIVEN)


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_product_writes_the_committed_vectors(written, name):
    """Compared case by case first, so that a failure says which."""
    new = json.loads(written[f"{name}.json"])
    assert new.keys() == FILES[name].keys()
    for key, committed in FILES[name].items():
        assert new[key] == committed, key
    assert written[f"{name}.json"] == (HERE / f"{name}.json").read_text()


def test_no_vector_is_left_out(written):
    assert {f"{name}.json" for name in FILES} == written.keys()


def test_the_checker_accepts_them_without_anything_of_the_project():
    done = check(HERE)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"{name}.json: holds" for name in sorted(FILES)]


def test_the_checker_names_what_does_not_hold(tmp_path):
    """One digit of an expected value of every file is changed."""
    expected = {
        "bytes": ["canonical", 3, "bytes"],
        "streams": ["streams", 3, "calls", 2, "gives", "sha256"],
        "rings": ["additions", 1, "sum"],
        "ckks": ["objects", 1, "opening"],
        "sums": ["cases", 1, "uploads", "oak"],
        "agreement": ["seed"],
        "shamir": ["cases", 3, "shares", 4],
        "digests": ["chunks", 2, "digest"],
    }
    shutil.copy(HERE / "given.json", tmp_path)
    for name, (*path, last) in expected.items():
        content = json.loads((HERE / f"{name}.json").read_text())
        inner = content
        for key in path:
            inner = inner[key]
        inner[last] = inner[last][:-1] + ("0" if inner[last][-1] != "0" else "1")
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    done = check(tmp_path)
    assert done.returncode == 1
    assert sorted(line.split(": ")[:2] for line in done.stdout.splitlines()) == [
        [f"{name}.json", "Differs"] for name in sorted(FILES)
    ]


def test_the_checker_notices_what_is_not_refused(tmp_path):
    """The refused inputs are replaced by good ones."""
    shutil.copytree(HERE, tmp_path, dirs_exist_ok=True)
    good = {
        "bytes": {"domain": "label", "parts": []},
        "streams": {"secret": "00" * 32, "q": 7},
        "rings": {"kind": "ring32", "edit": {"size": 8}},
        "ckks": {"what": "ciphertext", "edit": {}},
        "agreement": {"survivors": ["ash", "fir"]},
        "digests": {"offset": 131_072, "begin": 131_072},
        "sums": {"kind": "ring32", "values": [1]},
        "shamir": {"shares": dict(zip("135", FILES["shamir"]["cases"][0]["shares"][::2], strict=True))},
    }
    for name, case in good.items():
        content = json.loads((HERE / f"{name}.json").read_text())
        content["refused"] = [case | {"reason": "none"}]
        for sums in content["cases"] if name == "sums" else ():
            sums["refused"] = []
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    done = check(tmp_path)
    assert done.returncode == 1
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert {name for name, said in lines.items() if re.fullmatch("Differs: .* is accepted", said)} == {
        f"{name}.json" for name in good
    }


def test_the_checker_names_only_libraries():
    imported = set()
    for path in HERE.glob("checker*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported.add(node.module.partition(".")[0])
    assert imported <= set(sys.stdlib_module_names) | {"numpy", "cryptography", "checker_keys", "checker_sums"}


# --- the product refuses them ---------------------------------------------------------------------------------------


def test_every_reason_is_met():
    lists = [content["refused"] for content in FILES.values()]
    lists += [case["refused"] for case in FILES["sums"]["cases"]]
    assert {case["reason"] for cases in lists for case in cases} == SAYS.keys()


@refused("bytes")
def test_numbers_that_have_no_bytes(case):
    [part] = case["parts"]
    with refusing(case):
        canonical(case["domain"], part["i"])


@refused("streams")
def test_streams_that_do_not_exist(case):
    with refusing(case):
        KeyStream(bytes.fromhex(case["secret"]), b"").uniform(case["q"], 1)


@refused("rings")
def test_frames_that_are_none(case):
    frame = ckks_public.write_frame(generate.residues_by_rule(4096)) if case["kind"] == "ckks" else b""
    with refusing(case):
        ring_of(case["kind"]).read(edited(frame, case["edit"]))


@refused("ckks")
def test_objects_of_seal_that_are_not_ours(case):
    read = {"ciphertext": seal_format.read_ciphertext, "secret key": seal_format.read_secret_key}[case["what"]]
    good = generate.rule_objects()[case["what"]]
    assert read(good).size == {"ciphertext": 4096, "secret key": 2048}[case["what"]]
    with refusing(case):
        read(edited(good, case["edit"]))


SUMS = {kind: next(case for case in FILES["sums"]["cases"] if case["kind"] == kind) for kind in RINGS}
FORGED = [
    pytest.param(kind, forged, id=f"{kind}: {forged['name']}") for kind in RINGS for forged in SUMS[kind]["refused"]
]


@pytest.fixture(scope="module")
def uploads():
    return {
        kind: {name: attempt.upload(GIVEN, kind, name, values) for name, values in case["values"].items()}
        for kind, case in SUMS.items()
    }


def forge(kind, total, forged):
    """The sum after `add`, `shift` and `edit`, as `refusals` describes them."""
    ring = RINGS[kind]
    if "add" in forged:
        places, by = zip(*forged["add"], strict=True)
        difference = np.zeros(ring.frame_values, np.int64)
        difference[list(places)] = by
        words = ring.read(total)
        if kind == "ckks":
            addend = attempt.sealer(GIVEN, "yew")._ckks.encrypt(difference)
        else:
            addend = difference[: words.size].astype(words.dtype)
        ring.add(words, addend)
        total = ring.write(words)
    if "shift" in forged:
        words = ring.read(total)
        words[: ckks_public.DEGREE] = (words[: ckks_public.DEGREE] + np.uint64(forged["shift"])) % ckks_public.PRIME
        total = ring.write(words)
    return edited(total, forged.get("edit", {}))


@pytest.mark.parametrize(("kind", "forged"), FORGED)
def test_sums_that_do_not_open(uploads, kind, forged):
    count = SUMS[kind]["count"]
    total = attempt.added(kind, [uploads[kind][name] for name in forged.get("uploads", attempt.SURVIVORS)])
    label = replace(attempt.LABEL, **forged.get("label", {}))
    opening = {"survivors": forged.get("survivors", attempt.SURVIVORS)}
    if "check" in forged:
        opening["check"] = bytes.fromhex(forged["check"])
    with refusing(forged):
        attempt.opened(GIVEN, kind, forge(kind, total, forged), count, label, **opening)


@refused("sums")
def test_values_that_are_not_sealed(case):
    with refusing(case):
        attempt.upload(GIVEN | {"ciphertexts": {}}, case["kind"], "ash", case["values"])


@refused("agreement", lambda case: case["reason"] == "roster")
def test_rosters_that_are_none(case):
    entries = list(generate.roster().entries)
    if "same" in case:
        entries[1] = replace(entries[1], **{case["same"]: getattr(entries[0], case["same"])})
    with refusing(case):
        Roster(attempt.LABEL.study, tuple(entries[i] for i in case.get("order", range(3))))


@refused("agreement", lambda case: case["reason"] == "weak")
def test_keys_that_agree_on_nothing(case):
    other = replace(generate.roster().entry("fir"), public=bytes.fromhex(case["public"]))
    with refusing(case):
        generate.pair_secret("ash", other, generate.kem_ciphertext(GIVEN))


@refused("agreement", lambda case: case["reason"] == "survivors")
def test_survivors_that_are_none(case):
    with refusing(case):
        SurvivorList(attempt.ATTEMPT, attempt.LABEL.tensor, tuple(case["survivors"]), "")


def dealt():
    """The first dealing as a bundle of elm's, as another silo holds it."""
    case = FILES["shamir"]["cases"][0]
    spot = (attempt.LABEL.tensor, case["dealing"]["part"])
    commitments = {spot: {name: bytes.fromhex(value) for name, value in case["commitments"].items()}}
    bundle = ShareBundle("elm", attempt.ATTEMPT, b"", attempt.MEMBERS, {}, commitments, {}, {attempt.LABEL.tensor: b""})
    return case, bundle, SurvivorList(attempt.ATTEMPT, attempt.LABEL.tensor, ("ash", "elm"), "")


@refused("shamir")
def test_shares_that_do_not_combine(case):
    shares = {int(x): bytes.fromhex(share) for x, share in case["shares"].items()}
    first, bundle, survivors = dealt()
    if case["reason"] != "commitment":
        with refusing(case):
            shamir.combine(shares, first["threshold"])
    held = {attempt.MEMBERS[number - 1]: share for number, share in shares.items()}
    with pytest.raises(errors.RecoveryRefused, match=SAYS["commitment"]) as refusal:
        unmasking._combine(bundle, survivors, held, first["threshold"])
    assert refusal.value.culprit == "elm"


def test_a_share_in_anothers_place_does_not_fit_its_commitment():
    first, bundle, survivors = dealt()
    shares = [bytes.fromhex(share) for share in first["shares"]]
    spot = unmasking._spot(bundle, survivors)
    assert [[unmasking._fits(bundle, spot, name, share) for share in shares] for name in attempt.MEMBERS] == np.eye(
        5, dtype=bool
    ).tolist()


@refused("digests")
def test_chunks_that_do_not_come(case):
    last = FILES["digests"]["chunks"][-1]
    hashes, whole = bytes.fromhex(last["hashes"]), generate.content(last["size"])
    listed = ChunkList(last["size"], hashes)
    for offset in range(0, last["size"], 131_072):
        listed.check(offset, whole[offset : offset + 131_072])
    listed.require(last["digest"])
    if "offset" in case:
        piece = edited(whole[case["begin"] : case["begin"] + 131_072], case.get("edit", {}))
        with refusing(case):
            listed.check(case["offset"], piece)
        return
    if case.get("swapped"):
        hashes = hashes[32:64] + hashes[:32] + hashes[64:]
    with refusing(case):
        ChunkList(case.get("size", last["size"]), edited(hashes, case.get("hashes", {}))).require(last["digest"])


# --- the randomness that was captured -------------------------------------------------------------------------------


def test_what_was_captured_is_what_the_product_makes():
    """A ciphertext made now opens as the captured one does, with the captured key and no other."""
    key = CkksKey.from_bytes(attempt.group_keys(GIVEN).ckks)
    values = np.array(SUMS["ckks"]["plain"]["ash"], np.int64)
    fresh = ckks_public.write_frame(key.encrypt(values))
    captured = attempt.sealer(GIVEN, "ash")._ckks.encrypt(values)
    assert fresh != ckks_public.write_frame(captured)
    for residues in (ckks_public.read_frame(fresh), captured):
        np.testing.assert_array_equal(key.decrypt(residues, values.size), values)
    with pytest.raises(errors.OpeningRefused):
        CkksKey.create().decrypt(captured, values.size)


def test_the_generator_checks_and_writes(tmp_path, monkeypatch, capsys):
    for path in HERE.glob("*.json"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(generate, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert generate.main() == 0
    (tmp_path / "bytes.json").write_text("{}")
    assert generate.main() == 1
    assert capsys.readouterr().out == "bytes.json is not what the code writes\n"
    monkeypatch.setattr(sys, "argv", ["generate"])
    assert generate.main() == 0
    assert (tmp_path / "bytes.json").read_text() == (HERE / "bytes.json").read_text()
