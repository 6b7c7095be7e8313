"""Every name in the agent's state folder, written once.

    state.sqlite3                          releases, used labels, survivor lists, standings (`state`)
    ledger.sqlite3                         what was charged; `policies.ledger` names what lies beside it
    session.sealed                         the name of this key store
    policies/DIGEST.json                   policies that were in force
    witnessed/SILO.json                    other silos' latest checkpoints
    studies/STUDY/                         models, results and secrets of a study (`StudyFolder`)
    outbox/STUDY/LABEL.sealed              what a mask label gave
    outbox/STUDY/ROUND-ATTEMPT-KIND.note   this silo's notes
    inbox/STUDY/ROUND-ATTEMPT-KIND-SILO.note

Nothing is read, made or removed here; what stays when a study's days are up is said here (`StudyFolder.stays`), beside
the names. A file that is being written has `.new` after its name (`durable`), one that is being fetched `.part`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protos.messages import Place

_COUNTS: Final = "counts.json"
_RESULTS: Final = "results.json"
_PUBLICATION: Final = "publication.json"
_TRAINING_LOG: Final = "training.jsonl"
_STAYS: Final = re.compile(
    r"model-[0-9]+\.(safetensors|digest)|"
    + "|".join(re.escape(name) for name in (_COUNTS, _RESULTS, _PUBLICATION, _TRAINING_LOG))
)


@dataclass(frozen=True)
class StudyFolder:
    """What a silo keeps of one study."""

    path: Path

    def model(self, round_number: int) -> Path:
        """The shared model after a finished round."""
        return self.path / f"model-{round_number}.safetensors"

    def model_digests(self, round_number: int) -> Path:
        """The digests of that model: the keyed one, and its content's."""
        return self.model(round_number).with_suffix(".digest")

    def prior(self, round_number: int) -> Path:
        """The tables r(z|y) that a round's training left, if they stay at the silo."""
        return self.path / f"prior-{round_number}.f32"

    @property
    def personal(self) -> Path:
        """The personal model, which never leaves the hospital."""
        return self.path / "personal.safetensors"

    @property
    def counts(self) -> Path:
        """The domains' noised sizes."""
        return self.path / _COUNTS

    @property
    def results(self) -> Path:
        """The opened metrics."""
        return self.path / _RESULTS

    @property
    def publication(self) -> Path:
        """What this silo signs for the public."""
        return self.path / _PUBLICATION

    @property
    def training_log(self) -> Path:
        """What was drawn, with which noise."""
        return self.path / _TRAINING_LOG

    @property
    def keys(self) -> Path:
        """The secrets of the study, sealed."""
        return self.path / "keys.sealed"

    def release(self, place: Place, tensor: str, attempt: int) -> Path:
        """Noised integers, under the attempt that they were charged for."""
        return self.path / "releases" / f"{place.round}-{tensor}-{attempt}.i64"

    def releases(self, round_number: int) -> Iterator[Path]:
        """All releases of a round that lie here."""
        return (self.path / "releases").glob(f"{round_number}-*.i64")

    def attempt_model(self, digest: str) -> Path:
        """What the current attempt computes from."""
        return self.path / f"attempt-{digest[:16]}.safetensors"

    def attempt_total(self, sha256: str) -> Path:
        """The sum that the current attempt has opened."""
        return self.path / f"attempt-{sha256[:16]}.i64"

    def attempts(self) -> Iterator[Path]:
        """All files of attempts that lie here."""
        return self.path.glob("attempt-*")

    def stays(self, path: Path) -> bool:
        """Whether a file stays when what is private of the study is removed."""
        return path.parent == self.path and _STAYS.fullmatch(path.name) is not None


@dataclass(frozen=True)
class StateFolder:
    """The agent's folder."""

    path: Path

    @property
    def database(self) -> Path:
        """What `state.State` keeps in rows."""
        return self.path / "state.sqlite3"

    @property
    def ledger(self) -> Path:
        """What the data set has spent."""
        return self.path / "ledger.sqlite3"

    @property
    def session(self) -> Path:
        """The name of this key store, sealed."""
        return self.path / "session.sealed"

    def policy(self, digest: str) -> Path:
        """A policy that was in force."""
        return self.path / "policies" / f"{digest}.json"

    def witnessed(self, silo: str) -> Path:
        """The latest checkpoint of another silo's ledger."""
        return self.path / "witnessed" / f"{silo}.json"

    def study(self, digest: str) -> StudyFolder:
        """What is kept of one study."""
        return StudyFolder(self.path / "studies" / digest)

    def outbox(self, study: str) -> Path:
        """What this silo sends in a study."""
        return self.path / "outbox" / study

    def inbox(self, study: str) -> Path:
        """What this silo was sent in a study."""
        return self.path / "inbox" / study

    def sealed(self, study: str, label: str) -> Path:
        """The bytes that a mask label gave."""
        return self.outbox(study) / f"{label}.sealed"

    def note(self, place: Place, kind: str) -> Path:
        """This silo's note of an attempt."""
        return self.outbox(place.study) / f"{place.round}-{place.attempt}-{kind}.note"

    def received(self, place: Place, kind: str, silo: str) -> Path:
        """What another silo sent for an attempt."""
        return self.inbox(place.study) / f"{place.round}-{place.attempt}-{kind}-{silo}.note"
