"""What a hospital's people see of studies before and after they decide: texts, verdicts, prices against the budget.

Commands and console show the same, because both read it here.
"""

__all__ = ["asking", "charged", "cohorts", "data_check", "finished", "known", "shown", "spent", "standing", "texts"]
