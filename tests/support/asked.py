"""A hospital that a study has asked, before any agent of it has run."""

from __future__ import annotations

from datetime import UTC, datetime

from policies.ledger.ledger import Ledger
from silo_agent.storage import offered
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.state import State
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)


def asked_hospital(folder, home, study, **policy):
    """Return its configuration's path. The list of approvals is there, as after an agent's first start."""
    write_yaml(folder / "policy.yaml", policy_document("north-ward", **policy))
    state = StateFolder(folder / "state")
    state.path.mkdir()
    state.approvals.write_text('{"version": 2, "approvals": {}, "unbound": {}}')
    Ledger.create(state.ledger, NORTH)
    offered.keep(state, study, NOW)
    credential = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    more = {"policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv", "lab": "lab.csv"}}
    return write_yaml(folder / "agent.yaml", {"coordinator": "localhost:1", **credential, **more})


def begin(state: StateFolder, study, *, committed=-1, why=None):
    """Have a study begun at a silo, with rounds that are finished, and over if there is a reason."""
    held = State(state.path)
    held.add_study(study.digest, study.canonical())
    if committed >= 0:
        held.commit(study.digest, committed)
    if why is not None:
        held.finish(study.digest, why, NOW.date())
    held.close()
    state.study(study.digest).path.mkdir(parents=True, exist_ok=True)
