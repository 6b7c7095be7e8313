from __future__ import annotations

import dataclasses
import random

import pytest

from crypto.errors import SealError
from crypto.rings.ckks_public import PARAMETERS_DIGEST
from crypto.secagg.agreement import PairSecrets
from crypto.secagg.labels import SumLabel
from crypto.secagg.packages import (
    SEAL_BYTES,
    GroupKeys,
    deal,
    model_digest,
    open_note,
    open_under,
    seal_note,
    seal_under,
    take,
)
from support.entropy import SeededEntropy

KEYS = GroupKeys(b"a CKKS key", b"g" * 32, b"c" * 32)
LABEL = SumLabel("study", "roster", "model", 3, 1, "solved")


@pytest.fixture(scope="module")
def package(meeting):
    roster, pairs = meeting
    return deal(KEYS, pairs["south"], "south", roster, SeededEntropy(1))


def test_every_member_takes_what_was_dealt(meeting, package):
    roster, pairs = meeting
    for name in ("north", "west"):
        assert take(package, pairs[name], name, "south", roster) == KEYS


def test_the_coordinator_sees_no_key(package):
    for secret in (KEYS.ckks, KEYS.group, KEYS.check):
        assert secret not in package
    assert bytes.fromhex(PARAMETERS_DIGEST) in package


def test_the_content_travels_once(meeting):
    roster, pairs = meeting
    big = dataclasses.replace(KEYS, ckks=bytes(60_000))
    assert len(deal(big, pairs["north"], "north", roster, SeededEntropy(1))) < 61_000


def test_it_opens_for_nobody_else(meeting, package):
    roster, pairs = meeting
    smaller = type(roster)(roster.study, roster.entries[:2])
    fewer = PairSecrets({name: pairs["north"][name] for name in ("south",)})
    with pytest.raises(SealError):
        take(package, fewer, "north", "south", smaller)
    with pytest.raises(SealError, match="belong to another roster"):
        take(package, fewer, "north", "south", roster)
    with pytest.raises(SealError, match="not authentic"):
        take(package, pairs["north"], "north", "west", roster)
    for dealer in ("north", "nobody"):
        with pytest.raises(SealError, match="another member"):
            take(package, pairs["north"], "north", dealer, roster)
    strangers = PairSecrets({"south": b"x" * 32, "west": b"y" * 32})
    with pytest.raises(SealError, match="not authentic"):
        take(package, strangers, "north", "south", roster)


def test_4000_mutated_packages_and_notes_give_only_named_errors(meeting, package):
    roster, pairs = meeting
    note = seal_note(KEYS, LABEL, b"heads" * 10, SeededEntropy(2))
    chance = random.Random(3)  # noqa: S311  # mutations that repeat
    for _ in range(2000):
        with pytest.raises(SealError):
            # A change in the other member's wrapped key is none of this silo's business: this cut has none.
            take(mutate(package, chance, keep=range(48 + 60, 48 + 120)), pairs["north"], "north", "south", roster)
        with pytest.raises(SealError):
            open_note(KEYS, LABEL, mutate(note, chance))


def mutate(blob: bytes, chance: random.Random, keep: range = range(0)) -> bytes:
    out = bytearray(blob)
    kind = chance.randrange(4)
    if kind == 0:
        del out[chance.randrange(len(out)) :]
    elif kind == 1:
        out += chance.randbytes(chance.randrange(1, 40))
    else:
        at = chance.choice([i for i in range(len(out)) if i not in keep])
        out[at] ^= chance.randrange(1, 256)
    return bytes(out)


def test_a_note_opens_under_its_label_alone():
    blob = seal_note(KEYS, LABEL, b"solved heads", SeededEntropy(4))
    assert open_note(KEYS, LABEL, blob) == b"solved heads"
    assert b"solved heads" not in blob
    with pytest.raises(SealError, match="note is not authentic"):
        open_note(KEYS, dataclasses.replace(LABEL, attempt=2), blob)
    with pytest.raises(SealError):
        open_note(dataclasses.replace(KEYS, group=b"h" * 32), LABEL, blob)


def test_the_model_digest_binds_all_it_is_made_of_and_needs_the_key():
    arguments = (KEYS, "previous", "study", [b"heads", b"encoder"])
    digest = model_digest(*arguments)
    others = [
        model_digest(dataclasses.replace(KEYS, check=b"d" * 32), *arguments[1:]),
        model_digest(KEYS, "other", "study", [b"heads", b"encoder"]),
        model_digest(KEYS, "previous", "other", [b"heads", b"encoder"]),
        model_digest(KEYS, "previous", "study", [b"head", b"sencoder"]),
        model_digest(KEYS, "previous", "study", [b"encoder", b"heads"]),
        model_digest(KEYS, "previous", "study", []),
    ]
    assert len({digest, *others}) == 7
    assert len(digest) == 64
    assert digest == model_digest(*arguments)


def test_keys_do_not_print_and_have_their_lengths():
    assert repr(KEYS) == "GroupKeys()"
    for change in ({"group": b""}, {"check": b"c" * 31}, {"ckks": b""}):
        with pytest.raises(SealError, match="deal them again"):
            dataclasses.replace(KEYS, **change)


def test_dealing_needs_the_secrets_of_the_roster(meeting):
    roster, pairs = meeting
    with pytest.raises(SealError, match="belong to another roster"):
        deal(KEYS, pairs["north"], "south", roster, SeededEntropy(1))


def test_what_is_sealed_under_a_key_opens_for_what_it_is_bound_to():
    blob = seal_under(b"k" * 32, b"plain", b"bound", SeededEntropy(5))
    assert len(blob) == len(b"plain") + SEAL_BYTES
    assert open_under(b"k" * 32, blob, b"bound", "letter") == b"plain"
    for key, wrong, bound in ((b"j" * 32, blob, b"bound"), (b"k" * 32, blob, b"other"), (b"k" * 32, b"", b"bound")):
        with pytest.raises(SealError, match="the letter is not authentic"):
            open_under(key, wrong, bound, "letter")
