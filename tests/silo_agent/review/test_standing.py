"""What a study would mean for a hospital's ledger, and what its policy says."""

from __future__ import annotations

import math

import pytest

from policies.accounting import accountant
from policies.documents.policy import load_policy
from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger
from policies.plan.cost import Cost
from policies.plan.release import plan
from silo_agent.review.standing import HospitalOutlook, standing_of
from silo_agent.storage import offered
from support.asked import NOW, begin
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

STUDY = tiny_study()
COST = Cost("training", 1.0, 10.0, 1)


def standing(settings, study=STUDY):
    return standing_of(settings, load_policy(settings.policy), study)


def charge(folder, *debits):
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=99.0) as ledger:
        for debit in debits:
            ledger.charge(debit)


def epsilon(*costs):
    return accountant.epsilon(costs, NORTH.delta)


def test_an_empty_ledger_would_have_the_plans_price(settings):
    found = standing(settings)
    assert (found.spent, found.after, found.budget) == (0.0, epsilon(*plan(STUDY).costs()), 4.0)
    assert (found.refused, found.again) == (None, None)
    assert found.left == 4.0 - found.after
    assert HospitalOutlook(1.0, 5.0, 4.0, None).left == 0.0


def test_what_others_spent_is_spent_and_what_this_study_drew_is_not_counted_twice(settings, folder):
    first, again = plan(STUDY).round_costs(0), plan(STUDY).round_costs(1)
    charge(folder, Debit("other", "p", 0, 1, {"heads": COST}), Debit(STUDY.digest, "p", 0, 1, first))
    found = standing(settings)
    assert found.spent == epsilon(COST, *first.values())
    assert found.after == epsilon(COST, *plan(STUDY).costs())
    charge(folder, Debit(STUDY.digest, "p", 1, 1, again), Debit(STUDY.digest, "p", 1, 2, again))
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=99.0) as ledger:
        ledger.put_into_force("f" * 64, 4.0)
    found = standing(settings)
    assert found.after == epsilon(COST, *again.values(), *plan(STUDY).costs())


def test_other_revisions_count_for_the_limits_of_the_study(settings, folder):
    price = epsilon(*plan(STUDY).costs())
    later = tiny_study(revision=2)
    document = policy_document("north-ward", budget={"epsilon": 32.0, "delta": 1e-5, "relation": "add_remove",
                                                     "expires": "2099-12-31"})  # fmt: skip
    document["limits"].update(study_epsilon=price * 1.2)
    write_yaml(settings.policy, document)
    charge(folder, *(Debit(STUDY.digest, "p", n, 1, plan(STUDY).round_costs(n)) for n in range(STUDY.rounds + 2)))
    begin(folder, STUDY, committed=STUDY.rounds)
    offered.keep(folder, later, NOW)
    refused = standing(settings, later).refused
    assert [one[0] for one in refused.reasons] == ["epsilon_per_study"]
    assert standing(settings, tiny_study(name="other")).refused is None


def test_what_fits_but_for_a_repeated_round_says_so(settings):
    shared = tiny_study(privacy={"mode": "distributed"})
    price, document = epsilon(*plan(shared).costs()), policy_document("north-ward")
    for limit, refused, again in ((1.0001, False, True), (0.9, True, False)):
        document["limits"].update(study_epsilon=price * limit)
        write_yaml(settings.policy, document)
        found = standing(settings, shared)
        why = [reason and any(one[0] == "epsilon_per_study" for one in reason.reasons)
               for reason in (found.refused, found.again)]  # fmt: skip
        assert why == [refused or None, again or None], "what is refused as it is is not asked for again"
    document["limits"].update(study_epsilon=4.0)
    write_yaml(settings.policy, document)
    assert standing(settings, shared).again is None


def test_public_data_have_no_budget(settings):
    write_yaml(settings.policy, policy_document("north-ward", public=True))
    assert standing(settings).budget == math.inf


def test_a_ledger_of_another_data_set_is_not_asked(settings):
    write_yaml(settings.policy, policy_document("another-ward"))
    with pytest.raises(Exception, match="another-ward"):
        standing(settings)
