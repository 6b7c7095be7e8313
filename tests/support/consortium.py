"""Silos that have met and shared an attempt's secrets, without agents around them."""

from __future__ import annotations

from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Trust
from crypto.secagg.dealt.attempt_secrets import AttemptSecrets
from crypto.secagg.dealt.bundles import liar
from crypto.secagg.dealt.slices import Cutting, Layout
from crypto.secagg.packages import GroupKeys
from crypto.secagg.survivors import AttemptRef, SurvivorList
from crypto.secagg.unmasking import make_bundle, make_reveal, notes_digest, read_bundle, read_reveals
from crypto.secagg.words import NOTHING
from support.entropy import SeededEntropy

STUDY = "5" * 64
TENSORS = ("heads", "update")
TENSOR = "update"
KEYS = GroupKeys(b"a CKKS key", b"g" * 32, b"c" * 32)


class Consortium:
    """Silos that have met, drawn secrets and shared them in one attempt."""

    def __init__(self, credentials, roster, pairs, needed, number=1):
        self.credentials, self.roster, self.pairs, self.needed = credentials, roster, pairs, needed
        self.names = roster.names
        self.trust = Trust(next(iter(credentials.values())).authority_pem)
        self.attempt = AttemptRef(STUDY, roster.digest, 4, number)
        self.secrets = {name: AttemptSecrets.create(TENSORS, SeededEntropy(name.encode())) for name in self.names}
        self.notes = {name: self.make(name) for name in self.names}
        self.held = {me: {owner: self.read(self.notes[owner], owner, me) for owner in self.names} for me in self.names}

    def make(self, owner, **change):
        of = {"secrets": self.secrets[owner], "attempt": self.attempt, "threshold": self.needed, **change}
        pairs = of.get("pairs", self.pairs[owner])
        credential = of.get("credential", self.credentials[owner])
        keys = of.get("keys", KEYS)
        return make_bundle(
            of["secrets"],
            of["attempt"],
            owner,
            self.roster,
            pairs,
            keys,
            of["threshold"],
            credential,
            SystemEntropy(),
            of.get("words", {}),
        )

    def read(self, blob, owner, me, **change):
        of = {"attempt": self.attempt, "tensors": TENSORS, "threshold": self.needed, "roster": self.roster, **change}
        return read_bundle(
            blob,
            owner,
            of["attempt"],
            of["tensors"],
            me,
            of["roster"],
            self.pairs[me],
            of["threshold"],
            self.trust,
            of.get("about"),
        )

    def cut(self, owner, about, note=None):
        form = Layout.of(TENSORS, self.roster.circle.holders(owner)).form
        return Cutting(note or self.notes[owner], form).cut(about)

    def sliced(self, me, notes=None):
        """What a silo reads before it uploads anything: of each note what is for itself."""
        notes = notes or self.notes
        return {owner: self.read(self.cut(owner, (me,), note), owner, me, about=(me,)) for owner, note in notes.items()}

    def more(self, me, held, silos, notes=None):
        """The same, once it has read all that concerns these silos."""
        notes = notes or self.notes
        read = {
            owner: self.read(note, owner, me)
            if owner in silos
            else self.read(self.cut(owner, silos, note), owner, me, about=silos)
            for owner, note in notes.items()
        }
        return {owner: bundle.joined(read[owner]) for owner, bundle in held.items()}

    def liar(self, blob, owner, holder, key):
        return liar(blob, owner, holder, key, self.attempt, TENSORS, self.names)

    def list(self, *names, tensor=TENSOR, participants=None, bundles=None):
        notes = notes_digest(bundles or self.held[names[0]], participants or self.names)
        return SurvivorList(self.attempt, tensor, tuple(sorted(names)), notes)

    def reveal(self, me, survivors, participants=None, **change):
        of = {"bundles": self.held[me], "keys": KEYS, "credential": self.credentials[me], **change}
        everybody = participants or self.names
        return make_reveal(
            of["bundles"],
            survivors,
            everybody,
            me,
            of["keys"],
            of["credential"],
            SystemEntropy(),
            of.get("word", NOTHING),
        )

    def reveals(self, survivors, participants=None):
        return {me: self.reveal(me, survivors, participants) for me in survivors.names}

    def recover(self, blobs, survivors, participants=None, me=None, **change):
        of = {"bundles": self.held[me or survivors.names[0]], "keys": KEYS, "threshold": self.needed, **change}
        everybody = participants or self.names
        return read_reveals(
            blobs,
            of["bundles"],
            survivors,
            everybody,
            self.roster,
            of["keys"],
            of["threshold"],
            self.trust,
            of.get("answerable", ()),
        )
