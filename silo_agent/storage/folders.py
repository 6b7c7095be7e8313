"""Every file name in the agent's state folder. Each is written here and nowhere else.

    state.sqlite3                          releases, used labels, survivor lists, standings (`state`)
    ledger.sqlite3                         what was charged; `policies.ledger` names what lies beside it
    session.sealed                         the name of this agent's key store
    known-keys.jsonl                       which keys other parties have (`crypto.pki.known_keys`)
    coordinator-epoch                      the highest epoch of a coordinator's lease (`protocol.calls.epochs`)
    secret.sealed                          what digests and draws are keyed with (`secret`)
    withdrawn.sealed                       who has withdrawn (`rows`); beside it a lock
    policies/DIGEST.json                   policies that were in force
    audit-log.json                         how far this silo has followed the coordinator's audit log
    approvals.json                         what people decided about studies (`approvals`); beside it a lock
    offered/STUDY.json                     texts of studies that were offered and have not begun (`offered`)
    polls.json                             who asked about which studies today (`oversight.polling`)
    told.json                              which waiting studies the officer was told of (`oversight.telling`)
    last-backup.json                       when the last backup was made, and up to which entry of the ledger
    timestamps/DAY.json                    the ledger's head of a day, stamped (`oversight.stamping`)
    witnessed/SILO.json                    other silos' latest checkpoints
    witnessed/SILO.received                those before, each with when it came
    models/DIGEST.safetensors              models that were handed over by the silos of another study
    studies/STUDY/                         models, results and secrets of a study (`StudyFolder`)
    outbox/STUDY/LABEL.sealed              the bytes that were sealed under a label
    outbox/STUDY/ROUND-ATTEMPT-KIND.note   this silo's notes
    inbox/STUDY/ROUND-ATTEMPT-KIND-SILO.note

This module reads, makes and removes nothing. It also says which files stay when a study's days are up
(`StudyFolder.stays`) and which a backup holds (`StateFolder.backed_up`). A file that is being written has `.new` after
its name (`durable`); a file that is being fetched has `.part`; `.sha256` names the digests of a file (`checked`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from crypto.pki.known_keys import MEMORY_FILE
from protos.messages import Place
from silo_agent.storage.checked import checked_files

_COUNTS: Final = "counts.json"
_RESULTS: Final = "results.json"
_CLASSES: Final = "classes.json"
_PUBLICATION: Final = "publication.json"
_TRAINING_LOG: Final = "training.jsonl"
_AUTHOR: Final = "author.json"
_MODEL: Final = re.compile(r"model-([0-9]+)\.(?:safetensors|digest)")
_KEPT: Final = re.compile(r"kept-([0-9]+)\.f64")
_STAYS: Final = re.compile(
    f"{_MODEL.pattern}|{re.escape(_COUNTS)}\\.sha256|"
    + "|".join(re.escape(name) for name in (_COUNTS, _RESULTS, _CLASSES, _PUBLICATION, _TRAINING_LOG, _AUTHOR))
)

_NEVER_BACKED_UP: Final = re.compile(
    r"outbox/.*|inbox/.*|(session|secret)\.sealed|studies/[^/]+/(keys\.sealed|rows\.(key|sealed)|releases/.*|attempt-[^/]*|together-[^/]*)"
    r"|(.*/)?[^/]*(\.lock|-journal|\.new|\.part)|last-backup\.json"
)
"""Keys, what only a running study needs, and what is being written."""


@dataclass(frozen=True)
class StudyFolder:
    """What a silo keeps of one study."""

    path: Path

    def model(self, round_number: int) -> Path:
        """The shared model after a finished round."""
        return self.path / f"model-{round_number}.safetensors"

    def model_digests(self, round_number: int) -> Path:
        """The two digests of that model: the keyed digest, and the digest of its content."""
        return self.model(round_number).with_suffix(".digest")

    def model_rounds(self) -> set[int]:
        """The rounds of which a model or its digests are kept."""
        return {int(found[1]) for path in self.path.glob("model-*") if (found := _MODEL.fullmatch(path.name))}

    def prior(self, round_number: int) -> Path:
        """The tables r(z|y) after a round's training, if the study keeps them at the silo."""
        return self.path / f"prior-{round_number}.f32"

    def kept(self, round_number: int) -> Path:
        """The parts of the model that the study keeps at the silo, after a round's training."""
        return self.path / f"kept-{round_number}.f64"

    def kept_rounds(self) -> set[int]:
        """The rounds of which such parts are there."""
        return {int(found[1]) for path in self.path.glob("kept-*") if (found := _KEPT.fullmatch(path.name))}

    def environments(self, round_number: int) -> Path:
        """How much each environment counts after a round's training on public data (`learning.invariance`)."""
        return self.path / f"environments-{round_number}.f64"

    def own_parts(self) -> list[Path]:
        """The parts of the model that only this silo has and later rounds read, those that are lost too."""
        return [
            path for path in checked_files(self.path) if path.name.split("-")[0] in ("kept", "prior", "environments")
        ]

    def together(self, place: Place) -> Path:
        """The encoder's change of an attempt in which it was trained together with the heads, until it is summed."""
        return self.path / f"together-{place.round}-{place.attempt}.f64"

    @property
    def personal(self) -> Path:
        """The personal model, which never leaves the hospital."""
        return self.path / "personal.safetensors"

    @property
    def choice(self) -> Path:
        """Which model this hospital predicts with, and why. As private as the personal model."""
        return self.path / "choice.safetensors"

    @property
    def alone(self) -> Path:
        """A model of this hospital's records alone, made after the last round. As private as the personal model."""
        return self.path / "alone.safetensors"

    @property
    def warnings(self) -> Path:
        """What this hospital's people should know of the newest shared model. As private as the personal model."""
        return self.path / "warnings.json"

    @property
    def personal_wanted(self) -> Path:
        """The newest round up to which the personal model is to be trained. Absent if nothing is left to do."""
        return self.path / "personal.wanted"

    @property
    def personal_taken(self) -> Path:
        """The same, of the training that is under way or has failed."""
        return self.path / "personal.taken"

    @property
    def personal_log(self) -> Path:
        """What the personal model's training has to say. As private as the model."""
        return self.path / "personal.log"

    @property
    def counts(self) -> Path:
        """The domains' noised sizes."""
        return self.path / _COUNTS

    @property
    def results(self) -> Path:
        """The opened metrics."""
        return self.path / _RESULTS

    @property
    def classes(self) -> Path:
        """The noised numbers of held-out patients by class, over all domains. Absent if the label is a number."""
        return self.path / _CLASSES

    @property
    def publication(self) -> Path:
        """What this silo signs for the public."""
        return self.path / _PUBLICATION

    @property
    def author(self) -> Path:
        """Who has signed the study."""
        return self.path / _AUTHOR

    @property
    def verdict(self) -> Path:
        """What this silo had against the study when it was asked last. It may say what is spent."""
        return self.path / "verdict.json"

    @property
    def training_log(self) -> Path:
        """The log of every draw and its noise."""
        return self.path / _TRAINING_LOG

    @property
    def keys(self) -> Path:
        """The secrets of the study, sealed."""
        return self.path / "keys.sealed"

    @property
    def rows(self) -> Path:
        """The rows that the study began with, sealed."""
        return self.path / "rows.sealed"

    @property
    def row_key(self) -> Path:
        """The key of these rows, sealed."""
        return self.path / "rows.key"

    @property
    def state(self) -> StateFolder:
        """The agent's folder, in which this one lies."""
        return StateFolder(self.path.parent.parent)

    def release(self, place: Place, tensor: str, attempt: int) -> Path:
        """The noised integers of a tensor. `attempt` is the one that they were charged for."""
        return self.path / "releases" / f"{place.round}-{tensor}-{attempt}.i64"

    def releases(self, round_number: int) -> Iterator[Path]:
        """All stored releases of a round."""
        return (self.path / "releases").glob(f"{round_number}-*.i64")

    def attempt_model(self, digest: str) -> Path:
        """The model that the current attempt computes from."""
        return self.path / f"attempt-{digest[:16]}.safetensors"

    def attempt_total(self, sha256: str) -> Path:
        """The sum that the current attempt has opened."""
        return self.path / f"attempt-{sha256[:16]}.i64"

    def attempts(self) -> Iterator[Path]:
        """All stored files of attempts."""
        return self.path.glob("attempt-*")

    def stays(self, path: Path) -> bool:
        """Whether a file stays when the study's private files are removed."""
        return path.parent == self.path and _STAYS.fullmatch(path.name) is not None


@dataclass(frozen=True)
class StateFolder:
    """The agent's folder."""

    path: Path

    @staticmethod
    def backed_up(name: str) -> bool:
        """Whether a backup holds a file of this folder, by its path in it with "/"."""
        return _NEVER_BACKED_UP.fullmatch(name) is None

    @property
    def database(self) -> Path:
        """The database of `state.State`."""
        return self.path / "state.sqlite3"

    @property
    def ledger(self) -> Path:
        """The privacy ledger of the data set."""
        return self.path / "ledger.sqlite3"

    @property
    def session(self) -> Path:
        """The name of this agent's key store, sealed."""
        return self.path / "session.sealed"

    @property
    def coordinator_epoch(self) -> Path:
        """The highest epoch of a coordinator's lease that this silo has met."""
        return self.path / "coordinator-epoch"

    @property
    def known_keys(self) -> Path:
        """Which keys other parties have."""
        return self.path / MEMORY_FILE

    @property
    def secret(self) -> Path:
        """What the folder's digests and draws are keyed with, sealed."""
        return self.path / "secret.sealed"

    @property
    def withdrawn(self) -> Path:
        """Everybody who has withdrawn, sealed."""
        return self.path / "withdrawn.sealed"

    @property
    def withdrawing(self) -> Path:
        """Held by whoever withdraws a person or keeps a study's rows."""
        return self.path / "withdrawn.lock"

    @property
    def audit_log(self) -> Path:
        """How far this silo has followed the coordinator's audit log."""
        return self.path / "audit-log.json"

    @property
    def approvals(self) -> Path:
        """Which data a study may use, as people approved it."""
        return self.path / "approvals.json"

    @property
    def approving(self) -> Path:
        """Held by whoever approves a study or takes an approval back."""
        return self.path / "approvals.lock"

    @property
    def polls(self) -> Path:
        """Who asked about which studies today."""
        return self.path / "polls.json"

    @property
    def told(self) -> Path:
        """Which waiting studies the officer was told of."""
        return self.path / "told.json"

    @property
    def last_backup(self) -> Path:
        """When the last backup was made, and up to which entry of the ledger."""
        return self.path / "last-backup.json"

    @property
    def waiting(self) -> Path:
        """What version 0.6 noted of studies that found no data."""
        return self.path / "waiting.json"

    def offer(self, digest: str) -> Path:
        """The text of a study that was offered and has not begun."""
        return self.path / "offered" / f"{digest}.json"

    def offers(self) -> list[Path]:
        """All of them."""
        return sorted((self.path / "offered").glob("*.json"))

    def policy(self, digest: str) -> Path:
        """A policy that was in force."""
        return self.path / "policies" / f"{digest}.json"

    def stamp(self, day: date) -> Path:
        """The stamp of the ledger's head that was made on a day."""
        return self.path / "timestamps" / f"{day.isoformat()}.json"

    def stamps(self) -> list[Path]:
        """All of them, oldest first."""
        return sorted((self.path / "timestamps").glob("????-??-??.json"))

    def witnessed(self, silo: str) -> Path:
        """The latest checkpoint of another silo's ledger."""
        return self.path / "witnessed" / f"{silo}.json"

    def witnessed_before(self, silo: str) -> Path:
        """The checkpoints of another silo's ledger before that one, with their times of receipt."""
        return self.path / "witnessed" / f"{silo}.received"

    def imported(self, digest: str) -> Path:
        """A shared model that was handed over."""
        return self.path / "models" / f"{digest}.safetensors"

    def studies(self) -> list[StudyFolder]:
        """The folders of all studies."""
        return [StudyFolder(path) for path in sorted((self.path / "studies").glob("*")) if path.is_dir()]

    def study(self, digest: str) -> StudyFolder:
        """The folder of one study."""
        return StudyFolder(self.path / "studies" / digest)

    def outbox(self, study: str) -> Path:
        """The folder of what this silo sends in a study."""
        return self.path / "outbox" / study

    def inbox(self, study: str) -> Path:
        """The folder of what this silo receives in a study."""
        return self.path / "inbox" / study

    def sealed(self, study: str, label: str) -> Path:
        """The bytes that were sealed under a label."""
        return self.outbox(study) / f"{label}.sealed"

    def all_sealed(self) -> Iterator[Path]:
        """All bytes that were sealed and are still there. Each file is named after its label."""
        return (self.path / "outbox").glob("*/*.sealed")

    def note(self, place: Place, kind: str) -> Path:
        """This silo's note of an attempt."""
        return self.outbox(place.study) / f"{place.round}-{place.attempt}-{kind}.note"

    def received(self, place: Place, kind: str, silo: str) -> Path:
        """Another silo's note of an attempt."""
        return self.inbox(place.study) / f"{place.round}-{place.attempt}-{kind}-{silo}.note"
