"""Who is held out at this hospital, and whose records are not read."""

from __future__ import annotations

from policies.documents.policy import load_policy
from policies.ledger.chain import bound
from policies.ledger.ledger import Genesis, read_history, require_match
from silo_agent.config import AgentConfig
from silo_agent.data.sources.data_set import Division
from silo_agent.data.table import Written
from silo_agent.models.evaluate import HospitalCohorts
from silo_agent.storage.approvals import own
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import withdrawn_of


def cohorts_of(settings: AgentConfig) -> HospitalCohorts:
    """Return what divides this hospital's patients, as its ledger is bound to it. Raises `LedgerMismatchError`."""
    policy, ledger = load_policy(settings.policy), StateFolder(settings.state).ledger
    if ledger.exists():
        require_match(ledger.name, bound(*read_history(ledger)), Genesis.of(policy))
    withdrawn = withdrawn_of(StateFolder(settings.state), settings.key_holder)
    return HospitalCohorts(
        Division.of(policy),
        lambda study: own(settings, study, policy),
        Written.of(policy),
        withdrawn,
    )
