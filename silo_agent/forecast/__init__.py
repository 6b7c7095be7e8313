"""Forecasts of what a study will be worth: its whole release plan on made-up records, before anybody pays.

Reads public constants, on request opened sums of an earlier study (`earlier`) or a file that is declared public
(`public`), and never a private record. `forecast` has the entry, `asked` what is expected of the data, `law` the
made-up patients, `walk` the rounds, `plain` the fit of one hospital alone, `sampling` what few test patients add to an
AUC, `verdict` the sentences.
"""

__all__ = ["asked", "earlier", "forecast", "plain", "public", "sampling", "verdict"]
