"""A study as people read it: priced and judged once, and neither if it breaks a bound."""

from __future__ import annotations

import pytest

from crypto.authorship import SignatureBeside
from policies.accounting.planning import price
from policies.documents.bounds import STORED
from policies.documents.policy import DataRule, load_policy
from policies.documents.study import Study
from silo_agent.review import shown as room
from silo_agent.review.shown import shown
from silo_agent.storage import offered
from support.asked import NOW
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

STUDY = tiny_study()
ANN = "fedward://author/ann"


def test_author_earlier_revision_price_and_verdict_come_together(settings, folder):
    later = tiny_study(revision=2)
    for study in (STUDY, later):
        offered.keep(folder, study, NOW, signed=offered.Signed(ANN, SignatureBeside(b"pem", b"s")))
    found = shown(settings, later, "tiny")
    assert (found.study, found.earlier, found.refused) == (later, STUDY, None)
    assert found.prices == price(later, 1e-5)
    assert found.outlook.after == found.prices.total


def test_a_rule_for_its_author_gives_it_data(settings, folder, monkeypatch):
    rules = {"lab": (DataRule(studies="tiny", author=ANN, purpose="*"),)}
    policy = load_policy(settings.policy).model_copy(update={"approved_data": rules})
    monkeypatch.setattr(room, "load_policy", lambda _: policy)
    assert shown(settings, STUDY, "tiny").approval.startswith("Not approved")
    offered.keep(folder, STUDY, NOW, signed=offered.Signed(ANN, SignatureBeside(b"pem", b"s")))
    assert "gives it lab" in shown(settings, STUDY, "tiny").approval


def test_what_a_policy_refuses_has_a_price(settings):
    write_yaml(settings.policy, policy_document("north-ward", min_silos=5))
    found = shown(settings, STUDY, "tiny")
    assert found.outlook.refused is found.refused is not None
    assert found.prices is not None


def test_what_breaks_a_bound_is_never_priced(settings, monkeypatch):
    broken = Study.model_validate(tiny_document(encoder={"learning_rate": 2e3}), context=STORED)
    monkeypatch.setattr(room, "price", lambda *_: pytest.fail("it was priced"))
    monkeypatch.setattr(room, "standing_of", lambda *_: pytest.fail("it was held against the ledger"))
    found = shown(settings, broken, "tiny")
    assert (found.prices, found.outlook) == (None, None)
    assert [reason for reason, _ in found.refused.reasons] == ["bounds"]
