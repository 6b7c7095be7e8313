"""Ten silos lose three at every step of the protocol: the sums are exact, two return, and nothing is sent twice."""

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from coordinator.core.state import Phase
from protos.messages import Tensor
from protos.steps import Task
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study
from support.simulated_silo import Fate
from support.simulated_witness import plain_sum

pytestmark = pytest.mark.sampled
LOST = ("cedar", "larch", "oak")
TURNS = 100
"""More than two attempts at a round take."""


SEALINGS = ("ckks", "ring32", "ring64")
ALONE = (Task.DEAL, Task.SOLVE)
"""What one silo does for all: it is lost with the two first of the others."""


@dataclass(frozen=True)
class Step:
    """Where three silos are lost: in this task of attempt 1, each with what it then says or before it arrives."""

    name: str
    round: int
    task: Task
    tensor: Tensor | None = None
    fate: Fate | tuple[Fate, Fate, Fate] = "lost"
    sealing: str = "ring32"
    lost: tuple[str, ...] = LOST

    @property
    def fates(self) -> dict[str, Fate]:
        fates = (self.fate,) * len(self.lost) if isinstance(self.fate, str) else self.fate
        return dict(zip(self.lost, fates, strict=True))

    def __str__(self):
        return f"{self.name} ({self.tensor}, {self.sealing})" if self.tensor else self.name


ABSENT = [
    Step("before they answer the first offer", 0, Task.DECIDE),
    Step("before they answer the next offer", 1, Task.DECIDE),
]
"""Before there is a roster: a loss costs nothing."""
KEYS = [
    Step("after they answered the offer", 0, Task.DECIDE, fate="unanswered"),
    Step("while they greet", 0, Task.GREET),
    Step("after the greetings", 0, Task.GREET, fate="unanswered"),
    Step("the dealer, while it deals", 0, Task.DEAL),
    Step("while they take the keys", 0, Task.TAKE),
]
"""Before the exchange: a loss costs the attempt."""
BOTH = Step("one after the upload, the others before it", 1, Task.CONTRIBUTE, fate=("unanswered", "lost", "lost"))
"""So that both owners of a pair's mask are gone, and it lies on the sum."""
OF_SUMS = [
    Step("before they upload", 1, Task.CONTRIBUTE),
    Step("after the upload, before they sign", 1, Task.CONTRIBUTE, fate="unanswered"),
    BOTH,
    Step("while they sign", 1, Task.SIGN),
    Step("while they reveal", 1, Task.REVEAL),
    Step("while they open", 1, Task.OPEN),
]
SAID = [
    Step("after they signed", 1, Task.SIGN, fate="unanswered"),
    Step("after they revealed", 1, Task.REVEAL, fate="unanswered"),
]
SUMS = [
    Step("after they took the keys", 0, Task.TAKE, fate="unanswered"),
    Step("before they seal domain counts", 0, Task.CONTRIBUTE, Tensor.COUNTS),
    Step("while they exchange shares", 1, Task.EXCHANGE),
    Step("after they sent their shares", 1, Task.EXCHANGE, fate="unanswered"),
    *(replace(step, tensor=Tensor.HEADS) for step in OF_SUMS),
    *(replace(step, tensor=tensor) for tensor in (Tensor.HEADS, Tensor.ENCODER) for step in SAID),
    Step("after they opened", 1, Task.OPEN, Tensor.HEADS, fate="unanswered"),
    Step("while they solve", 1, Task.SOLVE, Tensor.HEADS),
    Step("while they adopt", 1, Task.ADOPT, Tensor.HEADS),
    *(
        replace(step, tensor=Tensor.ENCODER, sealing=sealing)
        for sealing in SEALINGS
        for step in OF_SUMS
        if step != BOTH
    ),
]


@pytest.fixture(scope="module")
def after_counts(quick_folders, credentials):
    """Gives the federation as it stands after round 0, in which nothing went wrong."""
    with ExitStack() as stack:

        @cache
        def give(sealing):
            study = simulated_study(NAMES, 6, sealing)
            made = stack.enter_context(SimulatedFederation(quick_folders(), study, credentials))
            made.run(0)
            return made

        yield give


@pytest.fixture
def federate(quick_folder, credentials, after_counts):
    """Makes a federation of ten that stands before a round; its invariants hold in the end."""
    with ExitStack() as stack:

        def make(step):
            if step.round == 0:
                study = simulated_study(NAMES, 6, step.sealing)
                made = SimulatedFederation(quick_folder, study, credentials)
            else:
                made = after_counts(step.sealing).fork(quick_folder)
            stack.callback(made.witness.check)
            return stack.enter_context(made)

        yield make


def lose(federation, step):
    """Let three fall silent at this step, and the others work until the round is committed."""
    coordinator, silos = federation.coordinator, federation.silos
    fates = step.fates
    for _ in range(TURNS):
        if coordinator.round.place.round > step.round:
            break
        for name, silo in silos.items():
            asked = coordinator.work(name)
            here = asked is not None and (asked.task, asked.tensor) == (step.task, step.tensor)
            first = here and asked.place.attempt == 1 and silo.up
            if first and step.task in ALONE and all(silos[other].up for other in fates):
                others = [other for other in step.lost if other != name][: len(fates) - 1]
                fates = {name: step.fate, **dict.fromkeys(others, step.fate)}
                for other in fates:
                    if other != name:
                        silos[other].die()
            if silo.up:
                silo.step(fates.get(name, "arrives") if first else "arrives")
        coordinator.add()
        if federation.idle:
            coordinator.pass_deadline()
    assert coordinator.round.place.round == step.round + 1, coordinator.progress.why
    assert [name for name, silo in silos.items() if not silo.up] == sorted(fates)
    return list(fates)


def go_on(federation, lost, step):
    """Two return for the next round, the third stays away."""
    for name in lost[:2]:
        federation.silos[name].restart()
    federation.run(step.round + 1)
    present = set(NAMES) - {lost[2]}
    for tensor in federation.coordinator.progress.script.tensors[step.round + 1]:
        assert set(exact(federation, step.round + 1, tensor)) == present


def exact(federation, round_number, tensor):
    witness = federation.witness
    survivors = witness.survivors(round_number, tensor)
    opened = np.frombuffer(witness.opened[round_number, tensor][survivors], np.int64)
    assert np.array_equal(opened, plain_sum(federation.study, survivors, round_number, tensor))
    return survivors


def in_the_sum(step, tensor, lost):
    """Who is in a sum of the step's round: the lost too, unless they were lost before they had uploaded to it."""
    tensors = (Tensor.HEADS, Tensor.ENCODER) if step.round else (Tensor.COUNTS,)
    own = tensors.index(step.tensor) if step.tensor else -1
    if tensors.index(tensor) < own:
        return set(NAMES)
    if tensor is not step.tensor:
        return set(NAMES) - set(lost)
    if step.task is not Task.CONTRIBUTE:
        return set(NAMES)
    return set(NAMES) - {name for name, fate in step.fates.items() if fate == "lost"}


@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=[pytest.mark.slow] * (s.sealing != "ring32")) for s in SUMS], ids=str
)
def test_three_of_ten_lost_in_the_sums_cost_neither_the_attempt_nor_a_second_upload(federate, step):
    federation = federate(step)
    witness = federation.witness
    lost = lose(federation, step)
    for tensor in federation.coordinator.progress.script.tensors[step.round]:
        assert set(exact(federation, step.round, tensor)) == in_the_sum(step, tensor, lost)
    go_on(federation, lost, step)
    assert {place.attempt for _, place, _ in witness.uploads} == {1}
    assert not witness.repeated(), "nobody sends anything twice"


@pytest.mark.slow
@pytest.mark.parametrize("step", [*KEYS, *(step for step in SUMS if isinstance(step.fate, str))], ids=str)
def test_on_a_circle_one_of_ten_is_lost_at_every_step_and_comes_back(quick_folder, credentials, step):
    """A silo has six neighbours, deals to them, and is unmasked by them; three others it has nothing to do with."""
    step = replace(step, lost=("larch",))
    study = simulated_study(NAMES, 9, step.sealing)
    with SimulatedFederation(quick_folder, study, credentials) as federation:
        witness = federation.witness
        federation.run(step.round - 1)
        (lost,) = lose(federation, step)
        again = step in [replace(one, lost=step.lost) for one in KEYS]
        for tensor in federation.coordinator.progress.script.tensors[step.round]:
            present = set(NAMES) - {lost} if again else in_the_sum(step, tensor, [lost])
            assert set(exact(federation, step.round, tensor)) == present
        dealt = {len(holders.own | holders.key) for holders in witness.revealed.values()}
        assert max(dealt) == 7, "who reveals a silo's shares"
        federation.silos[lost].restart()
        federation.run(step.round + 1)
        for tensor in federation.coordinator.progress.script.tensors[step.round + 1]:
            assert set(exact(federation, step.round + 1, tensor)) == set(NAMES)
        witness.check()
        assert not witness.repeated(), "nobody sends anything twice"


@pytest.mark.parametrize("step", KEYS, ids=str)
def test_three_of_ten_lost_before_the_exchange_cost_an_attempt(federate, step):
    federation = federate(step)
    witness = federation.witness
    lost = lose(federation, step)
    assert set(exact(federation, 0, Tensor.COUNTS)) == set(NAMES) - set(lost)
    assert {place.attempt for _, place, slot in witness.uploads if slot == Tensor.COUNTS} == {2}
    go_on(federation, lost, step)
    assert not witness.repeated()


@pytest.mark.parametrize("step", ABSENT, ids=str)
def test_three_of_ten_who_do_not_answer_cost_nothing(federate, step):
    federation = federate(step)
    witness = federation.witness
    lost = lose(federation, step)
    for tensor in federation.coordinator.progress.script.tensors[step.round]:
        assert set(exact(federation, step.round, tensor)) == set(NAMES) - set(lost)
    go_on(federation, lost, step)
    assert {place.attempt for _, place, _ in witness.uploads} == {1}
    assert not witness.repeated()


@pytest.mark.parametrize("sealing", [pytest.param("ring32", marks=pytest.mark.slow), "ring64", "ckks"])
def test_the_mask_of_a_pair_comes_off_when_both_of_its_owners_are_gone(federate, sealing):
    """One of them is in the sum, and only the other's deposit can tell what covers it."""
    step = replace(BOTH, tensor=Tensor.ENCODER, sealing=sealing)
    federation = federate(step)
    lost = lose(federation, step)
    survivors = exact(federation, 1, Tensor.ENCODER)
    assert set(survivors) == in_the_sum(step, Tensor.ENCODER, lost) == set(NAMES) - set(LOST[1:])
    present, revealed = set(NAMES) - set(lost), federation.witness.revealed
    place = next(place for place, _, _ in revealed if place.round == 1)
    for name in lost:
        holders = revealed[place, Tensor.ENCODER, name]
        assert (holders.own, holders.key) == ((present, set()) if name in survivors else (set(), present))
    go_on(federation, lost, step)


def test_one_less_than_the_threshold_opens_nothing(quick_folder, credentials):
    """Seven of ten have to sign where two may work with the coordinator: four lost end the attempt."""
    study = simulated_study(NAMES, 7, "ring32", colluders=2)
    with SimulatedFederation(quick_folder, study, credentials) as federation:
        coordinator, silos = federation.coordinator, itertools.cycle(federation.silos.values())
        while coordinator.round.phase is not Phase.GATHER:
            next(silos).step()
        for name in NAMES[:4]:
            federation.silos[name].die()
        while coordinator.round.place.attempt == 1 and not federation.witness.opened:
            federation.turn()
        assert not federation.witness.opened
        federation.silos[NAMES[0]].restart()
        federation.run(0)
        assert set(exact(federation, 0, Tensor.COUNTS)) == {NAMES[0], *NAMES[4:]}
        federation.witness.check()
