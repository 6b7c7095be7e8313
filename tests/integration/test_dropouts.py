"""Silos that vanish in the middle of a sum: the others finish it in the same attempt, and nobody uploads again.

Real processes over mutual TLS, five silos of which four must sign and reveal (one colluder). Who
vanishes is killed with SIGKILL at a chosen task, comes back when the coordinator has given it up, and catches up. Once
nobody else is waited for, the coordinator's clock moves on by a time limit: a busy machine is late for nothing.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from policies.documents.study import Study
from policies.ledger.ledger import read_ledger
from protos.messages import Tensor
from protos.status import StudyStatus
from protos.steps import Task
from support.certificates import make_authority
from support.moving_clock import LIMIT, LIMITS
from support.party_federation import HUB, PartyFederation, credentials_of
from support.small_cohort import study_document
from support.task_points import TaskCrash

FIVE = ("east", "north", "polar", "south", "west")
BEFORE_UPLOAD = {"south": TaskCrash("asked", Task.CONTRIBUTE, Tensor.HEADS, 1)}
AFTER_UPLOAD = {"west": TaskCrash("told", Task.CONTRIBUTE, Tensor.ENCODER, 3)}
AMONG_REVEALS = {"polar": TaskCrash("kept", Task.REVEAL, Tensor.HEADS, 5)}
"""A whole round lies between two falls: who fell is back in its seat before the next one falls."""
DISTRIBUTED = {**study_document()["privacy"], "mode": "distributed"}


def study(sealing: str = "ring32", rounds: int = 4, **changes: object) -> Study:
    """Cheap rounds of every kind of sum."""
    fields = {"name": "dropouts", "silos": list(FIVE), "min_silos": 4, "deadlines": LIMITS, "personal": None}
    document = study_document(**{**fields, **changes})
    heads = {"pooled_rounds": 1, "domain_rounds": rounds - 1, "pooled_noise": 20.0, "domain_noise": 20.0}
    document["heads"] = {**document["heads"], **heads}
    document["encoder"] = {**document["encoder"], "steps": 1, "sampling_rate": 1.0, "noise": 20.0, "sealing": sealing}
    return Study.model_validate(document)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory) -> dict[str, Path]:
    return credentials_of(make_authority(tmp_path_factory.mktemp("consortium")), study())


def run(folder: Path, of: Study, credentials: dict[str, Path], falls: dict[str, TaskCrash]):
    federation = PartyFederation(folder, of, credentials, doomed=falls)
    return federation, federation.run()


def counted(federation: PartyFederation, metric: str) -> dict[str, float]:
    """A counter of the coordinator, by its only label."""
    lines = [line for line in federation.metrics.splitlines() if line.startswith(f"fedward_coordinator_{metric}{{")]
    return {line.split('"')[1]: float(line.split()[1]) for line in lines}


def lost(federation: PartyFederation) -> dict[str, float]:
    """How many silos rounds went on without, by the phase in which they were lost."""
    return counted(federation, "lost_total")


def uploads(federation: PartyFederation) -> Counter[tuple[object, ...]]:
    """How often each silo's bytes of a slot were received."""
    keys = ("silo", "round", "attempt", "slot")
    return Counter(tuple(entry[key] for key in keys) for entry in federation.entries(HUB, "received"))


def went_on(federation: PartyFederation, status: StudyStatus) -> None:
    """No attempt but the first; nobody sent anything twice; everybody holds one model, and has been charged once."""
    of = federation.study
    assert status.state == "finished", status.why
    assert {time.attempt for time in status.times} == {1}
    assert federation.killed == set(federation.doomed)
    received = uploads(federation)
    assert set(received.values()) == {1}
    sent = sum(entry["size"] for entry in federation.entries(HUB, "received"))
    assert sum(counted(federation, "received_bytes_total").values()) == sent, "nor was a byte sent again"
    for silo, fall in federation.doomed.items():
        others = [name for name in FIVE if name != silo]
        for name in others:
            assert (name, fall.round, 1, str(fall.tensor)) in received
            assert (name, fall.round, 1, f"note-reveal-{fall.tensor}") in received
        (aside,) = [e for e in federation.entries(HUB, "silos set aside") if silo in e["silos"]]
        assert (aside["silos"], aside["round"], aside["attempt"]) == ([silo], fall.round, 1)
        assert federation.entries(silo, "study over")[0]["outcome"] == "finished"
    assert [time for time in status.times if time.phase == "catch_up"], "who was away came back and caught up"
    results = [federation.root / name / "state" / "studies" / of.digest for name in FIVE]
    for name in (f"model-{of.rounds}.safetensors", f"model-{of.rounds}.digest"):
        assert len({(folder / name).read_bytes() for folder in results}) == 1
    for name in FIVE:
        _, entries = read_ledger(federation.root / name / "state" / "ledger.sqlite3")
        charged = [(entry.debit.round, tensor) for entry in entries for tensor in entry.debit.costs]
        assert len(charged) == len(set(charged))
    assert not [entry for name in FIVE for entry in federation.entries(name, "disputed")]


@pytest.mark.slow
def test_silos_that_vanish_before_and_after_their_upload_and_among_the_reveals(credentials, tmp_path):
    falls = {**BEFORE_UPLOAD, **AFTER_UPLOAD, **AMONG_REVEALS}
    federation, status = run(tmp_path, study(rounds=6), credentials, falls)
    went_on(federation, status)
    assert lost(federation) == {"gather": 1, "sign": 1, "reveal": 1}
    received = uploads(federation)
    assert ("south", 1, 1, "heads") not in received
    assert ("west", 3, 1, "encoder") in received
    assert ("west", 3, 1, "note-reveal-encoder") not in received
    assert ("polar", 5, 1, "heads") in received
    assert ("polar", 5, 1, "note-reveal-heads") not in received


@pytest.mark.slow
def test_a_silo_that_vanishes_from_the_encoders_sum_in_another_ring(credentials, tmp_path):
    """Two federations at once, since both mostly wait."""
    falls = {
        "ring64": TaskCrash("asked", Task.SIGN, Tensor.ENCODER, 1),
        "ckks": TaskCrash("told", Task.SIGN, Tensor.ENCODER, 1),
    }

    def vanish(sealing: str):
        folder = tmp_path / sealing
        folder.mkdir()
        return run(folder, study(sealing, rounds=3), credentials, {"south": falls[sealing]})

    with ThreadPoolExecutor(len(falls)) as pool:
        ended = dict(zip(falls, pool.map(vanish, falls), strict=True))
    for federation, status in ended.values():
        went_on(federation, status)
    assert {sealing: lost(federation) for sealing, (federation, _) in ended.items()} == {
        "ring64": {"sign": 1},
        "ckks": {"reveal": 1},
    }


@pytest.mark.slow
def test_with_distributed_noise_a_dropout_ends_the_attempt_by_name(credentials, tmp_path):
    """Its share of the noise would be missing, so nobody goes on without it; here there is no second attempt."""
    of = study(rounds=2, privacy=DISTRIBUTED, max_attempts=1)
    federation, status = run(tmp_path, of, credentials, BEFORE_UPLOAD)
    why = f"no gather from south within {LIMIT} s; with distributed noise a dropout aborts the attempt"
    assert (status.state, status.why) == ("ended", f"attempt 1 of round 1: {why}")
    assert lost(federation) == {}
    assert federation.entries(HUB, "study changed")[-1]["why"] == status.why
    assert [entry["outcome"] for entry in federation.entries(HUB, "attempt over")] == ["committed", "aborted"]
    for name in FIVE:
        (over,) = federation.entries(name, "study over")
        assert (over["outcome"], over["why"]) == ("ended", status.why)
        assert not (federation.root / name / "state" / "studies" / of.digest / "model-1.safetensors").exists()


@pytest.mark.slow
def test_with_distributed_noise_the_others_open_the_sum_of_who_vanishes_after_its_upload(credentials, tmp_path):
    """Its share of the noise is in the sum, and the encoder's noise is each silo's own."""
    fall = TaskCrash("told", Task.CONTRIBUTE, Tensor.HEADS, 1)
    federation, status = run(tmp_path, study(rounds=3, privacy=DISTRIBUTED), credentials, {"south": fall})
    went_on(federation, status)
    assert lost(federation) == {"sign": 1}
