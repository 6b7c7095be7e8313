"""The coordinator is blind: a pattern planted in a silo's update is nowhere in what it keeps, in any encoding.

The coordinator is its own process, as installed; the silos are agents in this process, so that a pattern can be planted
behind the gate's back and so that one silo can hold its breath while the others' uploads lie at the coordinator. That
the search would find the pattern is shown on a build in which the pads are off, which exists only here.
"""

from __future__ import annotations

import os
import secrets
import threading
import urllib.request

import numpy as np
import pytest
import yaml

import crypto.secagg.sealing
from crypto.entropy import SystemEntropy
from crypto.pki.certificates import Credential
from crypto.rings.ckks_secret import CkksKey
from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger
from protos.messages import Tensor
from silo_agent.agent import Agent
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.gate import Gate
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.encoder import UPDATE_STEPS
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.calls.client import AskedToStop, Client
from silo_agent.protocol.ledgers.witnessing import Witnessing
from silo_agent.protocol.session import Session
from support.agents import Believing
from support.epochs import fresh_epochs
from support.memory import WINDOW, encodings, search, search_files, search_memory
from support.prepared import prepare
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml
from support.states import keyed
from support.unjudged import BelievingWitness, approved

pytestmark = pytest.mark.as_installed
PLANTED, LATE = "north", "west"
PATTERN = np.random.default_rng(2024).integers(2**10, 2**19, 4096)


class Planting(Learner):
    """A silo whose update is a pattern that we know."""

    def contribution(self, release, place, model, silos):
        real = super().contribution(release, place, model, silos)
        return PATTERN[: len(real)].copy() if release.tensor in (Tensor.ENCODER, Tensor.HEADS) else real


class Waiting(Learner):
    """A silo that holds back its part of one tensor until it is told to go on."""

    def __init__(self, *args, held, reached, go_on, **kwargs):
        super().__init__(*args, **kwargs)
        self._held, self._reached, self._go_on = held, reached, go_on

    def contribution(self, release, place, model, silos):
        if release.tensor == self._held:
            self._reached.set()
            assert self._go_on.wait(600)
        return super().contribution(release, place, model, silos)


class Silos:
    """Three agents, each on a thread of its own, against a coordinator that is a process."""

    def __init__(self, federation, held):
        self.reached, self.go_on, self.stop = threading.Event(), threading.Event(), threading.Event()
        self.errors = []
        self._federation, self._held = federation, held
        self.agents = [self._agent(name) for name in SILOS]
        self.threads = [threading.Thread(target=self._run, args=(agent,), daemon=True) for agent in self.agents]

    def _agent(self, name):
        folder = self._federation.place.party(name)
        names = ("certificate.pem", "key.pem", "authority.pem")
        credential = Credential.load(*(folder / file for file in names))
        policy = write_yaml(folder / "policy.yaml", policy_document(name))
        state = keyed(folder / "state")
        Ledger.create(
            folder / "state" / "ledger.sqlite3",
            Genesis(
                data_set=name,
                holdout=0.2,
                delta=1e-5,
                unit="patient",
                identified_by=("patient",),
                delimiter=",",
                columns=(),
            ),
        )
        metrics = AgentMetrics()
        gate = Gate(credential, policy, folder / "state" / "ledger.sqlite3", state, metrics, require_approved=approved)
        session = secrets.token_hex(16)
        client = Client(
            [f"127.0.0.1:{self._federation.port}"],
            credential,
            session,
            self.stop,
            lambda _: None,
            epochs=fresh_epochs(),
        )
        Witnessing(client, BelievingWitness(folder / "state", credential), self.stop).start()

        def learner(study):
            data_set = DataSet(self._federation.data[name], Division(name, 0.2, ("patient",)))
            shared = (study, data_set, state.study_folder(study.digest))
            given = {"draws": FreshDraws(SystemEntropy()), "device": "cpu"}
            if name == PLANTED:
                return Planting(*shared, **given)
            if name == LATE:
                return Waiting(*shared, **given, held=self._held, reached=self.reached, go_on=self.go_on)
            return Learner(*shared, **given)

        return Agent(
            client,
            gate,
            state,
            metrics,
            learners=learner,
            sessions=lambda study: Session.open(
                study, credential, SystemEntropy(), state.study_folder(study), begun=False
            ),
            personal=lambda *_: None,
            asking=Believing(),
            entropy=SystemEntropy(),
            session=session,
        )

    def _run(self, agent):
        try:
            agent.run(self.stop, until_finished=True)
        except AskedToStop:
            pass
        except BaseException as error:
            self.errors.append(error)
            raise

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.stop.set()
        for thread in self.threads:
            thread.join(600)


@pytest.fixture
def federation(tmp_path):
    study = write_yaml(tmp_path / "study.yaml", study_document(personal=None))
    sites = write_sites(tmp_path / "data")
    made = Federation(tmp_path / "federation", study, sites, yaml.safe_dump(policy_document()))
    prepare(made)
    made.start_coordinator()
    yield made
    made.stop()


def finds(federation, patterns):
    """Everything found in the coordinator's files, log, metrics and memory."""
    folder = federation.place.party(COORDINATOR)
    process = federation.processes[COORDINATOR]
    try:
        in_memory, read = search_memory(process.pid, patterns)
    except PermissionError:
        why = "this machine does not let a process read its child's memory"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    assert read > 10_000_000, "the memory image was not read"
    with urllib.request.urlopen(
        f"http://127.0.0.1:{federation.metrics_port(COORDINATOR)}/metrics", timeout=300
    ) as page:
        in_metrics = search(page.read(), patterns)
    files = search_files(folder, patterns)
    return {*files, *(f"memory: {name}" for name in in_memory), *(f"metrics: {name}" for name in in_metrics)}


def patterns(federation):
    study = federation.study
    update = encodings(PATTERN, study.encoder.max_update / UPDATE_STEPS[study.encoder.sealing])
    return {
        **update,
        **{f"{name} on the other grid": windows for name, windows in encodings(PATTERN, 2.0**-16).items()},
    }


def spooled(federation):
    return sorted(federation.place.party(COORDINATOR).glob(f"data/spool/*/*/*/*/{PLANTED}.sealed"))


@pytest.mark.slow
@pytest.mark.parametrize("held", [Tensor.HEADS, Tensor.ENCODER])
def test_a_planted_pattern_is_nowhere_at_the_coordinator(federation, held):
    with Silos(federation, held) as silos:
        federation.begin()
        assert silos.reached.wait(600)
        wait_for_upload(federation, held)
        assert finds(federation, patterns(federation)) == set()
        silos.go_on.set()
        with federation.author() as author:
            while (status := author.status(federation.study.digest)).state == "running":
                threading.Event().wait(0.1)
        assert status.state == "finished", status.why
        assert finds(federation, patterns(federation)) == set()
    assert not silos.errors


@pytest.mark.slow
@pytest.mark.parametrize("held", [Tensor.HEADS, Tensor.ENCODER])
def test_with_the_pads_off_the_search_does_find_it(federation, held, monkeypatch):
    """The build without protection: integers leave as they are. It is made here and nowhere else."""
    monkeypatch.setattr(crypto.secagg.sealing, "apply", lambda ring, words, terms: None)
    if held is not Tensor.ENCODER:
        encrypt = CkksKey.encrypt
        monkeypatch.setattr(CkksKey, "encrypt", lambda key, integers: in_the_clear(encrypt(key, integers), integers))
    with Silos(federation, held) as silos:
        federation.begin()
        assert silos.reached.wait(600)
        wait_for_upload(federation, held)
        found = finds(federation, patterns(federation))
    assert any(find.startswith("data/spool") for find in found), found


def in_the_clear(sealed, integers):
    """The planted vector in a well-formed frame that everybody can read; other vectors stay sealed."""
    if not np.array_equal(integers[:WINDOW], PATTERN[:WINDOW]):
        return sealed
    frame = np.ones(sealed.shape, np.uint64)
    frame[: len(integers)] = integers
    return frame


def wait_for_upload(federation, tensor):
    for _ in range(6000):
        if any(path.parent.name == tensor for path in spooled(federation)):
            return
        threading.Event().wait(0.1)
    pytest.fail("the planted upload did not arrive")
