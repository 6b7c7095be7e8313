from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from crypto.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry, _offer_message
from crypto.certificates import Trust
from crypto.errors import CertificateError, RosterRefused, SealError, SignatureRefused

STUDY = "5" * 64


@pytest.fixture
def trust(silos):
    return Trust(silos["north"].authority_pem)


def replace_entry(roster, index, **change):
    entries = list(roster.entries)
    entries[index] = dataclasses.replace(entries[index], **change)
    return Roster(roster.study, tuple(entries))


def test_every_two_silos_share_a_secret_and_no_others_do(meeting):
    roster, pairs = meeting
    assert roster.names == ("north", "south", "west")
    secrets = {frozenset((a, b)): pairs[a][b] for a in pairs for b in pairs[a]}
    assert len(set(secrets.values())) == 3
    assert all(pairs[a][b] == pairs[b][a] for a in pairs for b in pairs[a])
    assert all(len(secret) == 32 for secret in secrets.values())
    assert list(pairs["south"]) == ["north", "west"]


def test_an_honest_roster_verifies(trust, silos, gather):
    gather(silos)[1].verify(trust)


def test_silos_with_different_rosters_share_nothing(silos, gather):
    keys, roster = gather(silos)
    smaller = Roster(roster.study, roster.entries[:2])
    assert smaller.digest != roster.digest
    assert keys["north"].meet(smaller, "north")["south"] != keys["south"].meet(roster, "south")["north"]


def test_the_digest_binds_study_and_every_entry(silos, gather):
    _, roster = gather(silos)
    others = [replace_entry(roster, 0, signature=b"other"), Roster("other", roster.entries)]
    others += [replace_entry(roster, 1, public=bytes(32)), replace_entry(roster, 1, certificate_pem=b"pem")]
    others.append(replace_entry(roster, 2, name="wexford"))
    assert len({roster.digest, *(other.digest for other in others)}) == 6
    assert roster.digest == Roster(roster.study, roster.entries).digest


def test_a_roster_is_sorted_without_repeats_and_of_two_or_more(silos, gather):
    _, roster = gather(silos)
    a, b, c = roster.entries
    copied = dataclasses.replace(b, public=a.public)
    for entries in ((), (a,), (b, a, c), (a, a), (a, copied)):
        with pytest.raises(RosterRefused, match="two or more silos"):
            Roster(roster.study, entries)


def test_a_key_that_was_not_offered_is_refused(trust, silos, gather):
    keys, roster = gather(silos)
    swapped = replace_entry(roster, 1, public=EphemeralKey.create(silos["south"], STUDY).offer.public)
    with pytest.raises(SignatureRefused, match="not offered by fedward://silo/south"):
        swapped.verify(trust)
    with pytest.raises(SignatureRefused):
        keys["north"].meet(swapped, "north")


def test_an_offer_for_another_study_is_refused(trust, silos, gather):
    _, roster = gather(silos)
    other = EphemeralKey.create(silos["south"], "another study").offer
    with pytest.raises(SignatureRefused):
        replace_entry(roster, 1, public=other.public, signature=other.signature).verify(trust)


def test_a_silo_is_listed_under_its_own_name(trust, silos, gather):
    _, roster = gather(silos)
    with pytest.raises(RosterRefused, match="the roster calls fedward://silo/west 'wexford'"):
        replace_entry(roster, 2, name="wexford").verify(trust)


def test_only_silos_of_the_authority_are_listed(trust, silos, foreign, coordinator, gather):
    _, roster = gather({**silos, "north": foreign("north")})
    with pytest.raises(CertificateError, match="not issued by"):
        roster.verify(trust)
    _, roster = gather({**silos, "hub": coordinator})
    with pytest.raises(CertificateError, match="a silo is needed"):
        roster.verify(trust)
    with pytest.raises(CertificateError, match="expired"):
        gather(silos)[1].verify(trust, now=datetime.now(UTC) + timedelta(days=60))


def test_a_silo_meets_only_a_roster_that_holds_its_own_offer(silos, gather):
    keys, roster = gather(silos)
    with pytest.raises(RosterRefused, match="another study or another silo"):
        keys["north"].meet(roster, "south")
    with pytest.raises(RosterRefused, match="another study"):
        keys["north"].meet(Roster("other", roster.entries), "north")
    with pytest.raises(RosterRefused, match="offered last"):
        EphemeralKey.create(silos["north"], STUDY).meet(roster, "north")
    with pytest.raises(RosterRefused, match="offered last"):
        keys["north"].meet(Roster(STUDY, roster.entries[1:]), "north")


@pytest.mark.parametrize("public", [bytes(32), b"short"])
def test_a_weak_key_is_refused_even_when_signed(silos, public, gather):
    keys, roster = gather(silos)
    signature = silos["south"].sign(_offer_message(STUDY, public))
    with pytest.raises(RosterRefused, match="weak"):
        keys["north"].meet(replace_entry(roster, 1, public=public, signature=signature), "north")


def test_secrets_do_not_print(meeting, silos):
    _, pairs = meeting
    shown = repr(pairs["north"]) + str(pairs["north"]) + repr(EphemeralKey.create(silos["north"], STUDY))
    assert "PairSecrets(secret)" in shown
    assert "_private" not in shown
    for secret in pairs["north"].values():
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def test_a_secret_of_another_length_is_refused():
    with pytest.raises(SealError, match="32 bytes"):
        PairSecrets({"a": b"short"})


def test_a_stored_key_meets_the_same_roster_with_the_same_secrets(silos):
    keys = {name: EphemeralKey.create(credential, STUDY) for name, credential in silos.items()}
    entries = tuple(
        RosterEntry(name, silos[name].certificate_pem, key.offer.public, key.offer.signature)
        for name, key in sorted(keys.items())
    )
    roster = Roster(STUDY, entries)
    again = EphemeralKey.restore(silos["north"], STUDY, keys["north"].to_bytes())
    assert again.offer == keys["north"].offer
    assert dict(again.meet(roster, "north")) == dict(keys["north"].meet(roster, "north"))


def test_a_stored_key_of_another_silo_or_study_is_refused(silos):
    blob = EphemeralKey.create(silos["north"], STUDY).to_bytes()
    for credential, study, stored in (
        (silos["south"], STUDY, blob),
        (silos["north"], "6" * 64, blob),
        (silos["north"], STUDY, bytes([blob[0] ^ 8]) + blob[1:]),
        (silos["north"], STUDY, blob[:40]),
        (silos["north"], STUDY, b""),
    ):
        with pytest.raises(SealError):
            EphemeralKey.restore(credential, study, stored)
