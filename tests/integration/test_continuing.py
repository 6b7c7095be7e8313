"""A fourth hospital joins after a finished study: the model is handed over, and a new study continues it."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack, closing

import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.processes import script
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Cohorts, Silo
from policies.ledger.ledger import read_ledger
from policies.plan.release import plan
from protos.messages import Work
from protos.steps import Task
from silo_agent.data.reader import read_records
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import begin
from silo_agent.learning.noise.draws import FreshDraws
from support import local_silos
from support.certificates import data_set_of, load, make_authority
from support.local_coordinator import LocalCoordinator
from support.local_federation import HOLDOUT
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml
from support.studies import tiny_study

ALL = (*SILOS, "east")
SECONDS = 600.0


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """Four real agents with an authority, of whom three have finished a study; their policies are `changed`."""
    monkeypatch.setattr(
        local_silos,
        "Learner",
        lambda study, data_set, *given, draws, **named: Learner(
            study, data_set, *given, draws=FreshDraws(RepeatableEntropy(7, data_set.source.stem)), **named
        ),
    )
    authority = make_authority(tmp_path / "consortium")
    hub = load(authority.credential("coordinator", "hub"))
    first = LocalCoordinator(tiny_study(), hub)
    with ExitStack() as stack:
        silos = {}
        for name in ALL:
            coordinator = first if name in SILOS else LocalCoordinator(tiny_study(), hub)
            given = name != "west"  # west's policy does not let models out of the consortium
            silo = local_silos.LocalSilo(
                tmp_path / name, load(authority.credential("silo", name)), coordinator, hand_over=given
            )
            silos[name] = stack.enter_context(closing(silo))
        for number in range(plan(first.study).last + 1):
            first.run_round(number)
        (tmp_path / "authority.pem").write_bytes(authority.pem)
        yield silos, first, hub


def joined(silos, coordinator):
    """The same hospitals under another coordinator."""
    for silo in silos:
        silo.coordinator = coordinator
        silo.restart()


def answer_of(coordinator, silo):
    coordinator.ask(silo.name, Work(Task.DECIDE, coordinator.place(0)))
    return coordinator.clients[silo.name].answers[-1]


@pytest.mark.slow
def test_a_study_goes_on_from_the_model_and_no_silo_from_another(hospitals, tmp_path):
    silos, first, hub = hospitals
    model = SharedModel.load(silos["north"].model(first.study.rounds))
    continued = {"continues": model.digest, "max_attempts": 2}
    # Without newcomers nobody has to allow anything, and it is the simulation's very model.
    again = tiny_study(**continued)
    coordinator = LocalCoordinator(again, hub)
    joined([silos[name] for name in SILOS], coordinator)
    for number in range(plan(again).last + 1):
        coordinator.run_round(number)
    cohorts = {}
    for name in SILOS:
        records = read_records(silos[name].data, again.data, ["patient"]).records
        cohorts[name] = Silo.split(records, data_set_of(name), HOLDOUT)
    simulated = simulate(again, Cohorts(cohorts), seed=7, earlier=model)
    assert silos["south"].model(again.rounds).read_bytes() == simulated.model.to_bytes()
    simulated.model.require_reachable(begin(again, model))
    _, entries = read_ledger(silos["south"].folder / "ledger.sqlite3")
    assert {entry.debit.study for entry in entries} == {first.study.digest, again.digest}, "both are charged"
    # With a newcomer, who does not have the model yet, and a member whose policy does not hand it over.
    wider = tiny_study(**continued, silos=list(ALL))
    coordinator = LocalCoordinator(wider, hub)
    joined(silos.values(), coordinator)
    east, north, west = (answer_of(coordinator, silos[name]) for name in ("east", "north", "west"))
    assert (east.refusal, west.refusal, north.refusal) == ("no_model", "hand_over", "")
    assert "fedward-silo import" in east.explanation
    assert "east did not belong" in west.explanation
    _, entries = read_ledger(silos["east"].folder / "ledger.sqlite3")
    assert not entries
    # A model that does not fit is refused by name, too.
    other = tiny_study(**continued, model={"hidden": [4]})
    coordinator = LocalCoordinator(other, hub)
    joined([silos["north"]], coordinator)
    said = answer_of(coordinator, silos["north"])
    assert (said.refusal, "section model is another one" in said.explanation) == ("no_model", True)


@pytest.mark.slow
def test_a_silo_that_restarts_in_the_middle_goes_on_from_the_same_start(hospitals):
    silos, first, hub = hospitals
    model = SharedModel.load(silos["north"].model(first.study.rounds))
    study = tiny_study(continues=model.digest)
    coordinator = LocalCoordinator(study, hub)
    joined([silos[name] for name in SILOS], coordinator)
    coordinator.run_round(0)
    silos["north"].restart()
    coordinator.run_round(1, silos=("south", "west", "north"))
    silos["west"].restart()
    coordinator.run_round(2)
    assert len({silos[name].model(2).read_bytes() for name in SILOS}) == 1


@pytest.mark.slow
def test_a_fourth_hospital_joins_and_nobody_forgets(tmp_path):
    """Real processes and commands. The data are public, so that what is compared is not the noise."""
    open_noise = {"pooled_rounds": 1, "domain_rounds": 2, "pooled_noise": 0, "domain_noise": 0}
    document = study_document(
        personal=None,
        heads=open_noise,
        privacy={"delta": 1e-5, "mode": "none", "count_noise": 0, "max_patients": 1000},
        evaluation={"bins": 6, "noise": 0},
        # A rate of 1 makes the end depend on who is held out: the same hospital then loses .02 in one run of four.
        encoder={"steps": 6, "sampling_rate": 1.0, "batch_size": 120, "learning_rate": 0.3, "noise": 0, "clip": 5.0},
    )
    files = write_sites(tmp_path / "data", silos=ALL)
    policy = yaml.safe_dump(policy_document(public=True, hand_over=True))
    federation = Federation(tmp_path / "federation", write_yaml(tmp_path / "study.yaml", document), files, policy)
    prepare(federation)
    with ExitStack() as stack:
        stack.callback(federation.stop)
        federation.start_coordinator()
        finish(federation, SILOS)
        first = final(federation, "north")
        for name in SILOS:
            command(federation, name, "hand-over", first.study.digest, "--out", tmp_path / "given")
        assert f"continues: {first.digest}" in command(federation, "east", "import", tmp_path / "given")
        wider = {**document, "name": "wider", "silos": list(ALL), "min_silos": 4, "continues": first.digest}
        write_yaml(federation.study_file, wider)
        finish(federation, ALL)
    second = final(federation, "east")
    assert final(federation, "south").digest == second.digest
    assert second.study.continues == first.digest
    old = [area(second, files[name]) - area(first, files[name]) for name in SILOS]
    assert min(old) > -0.02, old
    assert area(second, files["east"]) > 0.8


def finish(federation, names):
    """Run the study with these agents, each of which ends with it."""
    federation.configure()
    for name in names:
        federation.start_silo(name)
    for name in names:
        federation.await_ready(name)
    federation.begin()
    end = time.monotonic() + SECONDS
    with federation.author() as author:
        while (status := author.status(federation.study.digest)).state not in ("finished", "ended", "aborted"):
            assert time.monotonic() < end, "\n".join(map(federation.log_tail, names))
            time.sleep(0.1)
    assert status.state == "finished", status.why
    for name in names:
        federation.parties.wait(name, SECONDS)


def final(federation, silo):
    return SharedModel.load(federation.state(silo) / f"model-{federation.study.rounds}.safetensors")


def command(federation, silo, *arguments):
    done = subprocess.run(
        [script("fedward-silo"), *map(str, arguments), "-c", federation.config(silo)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def area(model, file):
    records = read_records(file, model.study.data).whole()
    return auc(model.predict(records.inputs, records.domains)[:, 1], records.labels)
