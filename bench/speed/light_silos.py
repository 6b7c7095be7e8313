"""Silos that speak the protocol over real TLS and neither learn nor seal: what a coordinator has to do with many.

Each is a thread with the agent's own client, so it retries, resumes and waits as an agent does. What it sends has the
size that an agent's has and random content, which the coordinator cannot tell from sealed bytes.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import Final

import grpc
import numpy as np

from crypto.pki.certificates import Credential
from crypto.rings import ckks_public
from crypto.rings.rings import ring_of
from crypto.secagg.circle import Circle, reach_of
from crypto.secagg.dealt.bundles import assemble, to_sign
from crypto.secagg.dealt.slices import CIPHERTEXT_BYTES, HASH_BYTES, Layout, letter_form
from crypto.secagg.holding import Holding
from crypto.secagg.layout import SHARE_BYTES, sealed_values
from crypto.secagg.survivors import AttemptRef, roster_digest
from crypto.secagg.words import NOTHING
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.chunks import ChunkList
from protos.messages import Answer, Confirm, Member, Place, Tensor, UploadHeader, Work
from protos.steps import STEPS, SUM, Note, Reply, Task
from silo_agent.protocol.calls.client import AskedToStop, CallRefused, Client
from silo_agent.protocol.calls.epochs import Epochs

ENDS: Final = 200
"""Bytes of a note besides what it has for each silo: what it begins with, a word, a signature."""
WRAP_BYTES: Final = 60
"""Of dealt keys for each silo."""
CKKS_BYTES: Final = 13_900
"""Of the dealt keys themselves."""
HEADS_BYTES: Final = 10_000


class LightSilo(threading.Thread):
    """One silo. It ends when the study does, or when it is told to stop; `fault` says why if it was neither."""

    def __init__(self, address: str, credential: Credential, study: Study, folder: Path, stop: threading.Event) -> None:
        super().__init__(name=credential.identity.name, daemon=True)
        self._credential, self._study, self._folder, self._stopped = credential, study, folder, stop
        self._session = os.urandom(16).hex()
        key = hashlib.sha256(credential.certificate_pem).digest()
        # Offered once for a study, as agents do, so that a roster that stays the same is greeted once.
        self._member = Member(self.name, credential.certificate_pem, key, key * 37, credential.sign(key))
        self._client = Client(
            [address], credential, self._session, stop, lambda _: None, epochs=Epochs(folder / "epoch")
        )
        self._model = self._committed = ""
        self._round = 0
        self._shared: Place | None = None
        """Where it has fetched the others' shares."""
        self.fault, self.fetched = "", 0

    def run(self) -> None:
        """Do what is asked until the study is over."""
        try:
            self._client.join("bench")
            while not self._stopped.is_set():
                work = self._client.poll()
                if work.place is None:
                    continue
                try:
                    self._do(work, work.place)
                except CallRefused as refusal:
                    if refusal.code is not grpc.StatusCode.FAILED_PRECONDITION:
                        raise
                if work.task is Task.FINISH:
                    return
        except AskedToStop:
            return
        except Exception as fault:  # noqa: BLE001  # whatever it was, the bench is to hear of it
            self.fault = f"{self.name}: {fault!r}"
        finally:
            self._client.close()

    def _do(self, work: Work, place: Place) -> None:
        if work.task is Task.DECIDE:
            self._answer(place)
        elif work.task is Task.FINISH:
            self._client.confirm(Confirm(place, Task.FINISH))
        else:
            fetched = self._fetch(work, place)
            step = STEPS[work.task]
            if step.sends is Reply.TENSOR and work.tensor is not None:
                self._send(place, work.tensor, *self._contribution(place, work.tensor))
            elif isinstance(step.sends, Note):
                tensor = work.tensor if step.sends is Note.REVEAL else None
                self._send(place, tensor, step.sends, 0, self._note(work, place, step.sends))
            else:
                self._confirm(work, place, fetched)

    def _answer(self, place: Place) -> None:
        self._committed = self._model if place.round > self._round else self._committed
        self._model, self._round = self._committed, place.round
        self._client.answer(Answer(place, self._session, member=self._member, model=self._model))

    def _fetch(self, work: Work, place: Place) -> dict[str, str]:
        """Fetch all that is offered; return what names the last content of each kind. Own shares are fetched once."""
        last = {}
        if Note.SHARES in STEPS[work.task].by_owner and self._shared != place:
            self._fetch_slices(place, Note.SHARES, work.participants)
            self._shared = place
        if Note.GREETING in STEPS[work.task].by_owner:
            self._fetch_slices(place, Note.GREETING, self._circle(work).earlier(self.name))
        for kind in dict.fromkeys(part.kind for part in work.parts):
            wanted = [(part, self._folder / f"{kind}-{part.silo}") for part in work.parts if part.kind == kind]
            self._client.download(place, work.tensor, wanted)
            for part, path in wanted:
                path.unlink()
                last[kind] = part.sha256
                self.fetched += part.size
        return last

    def _fetch_slices(self, place: Place, note: Note, owners: tuple[str, ...]) -> None:
        limit = note_limit(self._study, place.round, note)
        self.fetched += sum(map(len, self._client.notes(place, note, owners, (self.name,), limit).values()))

    def _confirm(self, work: Work, place: Place, fetched: dict[str, str]) -> None:
        task, signature, content, vouch = work.task, b"", "", b""
        if STEPS[task].changes_model:
            named = fetched[SUM if task is Task.OPEN else Note.HEADS]
            self._model = hashlib.sha256(f"{place} {task} {named}".encode()).hexdigest()
            holding = Holding(place.study, place.round, hashlib.sha256(self._model.encode()).hexdigest())
            content, vouch = holding.content, self._credential.sign(holding.to_sign())
        if task is Task.SIGN:
            signature = self._credential.sign(repr(work.survivors).encode())
        tensor = work.tensor if task in (Task.OPEN, Task.SIGN) else None
        self._client.confirm(
            Confirm(place, task, tensor, self._model, signature=signature, content=content, vouch=vouch)
        )

    def _send(self, place: Place, tensor: Tensor | None, kind: str, values: int, content: bytes) -> None:
        path = self._folder / "sent"
        path.write_bytes(content)
        chunks = ChunkList.of(path)
        header = UploadHeader(place, kind, tensor, self.name, values, chunks.size, chunks.digest)
        self._client.upload(header, path, chunks)
        path.unlink()

    def _note(self, work: Work, place: Place, note: Note) -> bytes:
        if note is Note.SHARES:
            return self._shares(work, place)
        circle = self._circle(work)
        wrapped = WRAP_BYTES + (CIPHERTEXT_BYTES if circle.sparse else 0)
        sizes = {
            Note.GREETING: letter_form(circle.later(self.name)).note,
            Note.REVEAL: ENDS + SHARE_BYTES * len(circle.holders(self.name)),
            Note.KEYS: ENDS + CKKS_BYTES + wrapped * (len(circle.names) - 1),
        }
        size = sizes.get(note, HEADS_BYTES)
        return hashlib.shake_128(f"{place} {note} {work.tensor} {self.name}".encode()).digest(size)

    def _shares(self, work: Work, place: Place) -> bytes:
        circle, needed = self._circle(work), quorum.needed(self._study)
        own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in work.roster)
        attempt = AttemptRef(place.study, roster_digest(place.study, own), place.round, place.attempt)
        tensors = [release.tensor for release in plan(self._study).round(place.round)]
        layout = Layout.of(tensors, circle.holders(self.name))
        return assemble(
            bytes(HASH_BYTES),
            NOTHING,
            [bytes(HASH_BYTES)] * 2 * len(layout.tensors),
            {name: bytes(layout.slice) for name in layout.holders},
            {tensor: bytes(layout.deposit) for tensor in layout.tensors},
            lambda head: self._credential.sign(to_sign(attempt, self.name, tensors, circle.shares(needed), head)),
        )

    def _circle(self, work: Work) -> Circle:
        study = self._study
        reach = reach_of(len(study.silos), study.privacy.colluders, quorum.needed(study))
        return Circle(tuple(member.silo for member in work.roster), reach)

    def _contribution(self, place: Place, tensor: Tensor) -> tuple[str, int, bytes]:
        """Ring, number of values, and well-formed residues, the same for the same place and tensor."""
        release = plan(self._study).release(place.round, tensor)
        values = sealed_values(release.values, len(self._study.silos))
        rng = np.random.default_rng(list(f"{place} {tensor} {self.name}".encode()))
        if release.ring != "ckks":
            return release.ring, values, rng.bytes(ring_of(release.ring).content_size(values))
        frames = range(-(-values // ckks_public.FRAME_VALUES))
        residues = (rng.integers(0, ckks_public.PRIME, ckks_public.RESIDUES, dtype=np.uint64) for _ in frames)
        return release.ring, values, b"".join(ckks_public.write_frame(one) for one in residues)
