"""A silo of a study's roster whose agent is hostile, as `bench.attacks.abuse` starts it with the path of a plan.

The agent is the real one, with its own key, ledger and policy. What it sends is bent: an act stands between the agent
and its connection, or between the agent and its secrets. The plan names the agent's configuration, the limits of all
studies, and the act of each study.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from coordinator.core.state import COLLECTED, CONFIRMED, RELAYED, Phase, PhaseLimits
from crypto.errors import RecoveryRefused
from crypto.rings.adding import added
from crypto.secagg.dealt.bundles import Published, assemble, to_sign
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.words import Word
from protos.chunks import ChunkList
from protos.messages import RINGS, Answer, Confirm, Place, UploadHeader
from silo_agent.cli.main import main as agent
from silo_agent.protocol.calls.client import Client
from silo_agent.protocol.mail import Mail
from silo_agent.protocol.membership import Membership

PHASES: Final = tuple(phase for phase in Phase if phase is Phase.OFFER or phase in {*RELAYED, *COLLECTED, *CONFIRMED})
"""The phases in which a silo is waited for, besides the gathering."""
BEFORE: Final = 0.8
"""So many seconds before the end of a phase comes what comes at the last moment."""
AFTER: Final = 0.5
"""So many seconds after it a silent silo calls again."""


@dataclass(frozen=True)
class MemberAct:
    """What the member does in one study."""

    name: str = "behaves"
    phase: str = ""
    """The phase in which it is silent."""


class MemberPlan:
    """The acts by study, in a file that may grow while the agent runs, and how long each phase may last."""

    def __init__(self, file: Path) -> None:
        self._file = file
        content = json.loads(file.read_text(encoding="utf-8"))
        self.limits, self.config = PhaseLimits(**content["limits"]), str(content["config"])

    def act(self, place: Place) -> MemberAct:
        """Return what the member does in a study."""
        acts = json.loads(self._file.read_text(encoding="utf-8"))["acts"]
        return MemberAct(**acts.get(place.study, {}))


def phase_of_confirm(confirm: Confirm) -> Phase:
    """Return the phase in which the coordinator waits for a confirmation."""
    return next((phase for phase, task in CONFIRMED.items() if task is confirm.task), Phase.ADD)


def phase_of_upload(header: UploadHeader) -> Phase:
    """Return the phase in which the coordinator waits for an upload."""
    if header.kind in RINGS:
        return Phase.GATHER
    return next(phase for phase, note in {**COLLECTED, **RELAYED}.items() if note == header.kind)


def bend_calls(plan: MemberPlan) -> None:
    """Put silence and lateness between the agent and its connection."""
    answer, confirm, upload = Client.answer, Client.confirm, Client.upload

    def is_said(place: Place, phase: Phase) -> bool:
        act, limit = plan.act(place), plan.limits.of(phase)
        if act.name == "silent" and act.phase == phase:
            time.sleep(limit + AFTER)  # then it calls again as if nothing had been
            return False
        if act.name == "late" and phase is not Phase.ADD:
            time.sleep(max(limit - BEFORE, 0.0))
        return True

    def answers(client: Client, given: Answer) -> None:
        if is_said(given.place, Phase.OFFER):
            answer(client, given)

    def confirms(client: Client, given: Confirm) -> None:
        if is_said(given.place, phase_of_confirm(given)):
            confirm(client, given)

    def uploads(client: Client, header: UploadHeader, content: Path, chunks: ChunkList) -> None:
        if is_said(header.place, phase_of_upload(header)):
            upload(client, header, content, chunks)

    _put(Client, answer=answers, confirm=confirms, upload=uploads)


def bend_sums(plan: MemberPlan) -> None:
    """Let it upload residues of no meaning, well-formed and signed."""
    send = Mail.send

    def sends(mail: Mail, silo: str, place: Place, kind: str, path: Path, **words: Any) -> None:
        if kind in RINGS and plan.act(place).name == "spoils":
            twice = path.with_name(path.name + ".spoilt")
            with path.open("rb") as one, path.open("rb") as other:
                twice.write_bytes(b"".join(added(kind, [one, other])))
            path = twice
        send(mail, silo, place, kind, path, **words)

    _put(Mail, send=sends)


def bend_shares(plan: MemberPlan) -> None:
    """Let it seal wrong shares for one member and sign that note, or complain about right ones."""
    share, read_shares = Membership.share, Membership.read_shares
    signed: dict[Place, bytes] = {}

    def shares(
        own: Membership, place: Place, tensors: Sequence[str], threshold: int, words: Callable[[], Mapping[str, Word]]
    ) -> bytes:
        note, attempt = share(own, place, tensors, threshold, words), own.attempt(place)
        if plan.act(place).name != "deals wrongly":
            return note
        read = Published.parse(note, own.me, attempt, tensors, own.roster.circle.holders(own.me))
        needed, sign = own.roster.circle.shares(threshold), own._credential.sign  # noqa: SLF001  # as its agent signs
        box = read.slices[_victim(own)].sealed
        wrong = {_victim(own): replace(read.slices[_victim(own)], sealed=box[:-1] + bytes([box[-1] ^ 1]))}
        if place not in signed:  # a signature is another one each time, and one attempt has one note
            signed[place] = assemble(
                read.keys,
                read.word,
                read.secrets.values(),
                {name: piece.to_bytes() for name, piece in {**read.slices, **wrong}.items()},
                read.deposits,
                lambda head: sign(to_sign(attempt, own.me, tensors, needed, head)),
            )
        return signed[place]

    def reads(own: Membership, place: Place, *notes: Any) -> dict[str, ShareBundle]:
        keys = {"accuses": bytes(32), "accuses without evidence": b""}
        if (act := plan.act(place).name) in keys:
            msg = f"{_victim(own)} sealed its shares for this silo wrongly"
            raise RecoveryRefused(msg, _victim(own), keys[act])
        return read_shares(own, place, *notes)

    _put(Membership, share=shares, read_shares=reads)


def _victim(own: Membership) -> str:
    return own.roster.circle.neighbours(own.me)[0]


def _put(kind: type, **methods: Any) -> None:
    for name, method in methods.items():
        setattr(kind, name, method)


def main() -> None:
    """Become hostile, then run the agent."""
    plan = MemberPlan(Path(sys.argv[1]))
    for bend in (bend_calls, bend_sums, bend_shares):
        bend(plan)
    sys.argv = ["fedward-silo", "run", "-c", plan.config]
    agent()


if __name__ == "__main__":
    main()
