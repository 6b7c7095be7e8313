"""What a study would mean for one hospital: its ledger now, after the study, and whether the policy takes it.

Guarantees: the ledger is read and not changed, and no record is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crypto.pki.certificates import require_data_set
from crypto.pki.reading import parse_certificate, subject_of
from policies.accounting import accountant
from policies.decision import decide
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.events import Debit, costs_of
from policies.ledger.ledger import read_history
from policies.plan.cost import Cost
from policies.plan.release import plan as plan_of
from policies.refusals import Refused
from silo_agent.config import AgentConfig
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import begun_names, revisions_of


@dataclass(frozen=True)
class HospitalOutlook:
    """What the study would mean for one hospital. `left` is the epsilon between the spent epsilon and the budget."""

    spent: float
    after: float
    budget: float
    refused: Refused | None
    again: Refused | None = None
    """Why the hospital would refuse the rest of the study once a round is repeated; None if it takes it, too."""

    @property
    def left(self) -> float:
        """Epsilon that would be left, at least 0."""
        return max(0.0, self.budget - self.after)


def standing_of(settings: AgentConfig, policy: Policy, study: Study) -> HospitalOutlook:
    """Return what the hospital's ledger states now and would state after the study.

    The plan counts one draw of every tensor of every round. Charges of this study for these draws are not counted
    twice. Its other charges, for repeated attempts, are added; those of its other revisions count for its limits.
    """
    certificate = settings.certificate.read_bytes()
    require_data_set(certificate, policy.data_set.id)
    genesis, entries = read_history(StateFolder(settings.state).ledger)
    spent: list[Cost] = []
    others: list[Cost] = []
    repeated: list[Cost] = []
    planned: set[tuple[str, int]] = set()
    revised: list[Cost] = []
    folder = StateFolder(settings.state)
    revisions = revisions_of(folder, study, begun_names(folder)) - {study.digest}
    for entry in entries:
        event = entry.event
        spent += costs_of(event)
        if not (isinstance(event, Debit) and event.study == study.digest):
            others += costs_of(event)
            revised += costs_of(event) if isinstance(event, Debit) and event.study in revisions else ()
            continue
        draws = {(tensor, event.round): cost for tensor, cost in event.costs.items()}
        repeated += [cost for draw, cost in draws.items() if draw in planned]
        planned |= set(draws)

    silo = subject_of(parse_certificate(certificate)).identity.name

    def refuses(more: list[Cost]) -> Refused | None:
        try:
            decide(
                policy,
                study,
                silo=silo,
                roster_size=None,
                spent_costs=[*others, *more],
                round=0,
                attempt=1,
                charged_attempts=0,
                study_spent=[*revised, *more],
                ledger_day=max((entry.day for entry in entries), default=None),
            )
        except Refused as refused:
            return refused
        return None

    refusal = refuses(repeated)
    every = (refuses([*repeated, *extra]) for extra in plan_of(study).repeats()) if refusal is None else ()
    again = next((refused for refused in every if refused is not None), None)
    before = accountant.epsilon(spent, genesis.delta)
    after = max(before, accountant.epsilon([*others, *repeated, *plan_of(study).costs()], genesis.delta))
    return HospitalOutlook(before, after, math.inf if policy.data_set.public else policy.budget.epsilon, refusal, again)
