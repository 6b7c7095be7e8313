"""Agents in the test's own process that learn from records and charge a ledger, as at a hospital."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from crypto.pki.certificates import Credential
from policies.documents.study import Study
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger
from silo_agent.agent import UnknownDataError
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.gate import Gate
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.personal.process import train_up_to
from silo_agent.protocol.attempt import Running
from silo_agent.protocol.session import Session
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.rows import rows_of
from support.agents import AgentSilo
from support.certificates import data_set_of
from support.local_coordinator import LocalClient, LocalCoordinator
from support.local_federation import HOLDOUT, write_patients
from support.small_cohort import policy_document, write_yaml
from support.unjudged import approved

SLOPES = np.array([[4.0, -2.0], [-3.0, 2.0]])
EPSILONS = {"budget": {**policy_document()["budget"], "epsilon": 20.0}}


class LocalSilo(AgentSilo):
    """One hospital of `support.studies.tiny_study`, connected to a coordinator."""

    def __init__(
        self,
        folder: Path,
        credential: Credential,
        coordinator: LocalCoordinator,
        *,
        public: bool = False,
        **policy: object,
    ) -> None:
        self.folder, self.credential, self.coordinator = folder, credential, coordinator
        folder.mkdir(parents=True)
        rng = np.random.default_rng(sum(self.name.encode()))
        self.data = write_patients(folder / f"{self.name}.csv", rng, SLOPES, patients=40)
        self.data_set = data_set_of(self.name)
        data_set = {"id": self.data_set, "unit": "patient", "identified_by": ["patient"], "holdout": HOLDOUT}
        if public:
            data_set["public"] = True
        document = {**policy_document(**EPSILONS), "data_set": data_set, **policy}
        self.policy = write_yaml(folder / "policy.yaml", document)
        Ledger.create(
            folder / "ledger.sqlite3",
            Genesis(
                data_set=self.data_set,
                holdout=HOLDOUT,
                delta=1e-5,
                unit="patient",
                identified_by=("patient",),
                delimiter=",",
                columns=(),
                public=public,
            ),
        )
        self.restart()

    @property
    def home(self) -> Path:
        return self.folder / "state"

    def connect(self) -> LocalClient:
        client = self.coordinator.connect(self.name)
        client.signer = self.credential
        return client

    def make_gate(self) -> Gate:
        ledger = self.folder / "ledger.sqlite3"
        return Gate(self.credential, self.policy, ledger, self.state, self.metrics, require_approved=approved)

    def make_learner(self, study: Study) -> Learner:
        if study.name != "tiny":
            msg = f"agent.yaml names no file for the study {study.name!r}"
            raise UnknownDataError(msg)
        return Learner(
            study,
            DataSet(self.data, Division(self.data_set, HOLDOUT, ("patient",))),
            self.files(study.digest),
            draws=FreshDraws(self.entropy),
            device="cpu",
            kept=rows_of(self.state.files.study(study.digest), self.credential, self.entropy),
        )

    def open_session(self, study: str) -> Session:
        begun = self.state.attempt(study) is not None
        return Session.open(study, self.credential, self.entropy, self.files(study), begun=begun)

    def personal(self, study: Study, round_number: int) -> None:
        with suppress(Exception):
            learner = self.agent._running[study.digest].learner
            folder = StudyFolder(self.files(study.digest))
            train_up_to(folder, round_number, lambda: learner.cohort("training"), entropy=self.entropy)

    def restart(self) -> None:
        super().restart()
        self.coordinator.agents[self.name] = self.agent

    def session_lost(self) -> None:
        """Begin again without the keys."""
        Session.forget(self.files(self.coordinator.study.digest))
        self.restart()

    def model(self, number: int) -> Path:
        return self.files(self.coordinator.study.digest) / f"model-{number}.safetensors"

    @property
    def running(self) -> Running:
        """The study as it stands in the agent's memory."""
        return self.agent._running[self.coordinator.study.digest]

    @property
    def inbox(self) -> list[str]:
        """Names of all that was fetched and lies there still."""
        return sorted(path.name for path in (self.folder / "state" / "inbox").rglob("*") if path.is_file())

    @property
    def charges(self) -> list[tuple[int, int, str]]:
        return sorted((e.debit.round, e.debit.attempt, t) for e in self.gate.ledger.entries() for t in e.debit.costs)
