"""What a run through processes says of its price."""

import pytest

from bench.processes import budget_figures
from deploy.demo.report_data import SiloBudget


@pytest.mark.parametrize(("spent", "counted", "met"), [(8.0, 8.0, [True, True]), (7.9, 8.1, [True, False])])
def test_every_ledger_counts(spent, counted, met):
    budgets = (SiloBudget("one", 1.0, 1.0, 8.0), SiloBudget("two", spent, counted, 8.0))
    assert [figure.met for figure in budget_figures(budgets, 8.0)] == met
