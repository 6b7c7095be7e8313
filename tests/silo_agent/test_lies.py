"""One table of lies: what a coordinator tells real agents, whom it tells, and by which word they refuse it.

Five silos, one colluder, three at least: T = 4 must sign and reveal. Each lie is told after an honest beginning. Of
every one it is checked that those who are asked refuse it by name and accuse nobody else, that nothing leaves them and
nothing is charged, that no standing moves and no model is made, and that the next attempt succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from protos.messages import Member, Place, Signature, Tensor, Work
from protos.steps import Task
from support.local_coordinator import LocalCoordinator
from support.local_silos import LocalSilo
from support.planted import FIVE, FOUR, goes_on, refused, standing
from support.sessions import flipped

GREETING, KEYS, SHARES, SUM = "note-greeting", "note-keys", "note-shares", "sum-counts"
REVEAL = "note-reveal-encoder"


@dataclass
class Scene:
    """A study of five silos, and how far it has come."""

    coordinator: LocalCoordinator
    silos: Mapping[str, LocalSilo]
    place: Place
    roster: tuple[Member, ...] = ()

    def work(self, task: Task, tensor: Tensor | None = None, actor: str = "", **others: Any) -> Work:
        """A word as the real coordinator would say it now, with some fields that are others."""
        return replace(self.coordinator.work(task, self.place, self.roster, tensor, actor), **others)

    def given(self, slot: str, owner: str, **earlier: int) -> bytes:
        """What somebody has given, in this attempt or in an earlier one."""
        return self.coordinator.content[replace(self.place, **earlier), slot, owner]

    def put(self, slot: str, owner: str, content: bytes | None) -> None:
        """Offer something else in the place of what somebody has given, or nothing."""
        if content is None:
            del self.coordinator.content[self.place, slot, owner]
        else:
            self.coordinator.content[self.place, slot, owner] = content


Begin = Callable[[Scene], None]
Told = Callable[[Scene], Sequence[tuple[str, Work]]]


@dataclass(frozen=True)
class Lie:
    """One row.

    Attributes:
        name: of the test.
        begin: the honest beginning.
        told: plants the lie, and returns who is asked for what.
        reason: the word by which it is refused.
        says: what the reason says besides.
        accuses: the silos that the reason may name.
        study: fields of the study that are others.
        fast: whether it is part of `make test`; one of each kind is.
    """

    name: str
    begin: Begin
    told: Told
    reason: str
    says: str = ""
    accuses: tuple[str, ...] = ()
    study: Mapping[str, Any] = field(default_factory=dict)
    fast: bool = False


# --- honest beginnings ------------------------------------------------------------------------------------------------
def greeted(scene):
    """All have greeted the roster."""
    scene.roster = scene.coordinator.offer(scene.place)
    scene.coordinator.collect(Task.GREET, scene.place, FIVE, scene.work(Task.GREET), GREETING)


def greeted_twice(scene):
    """Polar has lost its session after a first attempt, so the roster is another one."""
    greeted(scene)
    scene.silos["polar"].session_lost()
    scene.place = replace(scene.place, attempt=2)
    greeted(scene)


def dealt(scene):
    """North has dealt keys."""
    greeted(scene)
    scene.coordinator.collect(Task.DEAL, scene.place, ("north",), scene.work(Task.DEAL, actor="north"), KEYS)


def shared(scene):
    """All have shared what the masks need."""
    _, scene.roster = scene.coordinator.begin(scene.place.round, scene.place.attempt)


def shared_twice(scene):
    shared(scene)
    scene.place = replace(scene.place, attempt=2)
    shared(scene)


def gathered(scene):
    """All have sent their counts."""
    shared(scene)
    scene.coordinator.gather(scene.place, scene.roster, Tensor.COUNTS)


def gathered_without_polar(scene):
    shared(scene)
    scene.coordinator.gather(scene.place, scene.roster, Tensor.COUNTS, lost=("polar",))


def contributed_among_four(scene):
    """North has contributed among four; the study is told of five."""
    shared(scene)
    scene.coordinator.ask("north", scene.work(Task.CONTRIBUTE, Tensor.COUNTS, participants=FOUR))


def signed_counts(scene):
    gathered(scene)
    scene.coordinator.sign(scene.place, scene.roster, Tensor.COUNTS)


def summed(scene):
    """The counts' sum is ready to be opened."""
    shared(scene)
    scene.coordinator.sum_up(scene.place, scene.roster, Tensor.COUNTS)


def signed(scene):
    """All have signed the list of all for the heads of round 1."""
    scene.coordinator.run_round(0)
    scene.place = scene.coordinator.place(1)
    shared(scene)
    scene.coordinator.gather(scene.place, scene.roster, Tensor.HEADS)
    scene.coordinator.sign(scene.place, scene.roster, Tensor.HEADS)


def gathered_of(tensor, rounds=1):
    """All have sent what the tensor's sum is made of, after so many rounds."""

    def begin(scene):
        if scene.place.round == 0:
            for number in range(rounds):
                scene.coordinator.run_round(number)
            scene.place = scene.coordinator.place(rounds)
        shared(scene)
        if tensor is Tensor.ENCODER:
            scene.coordinator.run_tensor(scene.place, scene.roster, Tensor.HEADS)
        scene.coordinator.gather(scene.place, scene.roster, tensor)

    return begin


def gathered_twice_of(tensor):
    """The same in two attempts at round 2."""

    def begin(scene):
        gathered_of(tensor, rounds=2)(scene)
        scene.place = replace(scene.place, attempt=2)
        gathered_of(tensor)(scene)

    return begin


def opened(scene):
    """The sum of round 1's heads is open, and somebody has solved them."""
    signed(scene)
    scene.coordinator.reveal(scene.place, scene.roster, Tensor.HEADS)
    scene.coordinator.open(scene.place, scene.roster, Tensor.HEADS)
    scene.coordinator.solve(scene.place, scene.roster)


def revealed(scene):
    """The encoder's sum of round 1 is ready to be opened."""
    if scene.place.round == 0:
        scene.coordinator.run_round(0)
        scene.place = scene.coordinator.place(1)
    shared(scene)
    scene.coordinator.run_tensor(scene.place, scene.roster, Tensor.HEADS)
    scene.coordinator.sum_up(scene.place, scene.roster, Tensor.ENCODER)


def revealed_twice(scene):
    revealed(scene)
    scene.place = replace(scene.place, attempt=2)
    revealed(scene)


# --- lies -------------------------------------------------------------------------------------------------------------
def halfway(note):
    return flipped(note, len(note) // 2)


def cut(note):
    return note[:-100]


def asks(task: Task, *silos: str, tensor: Tensor | None = None, **others: Any) -> Told:
    """Nothing is planted: these silos are asked, with fields that are others."""
    return lambda scene: [(silo, scene.work(task, tensor, **others)) for silo in silos]


def puts(slot: str, owner: str, content: Callable[[Scene], bytes | None], asked: Told) -> Told:
    """Something else stands in the place of what somebody has given."""

    def told(scene):
        scene.put(slot, owner, content(scene))
        return asked(scene)

    return told


def changed(
    slot: str, owner: str, change: Callable[[bytes], bytes] = bytes, **earlier: int
) -> Callable[[Scene], bytes]:
    return lambda scene: change(scene.given(slot, owner, **earlier))


def gone(_scene):
    return None


NORTH_DEALS = asks(Task.DEAL, "north", actor="north")
WEST_TAKES = asks(Task.TAKE, "west", actor="north")
ALL_CONTRIBUTE = asks(Task.CONTRIBUTE, *FIVE, tensor=Tensor.COUNTS)
ALL_OPEN = asks(Task.OPEN, *FIVE, tensor=Tensor.ENCODER)


def with_reveals(change: Callable[[Scene, str], bytes], names: Sequence[str]) -> Told:
    """These silos' reveals are others, and all are asked to open the encoder's sum."""

    def told(scene):
        for name, content in {name: change(scene, name) for name in names}.items():
            scene.put(REVEAL, name, content)
        return ALL_OPEN(scene)

    return told


def of_keys(change):
    return puts(KEYS, "north", changed(KEYS, "north", change), WEST_TAKES)


def of_before(scene, name):
    return scene.given(REVEAL, name, attempt=1)


def swapped(scene, name):
    return scene.given(REVEAL, "south" if name == "polar" else "polar")


def with_signatures(change: Callable[[Scene], Mapping[str, bytes]]) -> Told:
    """All are asked to reveal for the list that they have signed, with signatures that are others."""

    def told(scene):
        given = tuple(Signature(*one) for one in sorted(change(scene).items()))
        return [(name, scene.work(Task.REVEAL, Tensor.HEADS, signatures=given)) for name in FIVE]

    return told


def too_few(scene):
    return {name: scene.coordinator.signatures[name] for name in ("east", "north", "south")}


def forged(scene):
    given = scene.coordinator.signatures
    return {**given, "polar": b"signed", "west": given["north"]}


def of_the_round_before(scene):
    said = {name: scene.coordinator.clients[name].confirms for name in ("polar", "west")}
    old = {name: next(one.signature for one in given if one.task is Task.SIGN) for name, given in said.items()}
    return {**scene.coordinator.signatures, **old}


def signed_otherwise(change):
    """South and west have signed another list."""

    def given(scene):
        north = scene.silos["north"].running
        real = north.attempt(scene.work(Task.REVEAL, Tensor.HEADS), scene.place).survivor_list
        sign = {name: scene.coordinator.clients[name].sign for name in ("south", "west")}
        return {**scene.coordinator.signatures, **{name: one(change(real).to_sign()) for name, one in sign.items()}}

    return given


def later(real):
    return replace(real, attempt=replace(real.attempt, attempt=2))


def lists(survivors: Sequence[str], task: Task, *silos: str) -> Told:
    """The coordinator says that other silos are in the sum."""

    def told(scene):
        scene.coordinator.survivors = tuple(survivors)
        return asks(task, *silos, tensor=Tensor.COUNTS)(scene)

    return told


def with_sum(tensor: Tensor, change: Callable[[Scene, dict[str, bytes]], list[bytes]]) -> Told:
    """Something else is added up than what all have sent; it is signed, revealed and to be opened as ever."""

    def told(scene):
        uploads = {name: scene.coordinator.clients[name].uploads[scene.place, str(tensor)] for name in FIVE}
        scene.coordinator.add(scene.place, tensor, change(scene, uploads))
        scene.coordinator.sign(scene.place, scene.roster, tensor)
        scene.coordinator.reveal(scene.place, scene.roster, tensor)
        return asks(Task.OPEN, *FIVE, tensor=tensor)(scene)

    return told


def foreign(content):
    """As well-formed as any: in every ring a word may have any of these values, or, as a residue, its first bits."""
    return np.random.default_rng(1).integers(0, 64, len(content), np.uint8).tobytes()


def earlier_upload(tensor, **earlier):
    """South's is one of before."""

    def change(scene, given):
        old = scene.coordinator.clients["south"].uploads[replace(scene.place, **earlier), str(tensor)]
        return list({**given, "south": old}.values())

    return change


def fitted(content, size):
    """Cut, or said again, until it has the size of what it stands for."""
    return (content * (size // len(content) + 1))[:size]


def other_tensor(tensor, names):
    """Of these silos: the round's heads in the encoder's sum, the counts of the round before in the heads'."""

    def change(scene, given):
        there = (scene.place, "heads") if tensor is Tensor.ENCODER else (scene.coordinator.place(0), "counts")
        clients = scene.coordinator.clients
        return [fitted(clients[n].uploads[there], len(one)) if n in names else one for n, one in given.items()]

    return change


def offers(*, sums: bool) -> Told:
    """Only the sum is offered, or only the reveals."""

    def told(scene):
        asked = scene.work(Task.OPEN, Tensor.ENCODER)
        return [("north", replace(asked, parts=tuple(part for part in asked.parts if bool(part.silo) is not sums)))]

    return told


def of_heads(task, tensor=Tensor.HEADS, **others):
    return lambda scene: [("north", scene.work(task, tensor, "polar", **others))]


def greeting(name, content, reason, says="'east'", *, begin=greeted, asked=NORTH_DEALS, fast=False):
    """East's greeting, which is for all later names, is another one."""
    return Lie(f"greeting-{name}", begin, puts(GREETING, "east", content, asked), reason, says, ("east",), fast=fast)


def shares(name, content, *, fast=False):
    """South's shares are others. It is refused before anything is charged, and who changed them is not known."""
    told = puts(SHARES, "south", content, ALL_CONTRIBUTE)
    return Lie(f"shares-{name}", shared_twice, told, "recovery", "'south'", ("south",), fast=fast)


def participants(name, reason, among, *, fast=False):
    told = asks(Task.CONTRIBUTE, "north", tensor=Tensor.COUNTS, participants=among)
    return Lie(f"participants-{name}", shared, told, reason, fast=fast)


def survivors(name, among, *, fast=False):
    told = asks(Task.SIGN, "north", tensor=Tensor.COUNTS, survivors=among)
    return Lie(f"list-{name}", gathered, told, "out_of_turn", accuses=among, fast=fast)


def signatures(name, change, *, fast=False):
    says = "3 silos have signed who is in the sum, but 4 must sign"
    return Lie(f"signatures-{name}", signed, with_signatures(change), "opening", says, fast=fast)


def reveal(name, change, *, begin=revealed, names=("polar", "south"), fast=False):
    says = f"ignored: {', '.join(names)}"
    return Lie(f"reveals-{name}", begin, with_reveals(change, names), "recovery", says, fast=fast)


def length(name, change, reason, says, *, fast=False):
    told = puts(SUM, "", changed(SUM, "", change), asks(Task.OPEN, "north", tensor=Tensor.COUNTS))
    return Lie(f"sum-{name}", summed, told, reason, says, fast=fast)


UPLOADS = {
    "without-one": lambda _, given: [given[name] for name in given if name != "south"],
    "with-one-twice": lambda _, given: [*given.values(), given["south"]],
    "with-one-for-another": lambda _, given: [given["west" if name == "south" else name] for name in given],
    "with-one-altered": lambda _, given: list({**given, "south": flipped(given["south"], 5)}.values()),
    "with-a-strangers": lambda _, given: [*given.values(), foreign(given["south"])],
    "with-a-strangers-for-one": lambda _, given: list({**given, "south": foreign(given["south"])}.values()),
}
"""What is added up, of what five have sent."""


def sums(tensor, sealing, *, fast):
    """Every sum that is not the survivors', of a tensor under a seal."""
    others = {
        "with-one-of-another-tensor": other_tensor(tensor, ["south"]),
        "with-all-of-another-tensor": other_tensor(tensor, FIVE),
    }
    first = {name: (gathered_of(tensor), change, 1, 1) for name, change in (UPLOADS | others).items()}
    late = {
        "of-an-earlier-attempt": (gathered_twice_of(tensor), earlier_upload(tensor, attempt=1), 2, 2),
        "of-an-earlier-round": (gathered_twice_of(tensor), earlier_upload(tensor, round=1, attempt=1), 2, 2),
    }
    study = {"encoder": {"sealing": sealing}}
    for name, (begin, change, number, attempt) in (first | late).items():
        says = f"{tensor} of round {number}, attempt {attempt}: "
        quick = fast and name == "without-one"
        yield Lie(f"sum-{tensor}-{sealing}-{name}", begin, with_sum(tensor, change), "opening", says, (), study, quick)


DISTRIBUTED = {"privacy": {"mode": "distributed"}}
NOBODY_MISSING = ("opening", "no silo may be missing, but these are: polar", ("polar",), DISTRIBUTED)
AMONG_FOUR = asks(Task.CONTRIBUTE, *FOUR, tensor=Tensor.COUNTS, participants=FOUR)
FOUR_SIGN = asks(Task.SIGN, *FOUR, tensor=Tensor.COUNTS)
FOR_POLAR = puts(KEYS, "south", changed(KEYS, "north"), asks(Task.TAKE, "polar", actor="south"))
NO_SHARES = puts(SHARES, "south", gone, asks(Task.CONTRIBUTE, "north", tensor=Tensor.COUNTS))
NEVER_OFFERED = "never sent the shares of south"
OTHER_SUM = "names other participants or survivors than this silo has signed"
NO_PARTICIPANTS = "survivors are not sorted names of the participants"
LIES = [
    greeting("altered-for-who-deals", changed(GREETING, "east", halfway), "signature", fast=True),
    greeting("cut-for-who-deals", changed(GREETING, "east", cut), "roster"),
    greeting("swapped-for-who-deals", changed(GREETING, "south"), "roster"),
    greeting("altered-for-who-takes", changed(GREETING, "east", halfway), "signature", begin=dealt, asked=WEST_TAKES),
    greeting("cut-for-who-takes", changed(GREETING, "east", cut), "roster", begin=dealt, asked=WEST_TAKES),
    greeting("swapped-for-who-takes", changed(GREETING, "south"), "roster", begin=dealt, asked=WEST_TAKES),
    greeting("old", changed(GREETING, "east", attempt=1), "signature", "for this roster", begin=greeted_twice),
    greeting("not-offered", gone, "roster", "greeting of 'east' is missing"),
    Lie("keys-altered", dealt, of_keys(halfway), "recovery", accuses=("north",), fast=True),
    Lie("keys-cut", dealt, of_keys(cut), "recovery", accuses=("north",)),
    Lie("keys-of-another", dealt, FOR_POLAR, "recovery", accuses=("south", "north")),
    shares("of-another", changed(SHARES, "west"), fast=True),
    shares("of-before", changed(SHARES, "south", attempt=1)),
    shares("altered", changed(SHARES, "south", halfway)),
    shares("cut", changed(SHARES, "south", cut)),
    Lie("shares-not-offered", shared, NO_SHARES, "out_of_turn", NEVER_OFFERED, ("south",)),
    participants("too-few", "roster", ("north", "south"), fast=True),
    participants("without-it", "out_of_turn", ("east", "polar", "south", "west")),
    participants("with-a-stranger", "out_of_turn", ("east", "north", "polar", "stranger")),
    Lie("participants-of-distributed-noise", shared, AMONG_FOUR, *NOBODY_MISSING),
    survivors("too-short", ("east", "north", "south"), fast=True),
    survivors("without-it", ("east", "polar", "south", "west")),
    survivors("of-one", ("north",)),
    Lie("list-with-another", contributed_among_four, lists(FIVE, Task.SIGN, "north"), "out_of_turn", NO_PARTICIPANTS),
    Lie("list-signed-twice", signed_counts, lists(FOUR, Task.SIGN, "north"), "out_of_turn"),
    Lie("list-revealed-for-another", signed_counts, lists(FOUR, Task.REVEAL, "south"), "out_of_turn"),
    Lie("list-of-distributed-noise", gathered_without_polar, FOUR_SIGN, *NOBODY_MISSING),
    signatures("too-few", too_few, fast=True),
    signatures("forged", forged),
    signatures("over-another-tensor", of_the_round_before),
    signatures("over-another-list", signed_otherwise(lambda real: replace(real, names=FOUR))),
    signatures("over-another-attempt", signed_otherwise(later)),
    reveal("altered", lambda scene, name: flipped(scene.given(REVEAL, name), 40), fast=True),
    reveal("swapped", swapped),
    reveal("repeated", lambda scene, _: scene.given(REVEAL, "north")),
    reveal("of-another-tensor", lambda scene, name: scene.given("note-reveal-heads", name)),
    reveal("of-before", of_before, begin=revealed_twice, names=("north", "south")),
    Lie("reveals-not-offered", revealed, offers(sums=True), "recovery", "0 of the 4"),
    Lie("sum-not-offered", revealed, offers(sums=False), "out_of_turn", "offers no sum of encoder"),
    length("shorter", lambda content: content[:-1], "frame", "counts of round 0, attempt 1", fast=True),
    length("longer", lambda content: content + b"1", "out_of_turn", "the study implies at most"),
    length("twice-as-long", lambda content: content * 2, "out_of_turn", "the study implies at most"),
    Lie("heads-solved-for-another-list", opened, of_heads(Task.SOLVE, survivors=FOUR), "out_of_turn", OTHER_SUM),
    Lie(
        "heads-adopted-for-another-list",
        opened,
        of_heads(Task.ADOPT, survivors=FOUR),
        "out_of_turn",
        OTHER_SUM,
        fast=True,
    ),
    Lie("heads-of-another-tensor", opened, of_heads(Task.ADOPT, tensor=Tensor.ENCODER), "out_of_turn", "heads is due"),
    # Heads are in CKKS whatever the encoder is in.
    *sums(Tensor.HEADS, "ring32", fast=True),
    *sums(Tensor.ENCODER, "ring32", fast=True),
    *sums(Tensor.ENCODER, "ring64", fast=False),
    *sums(Tensor.ENCODER, "ckks", fast=False),
]
ROWS = [pytest.param(lie, id=lie.name, marks=() if lie.fast else pytest.mark.slow) for lie in LIES]


@pytest.mark.parametrize("lie", ROWS)
def test_a_lie_is_refused_by_name_and_leaves_no_trace(five, lie):
    coordinator, silos = five(**lie.study)
    scene = Scene(coordinator, silos, coordinator.place(0))
    lie.begin(scene)
    asked = lie.told(scene)
    assert asked
    stood = standing(silos)
    for name, work in asked:
        silo = silos[name]
        sent, charged, made = len(silo.client.headers), list(silo.charges), silo.model(scene.place.round).exists()
        with capture_logs() as logs:
            coordinator.ask(name, work)
        refused(coordinator, name, work.task, lie.reason, *filter(None, [lie.says]))
        said = coordinator.said(name)
        assert (said.place, said.signature) == (scene.place, b"")
        assert not [one for one in FIVE if one in said.explanation and one not in lie.accuses], said.explanation
        assert [one["task"] for one in logs if one["event"] == "disputed"] == [work.task]
        kept = work.task is Task.OPEN and lie.reason in ("frame", "opening")
        assert bool(work.tensor and silo.state.promises.refused(scene.place, work.tensor)) is kept, "for a recount"
        assert (len(silo.client.headers), silo.charges) == (sent, charged), "something has left"
        assert silo.model(scene.place.round).exists() is made
    assert standing(silos) == stood
    goes_on(coordinator, silos, scene.place.round, scene.place.attempt + 1)


def test_every_lie_has_a_name_of_its_own_and_each_kind_is_told_in_the_quick_run():
    assert len({lie.name for lie in LIES}) == len(LIES)
    kinds = {lie.name.partition("-")[0] for lie in LIES}
    assert {lie.name.partition("-")[0] for lie in LIES if lie.fast} == kinds
