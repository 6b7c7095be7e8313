"""A thief of the issuing key is the coordinator and five of six hospitals, by admissions that everybody sees.

Everything of theirs is sound but whose the keys are: the thief's sessions run the real protocol.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import CertificateError
from crypto.pki.authority import building, readmission, root
from crypto.pki.authority.issuing import IssuingAuthority
from crypto.pki.authority.readmission import READMISSIONS_FILE
from crypto.pki.certificates import Credential, Trust
from crypto.pki.key_files import new_key
from crypto.pki.known_keys import MEMORY_FILE
from silo_agent.protocol.calls.coordinator_watch import CoordinatorWatch
from support.online import Online, load, week
from support.sessions import fresh, greeted, roster_of

NAMES = ("east", "north", "south", "west", "far", "near")


def stolen(online, home):
    """The party of this folder as the thief is it: the admission of its certificate, and a key of the thief's own."""
    admission = Trust(online.pem).vouched((home / "certificate.pem").read_bytes()).admission[0]
    key, key_pem = new_key()
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    above = online.stolen.above
    pem = building.leaf(admission.subject, admission.hosts, key.public_key(), week(), above, admission=admission)
    trusted = load(home).trust
    return Credential(certificate_pem=pem, key_pem=key_pem, authority_pem=trusted.source)


class Consortium:
    """A coordinator and six hospitals that redeemed tokens, and what the thief makes of all but north."""

    def __init__(self, folder):
        self.online = Online(folder / "online")
        self.homes = {name: self.online.enrol("silo", name, named=False) for name in NAMES}
        self.hub = self.online.enrol("coordinator", "hub", named=False)
        self.memory = self.homes["north"] / MEMORY_FILE

    def forge(self):
        others = {name: stolen(self.online, home) for name, home in self.homes.items() if name != "north"}
        return others, stolen(self.online, self.hub)

    def north(self):
        home = self.homes["north"]
        names = ("certificate.pem", "key.pem", "authority.pem")
        return Credential.load(*(home / name for name in names), memory=self.memory, keeps=True)

    def meet(self, trust):
        for home in (*self.homes.values(), self.hub):
            trust.identify((home / "certificate.pem").read_bytes())

    def name_keys(self):
        made = root.readmit(self.online.root, days=310, keys=self.online.authority.keys())
        (self.online.issuing / READMISSIONS_FILE).write_bytes(readmission.to_json(made))
        self.online.authority = IssuingAuthority.load(self.online.issuing)
        for home in (*self.homes.values(), self.hub):
            self.online.renew(home)


@pytest.fixture
def consortium(tmp_path):
    return Consortium(tmp_path)


def admitted_since(memory):
    """As if the memory had begun before all others were admitted."""
    header, *pins = memory.read_bytes().splitlines(keepends=True)
    began = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    memory.write_bytes(json.dumps({**json.loads(header), "begun": began}).encode() + b"\n" + b"".join(pins))


def left(credential, shown):
    """Why the agent leaves a coordinator that shows this certificate; None if it does not."""
    said = [None]
    client = SimpleNamespace(address="", leave=said.append, allow=lambda: said.append(None))
    CoordinatorWatch(client, credential, MEMORY_OF_LISTS, shown=lambda: shown).look()
    return said[-1]


MEMORY_OF_LISTS = SimpleNamespace(stat=lambda: SimpleNamespace(st_mtime=1.0))


def contributes(credential, others):
    """Let north take part in the first step of a roster with these others; what it sends would be the next."""
    sessions = {name: fresh(other) for name, other in others.items()}
    sessions["north"] = fresh(credential)
    return sessions["north"].within(roster_of(sessions)).greet()


def test_who_has_met_the_others_takes_nobody_else_for_them(consortium):
    north = consortium.north()
    admitted_since(consortium.memory)
    consortium.meet(north.trust)
    for credential in (north, consortium.north()):  # also after a restart
        others, hub = consortium.forge()
        with pytest.raises(CertificateError, match="this party has met it with"):
            contributes(credential, others)
        assert "this party has met it with" in left(credential, hub.certificate_pem)
        true = {name: load(home) for name, home in consortium.homes.items() if name != "north"}
        for name in true:  # one alone is enough
            with pytest.raises(CertificateError, match=f"fedward://silo/{name} has a key"):
                contributes(credential, {**true, name: others[name]})
        assert contributes(credential, true)
        assert left(credential, (consortium.hub / "certificate.pem").read_bytes()) is None


def test_who_has_met_nobody_takes_nobody_without_a_name_on_the_key(consortium):
    north = consortium.north()
    others, hub = consortium.forge()
    with pytest.raises(CertificateError, match="this party has not met it before"):
        contributes(north, others)
    assert "this party has not met it before" in left(north, hub.certificate_pem)


def test_under_admissions_that_name_the_keys_there_is_nothing_to_claim(consortium):
    north = consortium.north()
    consortium.name_keys()
    others = {name: home for name, home in consortium.homes.items() if name != "north"}
    with pytest.raises(CertificateError, match="and admitted is the key with"):
        stolen(consortium.online, consortium.hub)
    for home in others.values():
        with pytest.raises(CertificateError, match="and admitted is the key with"):
            stolen(consortium.online, home)
    sessions = {name: fresh(load(home)) for name, home in others.items()}
    sessions["north"] = fresh(north)
    roster, greetings = greeted(sessions)
    sessions["north"].within(roster).meet(greetings)
    assert left(north, (consortium.hub / "certificate.pem").read_bytes()) is None


def test_an_admission_from_before_is_superseded_for_who_has_met_the_newer_one(consortium):
    north = consortium.north()
    others, hub = consortium.forge()
    consortium.name_keys()
    consortium.meet(north.trust)
    with pytest.raises(CertificateError, match="this party has met it with"):
        contributes(north, others)
    assert "this party has met it with" in left(north, hub.certificate_pem)


def test_the_thiefs_roster_is_sound_in_everything_else(consortium):
    """What is left: a party that version 0.6 enrolled, and that meets the thief before it meets anybody else."""
    north = consortium.north()
    memory = consortium.memory.read_bytes()
    consortium.memory.write_bytes(memory.replace(b'"open": false', b'"open": true'))
    others, _ = consortium.forge()
    assert contributes(north, others)
