"""Whoever dies and whatever is put back: what a hospital spent stays spent, and one charge gives one byte string.

A hospital's gate, the coordinator's word and another hospital's memory in one process, on disks that stay. The process
is killed before and after every durable write of any of them, and copies of their disks are put back in every
combination that leaves one of them its memory (docs/design/threat-model.md, "Threats", and "Invariants" 1 and 4).
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from coordinator.storage.checkpoints import Checkpoints
from crypto.pki.certificates import Trust
from policies.accounting import accountant
from policies.documents.policy import load_policy
from policies.errors import LedgerRolledBackError
from policies.ledger.chain import Genesis
from policies.ledger.cosign import CosignatureFile
from policies.ledger.events import Debit, InForce
from policies.ledger.ledger import Ledger, read_history
from policies.plan.release import Release, plan
from protos.checkpoints import SignedCheckpoint
from protos.messages import Place, Tensor
from silo_agent.gate import Gate, Order, open_ledger
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight.approval import predecessor_of, put_into_force, sign_policy, signers
from silo_agent.oversight.recovery import recover
from silo_agent.protocol.calls.client import WentBackRefused
from silo_agent.protocol.ledgers.cosigning import Cosigning
from silo_agent.protocol.ledgers.witnessing import Witness
from support.certificates import load, make_authority
from support.databases import store_in
from support.failpoints import END, Failpoints, Say, points, run
from support.small_cohort import policy_document, write_yaml
from support.states import keyed
from support.studies import tiny_study
from support.unjudged import BelievingHub, BelievingWitness, approved

STRIDE = int(os.environ.get("FEDWARD_LEDGER_STRIDE", "16"))
"""Of the moments at which a process may die, one in so many is tried; 1 tries every one."""
STUDY = tiny_study(privacy={"mode": "distributed"}, encoder={"sampling_rate": 1.0, "noise": 12.0})
DELTA = 1e-5
PEOPLE = ("ada", "grace")


def order(tensor: Tensor, number: int, attempt: int = 1) -> Order:
    names = tuple(STUDY.silos)
    return Order(STUDY, Place(STUDY.digest, number, attempt), tensor, names, f"{attempt}" * 64, "model")


FIRST = order(Tensor.COUNTS, 0)
ORDERS = (
    FIRST,
    order(Tensor.HEADS, 1),
    order(Tensor.ENCODER, 1),
    order(Tensor.HEADS, 1, 2),
    order(Tensor.ENCODER, 1, 2),
)
"""Heads have a share of the noise, and a new attempt is a new draw. The encoder's draw is sent again."""
DRAWS = 4
_BYTES = 24
"""Of a draw."""


@pytest.fixture(scope="module")
def party(tmp_path_factory):
    authority = make_authority(tmp_path_factory.mktemp("consortium"))
    names = {"north": "silo", "south": "silo", "hub": "coordinator", **dict.fromkeys(PEOPLE, "approver")}
    return {name: load(authority.credential(role, name)) for name, role in names.items()}


class Wire:
    """What the agent's client says to the coordinator, which asks the other hospital at once."""

    def __init__(self, hub: BelievingHub, witness: Witness, north) -> None:
        self._hub, self._witness, self._north = hub, witness, north

    def cosigned(self):
        return self._hub.latest("north")

    def signed(self, message):
        return SignedCheckpoint(message, self._north.certificate_pem, self._north.sign(message))

    def cosign(self, place, stated, evidence=None):
        try:
            self._hub.state("north", stated, ["south"])
        except LedgerRolledBackError as fault:
            raise WentBackRefused(grpc.StatusCode.FAILED_PRECONDITION, str(fault)) from None
        asked = self._hub.hand_out("south")
        if asked is not None:
            self._hub.take("south", self._witness.cosign(asked.stated, asked.evidence))
        return self._hub.state("north", stated, ["south"])


class World:
    """One hospital and who remembers its ledger, in a folder; everything else is forgotten between two lives."""

    def __init__(self, folder: Path, party) -> None:
        self.folder, self.party, self.trust = folder, party, Trust(party["north"].authority_pem)
        self.ledger = folder / "north" / "ledger.sqlite3"
        self.ledger.parent.mkdir(parents=True)
        approvers = [f"fedward://approver/{name}" for name in PEOPLE]
        self.policies = [
            write_yaml(folder / f"{name}.yaml", policy_document("north-ward", approvers=approvers, contact=name))
            for name in ("first", "second")
        ]
        self.log = folder / "north" / "training.log"
        self.draws = 0

    def create(self) -> None:
        if not self.ledger.exists():
            Ledger.create(
                self.ledger,
                Genesis(
                    data_set="north-ward",
                    holdout=0.2,
                    delta=DELTA,
                    unit="patient",
                    identified_by=("patient",),
                    delimiter=",",
                    columns=(),
                ),
            )

    def approve(self, policy: Path) -> None:
        for name in PEOPLE:
            sign_policy(load_policy(policy), policy, self.party[name])

    def reload(self, policy: Path) -> None:
        with open_ledger(self.ledger, load_policy(policy), self.party["north"]) as ledger:
            put_into_force(ledger, policy, self.ledger.parent, self.trust)

    @contextmanager
    def at_work(self, policy: Path) -> Iterator[tuple[Gate, Cosigning]]:
        """The agent, the coordinator and the other hospital, as they start: what others know is asked first."""
        store = store_in(self.folder / "hub")
        state = keyed(self.ledger.parent / "state")
        try:
            gate = Gate(self.party["north"], policy, self.ledger, state, AgentMetrics(), require_approved=approved)
            try:
                hub = BelievingHub(Checkpoints(store.database), self.party["hub"], self.trust)
                witness = BelievingWitness(self.folder / "south", self.party["south"])
                cosigning = Cosigning(Wire(hub, witness, self.party["north"]), gate)
                cosigning.remember()
                yield gate, cosigning
            finally:
                gate.close()
        finally:
            state.close()
            store.engine.dispose()

    def contribute(self, gate: Gate, cosigning: Cosigning, wanted: Order) -> bytes:
        """What may be sent."""

        def compute(charged: Place, _release: Release):
            self.draws += 1
            with self.log.open("a") as log:
                log.write(f"{charged.round} {charged.attempt} {wanted.tensor}\n")
                log.flush()
                os.fsync(log.fileno())
            return np.frombuffer(os.urandom(_BYTES), "<i8")

        def no_fault(*_: object):
            msg = "the computation does not fail here"
            raise AssertionError(msg)

        path = gate.contribute(
            wanted, self, "masks", compute, lambda: cosigning.ask(wanted.place), noise_alone=no_fault
        )
        return path.read_bytes()

    def seal(self, kind, integers, label, masks) -> Iterator[bytes]:
        """Stands for the sealer: other integers give other bytes."""
        yield f"{kind} {label.digest} {masks} ".encode()
        yield integers.tobytes()

    def live(self, failpoints: Failpoints, say: Say) -> None:
        """A hospital's life, or the rest of it: enrolled, charged, led to another policy, charged on."""
        first, second = self.policies
        self.approve(first)
        self.create()
        with open_ledger(self.ledger, load_policy(first), self.party["north"]) as ledger:
            failpoints.watch(ledger)
            led = ledger.policy == load_policy(second).digest
        for policy, orders in ((first, (FIRST,)), (second, ORDERS)):
            if policy == first and led:
                continue
            if policy == second:
                self.approve(second)
                self.reload(second)
            with self.at_work(policy) as (gate, cosigning):
                failpoints.watch(gate.ledger)
                for wanted in orders:
                    content = self.contribute(gate, cosigning, wanted)
                    if wanted.tensor == Tensor.ENCODER:
                        say(f"encoder {content[-_BYTES:].hex()} {gate.ledger.head.sequence} {gate.ledger.spent()!r}")
                    digest, ledger = hashlib.sha256(content).hexdigest(), gate.ledger
                    say(f"sent {wanted.label.digest} {digest} {ledger.head.sequence} {ledger.spent()!r}")

    @property
    def trained(self) -> list[tuple[int, int, str]]:
        """What the training log has: (round, attempt, tensor) of every draw. One that never left is drawn again."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        keys = [line.split() for line in lines]
        return list(dict.fromkeys((int(number), int(attempt), tensor) for number, attempt, tensor in keys))

    def require_charged(self, said: list[str]) -> None:
        """Invariant 1, as the disk stands: debits before data, and never less than was said."""
        if not self.ledger.exists():
            assert not said
            assert not self.trained
            return
        policy = load_policy(self.policies[0])
        with open_ledger(self.ledger, policy, self.party["north"]) as ledger:
            debits = [entry.debit for entry in ledger.entries()]
            spent, length = ledger.spent(), ledger.head.sequence
            predecessor_of(ledger, self.ledger.parent, policy)
        charged = {(d.round, d.attempt, tensor): cost for d in debits for tensor, cost in d.costs.items()}
        assert set(self.trained) <= set(charged), "trained before it was charged"
        assert spent >= self.epsilon() * (1 - 1e-9), "less charged than trained"
        if said:
            *_, told_length, told_spent = said[-1].split()
            assert spent >= float(told_spent), "a crash refunded"
            assert length >= int(told_length)
        for item in CosignatureFile(self.ledger).latest():
            assert item.checkpoint.epsilon <= spent

    def epsilon(self) -> float:
        """Of the training log alone."""
        return accountant.epsilon(
            [plan(STUDY).round_costs(number)[tensor] for number, _, tensor in self.trained], DELTA
        )


def sent(said: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in said:
        if line.startswith("sent"):
            _, label, digest, *_ = line.split()
            assert found.setdefault(label, digest) == digest, "one label gave two byte strings"
    return found


def kinds(ledger: Path) -> list[object]:
    return [
        (type(event), event.policy, event.costs if isinstance(event, Debit) else None)
        for event in (entry.event for entry in read_history(ledger)[1])
    ]


@pytest.mark.slow
# --- kill -9 --------------------------------------------------------------------------------------------------------
@pytest.mark.timeout(3600)
def test_a_party_killed_around_any_durable_write_loses_doubles_and_sends_nothing_else(tmp_path, party):
    undisturbed = World(tmp_path / "undisturbed", party)
    whole = run(undisturbed.live)
    moments = range(1, points(whole) + 1, STRIDE)
    assert len(sent(whole)) == len(ORDERS)
    assert points(whole) > 150
    for fatal in moments:
        world = World(tmp_path / str(fatal), party)
        said = run(world.live, fatal)
        assert END not in "".join(said), "it did not die"
        world.require_charged(said)
        again: list[str] = []
        world.live(Failpoints(0), again.append)
        world.require_charged(again)
        both = sent([*said, *again])
        assert set(both) == set(sent(whole))
        assert len({line.split()[1] for line in (*said, *again) if line.startswith("encoder")}) == 1, "drawn twice"
        assert kinds(world.ledger) == kinds(undisturbed.ledger), "charged or led twice, or not at all"
        assert len(world.trained) == DRAWS
        for policy in world.policies:
            found = signers(load_policy(policy), policy, world.trust)
            assert set(found.values()) == {""}, "a signature was cut"
        shutil.rmtree(world.folder)


def test_every_file_that_must_last_is_among_the_moments(tmp_path, party):
    """What is synced in an undisturbed life, by name: a file that is written another way would be missed."""

    def live(failpoints, say):
        real = os.fsync

        def fsync(handle):
            say(f"synced {Path(f'/proc/self/fd/{handle}').readlink().relative_to(tmp_path / 'world')}")
            real(handle)

        os.fsync = fsync
        world.live(failpoints, say)

    world = World(tmp_path / "world", party)
    synced = {line.split(maxsplit=1)[1] for line in run(live) if line.startswith("synced")}
    digests = [event.policy for event in (e.event for e in read_history(world.ledger)[1]) if isinstance(event, InForce)]
    assert len(digests) == 2
    for name in (
        "first.yaml.ada.sig.new",
        "second.yaml.grace.sig.new",
        "north/ledger.sqlite3.countersigned.json.new",
        *(f"north/policies/{digest}.json.new" for digest in digests),
        "north/policies",
        "south/witnessed/north.json.new",
        "south/witnessed",
        "north",
    ):
        assert name in synced, sorted(synced)
    assert sum(name.endswith(".sealed.new") for name in synced) == len(ORDERS)
    assert sum(name.endswith(".i64.new") for name in synced) == DRAWS


# --- older copies ---------------------------------------------------------------------------------------------------
DISKS = {
    "the ledger alone": ("north/ledger.sqlite3",),
    "the hospital": ("north/ledger.sqlite3", "north/ledger.sqlite3.countersigned.json"),
    "the witness": ("south/witnessed/north.json",),
    "the coordinator": ("hub/coordinator.sqlite3",),
}
HOSPITAL = ("the ledger alone", "the hospital")
CASES = [case for size in (1, 2) for case in itertools.combinations(DISKS, size) if len(set(case) & set(HOSPITAL)) < 2]
"""All but those in which nobody is left that remembers."""


@pytest.mark.parametrize("ago", [1, 4, 99])
@pytest.mark.parametrize("case", CASES, ids=" and ".join)
def test_older_copies_put_back_give_nothing_back(tmp_path, party, case, ago):
    world = World(tmp_path / "world", party)
    first, _ = world.policies
    world.approve(first)
    world.create()
    copies = []
    with world.at_work(first) as (gate, cosigning):
        for step in range(8):
            copies.append(shutil.copytree(world.folder, tmp_path / f"copy-{step}"))
            if step in (2, 5):
                world.contribute(gate, cosigning, ORDERS[step // 5])
            else:
                gate.ledger.note("refresh", f"case {step}")
                gate.keep_cosigned(cosigning.ask(FIRST.place))
        spent, most = gate.ledger.spent(), gate.ledger.head.sequence
    older = copies[max(0, len(copies) - ago)]
    for name in (name for disk in case for name in DISKS[disk]):
        (world.folder / name).unlink()
        if (older / name).exists():
            shutil.copy(older / name, world.folder / name)
    wanted, draws = ORDERS[3], world.draws
    if set(case) & set(HOSPITAL):
        with pytest.raises(LedgerRolledBackError), world.at_work(first) as (gate, cosigning):
            world.contribute(gate, cosigning, wanted)
        assert world.draws == draws, "computed on an older copy"
        with pytest.raises(LedgerRolledBackError), world.at_work(first):
            pass
        checkpoints = [item.checkpoint for item in CosignatureFile(world.ledger).latest()]
        with open_ledger(world.ledger, load_policy(first), world.party["north"]) as ledger:
            recover(ledger, party["north"], checkpoints, "A. Weber")
            assert ledger.spent() >= spent >= world.epsilon()
    with world.at_work(first) as (gate, cosigning):
        world.contribute(gate, cosigning, wanted)
        assert gate.ledger.spent() > spent
        assert gate.ledger.spent() >= world.epsilon()
        assert set(case) & set(HOSPITAL) or gate.ledger.head.sequence > most
    assert world.draws == draws + 1
