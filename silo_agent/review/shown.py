"""A study as a hospital sees it before it agrees: who asks, what it costs here, what the policy says, what is new."""

from __future__ import annotations

from dataclasses import dataclass

from policies.accounting.planning import Prices, price
from policies.documents.policy import load_policy
from policies.documents.study import Study, require_bounds
from policies.refusals import Refused
from silo_agent.config import AgentConfig
from silo_agent.review import texts
from silo_agent.review.standing import HospitalOutlook, standing_of
from silo_agent.review.texts import Author
from silo_agent.storage import approvals as kept
from silo_agent.storage.folders import StateFolder


@dataclass(frozen=True)
class ShownStudy:
    """What people read of one study. Prices and outlook are None of a text that breaks a bound: it is never begun."""

    study: Study
    author: Author
    earlier: Study | None
    approval: str
    """Whether the study may use data here, and what to do about it."""
    prices: Prices | None
    outlook: HospitalOutlook | None
    refused: Refused | None


def shown(settings: AgentConfig, study: Study, wanted: str) -> ShownStudy:
    """Look at a study; `wanted` is what the person called it by. The ledger is read and not changed."""
    policy, decided = load_policy(settings.policy), kept.approvals(StateFolder(settings.state))
    author = texts.author_of(settings, study, wanted)
    said = texts.said_of(study, decided, settings, policy.data_for(study.name, study.purpose, author.uri))
    earlier = texts.earlier_of(settings, study, author.uri)
    try:
        require_bounds(study)  # before anything is priced: that would take long
    except Refused as refusal:
        return ShownStudy(study, author, earlier, said, None, None, refusal)
    prices = price(study, policy.budget.delta)
    try:
        outlook = standing_of(settings, policy, study)
    except Refused as refusal:
        return ShownStudy(study, author, earlier, said, prices, None, refusal)
    return ShownStudy(study, author, earlier, said, prices, outlook, outlook.refused)
