"""Forecasts of what a study will be worth: its whole release plan on made-up records, before anybody pays.

Reads public constants alone, never a record. `forecast` has the entry, `asked` what is expected of the data, `law` the
made-up patients, `walk` the rounds, `plain` the fit of one hospital alone, `verdict` the sentences.
"""

__all__ = ["asked", "forecast", "plain", "verdict"]
