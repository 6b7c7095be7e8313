from __future__ import annotations

import dataclasses
import hashlib
import subprocess
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.canonical import canonical
from crypto.errors import RosterRefused, SealError
from crypto.pki.certificates import Trust
from crypto.secagg.survivors import AttemptRef, SurvivorList, roster_digest, signers, threshold

ATTEMPT = AttemptRef("5" * 64, "a" * 64, 3, 1)
NAMES = ("north", "south", "west")
NOTES = "a" * 64


@pytest.fixture
def trust(silos):
    return Trust(silos["north"].authority_pem)


def test_every_version_signs_the_same_bytes():
    attempt = canonical("attempt", "5" * 64, "a" * 64, 3, 1)
    assert ATTEMPT.canonical() == attempt
    listed = SurvivorList(ATTEMPT, "heads", NAMES, NOTES)
    assert listed.to_sign() == canonical("survivors", attempt, "heads", NOTES, *NAMES)
    roster = [("north", b"pem", b"x", b"kem", b"der"), ("south", b"PEM", b"X", b"KEM", b"DER")]
    parts = canonical("roster", "5" * 64, *roster[0], *roster[1])
    assert roster_digest("5" * 64, roster) == hashlib.sha256(parts).hexdigest()


def test_signers_are_sorted_and_each_is_named_once(silos, trust):
    certificates = {name: silo.certificate_pem for name, silo in silos.items()}
    signatures = {name: silo.sign(b"message") for name, silo in silos.items()}
    names = sorted(silos)
    assert signers([*names[::-1], *names], b"message", certificates, signatures, trust) == tuple(names)


@given(st.integers(-1, 80), st.integers(-1, 80), st.integers(-1, 80))
def test_the_threshold_outvotes_colluders_or_the_roster_is_refused(silos, colluders, min_silos):
    the_threshold_is_the_least(silos, colluders, min_silos)


def test_the_threshold_of_every_small_roster():
    for case in product(range(-1, 8), range(-2, 8), range(-1, 8)):
        the_threshold_is_the_least(*case)


def the_threshold_is_the_least(silos, colluders, min_silos):
    try:
        needed = threshold(silos, colluders, min_silos)
    except RosterRefused:
        # Refused only where nothing up to the roster's size would do.
        possible = [T for T in range(silos + 1) if colluders < T >= min_silos and silos + colluders < 2 * T]
        assert silos < 2 or colluders < 0 or not possible
    else:
        assert silos >= 2
        assert 0 <= colluders < needed <= silos
        assert 2 * needed > silos + colluders
        assert needed >= min_silos
        smaller = needed - 1
        assert smaller <= colluders or 2 * smaller <= silos + colluders or smaller < min_silos


def test_thresholds_of_common_rosters():
    cases = {(2, 0, 2): 2, (3, 1, 2): 3, (10, 2, 5): 7, (10, 2, 8): 8, (5, 3, 2): 5}
    assert {case: threshold(*case) for case in cases} == cases
    with pytest.raises(
        RosterRefused, match=r"a study of 3 silos is too small for 2 colluders and at least 4 .* invite"
    ):
        threshold(3, 2, 4)
    with pytest.raises(RosterRefused, match="6 silos would have to sign"):
        threshold(3, 5, 2)


def test_every_field_changes_what_is_signed():
    survivors = SurvivorList(ATTEMPT, "heads", NAMES, NOTES)
    changes = ({"tensor": "head"}, {"names": NAMES[:2]}, {"notes": "b" * 64})
    others = [dataclasses.replace(survivors, **change) for change in changes]
    others += [
        SurvivorList(dataclasses.replace(ATTEMPT, **change), "heads", NAMES, NOTES)
        for change in ({"study": "6"}, {"roster": "b"}, {"round": 4}, {"attempt": 2})
    ]
    assert len({survivors.to_sign(), *(other.to_sign() for other in others)}) == 8
    assert survivors.to_sign() == SurvivorList(ATTEMPT, "heads", NAMES, NOTES).to_sign()
    for held, field in ((survivors, "names"), (ATTEMPT, "study")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(held, field, ())
    with pytest.raises(SealError, match=r"\[0, 2\^64\)"):
        dataclasses.replace(ATTEMPT, round=-1).canonical()


@pytest.mark.parametrize(
    "names", [(), ("north",), ("south", "north"), ("north", "north"), ("a", "c", "b"), ("a", "a", "b")]
)
def test_survivors_are_sorted_and_two_or_more(names):
    with pytest.raises(RosterRefused, match="two or more silos, sorted"):
        SurvivorList(ATTEMPT, "heads", names, NOTES)


def test_only_survivors_who_signed_this_very_list_count(silos, coordinator, foreign, trust):
    survivors = SurvivorList(ATTEMPT, "heads", ("north", "south"), NOTES)
    certificates = {name: credential.certificate_pem for name, credential in silos.items()}
    signed = {name: credential.sign(survivors.to_sign()) for name, credential in silos.items()}
    assert survivors.signed_by(certificates, signed, trust) == ("north", "south")
    other = SurvivorList(ATTEMPT, "heads", NAMES, NOTES)
    for wrong in (b"", signed["south"], silos["north"].sign(other.to_sign()), signed["north"] + b"x"):
        assert survivors.signed_by(certificates, {**signed, "north": wrong}, trust) == ("south",)
    for pem in (b"", certificates["south"], coordinator.certificate_pem, foreign("north").certificate_pem):
        assert survivors.signed_by({**certificates, "north": pem}, signed, trust) == ("south",)
    for one, other in (("north", "south"), ("south", "north")):
        swapped = {**certificates, one: certificates[other]}
        assert survivors.signed_by(swapped, {**signed, one: signed[other]}, trust) == (other,)
    as_hub = {**signed, "north": coordinator.sign(survivors.to_sign())}
    assert survivors.signed_by({**certificates, "north": coordinator.certificate_pem}, as_hub, trust) == ("south",)
    assert survivors.signed_by({}, signed, trust) == ()
    assert survivors.signed_by(certificates, {}, trust) == ()


def test_it_imports_no_secret_module():
    secret = {
        "tenseal",
        "crypto.secagg.agreement",
        "crypto.secagg.packages",
        "crypto.secagg.unmasking",
        "crypto.secagg.dealt.shamir",
        "crypto.secagg.masks",
    }
    code = f"import sys, crypto.secagg.survivors; sys.exit(bool({secret!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
