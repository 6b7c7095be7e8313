"""Forecasts of what a study will be worth: its whole release plan on made-up records, before anybody pays.

Reads public constants, on request opened sums of an earlier study (`earlier_study`) or a file that is declared public
(`public`), and never a private record. `forecast` has the entry, `assumptions` what is expected of the data,
`made_up_patients` the patients, `simulated_rounds` the rounds, `plain` the fit of one hospital alone, `sampling` what
few test patients add to an AUC, `verdict` the sentences.
"""

__all__ = ["assumptions", "earlier_study", "forecast", "made_up_patients", "plain", "public", "sampling", "verdict"]
