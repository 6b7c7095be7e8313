"""What a run through processes says of its price."""

import pytest

from bench.processes import budget_figures, or_failure
from bench.table import Criterion
from deploy.demo.report_data import SiloBudget
from deploy.local.processes import FederationError


@pytest.mark.parametrize(("spent", "counted", "met"), [(8.0, 8.0, [True, True]), (7.9, 8.1, [True, False])])
def test_every_ledger_counts(spent, counted, met):
    budgets = (SiloBudget("one", 1.0, 1.0, 8.0), SiloBudget("two", spent, counted, 8.0))
    assert [figure.met for figure in budget_figures(budgets, 8.0)] == met


def test_a_run_that_fails_is_a_missed_figure():
    def fails():
        msg = "north left"
        raise FederationError(msg)

    (missed,) = or_failure("digits", fails)
    assert (missed.met, missed.measured) == (False, "north left")
    assert or_failure("digits", lambda: [Criterion("a", "b", "c", met=True)]) == [Criterion("a", "b", "c", met=True)]
