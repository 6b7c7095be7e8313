import json
import threading

import grpc
import numpy as np
import pytest
from structlog.testing import capture_logs

from crypto.certificates import Trust
from crypto.entropy import SystemEntropy
from crypto.identity import Role
from crypto.packages import seal_note
from policies.ledger import Ledger
from protos.messages import Note, Place, Publication, Task, Tensor, Work
from silo_agent.agent import Agent, UnknownDataError
from silo_agent.client import CallRefused
from silo_agent.gate import Gate
from silo_agent.learner import Learner
from silo_agent.learning.model import SharedModel
from silo_agent.learning.personal import PersonalModel
from silo_agent.metrics import Metrics
from silo_agent.session import KEY_FILE, Session
from silo_agent.state import State
from support.certificates import load
from support.local_coordinator import LocalCoordinator
from support.local_federation import DATA_SET, HOLDOUT, write_patients
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

SILOS = ("north", "south", "west")
SLOPES = np.array([[4.0, -2.0], [-3.0, 2.0]])
EPSILONS = {"budget": {"epsilon": 20.0, "delta": 1e-5}}


class Silo:
    """One hospital: folders that stay, and an agent that may die."""

    def __init__(self, folder, credential, coordinator, **policy):
        self.folder, self.credential, self.coordinator = folder, credential, coordinator
        self.name = credential.identity.name
        folder.mkdir(parents=True)
        rng = np.random.default_rng(sum(self.name.encode()))
        self.data = write_patients(folder / f"{self.name}.csv", rng, SLOPES, patients=40)
        document = policy_document(DATA_SET, **policy)
        document["data_set"] = {**document["data_set"], "holdout": HOLDOUT}
        self.policy = write_yaml(folder / "policy.yaml", document)
        Ledger.create(folder / "ledger.sqlite3", data_set=DATA_SET, holdout=HOLDOUT, delta=1e-5)
        self.start()

    def start(self):
        entropy, self.metrics = SystemEntropy(), Metrics()
        self.state = State(self.folder / "state")
        self.gate = Gate(self.name, self.policy, self.folder / "ledger.sqlite3", self.state, self.metrics)

        def learner(study):
            if study.name != "tiny":
                msg = f"agent.yaml names no file for the study {study.name!r}"
                raise UnknownDataError(msg)
            folder = self.state.study_folder(study.digest)
            sources = {"entropy": entropy, "personal_entropy": entropy}
            return Learner(study, self.data, DATA_SET, HOLDOUT, folder, **sources, device="cpu")

        self.client = self.coordinator.connect(self.name)
        self.client.signer = self.credential
        self.agent = Agent(
            self.client,
            self.gate,
            self.state,
            self.metrics,
            learners=learner,
            sessions=lambda study: Session.open(study, self.credential, entropy, self.state.study_folder(study)),
            entropy=entropy,
            session="0" * 32,
        )
        self.coordinator.agents[self.name] = self.agent

    def restart(self):
        self.close()
        self.start()

    def close(self):
        self.gate.close()
        self.state.close()

    def model(self, number):
        return self.state.study_folder(self.coordinator.study.digest) / f"model-{number}.safetensors"

    @property
    def charges(self):
        return sorted((e.debit.round, e.debit.attempt, t) for e in self.gate.ledger.entries() for t in e.debit.costs)


@pytest.fixture
def federate(quick_path, credentials):
    opened = []

    def gather(study=None, **policy):
        coordinator = LocalCoordinator(study or tiny_study(personal={"epochs": 1}))
        rules = {**EPSILONS, **policy}
        opened.extend(Silo(quick_path / name, credentials[name], coordinator, **rules) for name in SILOS)
        return coordinator, {silo.name: silo for silo in opened}

    yield gather
    for silo in opened:
        silo.close()


@pytest.fixture
def federation(federate):
    return federate()


def disputed(coordinator, silo, reason):
    confirm = coordinator.said(silo)
    return confirm.dispute == reason


# --- the straight way -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_study_from_the_offer_to_the_end(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}, personal={"epochs": 1}))
    for number in range(coordinator.study.rounds + 1):
        coordinator.run_round(number)
    for name, silo in silos.items():
        coordinator.finish(name)
        assert silo.agent.finished == [("tiny", "finished: all rounds are done")]
        assert silo.state.studies() == [(coordinator.study.digest, 2, "finished: all rounds are done")]
        assert silo.charges == [
            (0, 1, "counts"),
            (1, 1, "encoder"),
            (1, 1, "heads"),
            (2, 1, "heads"),
            (2, 1, "metrics"),
        ]
        assert not list(silo.folder.rglob("*.sealed"))
        assert not list(silo.folder.rglob("*.i64"))
        assert not list((silo.folder / "state" / "inbox").iterdir())
        assert (silo.model(2).parent / "personal.safetensors").exists()
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert len({(silo.model(2).parent / "results.json").read_bytes() for silo in silos.values()}) == 1
    assert len({silo.model(2).with_suffix(".digest").read_text() for silo in silos.values()}) == 1


def test_what_is_uploaded_says_only_what_the_study_implies(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    coordinator.run_round(1)
    slots = [(h.slot, h.kind, h.values, h.silo) for h in silos["north"].client.headers if h.tensor is not None]
    assert slots == [
        ("counts", "ckks", 2, "north"),
        ("heads", "ckks", 9, "north"),
        ("encoder", "ring", 17, "north"),
    ]
    assert {h.values for h in silos["north"].client.headers if h.tensor is None} <= {0}


def test_the_agent_runs_until_a_study_has_ended_or_it_is_told_to_stop(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(0)
    silos["north"].client.work.append(Work(Task.FINISH, place, why="enough", outcome="aborted"))
    silos["north"].agent.run(threading.Event(), until_finished=True)
    assert silos["north"].agent.finished == [("tiny", "aborted: enough")]
    assert silos["north"].state.committed(place.study) == -1
    stop = threading.Event()
    stop.set()
    silos["south"].agent.run(stop)


# --- refusals ---------------------------------------------------------------------------------------------------------
def refusal(coordinator, silo, place):
    coordinator.ask(silo, Work(Task.DECIDE, place))
    answer = coordinator.clients[silo].answers[-1]
    assert answer.member is None
    return answer.refusal, answer.explanation


def test_a_study_that_the_policy_does_not_allow_is_refused_by_name(federate):
    coordinator, silos = federate(noise_modes=["distributed"])
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert reason == "noise_mode"
    assert "policy.noise_modes allows distributed" in why
    assert silos["north"].charges == []


def test_a_study_without_a_file_is_refused_and_no_path_is_told(federate):
    coordinator, _ = federate(tiny_study(name="unheard-of"))
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert (reason, why) == ("no_data", "this silo has no data for the study")


def test_a_broken_file_is_the_hospitals_business(federation):
    coordinator, silos = federation
    data = silos["north"].data
    data.write_text(data.read_text().replace(",a,", ",secret-ward,"))
    with capture_logs() as logs:
        reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert (reason, why) == ("data", "see the log of this silo's agent")
    assert any("secret-ward" in str(entry) for entry in logs)


def test_a_study_that_is_not_what_its_digest_names_is_refused(federation):
    coordinator, silos = federation
    digest = coordinator.study.digest
    coordinator.canonical[digest] = tiny_study(purpose="something else").canonical()
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert (reason, why) == ("value", "see the log of this silo's agent")
    assert silos["north"].state.studies() == []


@pytest.mark.parametrize(("number", "reason"), [(0, "out_of_turn"), (7, "cost")])
def test_a_round_that_is_committed_or_not_in_the_study_is_refused(federation, number, reason):
    coordinator, _ = federation
    for done in (0, 1):
        coordinator.run_round(done)
    assert refusal(coordinator, "north", coordinator.place(number))[0] == reason


def test_an_edited_policy_ends_the_silos_part_by_name(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    write_yaml(silos["north"].policy, policy_document(DATA_SET, contact="somebody-else"))
    assert refusal(coordinator, "north", coordinator.place(1))[0] == "policy_changed"
    assert silos["north"].charges == [(0, 1, "counts")]


# --- out of turn and lies ---------------------------------------------------------------------------------------------
def test_work_for_a_study_that_was_never_accepted_is_disputed(federation):
    coordinator, _ = federation
    coordinator.ask("north", Work(Task.CONTRIBUTE, coordinator.place(0), Tensor.COUNTS))
    assert disputed(coordinator, "north", "out_of_turn")


def test_a_contribution_before_the_keys_is_disputed_and_nothing_is_charged(federation):
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, roster))
    assert disputed(coordinator, "north", "out_of_turn")
    assert "before the roster's keys were dealt" in coordinator.said("north").explanation
    assert (silos["north"].charges, silos["north"].client.uploads) == ([], {})
    value = silos["north"].metrics.registry.get_sample_value
    assert value("fedward_silo_disputes_total", {"task": "contribute"}) == 1


def test_a_roster_below_the_policys_least_is_disputed(federation):
    coordinator, _ = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.ask("north", Work(Task.DEAL, place, None, roster[:2], "north"))
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
    coordinator.ask("north", Work(Task.DEAL, place, None, padded, "north"))
    assert disputed(coordinator, "north", "roster")
    assert "stranger is not among study.silos" in coordinator.said("north").explanation
    assert silos["north"].client.uploads == {}


def test_a_sum_without_one_silos_contribution_is_disputed(federation):
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.gather(place, roster, Tensor.COUNTS)
    coordinator.content[place, "sum-counts"] = silos["south"].client.uploads[place, "counts"]
    coordinator.ask("north", coordinator.fetch(Task.OPEN, place, "sum-counts", roster))
    assert disputed(coordinator, "north", "opening")
    assert not silos["north"].model(0).exists()


def test_an_encoder_sum_without_one_silos_contribution_is_disputed(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.open(place, roster, Tensor.HEADS)
    coordinator.adopt(place, roster, coordinator.solve(place, roster))
    coordinator.gather(place, roster, Tensor.ENCODER)
    coordinator.content[place, "sum-encoder"] = silos["south"].client.uploads[place, "encoder"]
    coordinator.ask("north", coordinator.fetch(Task.OPEN, place, "sum-encoder", roster))
    assert disputed(coordinator, "north", "sum")
    assert coordinator.said("north").explanation == "see the silo's log"


def heads_opened(coordinator):
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.open(place, roster, Tensor.HEADS)
    return place, roster


@pytest.mark.parametrize("plain", [b"", b"seven b", np.full(6, -(2**63)).tobytes(), np.arange(6).tobytes()])
def test_heads_that_the_sums_do_not_give_are_disputed(federation, plain):
    coordinator, silos = federation
    place, roster = heads_opened(coordinator)
    solver = coordinator.solve(place, roster)
    running = silos[solver].agent._running[place.study]
    asked = Work(Task.SOLVE, place, Tensor.HEADS, roster)
    label = silos[solver].agent._duties._note_label(running, asked, place, Note.HEADS)
    keys = running.session.keys(roster)
    coordinator.content[place, "note-heads"] = seal_note(keys, label, plain, SystemEntropy())
    other = next(name for name in SILOS if name != solver)
    coordinator.ask(other, coordinator.fetch(Task.ADOPT, place, "note-heads", roster, solver))
    assert disputed(coordinator, other, "solution")


def test_heads_that_the_coordinator_altered_are_disputed(federation):
    coordinator, _ = federation
    place, roster = heads_opened(coordinator)
    solver = coordinator.solve(place, roster)
    note = coordinator.content[place, "note-heads"]
    coordinator.content[place, "note-heads"] = note[:-1] + bytes([note[-1] ^ 1])
    coordinator.ask("north", coordinator.fetch(Task.ADOPT, place, "note-heads", roster, solver))
    assert disputed(coordinator, "north", "seal")


def test_silos_with_different_models_get_no_usable_sum(federation):
    """The model is part of every label, so a silo that was led astray cannot be compared with the others."""
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    silos["south"].agent._running[place.study].digest = "f" * 64
    coordinator.gather(place, roster, Tensor.HEADS)
    coordinator.ask("north", coordinator.fetch(Task.OPEN, place, "sum-heads", roster))
    assert disputed(coordinator, "north", "opening")


# --- again ------------------------------------------------------------------------------------------------------------
def test_work_that_is_repeated_gives_the_same_bytes_and_digests(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.gather(place, roster, Tensor.HEADS)
    uploads = {name: dict(silo.client.uploads) for name, silo in silos.items()}
    coordinator.gather(place, roster, Tensor.HEADS)
    assert {name: silo.client.uploads for name, silo in silos.items()} == uploads
    first = coordinator.open(place, roster, Tensor.HEADS)
    assert coordinator.open(place, roster, Tensor.HEADS) == first
    assert len(coordinator.adopt(place, roster, coordinator.solve(place, roster))) == 1


def refuse(_header):
    raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "the attempt is over")


def test_a_coordinator_that_has_heard_it_before_is_followed(federation):
    """Its reply was lost, and what is repeated does not fit any more."""
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    silos["north"].client.on_upload = refuse
    coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, roster))
    silos["north"].client.on_upload = None
    coordinator.gather(place, roster, Tensor.COUNTS)
    assert len(coordinator.open(place, roster, Tensor.COUNTS)) == 1
    assert silos["north"].charges == [(0, 1, "counts")]


def test_a_lost_reply_at_the_end_of_a_round_does_not_cost_the_personal_model_a_round(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    client = silos["north"].client
    confirm = client.confirm

    def heard_before(said):
        confirm(said)
        if said.tensor is Tensor.ENCODER:
            raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "the round is over")

    client.confirm = heard_before
    coordinator.run_round(1)
    personal = silos["north"].model(1).parent / "personal.safetensors"
    assert PersonalModel.load(personal).round == 1


def test_a_coordinator_that_refuses_again_what_it_asks_again_makes_the_silo_abandon_the_attempt(federation):
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    silos["north"].client.on_upload = refuse
    for _ in range(2):
        coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, roster))
    assert silos["north"].charges == [(0, 1, "counts")]
    silos["north"].client.on_upload = None
    coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, roster))
    assert disputed(coordinator, "north", "out_of_turn")
    coordinator.keyed = ()
    coordinator.run_round(0, attempt=2)
    assert silos["north"].charges == [(0, 1, "counts")]


def test_keys_that_are_dealt_anew_to_the_same_roster_replace_the_old_ones(federation):
    """After a failure the coordinator has new keys dealt, and only some silos had sealed under the old ones."""
    coordinator, silos = federation
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, roster))
    assert silos["north"].client.uploads
    coordinator.keyed = ()
    assert coordinator.run_round(0, attempt=2) == roster


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_silo_that_dies_goes_on_in_the_next_attempt(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}))
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    coordinator.gather(place, roster, Tensor.HEADS)
    silos["south"].restart()
    coordinator.run_round(1, attempt=2)
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    again = [(1, 2, "heads")] if mode == "distributed" else []
    assert [c for c in silos["south"].charges if c[0] == 1] == [(1, 1, "encoder"), (1, 1, "heads"), *again]


def test_a_candidate_is_forgotten_when_its_round_is_repeated(federation):
    coordinator, silos = federation
    for number in (0, 1):
        coordinator.run_round(number)
    candidate = silos["north"].model(1).read_bytes()
    coordinator.run_round(1, attempt=2)
    assert silos["north"].state.committed(coordinator.study.digest) == 0
    assert SharedModel.from_bytes(candidate).round == SharedModel.load(silos["north"].model(1)).round == 1
    coordinator.run_round(2)
    assert silos["north"].state.committed(coordinator.study.digest) == 1


def test_a_candidate_is_committed_by_the_next_offer_also_after_a_restart(federation):
    coordinator, silos = federation
    for number in (0, 1):
        coordinator.run_round(number)
    digest = silos["north"].agent._running[coordinator.study.digest].digest
    silos["north"].restart()
    coordinator.ask("north", Work(Task.DECIDE, coordinator.place(2)))
    assert coordinator.clients["north"].answers[-1].model == digest
    assert silos["north"].state.committed(coordinator.study.digest) == 1


def test_the_last_model_is_committed_also_where_the_silo_was_restarted_before_the_end(federation):
    coordinator, silos = federation
    for number in range(3):
        coordinator.run_round(number)
    silos["north"].restart()
    coordinator.finish("north")
    assert silos["north"].state.studies() == [(coordinator.study.digest, 2, "finished: all rounds are done")]
    silos["south"].restart()
    coordinator.finish("south", "aborted")
    assert silos["south"].state.committed(coordinator.study.digest) == 1


def test_the_end_of_an_unknown_study_is_confirmed_and_leaves_nothing(federation):
    coordinator, silos = federation
    coordinator.finish("north")
    assert coordinator.said("north").task is Task.FINISH
    assert silos["north"].state.studies() == []
    assert not (silos["north"].folder / "state" / "studies").exists()


def test_shares_of_noise_do_not_go_to_a_second_roster_of_the_same_attempt(federate):
    """Repeating an offer with the same number must not yield two sums over the same draws."""
    coordinator, silos = federate(tiny_study(privacy={"mode": "distributed"}))
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.gather(place, roster, Tensor.COUNTS)
    before = dict(silos["north"].client.uploads)
    Session.forget(silos["south"].model(0).parent)
    silos["south"].restart()
    other = coordinator.offer(place)
    assert other != roster
    coordinator.deal(place, other)
    coordinator.ask("north", Work(Task.CONTRIBUTE, place, Tensor.COUNTS, other))
    assert disputed(coordinator, "north", "out_of_turn")
    assert silos["north"].client.uploads[place, "counts"] == before[place, "counts"]


def test_a_damaged_personal_model_does_not_stop_the_federation(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    coordinator.run_round(1)
    personal = silos["north"].model(1).parent / "personal.safetensors"
    personal.write_bytes(b"damaged")
    with capture_logs() as logs:
        coordinator.run_round(2)
    assert [entry["fault"] for entry in logs if entry["event"] == "personal model not trained"] == ["model_file"]
    assert silos["north"].model(2).exists()


def test_the_training_log_lists_what_was_charged(federation):
    coordinator, silos = federation
    for number in range(3):
        coordinator.run_round(number)
    silo = silos["west"]
    lines = [json.loads(line) for line in (silo.model(2).parent / "training.jsonl").read_text().splitlines()]
    assert sorted((line["round"], line["attempt"], line["tensor"]) for line in lines) == silo.charges


def test_two_studies_at_once_do_not_take_each_others_bytes(federation):
    coordinator, silos = federation
    other = tiny_study(purpose="another question")
    coordinator.canonical[other.digest] = other.canonical()
    place = coordinator.place(0)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.gather(place, roster, Tensor.COUNTS)
    sent = dict(silos["north"].client.uploads)
    twin = LocalCoordinator(other, coordinator.agents, coordinator.clients, coordinator.canonical, coordinator.content)
    twin.run_round(0)
    twin.offer(Place(other.digest, 1, 1))
    coordinator.gather(place, roster, Tensor.COUNTS)
    assert silos["north"].client.uploads[place, "counts"] == sent[place, "counts"]


# --- going on where the last process stood ----------------------------------------------------------------------------
def everything(silos):
    """What must not depend on who was restarted when: models, results, charges."""
    names = ("model-2.safetensors", "results.json")
    return {
        name: [silo.charges, *((silo.model(2).parent / file).read_bytes() for file in names)]
        for name, silo in silos.items()
    }


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_silo_that_begins_anew_after_every_task_goes_on_in_the_same_attempts(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}, personal={"epochs": 1}))
    ask = coordinator.ask

    def ask_and_restart(silo, work):
        ask(silo, work)
        if silo == "south":
            silos["south"].restart()

    coordinator.ask = ask_and_restart
    rosters = {coordinator.run_round(number) for number in range(coordinator.study.rounds + 1)}
    assert len(rosters) == 1, "a silo that keeps its keys stays who it is"
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert len({tuple(silo.charges) for silo in silos.values()}) == 1
    assert len(silos["south"].charges) == 5
    coordinator.finish("south")
    folder = silos["south"].model(2).parent
    assert PersonalModel.load(folder / "personal.safetensors").round == 2
    assert not list(folder.glob("attempt-*"))
    assert not (folder / KEY_FILE).exists()


@pytest.mark.parametrize("task", [Task.DEAL, Task.TAKE, Task.CONTRIBUTE, Task.OPEN, Task.SOLVE, Task.ADOPT])
def test_work_that_repeats_after_a_restart_is_answered_with_the_stored_words(federation, task):
    """The answer was lost on its way, and then the process."""
    coordinator, silos = federation
    ask, asked, repeated = coordinator.ask, [], []

    def ask_twice(silo, work):
        ask(silo, work)
        if work.task is task and (silo, work) not in asked:
            asked.append((silo, work))
            client = silos[silo].client
            said = (client.confirms[-1:], dict(client.uploads), len(silos[silo].charges))
            silos[silo].restart()
            ask(silo, work)
            repeated.append(((client.confirms[-1:], dict(client.uploads), len(silos[silo].charges)), said))

    coordinator.ask = ask_twice
    for number in range(3):
        coordinator.run_round(number)
    assert repeated
    assert all(now == before for now, before in repeated)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert {len(silo.charges) for silo in silos.values()} == {5}


def test_a_silo_whose_keys_are_gone_asks_for_a_new_attempt(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place = coordinator.place(1)
    roster = coordinator.offer(place)
    Session.forget(silos["south"].model(0).parent)
    silos["south"].restart()
    coordinator.ask("south", Work(Task.CONTRIBUTE, place, Tensor.HEADS, roster))
    assert disputed(coordinator, "south", "seal")
    assert coordinator.run_round(1, attempt=2) != roster


def test_a_standing_that_was_damaged_is_not_used(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    (path,) = silos["south"].model(0).parent.glob("attempt-*.safetensors")
    path.write_bytes(b"damaged")
    silos["south"].restart()
    assert refusal(coordinator, "south", coordinator.place(1)) == ("state", "see the log of this silo's agent")


# --- catching up ------------------------------------------------------------------------------------------------------
def test_a_silo_that_was_away_for_a_round_catches_up(federate):
    coordinator, silos = federate(tiny_study(min_silos=2), min_silos=2, noise_modes=["local"])
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert [charge[0] for charge in silos["south"].charges] == [0, 2, 2]
    assert not list((silos["south"].folder / "state" / "inbox").iterdir())


@pytest.mark.parametrize("repeat", [False, True])
def test_sharing_and_catching_up_survive_a_restart(federate, repeat):
    coordinator, silos = federate(tiny_study(min_silos=2), min_silos=2, noise_modes=["local"])
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    ask, seen = coordinator.ask, set()

    def ask_and_restart(silo, work):
        ask(silo, work)
        if work.task in (Task.SHARE, Task.CATCH_UP) and work.task not in seen:
            seen.add(work.task)
            said = (silos[silo].client.confirms[-1:], dict(silos[silo].client.uploads))
            silos[silo].restart()
            if repeat:
                ask(silo, work)
                assert (silos[silo].client.confirms[-1:], silos[silo].client.uploads) == said

    coordinator.ask = ask_and_restart
    coordinator.run_round(2)
    assert seen == {Task.SHARE, Task.CATCH_UP}
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


def test_a_silo_that_was_never_there_may_join_later(federate):
    coordinator, silos = federate(tiny_study(min_silos=2), min_silos=2, noise_modes=["local"])
    for number in (0, 1):
        coordinator.run_round(number, silos=("north", "west"))
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    counts = [(silo.model(2).parent / "counts.json").read_text() for silo in silos.values()]
    assert len(set(counts)) == 1
    assert silos["south"].charges == [(2, 1, "heads"), (2, 1, "metrics")]


def test_a_silo_that_lost_a_committed_candidate_catches_up_and_one_that_is_behind_gives_nothing(federate):
    coordinator, silos = federate(tiny_study(min_silos=2), min_silos=2, noise_modes=["local"])
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    place = coordinator.place(2)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.ask("south", Work(Task.CONTRIBUTE, place, Tensor.HEADS, roster))
    assert disputed(coordinator, "south", "out_of_turn")
    assert "does not hold the model" in coordinator.said("south").explanation
    assert [charge[0] for charge in silos["south"].charges] == [0]


def test_a_model_that_the_coordinator_altered_is_not_taken(federate):
    coordinator, silos = federate(tiny_study(min_silos=2), min_silos=2, noise_modes=["local"])
    coordinator.run_round(0)
    coordinator.run_round(1, silos=("north", "west"))
    place = coordinator.place(2)
    roster = coordinator.offer(place)
    coordinator.deal(place, roster)
    coordinator.ask("north", Work(Task.SHARE, place, None, roster, "north"))
    note = coordinator.clients["north"].uploads[place, "note-model"]
    coordinator.content[place, "note-model"] = note[:500] + bytes([note[500] ^ 1]) + note[501:]
    coordinator.ask("south", coordinator.fetch(Task.CATCH_UP, place, "note-model", roster, "north"))
    assert disputed(coordinator, "south", "seal")
    assert not silos["south"].model(1).exists()


# --- publishing -------------------------------------------------------------------------------------------------------
def test_what_the_study_publishes_is_signed_with_the_last_word_and_nothing_else_is(federate):
    study = tiny_study(publish=["accuracy", "patients"])
    coordinator, silos = federate(study)
    for number in range(3):
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
