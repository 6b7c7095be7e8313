"""An older pair of register and signed head, put back at the issuing authority: it certifies nobody until mended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import EnrolmentError
from crypto.pki.authority.entries import Index
from crypto.pki.authority.folder import LISTS_FOLDER, NEWEST_LIST
from crypto.pki.authority.issuing import IssuingAuthority
from crypto.pki.authority.putback import SHOWN_FILE, Mark
from crypto.pki.enrolment import create_request
from crypto.pki.reading import parse_certificate
from crypto.pki.revocation import RevocationLists
from tests.support.online import Online, register_of, subject

PAIR = ("issued.jsonl", "issued.head")
BY_LIST = r"issued\.jsonl was put back from an older copy: its \d+ entries do not begin with the \d+ that it had when"
BY_SHOWN = r"issued\.jsonl was put back from an older copy: it lacks the certificate with the serial number"
MENDED = "put the newest issued.jsonl and issued.head back"


class Consortium:
    """An issuing authority that has certified north; then come south and west, and the pair of before is put back."""

    def __init__(self, folder):
        self.online = Online(folder)
        self.asked, self.tokens, self.certified = {}, {}, {}
        for name in ("north", "south", "west"):
            self.asked[name] = create_request(folder / name, subject("silo", name), ()).read_bytes()
            self.tokens[name] = self.online.admit("silo", name)
        self.redeem("north")

    def redeem(self, name):
        self.certified[name] = self.online.authority.redeem(self.asked[name], self.tokens[name])

    def renew(self, name):
        return self.online.authority.renew(self.asked[name], self.certified[name])

    def pair(self):
        return {name: (self.online.issuing / name).read_bytes() for name in PAIR}

    def put_back(self, pair, *, restarts=True):
        for name, content in pair.items():
            (self.online.issuing / name).write_bytes(content)
        if restarts:
            self.restart()

    def restart(self):
        self.online.authority = IssuingAuthority.load(self.online.issuing)


@pytest.fixture
def two(tmp_path):
    return Consortium(tmp_path)


def nothing_is_certified(two, match):
    """Whoever asks, with whatever, is told the same; and so is the keeper."""
    for asks in (lambda: two.redeem("west"), lambda: two.redeem("south"), lambda: two.renew("north")):
        with pytest.raises(EnrolmentError, match=match) as told:
            asks()
        assert MENDED in str(told.value)
        assert "\n" not in str(told.value)
    (concern,) = [one for one in two.online.authority.concerns() if "put back" in one]
    assert MENDED in concern


@pytest.mark.parametrize("restarts", [True, False])
def test_the_newest_list_says_how_far_the_register_had_come(two, restarts):
    older = two.pair()
    two.redeem("south")
    two.online.authority.revoke("fedward://operator/ada", None, datetime.now(UTC), "left")
    newest = two.pair()
    two.put_back(older, restarts=restarts)
    nothing_is_certified(two, BY_LIST)
    assert two.pair() == older
    two.put_back(newest)
    two.redeem("west")
    assert not [one for one in two.online.authority.concerns() if "put back" in one]


def test_a_token_is_not_redeemed_again_by_another_key_after_the_register_was_put_back(two):
    older = two.pair()
    two.redeem("south")
    two.online.authority.lists_pem(datetime.now(UTC) + timedelta(days=1, hours=1))
    two.put_back(older)
    two.asked["south"] = create_request(two.online.folder / "thief", subject("silo", "south"), ()).read_bytes()
    with pytest.raises(EnrolmentError, match=BY_LIST):
        two.redeem("south")


def test_a_list_that_is_made_later_neither_forgets_the_mark_nor_what_was_revoked(two):
    older = two.pair()
    two.redeem("south")
    two.online.authority.revoke("fedward://silo/south", None, datetime.now(UTC), "left")
    two.put_back(older)
    before = RevocationLists.read((two.online.issuing / NEWEST_LIST).read_bytes(), two.online.authority._bundle)
    for days in (2, 4):
        two.online.authority.lists_pem(datetime.now(UTC) + timedelta(days=days))
    two.online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "left")
    two.online.authority.revoke("fedward://silo/west", None, datetime.now(UTC), "left")
    after = RevocationLists.read((two.online.issuing / NEWEST_LIST).read_bytes(), two.online.authority._bundle)
    (old,), (new,) = before.of.values(), after.of.values()
    assert new[-1].revoked.keys() > old[-1].revoked.keys()
    with pytest.raises(EnrolmentError, match=BY_LIST):
        two.redeem("west")  # though the register has as many entries again


def test_a_certificate_that_is_shown_and_that_the_register_lacks_is_proof(two):
    """The lists of since were put back, too."""
    older = two.pair()
    two.redeem("south")
    newest = two.pair()
    two.put_back(older)
    assert not (two.online.issuing / NEWEST_LIST).exists()
    with pytest.raises(EnrolmentError, match="is not in this authority's register"):
        two.renew("south")
    serial = f"{parse_certificate(two.certified['south']).serial_number:x}"
    assert json.loads((two.online.issuing / SHOWN_FILE).read_bytes()) == [serial]
    nothing_is_certified(two, BY_SHOWN + f" {serial}")
    two.restart()
    nothing_is_certified(two, BY_SHOWN)
    two.put_back(newest)
    two.renew("south")
    two.redeem("west")


def test_it_is_proof_also_if_the_register_knows_the_key(two):
    older = two.pair()
    two.certified["north"] = two.renew("north")
    two.put_back(older)
    with pytest.raises(EnrolmentError, match=BY_SHOWN):
        two.renew("north")


def test_a_certificate_that_this_key_did_not_sign_proves_nothing(two, tmp_path):
    stranger = Consortium(tmp_path / "other")
    with pytest.raises(Exception, match="authority"):
        two.online.authority.renew(two.asked["north"], stranger.certified["north"])
    assert not (two.online.issuing / SHOWN_FILE).exists()
    two.renew("north")


def test_what_was_shown_is_never_taken_for_nothing(two):
    (two.online.issuing / SHOWN_FILE).write_text("{")
    with pytest.raises(EnrolmentError, match=r"shown\.json cannot be read, so nothing is certified"):
        two.redeem("west")


def test_a_list_of_an_earlier_version_has_no_mark(two):
    two.online.authority.lists_pem()
    pem = (two.online.issuing / NEWEST_LIST).read_bytes()
    with register_of(two.online.issuing) as register:
        assert Mark.read(pem) == Mark.of(register.index)
    assert Mark.read((two.online.issuing / "root.crl.pem").read_bytes()) is None
    assert len(list((two.online.issuing / LISTS_FOLDER).glob("*.pem"))) == 1


def test_a_register_had_its_beginnings_and_nothing_else():
    index = Index()
    marks = [Mark.of(index)]
    for number in range(3):
        index.add(json.dumps({"kind": "party", "identity": "u", "at": "2026-01-01", "n": number}).encode() + b"\n")
        marks.append(Mark.of(index))
    assert all(mark.is_in(index) for mark in marks)
    assert not Mark(4, marks[3].sha256).is_in(index)
    assert not Mark(-1, marks[3].sha256).is_in(index)
    assert not Mark(2, marks[3].sha256).is_in(index)
