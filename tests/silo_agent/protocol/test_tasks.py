from dataclasses import replace

import numpy as np
import pytest

from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Trust
from crypto.pki.identity import Role
from crypto.secagg.holding import Holding
from crypto.secagg.packages import seal_note
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.messages import Publication, Tensor, Work
from protos.steps import SUM, Note, Task
from silo_agent.learning.learner import Learner
from silo_agent.protocol.session import Session
from support.certificates import load
from support.planted import refused
from support.studies import tiny_study

TWO = tiny_study(min_silos=2, privacy={"colluders": 0})
"""Three silos of which one may be missing."""

SILOS = ("north", "south", "west")


def disputed(coordinator, silo, reason):
    confirm = coordinator.said(silo)
    return confirm.dispute == reason


# --- out of turn and lies ---------------------------------------------------------------------------------------------
def test_work_for_a_study_that_was_never_accepted_is_disputed(federation):
    coordinator, _ = federation
    coordinator.ask("north", Work(Task.CONTRIBUTE, coordinator.place(0), Tensor.COUNTS, participants=SILOS))
    assert disputed(coordinator, "north", "out_of_turn")


@pytest.mark.parametrize(
    ("task", "tensor", "says"),
    [
        (Task.EXCHANGE, None, "before the roster's keys were dealt"),
        (Task.CONTRIBUTE, Tensor.COUNTS, "does not fit the stage seated"),
    ],
)
def test_a_contribution_before_the_keys_is_disputed_and_nothing_is_charged(federation, task, tensor, says):
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.ask("north", coordinator.work(task, place, roster, tensor))
    assert disputed(coordinator, "north", "out_of_turn")
    assert says in coordinator.said("north").explanation
    assert (silos["north"].charges, silos["north"].client.uploads) == ([], {})
    value = silos["north"].metrics.registry.get_sample_value
    assert value("fedward_silo_disputes_total", {"task": str(task)}) == 1


def test_a_roster_below_the_policys_least_is_disputed(federation):
    coordinator, _ = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.ask("north", Work(Task.GREET, place, None, roster[:2]))
    assert disputed(coordinator, "north", "too_few_silos")
    assert "policy.min_silos" in coordinator.said("north").explanation


def test_a_roster_with_a_silo_that_the_study_does_not_name_is_disputed(federation, authority):
    """A certificate alone does not make a roster larger: its holder may be anybody's friend."""
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    credential = load(authority.credential("silo", "stranger"))
    stranger = Session(place.study, credential, SystemEntropy(), lambda _: None).member
    padded = (*roster[:2], stranger)
    coordinator.ask("north", Work(Task.GREET, place, None, padded))
    assert disputed(coordinator, "north", "roster")
    assert "the roster names stranger, which study.silos does not list" in coordinator.said("north").explanation
    assert silos["north"].client.uploads == {}


def test_a_contribution_before_the_attempts_secrets_are_shared_is_disputed(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.HEADS))
    assert disputed(coordinator, "north", "out_of_turn")
    assert silos["north"].charges == [(0, 1, "counts")]


@pytest.mark.parametrize("task", [Task.DEAL, Task.EXCHANGE])
def test_another_roster_within_an_attempt_is_disputed(federate, task):
    coordinator, _ = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    if task is Task.EXCHANGE:
        coordinator.deal(place, roster)
    else:
        names = ("north", "south", "west")
        coordinator.collect(Task.GREET, place, names, coordinator.work(Task.GREET, place, roster), "note-greeting")
    coordinator.ask("north", coordinator.work(task, place, roster[:2], actor="north"))
    assert disputed(coordinator, "north", "out_of_turn")
    assert "the roster changed" in coordinator.said("north").explanation


def offered_too_much(coordinator, silos, work, number, more):
    """A part of one byte more than the study implies is disputed, and no part of the work is fetched."""
    fetched = []
    silos["north"].client.download = lambda *arguments: fetched.append(arguments)
    parts = list(work.parts)
    parts[number] = replace(parts[number], size=more)
    coordinator.ask("north", replace(work, parts=tuple(parts)))
    told = f"offers a {parts[number].kind} of {more} bytes; the study implies at most {more - 1}"
    refused(coordinator, "north", work.task, "out_of_turn", told)
    assert fetched == []


def test_a_note_that_is_larger_than_any_is_not_fetched(federation):
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.collect(Task.GREET, place, SILOS, coordinator.work(Task.GREET, place, roster), "note-greeting")
    deal = coordinator.work(Task.DEAL, place, roster, actor="south")
    coordinator.collect(Task.DEAL, place, ("south",), deal, "note-keys")
    limit = note_limit(coordinator.study, 0, Note.KEYS)
    offered_too_much(coordinator, silos, coordinator.work(Task.TAKE, place, roster, actor="south"), 0, limit + 1)


def test_of_greetings_a_silo_reads_what_those_before_it_have_said_to_it(federation):
    coordinator, _ = federation
    place, asked, notes = coordinator.place(0), [], coordinator.notes

    def recorded(silo, place, kind, owners, about):
        asked.append((silo, kind, tuple(owners), tuple(about)))
        return notes(silo, place, kind, owners, about)

    coordinator.notes = recorded
    coordinator.deal(place, coordinator.offer(place))
    earlier = {"north": (), "south": ("north",), "west": ("north", "south")}
    assert set(asked) == {(silo, Note.GREETING, before, (silo,)) for silo, before in earlier.items()}


def test_a_sum_that_is_larger_than_its_tensor_is_not_fetched(federation):
    coordinator, silos = federation
    place, roster = coordinator.begin(0)
    coordinator.sum_up(place, roster, Tensor.COUNTS)
    work = coordinator.work(Task.OPEN, place, roster, Tensor.COUNTS)
    assert work.parts[0].kind == SUM
    offered_too_much(coordinator, silos, work, 0, work.parts[0].size + 1)


# --- heads ------------------------------------------------------------------------------------------------------------
def heads_opened(coordinator):
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    coordinator.sum_up(place, roster, Tensor.HEADS)
    coordinator.open(place, roster, Tensor.HEADS)
    return place, roster


@pytest.mark.parametrize("plain", [b"", b"seven b", np.full(6, -(2**63)).tobytes(), np.arange(6).tobytes()])
def test_heads_that_the_sums_do_not_give_are_disputed(federation, plain):
    coordinator, silos = federation
    place, roster = heads_opened(coordinator)
    solver = coordinator.solve(place, roster)
    running = silos[solver].running
    asked = coordinator.work(Task.SOLVE, place, roster, Tensor.HEADS, solver)
    attempt = running.attempt(asked, place)
    label, keys = attempt.note_label(Note.HEADS), attempt.membership.keys
    coordinator.content[place, "note-heads", solver] = seal_note(keys, label, plain, SystemEntropy())
    others = [name for name in SILOS if name != solver]
    for other in others:
        coordinator.ask(other, coordinator.work(Task.ADOPT, place, roster, Tensor.HEADS, solver))
        assert disputed(coordinator, other, "solution")
    third = coordinator.work(Task.SOLVE, place, roster, Tensor.HEADS, others[0])
    coordinator.collect(Task.SOLVE, place, (others[0],), third, "note-heads")
    for other in others:
        coordinator.ask(other, coordinator.work(Task.ADOPT, place, roster, Tensor.HEADS, others[0]))
    adopted = [coordinator.said(other) for other in others]
    assert {(said.task, said.dispute) for said in adopted} == {(Task.ADOPT, "")}, "another silo has solved them"
    assert len({said.model for said in adopted}) == 1


def test_heads_that_the_coordinator_altered_are_disputed(federation):
    coordinator, _ = federation
    place, roster = heads_opened(coordinator)
    solver = coordinator.solve(place, roster)
    note = coordinator.content[place, "note-heads", solver]
    coordinator.content[place, "note-heads", solver] = note[:-1] + bytes([note[-1] ^ 1])
    coordinator.ask("north", coordinator.work(Task.ADOPT, place, roster, Tensor.HEADS, solver))
    assert disputed(coordinator, "north", "seal")


def test_heads_that_the_coordinator_does_not_offer_are_not_waited_for(federation):
    coordinator, _ = federation
    place, roster = heads_opened(coordinator)
    solver = coordinator.solve(place, roster)
    asked = coordinator.work(Task.ADOPT, place, roster, Tensor.HEADS, solver)
    coordinator.ask("north", replace(asked, actor=next(name for name in SILOS if name != solver)))
    assert disputed(coordinator, "north", "out_of_turn")
    assert "offers no heads" in coordinator.said("north").explanation


# --- catching up ------------------------------------------------------------------------------------------------------
def test_a_silo_that_was_away_for_a_round_catches_up(federate):
    coordinator, silos = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert [charge[0] for charge in silos["south"].charges] == [0, 2]
    assert {name.split("-")[2] for name in silos["south"].inbox} == {"shares"}
    coordinator.finish("south")
    assert silos["south"].inbox == []


def unsigned(silo):
    """What a silo said last, without the signature on what it holds: that one is checked, and made anew each time."""
    said = silo.client.confirms[-1]
    if said.vouch:
        holding = Holding(said.place.study, said.place.round - 1, said.content)
        trust = Trust(silo.credential.authority_pem)
        trust.verify(silo.credential.certificate_pem, holding.to_sign(), said.vouch, role=Role.SILO)
    return replace(said, vouch=b"signed" if said.vouch else b"")


@pytest.mark.parametrize("repeat", [False, True])
def test_sharing_and_catching_up_survive_a_restart(federate, repeat):
    coordinator, silos = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    ask, seen = coordinator.ask, set()

    def ask_and_restart(silo, work):
        ask(silo, work)
        if work.task in (Task.SHARE, Task.CATCH_UP) and work.task not in seen:
            seen.add(work.task)
            said = (unsigned(silos[silo]), dict(silos[silo].client.uploads))
            silos[silo].restart()
            if repeat:
                ask(silo, work)
                assert (unsigned(silos[silo]), silos[silo].client.uploads) == said

    coordinator.ask = ask_and_restart
    coordinator.run_round(2)
    assert seen == {Task.SHARE, Task.CATCH_UP}
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


def test_a_silo_that_was_never_there_may_join_later(federate):
    coordinator, silos = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    for number in (0, 1):
        coordinator.run_round(number, silos=("north", "west"))
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    counts = [(silo.model(2).parent / "counts.json").read_text() for silo in silos.values()]
    assert len(set(counts)) == 1
    assert silos["south"].charges == [(2, 1, "heads")]


def test_a_silo_that_lost_a_committed_candidate_catches_up_and_one_that_is_behind_gives_nothing(federate):
    coordinator, silos = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    place = coordinator.place(2)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.ask("south", coordinator.work(Task.EXCHANGE, place, roster))
    assert disputed(coordinator, "south", "out_of_turn")
    assert "does not hold the model" in coordinator.said("south").explanation
    assert [charge[0] for charge in silos["south"].charges] == [0]


def test_a_model_that_the_coordinator_altered_is_not_taken(federate):
    coordinator, silos = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    place = coordinator.place(2)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    asked = coordinator.work(Task.SHARE, place, roster, actor="north")
    coordinator.collect(Task.SHARE, place, ("north",), asked, "note-model")
    note = coordinator.content[place, "note-model", "north"]
    coordinator.content[place, "note-model", "north"] = note[:500] + bytes([note[500] ^ 1]) + note[501:]
    coordinator.ask("south", coordinator.work(Task.CATCH_UP, place, roster, actor="north"))
    assert disputed(coordinator, "south", "seal")
    assert not silos["south"].model(1).exists()


# --- publishing -------------------------------------------------------------------------------------------------------
def test_what_the_study_publishes_is_signed_with_the_last_word_and_nothing_else_is(federate):
    study = tiny_study(publish=["accuracy", "patients"])
    coordinator, silos = federate(study)
    for number in range(plan(study).last + 1):
        coordinator.run_round(number)
    blobs = set()
    for silo in silos.values():
        spoken = [confirm for confirm in silo.client.confirms if confirm.publication]
        (confirm,) = spoken
        assert (confirm.task, confirm.tensor) == (Task.OPEN, Tensor.METRICS)
        pem = silo.credential.certificate_pem
        message = Publication.to_sign(confirm.publication)
        Trust(silo.credential.authority_pem).verify(pem, message, confirm.signature, role=Role.SILO)
        blobs.add(confirm.publication)
    assert len(blobs) == 1
    figures = Publication.parse(blobs.pop()).figures
    assert {(f.domain, f.metric) for f in figures} == {(d, m) for d in "ab" for m in ("accuracy", "patients")}


def test_a_task_gives_a_new_standing_and_leaves_the_agent_s_own_as_it_is(federation):
    coordinator, silos = federation
    north, changed = silos["north"], {}
    perform = north.agent._tasks.perform

    def watched(attempt):
        before = north.running.standing
        after = perform(attempt)
        assert north.running.standing is before, "only the agent puts another in its place"
        assert after.turn is before.turn
        changed[attempt.work.task] = after is not before
        return after

    north.agent._tasks.perform = watched
    coordinator.run_round(0)
    coordinator.run_round(1)
    assert {task for task, changes in changed.items() if changes} == {Task.OPEN, Task.ADOPT}
    assert {Task.GREET, Task.EXCHANGE, Task.CONTRIBUTE, Task.SIGN, Task.REVEAL} < set(changed)


def test_a_sum_is_checked_by_how_many_of_its_silos_were_counted(federate, monkeypatch):
    coordinator, _ = federate(TWO, min_silos=2, noise_modes=["local"], colluders=0)
    coordinator.run_round(0, lost={(Task.CONTRIBUTE, Tensor.COUNTS): ("west",)})
    asked, check = [], Learner.check_sum

    def noted(learner, tensor, total, place, count, **counted):
        asked.append((tensor, count, counted))
        check(learner, tensor, total, place, count, **counted)

    monkeypatch.setattr(Learner, "check_sum", noted)
    coordinator.run_round(1)
    assert asked[0] == (Tensor.HEADS, 3, {"counted": 2, "uncounted": 1})
