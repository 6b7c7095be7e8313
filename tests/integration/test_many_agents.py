"""Studies of 32 and 66 real agents, of whom some are killed at tasks, one never comes back, and one has a slow link.

Real processes over mutual TLS. Who is killed comes back when the coordinator has given it up, and catches up.
"""

from __future__ import annotations

import pytest
import yaml

from crypto.secagg.dealt.slices import Layout
from policies.documents.study import Study
from policies.ledger.ledger import read_ledger
from policies.plan.release import plan
from protos.messages import Tensor
from protos.steps import Note, Task
from support.bad_link import bad_link
from support.certificates import make_authority
from support.moving_clock import LIMITS
from support.party_federation import HUB, PartyFederation, credentials_of
from support.small_cohort import study_document
from support.task_points import TaskCrash

SILOS = tuple(f"silo-{number:02}" for number in range(32))
SLOW, GONE = "silo-30", "silo-07"
FALLS = {
    GONE: TaskCrash("told", Task.CONTRIBUTE, Tensor.HEADS, 2),
    "silo-03": TaskCrash("asked", Task.CONTRIBUTE, Tensor.HEADS, 1),
    "silo-11": TaskCrash("told", Task.CONTRIBUTE, Tensor.ENCODER, 1),
    "silo-20": TaskCrash("kept", Task.REVEAL, Tensor.HEADS, 3),
}
MEGABYTE = 1_000_000
LARGE = tuple(f"silo-{number:02}" for number in range(66))
"""So many stand on a circle. With six that may be missing and one that may be hostile, each has 16 neighbours."""
HOLDERS = 17


def study(silos: tuple[str, ...], min_silos: int, domain_rounds: int) -> Study:
    """One round more than `domain_rounds`, with every kind of sum."""
    fields = {"name": "crowd", "silos": list(silos), "min_silos": min_silos, "deadlines": LIMITS, "personal": None}
    document = study_document(**fields)
    heads = {"pooled_rounds": 1, "domain_rounds": domain_rounds, "pooled_noise": 30.0, "domain_noise": 30.0}
    document["heads"] = {**document["heads"], **heads}
    document["encoder"] = {**document["encoder"], "steps": 1, "sampling_rate": 1.0, "noise": 30.0}
    return Study.model_validate(document)


class Crowd(PartyFederation):
    """One silo reaches the coordinator through a link alone."""

    proxy = ""

    def _prepare(self) -> None:
        super()._prepare()
        config = self.root / SLOW / "agent.yaml"
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "proxy": self.proxy}))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_thirty_two_agents_finish_though_some_fall_and_one_is_slow(tmp_path):
    of = study(SILOS, 17, 3)
    credentials = credentials_of(make_authority(tmp_path / "consortium"), of)
    (tmp_path / "federation").mkdir()
    with bad_link(1, stall_every=MEGABYTE // 2, cut_every=MEGABYTE) as link:
        federation = Crowd(tmp_path / "federation", of, credentials, doomed=FALLS, gone=frozenset({GONE}))
        federation.proxy = link.url
        status = federation.run()
    assert status.state == "finished", status.why
    assert {time.attempt for time in status.times} == {1}, "whoever falls, the others go on"
    assert federation.killed == set(FALLS)
    assert min(link.stalls, link.cuts) >= 1
    stayed = [silo for silo in SILOS if silo != GONE]
    assert {federation.entries(silo, "study over")[0]["outcome"] for silo in stayed} == {"finished"}
    folders = {silo: federation.root / silo / "state" / "studies" / of.digest for silo in SILOS}
    assert len({(folders[silo] / f"model-{of.rounds}.safetensors").read_bytes() for silo in stayed}) == 1
    assert not (folders[GONE] / "model-2.safetensors").exists(), "it contributed to its last sum, and never opened it"
    assert {member.silo for member in status.members if member.state == "away"} == {GONE}
    for silo in SILOS:
        _, entries = read_ledger(federation.root / silo / "state" / "ledger.sqlite3")
        charged = [(entry.debit.round, tensor) for entry in entries for tensor in entry.debit.costs]
        assert len(charged) == len(set(charged)), "nothing is charged twice"
    received = [tuple(one[key] for key in ("silo", "round", "slot")) for one in federation.entries(HUB, "received")]
    assert len(received) == len(set(received)), "and nothing sent twice"


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sixty_six_agents_on_a_circle_finish_though_one_falls_and_another_goes(tmp_path):
    of, gone = study(LARGE, 60, 1), "silo-07"
    falls = {
        gone: TaskCrash("told", Task.CONTRIBUTE, Tensor.HEADS, 1),
        "silo-20": TaskCrash("kept", Task.REVEAL, Tensor.HEADS, 1),
    }
    credentials = credentials_of(make_authority(tmp_path / "consortium"), of)
    (tmp_path / "federation").mkdir()
    federation = PartyFederation(tmp_path / "federation", of, credentials, doomed=falls, gone=frozenset({gone}))
    status = federation.run()
    assert status.state == "finished", status.why
    assert {time.attempt for time in status.times} == {1}
    assert federation.killed == set(falls)
    stayed = [silo for silo in LARGE if silo != gone]
    assert {federation.entries(silo, "study over")[0]["outcome"] for silo in stayed} == {"finished"}
    studies = [federation.root / silo / "state" / "studies" / of.digest for silo in stayed]
    assert len({(folder / f"model-{of.rounds}.safetensors").read_bytes() for folder in studies}) == 1
    shares = [one for one in status.uploads if one.kind == Note.SHARES]
    assert {one.round for one in shares} == set(range(of.rounds + 2))
    for one in shares:
        tensors = [release.tensor for release in plan(of).round(one.round)]
        whole = Layout.of(tensors, [str(number) for number in range(HOLDERS)]).form.note
        assert one.bytes == whole, "notes are for neighbours"
