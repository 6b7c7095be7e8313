from __future__ import annotations

import dataclasses
import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from crypto.canonical import canonical
from crypto.errors import CertificateError, RosterRefused, SealError, SignatureRefused
from crypto.pki.certificates import Trust
from crypto.secagg import agreement
from crypto.secagg.agreement import (
    _GREETING,
    EphemeralKey,
    PairSecrets,
    Roster,
    RosterEntry,
    _message,
    _offer_message,
)
from crypto.secagg.dealt.slices import Cutting, Tree, closed, letter_form

STUDY = "5" * 64
HEAD = 16 + 73
CIPHERTEXT = 1088


@pytest.fixture
def trust(silos):
    return Trust(silos["north"].authority_pem)


@pytest.fixture(scope="module")
def hall(silos, gather):
    """Everybody has greeted, nobody has met."""
    keys, roster = gather(silos)
    return keys, roster, {name: key.greet(roster, name) for name, key in keys.items()}


def notes_of(said):
    return {name: greeting.note for name, greeting in said.items()}


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


def test_a_secret_is_the_hybrid_of_both_agreements(hall):
    """By the formula, from the private keys, without the module's own derivation."""
    keys, roster, said = hall
    south = keys["south"].to_bytes()
    x25519, kem = X25519PrivateKey.from_private_bytes(south[:32]), MLKEM768PrivateKey.from_seed_bytes(south[32:96])
    ciphertext = said["north"].note[HEAD : HEAD + CIPHERTEXT]
    shared = x25519.exchange(X25519PublicKey.from_public_bytes(roster.entry("north").public))
    info = canonical("pair", "north", "south", ciphertext)
    expected = HKDF(SHA256(), 32, bytes.fromhex(roster.digest), info).derive(shared + kem.decapsulate(ciphertext))
    assert keys["south"].meet(roster, "south", said["south"].secrets, notes_of(said))["north"] == expected
    assert keys["north"].meet(roster, "north", said["north"].secrets, {})["south"] == expected


def test_an_honest_roster_verifies(trust, silos, gather):
    gather(silos)[1].verify(trust)


def test_silos_with_different_rosters_share_nothing(silos, gather):
    keys, roster = gather(silos)
    smaller = Roster(roster.study, roster.entries[:2])
    assert smaller.digest != roster.digest
    said = {"north": keys["north"].greet(smaller, "north"), "south": keys["south"].greet(roster, "south")}
    keys["north"].meet(smaller, "north", said["north"].secrets, {})
    with pytest.raises(SealError, match="for another roster"):
        keys["north"].meet(roster, "north", said["north"].secrets, {})
    with pytest.raises(RosterRefused, match="'north' is missing, cut"):
        keys["south"].meet(roster, "south", said["south"].secrets, notes_of(said))
    padded = said["north"].note[: HEAD + CIPHERTEXT] * 2
    with pytest.raises((SignatureRefused, RosterRefused), match="greeting of 'north'"):
        keys["south"].meet(roster, "south", said["south"].secrets, {"north": padded})


def test_the_digest_binds_study_and_every_entry(silos, gather):
    _, roster = gather(silos)
    others = [replace_entry(roster, 0, signature=b"other"), Roster("other", roster.entries)]
    others += [replace_entry(roster, 1, public=bytes(32)), replace_entry(roster, 1, certificate_pem=b"pem")]
    others += [replace_entry(roster, 1, kem=bytes(1184)), replace_entry(roster, 2, name="wexford")]
    assert len({roster.digest, *(other.digest for other in others)}) == 7
    assert roster.digest == Roster(roster.study, roster.entries).digest


def test_a_roster_is_sorted_without_repeats_and_of_two_or_more(silos, gather):
    _, roster = gather(silos)
    a, b, c = roster.entries
    copied, half = dataclasses.replace(b, public=a.public), dataclasses.replace(b, kem=a.kem)
    for entries in ((), (a,), (b, a, c), (a, a), (a, copied), (a, half)):
        with pytest.raises(RosterRefused, match="two or more silos"):
            Roster(roster.study, entries)


def test_a_roster_finds_its_members_only(meeting):
    roster, _ = meeting
    assert [roster.entry(name).name for name in roster.names] == list(roster.names)
    with pytest.raises(RosterRefused, match="'hub' is no member"):
        roster.entry("hub")


@pytest.mark.parametrize("key", ["public", "kem"])
def test_a_key_that_was_not_offered_is_refused(trust, silos, gather, key):
    keys, roster = gather(silos)
    other = EphemeralKey.create(silos["south"], STUDY).offer
    swapped = replace_entry(roster, 1, **{key: getattr(other, key)})
    with pytest.raises(SignatureRefused, match="'south' did not offer"):
        swapped.verify(trust)
    with pytest.raises(SignatureRefused, match="'south' did not offer"):
        keys["north"].greet(swapped, "north")
    with pytest.raises(SignatureRefused, match="'south' did not offer"):
        keys["north"].meet(swapped, "north", bytes(32 + 64), {})


def test_an_offer_for_another_study_is_refused(trust, silos, gather):
    _, roster = gather(silos)
    other = EphemeralKey.create(silos["south"], "another study").offer
    with pytest.raises(SignatureRefused):
        replace_entry(roster, 1, public=other.public, kem=other.kem, signature=other.signature).verify(trust)


def test_a_silo_is_listed_under_its_own_name(trust, silos, gather):
    _, roster = gather(silos)
    with pytest.raises(RosterRefused, match="the roster gives fedward://silo/west the name 'wexford'"):
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


def test_a_silo_greets_and_meets_only_a_roster_that_holds_its_own_offer(silos, gather):
    keys, roster = gather(silos)
    own = keys["north"].greet(roster, "north").secrets
    fresh = EphemeralKey.create(silos["north"], STUDY)
    half = replace_entry(roster, 0, kem=fresh.offer.kem)
    for key, shown, me, why in (
        (keys["north"], roster, "south", "another study or another silo"),
        (keys["north"], Roster("other", roster.entries), "north", "another study"),
        (fresh, roster, "north", "offered last"),
        (keys["north"], half, "north", "offered last"),
        (keys["north"], Roster(STUDY, roster.entries[1:]), "north", "offered last"),
    ):
        with pytest.raises(RosterRefused, match=why):
            key.greet(shown, me)
        with pytest.raises(RosterRefused, match=why):
            key.meet(shown, me, own, {})


@pytest.mark.parametrize("public", [bytes(32), b"short"])
def test_a_weak_key_is_refused_even_when_signed(silos, public, gather):
    keys, roster = gather(silos)
    kem = keys["south"].offer.kem
    signature = silos["south"].sign(_offer_message(STUDY, public, kem))
    with pytest.raises(RosterRefused, match="first key of 'south' is no X25519 key or a weak one"):
        keys["north"].greet(replace_entry(roster, 1, public=public, signature=signature), "north")


@pytest.mark.parametrize("kem", [b"\xff" * 1184, b"short"])
def test_a_key_that_is_no_encapsulation_key_is_refused_even_when_signed(silos, kem, gather):
    keys, roster = gather(silos)
    signature = silos["south"].sign(_offer_message(STUDY, keys["south"].offer.public, kem))
    with pytest.raises(RosterRefused, match="second key of 'south' is no ML-KEM-768 key"):
        keys["north"].greet(replace_entry(roster, 1, kem=kem, signature=signature), "north")


def test_a_note_is_as_long_as_its_later_names_need(hall):
    _, _, said = hall
    sizes = {name: len(greeting.note) for name, greeting in said.items()}
    assert sizes == {"north": HEAD + 2 * CIPHERTEXT, "south": HEAD + CIPHERTEXT, "west": HEAD}
    assert [len(said[name].secrets) for name in ("north", "south", "west")] == [96, 64, 32]


def test_a_missing_or_foreign_greeting_is_refused_by_name(silos, gather, hall):
    keys, roster, said = hall
    notes, own = notes_of(said), said["west"].secrets
    assert set(keys["west"].meet(roster, "west", own, notes)) == {"north", "south"}
    with pytest.raises(RosterRefused, match="greeting of 'south' is missing"):
        keys["west"].meet(roster, "west", own, {"north": notes["north"]})
    other = Roster(STUDY, (roster.entries[0], roster.entries[2]))
    elsewhere = keys["north"].greet(other, "north").note
    with pytest.raises(RosterRefused, match="greeting of 'north'"):
        keys["west"].meet(roster, "west", own, {**notes, "north": elsewhere})
    root = Tree({"west": notes["south"][HEAD:]}).root
    signature = silos["west"].sign(_message(_GREETING, roster, "south", root))
    forged = closed(notes["south"][:16], signature) + notes["south"][HEAD:]
    with pytest.raises(SignatureRefused, match="greeting of 'south' was not signed by that silo"):
        keys["west"].meet(roster, "west", own, {**notes, "south": forged})
    again, second = gather(silos)
    replayed = {**notes_of({n: k.greet(second, n) for n, k in again.items()}), "south": notes["south"]}
    with pytest.raises(SignatureRefused, match="greeting of 'south'"):
        again["west"].meet(second, "west", again["west"].greet(second, "west").secrets, replayed)


def test_the_trust_that_is_given_judges_the_roster(hall, foreign):
    keys, roster, said = hall
    strangers = Trust(foreign("north").authority_pem)
    for act in (
        lambda: keys["south"].greet(roster, "south", strangers),
        lambda: keys["south"].meet(roster, "south", said["south"].secrets, notes_of(said), strangers),
        lambda: keys["south"].call(roster, "south", strangers),
        lambda: keys["south"].answer(roster, "south", "north", b"", strangers),
    ):
        with pytest.raises(CertificateError, match="not issued by"):
            act()


def test_a_greeting_that_swaps_whom_it_is_for_is_refused(hall):
    keys, roster, said = hall
    note = said["north"].note
    first, second = note[HEAD : HEAD + CIPHERTEXT], note[HEAD + CIPHERTEXT : HEAD + 2 * CIPHERTEXT]
    swapped = note[:HEAD] + second + first + note[HEAD + 2 * CIPHERTEXT :]
    with pytest.raises(SignatureRefused, match="north"):
        keys["south"].meet(roster, "south", said["south"].secrets, {"north": swapped})


def test_a_greeting_that_is_cut_for_its_reader_gives_the_same_secret_and_for_another_none(enrol, gather):
    names = tuple(f"silo-{number}" for number in range(6))
    keys, roster = gather({name: enrol(name) for name in names})
    said = {name: key.greet(roster, name) for name, key in keys.items()}
    notes = notes_of(said)
    form = letter_form(names[1:])
    cuttings = {name: Cutting(notes[name], letter_form(roster.circle.later(name))) for name in names}
    for me in names:
        earlier = roster.circle.earlier(me)
        cut = {name: cuttings[name].cut((me,)) for name in earlier}
        met = keys[me].meet(roster, me, said[me].secrets, cut)
        assert dict(met) == dict(keys[me].meet(roster, me, said[me].secrets, notes))
    right, others = cuttings["silo-0"].cut(("silo-2",)), cuttings["silo-0"].cut(("silo-3",))
    assert len(right) == form.cut(("silo-2",)) == HEAD + CIPHERTEXT + 3 * 32
    rest = {"silo-1": notes["silo-1"]}
    for wrong in (
        others,
        right[:HEAD] + others[HEAD:],
        right[: HEAD + CIPHERTEXT] + others[HEAD + CIPHERTEXT :],
        *(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :] for at in range(0, len(right), 41)),
        right[:-32],
        right + bytes(32),
        cuttings["silo-0"].cut(("silo-2", "silo-3")),
        cuttings["silo-0"].cut(()),
    ):
        with pytest.raises((SignatureRefused, RosterRefused), match="greeting of 'silo-0'") as refused:
            keys["silo-2"].meet(roster, "silo-2", said["silo-2"].secrets, {"silo-0": wrong, **rest})
        assert refused.value.culprit == "silo-0"


def test_greetings_of_later_names_are_not_read(hall):
    keys, roster, said = hall
    notes = {**notes_of(said), "west": b"nonsense", "hub": b""}
    assert dict(keys["south"].meet(roster, "south", said["south"].secrets, notes)) == dict(
        keys["south"].meet(roster, "south", said["south"].secrets, notes_of(said))
    )


@pytest.mark.slow
def test_1500_mutated_greetings_are_refused_by_name(hall):
    keys, roster, said = hall
    notes, own = notes_of(said), said["west"].secrets
    chance = random.Random(5)  # noqa: S311  # mutations that repeat
    for _ in range(1500):
        name = chance.choice(("north", "south"))
        note = bytearray(notes[name])
        kind = chance.randrange(4)
        if kind == 0:
            del note[chance.randrange(len(note)) :]
        elif kind == 1:
            note += chance.randbytes(chance.randrange(1, 40))
        elif kind == 2:
            note = bytearray(notes["south" if name == "north" else "north"])
        else:
            note[chance.randrange(len(note))] ^= chance.randrange(1, 256)
        with pytest.raises((RosterRefused, SignatureRefused), match=f"greeting of '{name}'"):
            keys["west"].meet(roster, "west", own, {**notes, name: bytes(note)})


def test_a_kept_greeting_of_another_length_or_roster_is_refused(hall):
    keys, roster, said = hall
    own = said["south"].secrets
    for kept in (b"", own[:-1], own + b"x", said["north"].secrets, bytes([own[0] ^ 1]) + own[1:]):
        with pytest.raises(SealError, match="greet this roster first"):
            keys["south"].meet(roster, "south", kept, notes_of(said))


def test_secrets_do_not_print(meeting, silos, hall):
    _, pairs = meeting
    key = EphemeralKey.create(silos["north"], STUDY)
    shown = repr(pairs["north"]) + str(pairs["north"]) + repr(key) + repr(hall[2]["north"])
    assert "PairSecrets(secret)" in shown
    assert "_private" not in shown
    assert "_kem" not in shown
    assert "secrets=" not in shown
    for secret in (*pairs["north"].values(), hall[2]["north"].secrets, key.to_bytes()[:32], key.to_bytes()[32:96]):
        assert secret.hex() not in shown
        assert repr(secret) not in shown


def test_pair_secrets_have_their_length_and_their_roster(meeting):
    roster, pairs = meeting
    with pytest.raises(SealError, match="32 bytes"):
        PairSecrets({"a": b"short"})
    pairs["north"].check("north", roster)
    for me, secrets in (
        ("south", pairs["north"]),
        ("north", PairSecrets({"south": bytes(32)})),
        ("north", PairSecrets({name: bytes(32) for name in roster.names})),
    ):
        with pytest.raises(SealError, match="belong to another roster"):
            secrets.check(me, roster)


def test_a_stored_key_meets_the_same_roster_with_the_same_secrets(silos, hall):
    keys, roster, said = hall
    for name in ("north", "west"):
        again = EphemeralKey.restore(silos[name], STUDY, keys[name].to_bytes())
        assert again.offer == keys[name].offer
        arguments = (roster, name, said[name].secrets, notes_of(said))
        assert dict(again.meet(*arguments)) == dict(keys[name].meet(*arguments))


def test_a_stored_key_of_another_silo_or_study_is_refused(silos):
    blob = EphemeralKey.create(silos["north"], STUDY).to_bytes()
    for credential, study, stored in (
        (silos["south"], STUDY, blob),
        (silos["north"], "6" * 64, blob),
        (silos["north"], STUDY, bytes([blob[0] ^ 8]) + blob[1:]),
        (silos["north"], STUDY, blob[:40] + bytes([blob[40] ^ 8]) + blob[41:]),
        (silos["north"], STUDY, blob[:40]),
        (silos["north"], STUDY, blob[:96]),
        (silos["north"], STUDY, b""),
    ):
        with pytest.raises(SealError):
            EphemeralKey.restore(credential, study, stored)


def test_a_machine_without_ml_kem_says_what_to_mend(silos, monkeypatch):
    def unknown(*_):
        msg = "no"
        raise UnsupportedAlgorithm(msg)

    blob = EphemeralKey.create(silos["north"], STUDY).to_bytes()
    monkeypatch.setattr(agreement, "MLKEM768PrivateKey", SimpleNamespace(generate=unknown, from_seed_bytes=unknown))
    with pytest.raises(SealError, match=r"ML-KEM-768; install .* constraints.txt"):
        EphemeralKey.create(silos["north"], STUDY)
    with pytest.raises(SealError, match="ML-KEM-768"):
        EphemeralKey.restore(silos["north"], STUDY, blob)


def test_an_entry_verifies_what_its_silo_signed(trust, silos, meeting):
    entry: RosterEntry = meeting[0].entry("west")
    entry.verify(trust, b"message", silos["west"].sign(b"message"))
    with pytest.raises(SignatureRefused):
        entry.verify(trust, b"message", silos["south"].sign(b"message"))
