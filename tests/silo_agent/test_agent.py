import errno
import hashlib
import itertools
import json
import threading
import time
from dataclasses import replace

import grpc
import numpy as np
import pytest
from structlog.testing import capture_logs
from torch import nn

from common.canonical_json import canonical_json
from policies import decision
from policies.documents.bounds import STORED
from policies.documents.study import Study
from policies.errors import LedgerRolledBackError
from policies.ledger.cosign import Checkpoint
from policies.plan.release import plan
from protos.messages import Place, Tensor, Work
from protos.steps import Note, Task
from silo_agent import agent as agents
from silo_agent.data.sources.data_set import DataSet
from silo_agent.learning.dpsgd import training
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.protocol.calls.client import CallRefused
from silo_agent.protocol.session import Session
from silo_agent.storage.errors import ShortageError
from support.cosigners import witnessed
from support.failing import failing_writes
from support.local_coordinator import LocalCoordinator
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

BESIDE = 3 + 4 * 4
"""Values of a sealed vector beside the tensor's: a slot for each silo, four checks of four limbs."""


def disputed(coordinator, silo, reason):
    confirm = coordinator.said(silo)
    return confirm.dispute == reason


# --- the straight way -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_study_from_the_offer_to_the_end(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}, personal={"epochs": 1}))
    for number in range(plan(coordinator.study).last + 1):
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
            (3, 1, "metrics"),
        ]
        assert {path.name for path in silo.folder.rglob("*.sealed")} == {"rows.sealed"}
        assert not list(silo.folder.rglob("*.i64"))
        assert silo.inbox == []
        assert (silo.model(2).parent / "personal.safetensors").exists()
        assert not silo.model(3).exists(), "the round of the metrics changes no model"
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert len({(silo.model(2).parent / "results.json").read_bytes() for silo in silos.values()}) == 1
    assert len({silo.model(2).with_suffix(".digest").read_text() for silo in silos.values()}) == 1


@pytest.mark.slow
def test_of_the_sealed_steps_only_the_last_models_lie_on_the_disk(federate):
    """Rounds 2 to 4 are steps; those of the heads are 1, 5 and 6. The round before the last is what all sit on."""
    study = tiny_study(
        privacy={"mode": "distributed"},
        heads={"pooled_rounds": 2},
        encoder={"rounds": 1, "steps": 3, "sealed_steps": True, "sampling_rate": 1.0, "sealing": "ring64"},
        personal={"epochs": 1},
    )
    coordinator, silos = federate(study)
    north = silos["north"]
    home = north.model(1).parent
    for number in range(plan(study).last + 1):
        coordinator.run_round(number)
        kept = [
            {int(path.stem.split("-")[1]) for path in home.glob(f"model-*.{end}")} for end in ("safetensors", "digest")
        ]
        finished = set(range(min(number, study.rounds) + 1))
        assert kept == 2 * [finished - set(range(2, min(number - 1, 5)))], number
        if number == 3:
            north.model(2).write_bytes(b"left by a crash")
            north.restart()
    assert PersonalModel.load(home / "personal.safetensors").round == study.rounds
    assert len({silo.model(6).read_bytes() for silo in silos.values()}) == 1


def test_a_study_of_raw_inputs_whose_domains_are_solved_together(federate):
    study = tiny_study(
        privacy={"mode": "distributed"},
        model={"encoder": "raw", "hidden": [], "representation": 2},
        heads={"solver": "hierarchical", "domain_rounds": 2},
        encoder={"rounds": 0},
    )
    coordinator, silos = federate(study)
    for number in range(plan(study).last + 1):
        coordinator.run_round(number)
    assert silos["north"].charges == [
        (0, 1, "counts"),
        (1, 1, "heads"),
        (2, 1, "heads"),
        (3, 1, "heads"),
        (4, 1, "metrics"),
    ]
    (blob,) = {silo.model(3).read_bytes() for silo in silos.values()}
    model = SharedModel.from_bytes(blob)
    assert not len(model.encoder)
    assert model.gathered.own.weight > 0
    assert model.gathered.pooled.weight > 0
    assert 0.3 <= model.gathered.share < 0.95
    assert np.ptp(model.heads, axis=0).max() > 0


@pytest.mark.slow
def test_a_study_of_a_number_from_the_offer_to_the_end(federate):
    """Keys, ledger, noise, sealed sums, figures: nothing on the way asks for classes."""
    label = {"positive": [], "negative": [], "minimum": 0, "maximum": 1}
    study = tiny_study(
        data={"label": label},
        evaluation={"bins": 10},
        publish=["mae", "r2", "mean_error", "patients"],
        encoder={"l2r": 0.01},
        personal={"epochs": 1, "mmd": 0.1, "ditto": 0.1},
    )
    coordinator, silos = federate(study)
    for number in range(plan(study).last + 1):
        coordinator.run_round(number)
    for name, silo in silos.items():
        coordinator.finish(name)
        assert silo.agent.finished == [("tiny", "finished: all rounds are done")]
        assert (silo.model(2).parent / "personal.safetensors").exists()
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    (results,) = {(silo.model(2).parent / "results.json").read_bytes() for silo in silos.values()}
    assert set(json.loads(results)["by_domain"][0]) == {"mae", "r2", "mean_error", "patients"}


def test_what_is_uploaded_says_only_what_the_study_implies(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    coordinator.run_round(1)
    headers = silos["north"].client.headers
    slots = [(h.slot, h.kind, h.values, h.silo) for h in headers if h.kind not in set(Note)]
    assert slots == [
        ("counts", "ckks", 2 + BESIDE, "north"),
        ("heads", "ckks", 9 + BESIDE, "north"),
        ("encoder", "ring32", 17 + BESIDE, "north"),
    ]
    notes = [(h.slot, h.values, h.silo) for h in headers if h.kind in set(Note)]
    assert {(values, silo) for _, values, silo in notes} == {(0, "north")}
    revealed = ["note-reveal-counts", "note-reveal-heads", "note-reveal-encoder"]
    assert [slot for slot, _, _ in notes if "reveal" in slot] == revealed


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


def counted(silo, reason):
    return silo.metrics.registry.get_sample_value("fedward_silo_refusals_total", {"reason": reason})


@pytest.mark.parametrize(
    ("changes", "reason", "field"),
    [
        ({"encoder": {"mmd": 0.1}}, "batch_statistics", "study.encoder.mmd"),
        ({"model": {"norm": "batch"}}, "batch_norm", "study.model.norm"),
        ({"evaluation": {"early_stopping": True}}, "private_choice", "study.evaluation.early_stopping"),
    ],
)
def test_a_study_that_cannot_be_accounted_for_is_refused_by_name_and_counted(federation, changes, reason, field):
    coordinator, silos = federation
    wanted = canonical_json(tiny_document(**changes)).encode()
    place = Place(hashlib.sha256(wanted).hexdigest(), 0, 1)
    coordinator.studies[place.study] = wanted
    answered, why = refusal(coordinator, "north", place)
    assert answered == reason
    assert why.startswith(f"{field}: ")
    assert counted(silos["north"], reason) == 1.0
    assert silos["north"].charges == []
    assert silos["north"].state.studies() == []
    coordinator.run_round(0)
    assert counted(silos["north"], reason) == 1.0


def test_a_program_that_would_upload_a_batch_statistic_refuses_every_study_by_name(federation, monkeypatch):
    """What binds is what the code would train, not what the study says."""
    coordinator, silos = federation
    losses = training._losses
    monkeypatch.setattr(training, "_losses", lambda *given: losses(*given) + losses(*given).std(correction=0))
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert reason == "batch_statistics"
    assert "the loss of a record changes with the other records of its batch" in why
    assert counted(silos["north"], reason) == 1.0
    assert silos["north"].charges == []
    assert silos["north"].state.studies() == []


@pytest.fixture
def modules_built(monkeypatch):
    """Counts the torch modules that were made since the test began."""
    built, make = [], nn.Module.__init__
    monkeypatch.setattr(nn.Module, "__init__", lambda self, *given: (built.append(type(self)), make(self, *given))[1])
    return built


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": {"hidden": [4096] * 8}}, "encoder_too_large"),
        ({"privacy": {"max_patients": 10_000_000}, "personal": {"batch_size": 4096}}, "memory"),
        ({"data": {"delimiter": "."}}, "file"),
        ({"personal": {"learning_rate": 1e39}}, "bounds"),
    ],
)
def test_the_policy_is_asked_before_anything_of_a_study_is_built(federation, modules_built, changes, reason):
    coordinator, silos = federation
    wanted = Study.model_validate(tiny_document(**changes), context=STORED)
    coordinator.studies[wanted.digest] = wanted.canonical()
    answered, _ = refusal(coordinator, "north", Place(wanted.digest, 0, 1))
    assert (answered, modules_built) == (reason, [])
    assert silos["north"].state.studies() == []
    assert counted(silos["north"], reason) == 1.0
    coordinator.ask("north", Work(Task.DECIDE, coordinator.place(0)))
    assert coordinator.clients["north"].answers[-1].member is not None
    assert modules_built


def test_a_study_of_an_earlier_version_that_breaks_a_bound_is_read_and_nobody_goes_on_with_it(federate, monkeypatch):
    older = Study.model_validate(tiny_document(encoder={"learning_rate": 2e3}), context=STORED)
    coordinator, silos = federate(older)
    with monkeypatch.context() as earlier:
        for module in (agents, decision):
            earlier.setattr(module, "require_bounds", lambda _: None)
        coordinator.run_round(0)
        coordinator.ask("south", Work(Task.DECIDE, coordinator.place(1)))
    for name in ("north", "south"):
        silos[name].restart()
    answered, why = refusal(coordinator, "north", coordinator.place(1))
    assert (answered, why[:28]) == ("bounds", "study.encoder.learning_rate:")
    coordinator.ask("south", Work(Task.GREET, coordinator.place(1)))
    assert disputed(coordinator, "south", "bounds")
    assert silos["north"].charges == silos["south"].charges == [(0, 1, "counts")]
    coordinator.finish("north", "aborted")
    assert silos["north"].state.studies() == [(older.digest, -1, "aborted: all rounds are done")]


def test_a_refusal_of_the_policy_is_counted_once(federate):
    coordinator, silos = federate(noise_modes=["distributed"])
    refusal(coordinator, "north", coordinator.place(0))
    assert counted(silos["north"], "noise_mode") == 1.0


def test_a_study_without_a_file_is_refused_and_no_path_is_told(federate):
    coordinator, _ = federate(tiny_study(name="unheard-of"))
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert (reason, why) == ("no_data", "this silo has no data for the study")


def test_a_file_that_cannot_be_used_is_the_hospitals_business(federation):
    coordinator, silos = federation
    data = silos["north"].data
    data.write_text(data.read_text().replace(",lactate,", ",secret-header,").replace("north-1,", "secret-patient,"))
    with capture_logs() as logs:
        reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert (reason, why) == ("data", "see the log of this silo's agent")
    (said,) = (entry for entry in logs if entry["event"] == "study refused")
    assert (
        said["why"]
        == "the silo's data does not fit the study's schema in 'lactate'; fedward-silo data check says where"
    )
    assert "secret" not in str(logs)
    assert silos["north"].charges == []


FOUL = [
    "actress,a,97,4,1",
    "x,secret-ward,50,4,1",
    "y,a,secret,4,1",
    "z,a,50,4,7",
    ",a,50,4,1",
    "short,a",
    '"open,a,50,4,1',
]


def test_records_that_do_not_fit_are_nobodys_business(federate):
    """Bounds that differ by one would otherwise tell an author how old the oldest patient is."""
    answers = []
    for maximum in (96, 97):
        age = {"kind": "number", "column": "age", "minimum": 0, "maximum": maximum}
        lactate = {"kind": "number", "column": "lactate", "minimum": 0, "maximum": 10}
        coordinator, silos = federate(tiny_study(data={"features": [age, lactate]}))
        with silos["north"].data.open("a") as file:
            file.write("\n".join(FOUL) + "\n")
        with capture_logs() as logs:
            coordinator.run_round(0)
        answer = silos["north"].client.answers[-1]
        answers.append((answer.refusal, answer.explanation, silos["north"].charges))
        assert not [word for word in ("secret", "actress", "fit", "left out") if word in str(logs)]
    assert answers[0] == answers[1]
    assert not answers[0][0]
    assert answers[0][2] == [(0, 1, "counts")]


def test_a_file_that_is_gone_in_the_middle_is_not_missed(federation):
    """The study goes on with the rows that it began with."""
    coordinator, silos = federation
    place, roster = coordinator.begin(0)
    silos["north"].restart()
    silos["north"].data.unlink()
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    assert (place, "sum-counts") in silos["north"].client.uploads or silos["north"].client.headers[-1].place == place
    assert silos["north"].gate.ledger.fault is None


def test_a_study_that_is_not_what_its_digest_names_is_refused(federation):
    coordinator, silos = federation
    digest = coordinator.study.digest
    coordinator.studies[digest] = tiny_study(purpose="something else").canonical()
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
    write_yaml(silos["north"].policy, policy_document(silos["north"].data_set, contact="somebody-else"))
    assert refusal(coordinator, "north", coordinator.place(1))[0] == "policy_changed"
    assert silos["north"].charges == [(0, 1, "counts")]


# --- again ------------------------------------------------------------------------------------------------------------
def test_work_that_is_repeated_gives_the_same_bytes_and_digests(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    place, roster = coordinator.begin(1)
    for step in (coordinator.gather, coordinator.sign, coordinator.reveal):
        step(place, roster, Tensor.HEADS)
        uploads = {name: dict(silo.client.uploads) for name, silo in silos.items()}
        step(place, roster, Tensor.HEADS)
        assert {name: silo.client.uploads for name, silo in silos.items()} == uploads
    first = coordinator.open(place, roster, Tensor.HEADS)
    assert coordinator.open(place, roster, Tensor.HEADS) == first
    assert len(coordinator.adopt(place, roster, coordinator.solve(place, roster))) == 1


class CrashError(Exception):
    """The attempt ends here."""


def refuse(_header):
    raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "the attempt is over")


def test_a_coordinator_that_has_heard_it_before_is_followed(federation):
    """Its reply was lost, and what is repeated does not fit any more."""
    coordinator, silos = federation
    place, roster = coordinator.begin(0)
    silos["north"].client.on_upload = refuse
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    silos["north"].client.on_upload = None
    coordinator.sum_up(place, roster, Tensor.COUNTS)
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
    place, roster = coordinator.begin(0)
    silos["north"].client.on_upload = refuse
    asked = coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS)
    with capture_logs() as log:
        for _ in range(2):
            coordinator.ask("north", asked)
    (told,) = [line for line in log if line["event"] == "attempt abandoned"]
    assert (told["task"], told["round"], told["why"].startswith("refused twice: ")) == ("contribute", 0, True)
    assert silos["north"].charges == [(0, 1, "counts")]
    silos["north"].client.on_upload = None
    coordinator.ask("north", asked)
    assert disputed(coordinator, "north", "out_of_turn")
    coordinator.keyed = ()
    coordinator.run_round(0, attempt=2)
    assert silos["north"].charges == [(0, 1, "counts")]


def test_keys_that_are_dealt_anew_to_the_same_roster_replace_the_old_ones(federation):
    """After a failure the coordinator has new keys dealt, and only some silos had sealed under the old ones."""
    coordinator, silos = federation
    place, roster = coordinator.begin(0)
    coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    assert (place, "counts") in silos["north"].client.uploads
    coordinator.keyed = ()
    assert coordinator.run_round(0, attempt=2) == roster


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_silo_that_dies_goes_on_in_the_next_attempt(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}))
    coordinator.run_round(0)
    coordinator.gather(*coordinator.begin(1), Tensor.HEADS)
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
    digest = silos["north"].running.standing.digest
    silos["north"].restart()
    coordinator.ask("north", Work(Task.DECIDE, coordinator.place(2)))
    assert coordinator.clients["north"].answers[-1].model == digest
    assert silos["north"].state.committed(coordinator.study.digest) == 1


def test_the_last_model_is_committed_also_where_the_silo_was_restarted_before_the_end(federation):
    """It was away while the others summed the metrics."""
    coordinator, silos = federation
    for number in range(3):
        coordinator.run_round(number)
    silos["north"].restart()
    coordinator.finish("north")
    assert silos["north"].state.studies() == [(coordinator.study.digest, 2, "finished: all rounds are done")]
    silos["south"].restart()
    coordinator.finish("south", "aborted")
    assert silos["south"].state.committed(coordinator.study.digest) == 1


def before_the_metrics_had_a_round(silo):
    """As if an earlier version had stored the silo's turn."""
    tensors = silo.running.turn.plan
    turn = replace(silo.running.turn, plan=(*tensors[:2], (Tensor.HEADS, Tensor.METRICS)))
    silo.agent._keep(silo.running, replace(silo.running.standing, turn=turn))
    silo.restart()


def test_a_study_of_an_earlier_version_goes_on_unless_it_is_in_the_round_that_also_summed_the_metrics(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    before_the_metrics_had_a_round(silos["north"])
    for number in (1, 2):
        coordinator.run_round(number)
    for silo in ("north", "south"):
        before_the_metrics_had_a_round(silos[silo])
    assert refusal(coordinator, "north", coordinator.place(3))[0] == "out_of_turn"
    coordinator.finish("north", "aborted")
    coordinator.finish("south")
    assert silos["north"].state.committed(coordinator.study.digest) == 1
    assert silos["south"].state.committed(coordinator.study.digest) == 2, "its last round was its last"


def test_metrics_that_are_summed_again_charge_no_heads_again(federate):
    coordinator, silos = federate(tiny_study(privacy={"mode": "distributed"}))
    for number in range(3):
        coordinator.run_round(number)
    coordinator.gather(*coordinator.begin(3), Tensor.METRICS)
    coordinator.run_round(3, attempt=2)
    charges = silos["north"].charges
    assert [one for one in charges if one[0] >= 2] == [(2, 1, "heads"), (3, 1, "metrics"), (3, 2, "metrics")]


def test_what_is_over_is_not_begun_again_not_even_after_a_restart(federation):
    coordinator, silos = federation
    for number in range(plan(coordinator.study).last + 1):
        coordinator.run_round(number)
    for name, how in (("north", "finished"), ("south", "left")):
        coordinator.finish(name, how)
        over = silos[name].state.endings()
        assert [ending.study for ending in over] == [coordinator.study.digest]
        for _ in range(2):
            assert refusal(coordinator, name, Place(coordinator.study.digest, 3, 9))[0] == "out_of_turn"
            coordinator.finish(name, how)
            assert silos[name].state.endings() == over
            silos[name].restart()
        assert not list(silos[name].folder.rglob("keys.sealed"))


def test_an_end_that_is_told_and_not_heard_is_an_end(federation):
    """The call that confirms it fails: nothing is trained for it any more."""
    coordinator, silos = federation
    coordinator.run_round(0)
    silo = silos["north"]
    confirm = silo.client.confirm

    def lost(_said):
        raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "not now")

    silo.client.confirm = lost
    coordinator.finish("north", "ended")
    assert coordinator.study.digest not in silo.agent._running
    assert silo.agent.finished == []
    silo.client.confirm = confirm
    coordinator.finish("north", "ended")
    assert [why for _, why in silo.agent.finished] == ["ended: all rounds are done"]


def test_the_end_of_an_unknown_study_is_confirmed_and_leaves_nothing(federation):
    coordinator, silos = federation
    coordinator.finish("north")
    assert coordinator.said("north").task is Task.FINISH
    assert silos["north"].state.studies() == []
    assert not (silos["north"].folder / "state" / "studies").exists()


def test_shares_of_noise_do_not_go_to_a_second_roster_of_the_same_attempt(federate):
    """A place in which anything was done is not taken again, so it never yields two sums over the same draws."""
    coordinator, silos = federate(tiny_study(privacy={"mode": "distributed"}))
    place, roster = coordinator.begin(0)
    coordinator.gather(place, roster, Tensor.COUNTS)
    before = dict(silos["north"].client.uploads)
    Session.forget(silos["south"].model(0).parent)
    silos["south"].restart()
    assert coordinator.offer(place) == ()
    assert {silo.client.answers[-1].refusal for silo in silos.values()} == {"out_of_turn"}
    coordinator.participants = tuple(member.silo for member in roster[1:])
    coordinator.ask("west", coordinator.work(Task.CONTRIBUTE, place, roster[1:], Tensor.COUNTS))
    assert disputed(coordinator, "west", "out_of_turn")
    assert silos["north"].client.uploads[place, "counts"] == before[place, "counts"]


def test_a_damaged_personal_model_changes_nothing_that_others_see(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    coordinator.run_round(1)
    personal = silos["north"].model(1).parent / "personal.safetensors"
    personal.write_bytes(b"damaged")
    with capture_logs() as logs:
        coordinator.run_round(2)
    assert {entry["event"] for entry in logs} == {"charged"}
    assert silos["north"].model(2).exists()
    assert personal.read_bytes() == b"damaged"


def test_the_training_log_lists_what_was_charged(federation):
    coordinator, silos = federation
    for number in range(plan(coordinator.study).last + 1):
        coordinator.run_round(number)
    silo = silos["west"]
    lines = [json.loads(line) for line in (silo.model(2).parent / "training.jsonl").read_text().splitlines()]
    assert sorted((line["round"], line["attempt"], line["tensor"]) for line in lines) == silo.charges


def test_two_studies_at_once_do_not_take_each_others_bytes(federation):
    coordinator, silos = federation
    other = tiny_study(purpose="another question")
    coordinator.studies[other.digest] = other.canonical()
    place, roster = coordinator.begin(0)
    coordinator.gather(place, roster, Tensor.COUNTS)
    sent = dict(silos["north"].client.uploads)
    shared = (coordinator.agents, coordinator.clients, coordinator.studies, coordinator.content)
    twin = LocalCoordinator(other, coordinator.hub, *shared)
    twin.run_round(0)
    twin.offer(Place(other.digest, 1, 1))
    coordinator.gather(place, roster, Tensor.COUNTS)
    assert silos["north"].client.uploads[place, "counts"] == sent[place, "counts"]


# --- what the machine lacks for a while -------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_every_write_of_its_own_files_may_fail_for_a_while(federate, mode):
    """Every task of one silo is asked until each of its writes has failed once. Nobody else sees anything of it.

    What keeps the records that were read is left out: nobody waits for what depends on them.
    """
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}, personal={"epochs": 1}))
    south, ask, waits, failed = silos["south"], coordinator.ask, [], []
    south.agent._wait = waits.append

    def ask_until_nothing_fails(silo, work):
        if silo != "south":
            ask(silo, work)
            return
        for number in itertools.count(1):
            with failing_writes(number, spare=("_computed", "load", "train_up_to")) as writes:
                ask(silo, work)
            short = south.metrics.registry.get_sample_value("fedward_silo_short")
            assert short == writes.failed
            if not writes.failed:
                return
            failed.append(work.task)

    coordinator.ask = ask_until_nothing_fails
    for number in range(plan(coordinator.study).last + 1):
        coordinator.run_round(number)
    coordinator.finish("south")
    assert len(failed) == len(waits) > 150
    assert set(failed) >= {Task.DECIDE, *REPEATED, Task.FINISH} - {Task.DEAL, Task.SOLVE}
    assert not any(confirm.dispute for confirm in south.client.confirms)
    assert not any(answer.refusal for answer in south.client.answers)
    assert south.gate.ledger.fault is None
    assert len({tuple(silo.charges) for silo in silos.values()}) == 1
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


def test_waits_grow_while_the_machine_is_short_and_are_said_once_each(federation, monkeypatch):
    coordinator, silos = federation
    north, waits = silos["north"], []
    monkeypatch.setattr(north.agent, "_wait", waits.append)

    def short(*_):
        raise ShortageError.of(OSError(errno.EMFILE, "Too many open files", "/state/keys.sealed"))

    place = coordinator.place(0)
    with monkeypatch.context() as patch, capture_logs() as said:
        patch.setattr(north.gate, "decide", short)
        for _ in range(8):
            coordinator.ask("north", Work(Task.DECIDE, place))
    assert waits == [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 10.0, 10.0]
    lines = [line for line in said if line["event"] == "the machine is short"]
    assert [line["again_in"] for line in lines] == waits[:6]
    assert all("/state/keys.sealed" in line["why"] and "LimitNOFILE" in line["why"] for line in lines)
    assert north.client.answers == []
    coordinator.ask("north", Work(Task.DECIDE, place))
    assert north.client.answers[0].refusal == ""
    monkeypatch.setattr(north.gate, "decide", short)
    coordinator.ask("north", Work(Task.DECIDE, coordinator.place(0, 2)))
    assert waits[-1] == 0.2, "what has passed is forgotten"


@pytest.mark.parametrize("own", [True, False])
def test_a_fault_of_the_system_is_told_by_file_cause_and_fix(federation, monkeypatch, own):
    """A file of records may be named after a patient: of it the log has the cause and the fix alone."""
    coordinator, silos = federation
    north = silos["north"]
    path = north.state.folder / "studies" / "here" if own else north.folder / "mueller-1962.csv"

    def broken(*_):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))

    monkeypatch.setattr(north.gate, "decide", broken)
    with capture_logs() as said:
        coordinator.ask("north", Work(Task.DECIDE, coordinator.place(0)))
    (line,) = [line for line in said if line["event"] == "study refused"]
    assert "Not a directory" in line["why"]
    assert "fix the path" in line["why"]
    assert (str(path) in line["why"]) is own
    assert "mueller" not in line["why"]
    assert north.client.answers[0].explanation == "see the log of this silo's agent"


def test_a_file_of_records_that_cannot_be_opened_makes_nobody_wait(federation, monkeypatch):
    """It is the same error of the system: only where it is raised tells it from the agent's own files."""
    coordinator, silos = federation
    north = silos["north"]
    monkeypatch.setattr(north.agent, "_wait", lambda _: pytest.fail("the agent waited"))

    read = DataSet.cohorts

    def unless_it_is_norths(data_set, *given, **named):
        if data_set.source == north.data:
            raise OSError(errno.EMFILE, "Too many open files", "patients.csv")
        return read(data_set, *given, **named)

    monkeypatch.setattr(DataSet, "cohorts", unless_it_is_norths)
    coordinator.run_round(0)
    assert not any(confirm.dispute for confirm in north.client.confirms)
    assert north.gate.ledger.fault is not None, "noise alone was sent"


# --- what fails after the charge --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "failure",
    [ValueError, MemoryError, OSError(errno.EMFILE, "Too many open files"), ShortageError("no file can be opened")],
)
def test_a_release_that_fails_ends_no_round_and_the_silo_then_waits_for_a_person(federation, monkeypatch, failure):
    coordinator, silos = federation
    north = silos["north"]
    coordinator.run_round(0)
    contribution, read = Learner.contribution, []

    def fails(self, release, *given):
        if self is not north.running.learner:
            return contribution(self, release, *given)
        read.append(release.tensor)
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "contribution", fails)
        coordinator.run_round(1)
    assert read == ["heads"], "nothing more is computed from records"
    assert not any(confirm.dispute for confirm in north.client.confirms)
    assert north.charges == silos["south"].charges
    assert refusal(coordinator, "north", coordinator.place(2)) == (
        "fault",
        "this silo takes no part in any study until its hospital has cleared a fault",
    )
    assert counted(north, "fault") == 1.0
    north.gate.ledger.clear_fault("A. Weber")
    coordinator.run_round(2)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1


def test_records_that_cannot_be_read_are_not_told_by_an_answer(federation, monkeypatch):
    """A file too large for the memory, for example: the offer is answered as ever, and noise is sent."""
    coordinator, silos = federation
    north = silos["north"]
    load = Learner.load

    def fails(self):
        if "north" in str(self._data):
            raise MemoryError
        load(self)

    monkeypatch.setattr(Learner, "load", fails)
    coordinator.run_round(0)
    assert [(answer.refusal, answer.explanation) for answer in north.client.answers] == [("", "")]
    assert [type(entry.event).__name__ for entry in north.gate.ledger.history()][-2:] == ["Debit", "Fault"]


def test_a_fault_of_the_program_is_disputed_by_one_word(federation, monkeypatch):
    coordinator, silos = federation
    place, roster = coordinator.begin(0)

    def fails(*_):
        msg = "secret"
        raise RuntimeError(msg)

    monkeypatch.setattr(silos["north"].gate, "contribute", fails)
    with capture_logs() as said:
        coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    confirm = coordinator.said("north")
    assert (confirm.dispute, confirm.explanation) == ("fault", "see the silo's log")
    assert "secret" not in str(said)


def test_want_of_memory_is_refused_before_a_record_is_read(federation, monkeypatch):
    coordinator, silos = federation
    read = []
    monkeypatch.setattr(Learner, "_reserve", lambda _: (_ for _ in ()).throw(MemoryError()))
    monkeypatch.setattr(Learner, "read", read.append)
    reason, why = refusal(coordinator, "north", coordinator.place(0))
    assert reason == "memory"
    assert why.startswith("this silo's machine has too little memory for the study's images")
    assert (read, silos["north"].charges) == ([], [])


def test_in_a_padded_study_what_took_records_leaves_at_a_multiple_of_the_pace(federate, monkeypatch):
    coordinator, silos = federate(tiny_study(pace="padded", pace_seconds=100))
    north, now, waited, spoke = silos["north"], [0.0], [], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def wait(seconds):
        waited.append(seconds)
        now[0] += seconds

    def slower(method, seconds):
        def slow(self, *given):
            now[0] += seconds
            return method(self, *given)

        return slow

    for silo in silos.values():
        silo.agent._wait = wait
    monkeypatch.setattr(Learner, "read", slower(Learner.read, 7.5))
    monkeypatch.setattr(Learner, "contribution", slower(Learner.contribution, 130.0))
    answer, upload = north.client.answer, north.client.upload
    north.client.answer = lambda said: (spoke.append(now[0]), answer(said))
    north.client.upload = lambda header, *given: (spoke.append(now[0]), upload(header, *given))
    ask = coordinator.ask

    def ask_from_zero(silo, work):
        now[0] = 0.0
        ask(silo, work)

    coordinator.ask = ask_from_zero
    coordinator.run_round(0)
    assert spoke[0] == 100.0, "the seat"
    assert 200.0 in spoke, "the contribution"
    assert set(spoke) <= {0.0, 100.0, 200.0}
    assert sorted(set(waited)) == [70.0, 92.5]
    seconds = north.metrics.registry.get_sample_value("fedward_silo_compute_seconds_sum", {"tensor": "counts"})
    assert seconds % 100 == 0


# --- the ledger before the others -------------------------------------------------------------------------------------
def test_a_round_is_cosigned_once_for_its_attempt(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    coordinator.run_round(1)
    for silo in silos.values():
        places = [place for place, _ in silo.client.stated]
        assert places == [coordinator.place(0), coordinator.place(1)], "the second tensor's charge is covered"
        last = Checkpoint.parse(silo.client.stated[-1][1].checkpoint)
        assert (last.silo, last.head) == (silo.name, silo.gate.ledger.head)


def put_back(silo, older):
    """The ledger and all beside it are what they were before."""
    silo.die()
    (silo.folder / "ledger.sqlite3.countersigned.json").unlink()
    (silo.folder / "ledger.sqlite3").write_bytes(older)
    silo.restart()


def test_an_agent_whose_ledger_was_put_back_does_not_begin_to_work(federation):
    coordinator, silos = federation
    silo = silos["north"]
    older = (silo.folder / "ledger.sqlite3").read_bytes()
    coordinator.run_round(0)
    stated = silo.client.stated[-1][1]
    silo.client.told = [witnessed(stated, silos["south"].credential)]
    put_back(silo, older)
    silo.client.work.clear()
    with pytest.raises(LedgerRolledBackError, match="an older copy was put in its place"):
        silo.agent.run(threading.Event())
    silo.die()
    with pytest.raises(LedgerRolledBackError):
        silo.restart()


def test_a_study_is_refused_by_name_where_others_know_more_of_the_ledger(federation):
    coordinator, silos = federation
    silo = silos["north"]
    older = (silo.folder / "ledger.sqlite3").read_bytes()
    coordinator.run_round(0)
    put_back(silo, older)
    silo.client.told = [witnessed(silo.client.stated[-1][1], silos["south"].credential)]
    other = tiny_study(purpose="another question")
    coordinator.studies[other.digest] = other.canonical()
    coordinator.ask("north", Work(Task.DECIDE, Place(other.digest, 0, 1)))
    assert silo.client.answers[-1].refusal == "ledger_rolled_back"
    coordinator.ask("north", Work(Task.DECIDE, coordinator.place(1)))
    assert silo.client.answers[-1].refusal == "ledger_rolled_back", "what it was told it stays told"


def test_an_attempt_that_ends_while_it_waits_for_signatures_is_left(federation, monkeypatch):
    coordinator, silos = federation
    place, roster = coordinator.begin(0)
    silo = silos["north"]

    def over(*_):
        raise CallRefused(grpc.StatusCode.FAILED_PRECONDITION, "is not the current one")

    with monkeypatch.context() as patch:
        patch.setattr(silo.client, "cosign", over)
        coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, Tensor.COUNTS))
    assert silo.charges == [(0, 1, "counts")]
    assert (place, "counts") not in silo.client.uploads
    coordinator.run_round(0, attempt=2)
    assert silo.charges == [(0, 1, "counts")], "with local noise the charge is used"


# --- going on where the last process stood ----------------------------------------------------------------------------
def everything(silos):
    """What must not depend on who was restarted when: models, results, charges."""
    names = ("model-2.safetensors", "results.json")
    return {
        name: [silo.charges, *((silo.model(2).parent / file).read_bytes() for file in names)]
        for name, silo in silos.items()
    }


@pytest.mark.parametrize("mode", [pytest.param("local", marks=pytest.mark.slow), "distributed"])
def test_a_silo_that_begins_anew_after_every_task_goes_on_in_the_same_attempts(federate, mode):
    coordinator, silos = federate(tiny_study(privacy={"mode": mode}, personal={"epochs": 1}))
    ask = coordinator.ask

    def ask_and_restart(silo, work):
        ask(silo, work)
        if silo == "south":
            silos["south"].restart()

    coordinator.ask = ask_and_restart
    rosters = {coordinator.run_round(number) for number in range(plan(coordinator.study).last + 1)}
    assert len(rosters) == 1, "a silo that keeps its keys stays who it is"
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert len({tuple(silo.charges) for silo in silos.values()}) == 1
    assert len(silos["south"].charges) == 5
    coordinator.finish("south")
    folder = silos["south"].model(2).parent
    assert PersonalModel.load(folder / "personal.safetensors").round == 2
    assert not list(folder.glob("attempt-*"))
    assert not (folder / "keys.sealed").exists()


REPEATED = [
    Task.GREET,
    Task.DEAL,
    Task.TAKE,
    Task.EXCHANGE,
    Task.CONTRIBUTE,
    Task.SIGN,
    Task.REVEAL,
    Task.OPEN,
    Task.SOLVE,
    Task.ADOPT,
]


@pytest.mark.sampled
@pytest.mark.parametrize("task", REPEATED)
def test_work_that_repeats_after_a_restart_is_answered_with_the_stored_words(federation, task):
    """The answer was lost on its way, and then the process."""
    coordinator, silos = federation
    ask, asked, repeated = coordinator.ask, [], []

    def told(silo):
        # Two signatures over the same bytes differ, and both are good: the round goes on with the second.
        client = silos[silo].client
        words = [(c.place, c.task, c.tensor, c.model, c.dispute) for c in client.confirms[-1:]]
        return words, dict(client.uploads), len(silos[silo].charges)

    def ask_twice(silo, work):
        ask(silo, work)
        if work.task is task and (silo, work) not in asked:
            asked.append((silo, work))
            said = told(silo)
            silos[silo].restart()
            ask(silo, work)
            repeated.append((told(silo), said))

    coordinator.ask = ask_twice
    for number in range(plan(coordinator.study).last + 1):
        coordinator.run_round(number)
    assert repeated
    assert all(now == before for now, before in repeated)
    assert len({silo.model(2).read_bytes() for silo in silos.values()}) == 1
    assert {len(silo.charges) for silo in silos.values()} == {5}


@pytest.mark.sampled
@pytest.mark.parametrize("task", [Task.EXCHANGE, Task.CONTRIBUTE, Task.SIGN, Task.REVEAL, Task.OPEN])
def test_a_silo_whose_keys_are_gone_asks_for_a_new_attempt(federation, task):
    coordinator, silos = federation
    coordinator.run_round(0)
    asked, ask = [], coordinator.ask

    def ask_unless_gone(silo, work):
        if (silo, work.task) == ("south", task):
            asked.append(work)
            Session.forget(silos["south"].model(0).parent)
            silos["south"].restart()
            ask(silo, work)
            raise CrashError
        ask(silo, work)

    coordinator.ask = ask_unless_gone
    with pytest.raises(CrashError):
        coordinator.run_round(1)
    # Why a sum is not opened is told to nobody outside.
    assert disputed(coordinator, "south", "opening" if task is Task.OPEN else "seal")
    assert coordinator.said("south").task is task
    coordinator.ask = ask
    assert coordinator.run_round(1, attempt=2) != asked[0].roster


def test_a_standing_that_was_damaged_is_not_used(federation):
    coordinator, silos = federation
    coordinator.run_round(0)
    (path,) = silos["south"].model(0).parent.glob("attempt-*.safetensors")
    path.write_bytes(b"damaged")
    silos["south"].restart()
    assert refusal(coordinator, "south", coordinator.place(1)) == ("state", "see the log of this silo's agent")
