import pytest

from policies import errors
from policies.errors import BudgetRefused, LedgerError, PolicyError


def test_a_spent_budget_says_how_much_what_it_means_and_what_to_do():
    refusal = BudgetRefused(spent=1.25, wanted=4.123456, budget=4.0, delta=1e-5)
    assert (refusal.spent, refusal.wanted, refusal.budget, refusal.delta) == (1.25, 4.123456, 4.0, 1e-5)
    assert str(refusal) == (
        "the debit would bring the data set to epsilon 4.1235 at delta 1e-05; 1.2500 of budget.epsilon 4.0000 is spent."
        " Nothing was charged. Ask for a study with more noise or fewer rounds; a spent budget does not refill"
    )


@pytest.mark.parametrize("name", [name for name, found in vars(errors).items() if isinstance(found, type)])
def test_every_error_is_one_of_this_package_and_of_the_ledger_if_it_is_the_ledgers(name):
    kind = getattr(errors, name)
    assert issubclass(kind, PolicyError)
    assert issubclass(kind, LedgerError) == (name not in ("PolicyError", "CostError"))
