"""The package's tree of errors, apart from `DocumentError` (document.py) and `Refused` (refusals.py), which hang on it.

Guarantees: whatever this package raises on purpose is a `PolicyError`, and its text names the mend. Kinds that call
for different handling are different types: a spent budget is a normal outcome, a failed write is the machine's fault,
a broken chain is somebody's.
"""

from __future__ import annotations


class PolicyError(Exception):
    """Base of everything that `policies` raises on purpose."""


class CostError(PolicyError, ValueError):
    """A privacy cost or plan that cannot be accounted for: unknown, not finite, not positive."""


class LedgerError(PolicyError):
    """Base of what the ledger raises."""


class LedgerMissingError(LedgerError):
    """There is no ledger at the path. It is never made in passing: an absent ledger would be a full budget."""


class LedgerExistsError(LedgerError):
    """A ledger stands where a new one was to be made."""


class LedgerBusyError(LedgerError):
    """Another process holds the ledger."""


class LedgerMismatchError(LedgerError):
    """The ledger belongs to another data set, hold-out or delta than the policy names."""


class LedgerTamperedError(LedgerError):
    """The ledger's chain does not hold: edited, cut, rolled back or damaged."""


class LedgerRolledBackError(LedgerTamperedError):
    """The ledger lacks an entry that others cosigned: an older copy, or another history."""


class CosignError(LedgerError):
    """A checkpoint about a ledger, or a cosignature, that cannot be used."""


class ExportError(LedgerError):
    """An export of a ledger that does not hold: altered, incomplete, or not priced as the accountant prices it."""


class LedgerWriteError(LedgerError):
    """A debit could not be made durable. Nothing may be computed under it."""


class ChargeConflictError(LedgerError):
    """The same (study, round, tensor, attempt) was charged before at another cost."""


class BudgetRefused(LedgerError):  # noqa: N818 - a refusal, not a fault
    """A debit would overdraw the data set's budget. Nothing was written.

    Attributes are epsilons at the ledger's delta: `spent` before, `wanted` after the debit, `budget` allowed.
    """

    def __init__(self, *, spent: float, wanted: float, budget: float, delta: float) -> None:
        self.spent = spent
        self.wanted = wanted
        self.budget = budget
        self.delta = delta
        super().__init__(
            f"the debit would bring the data set to epsilon {wanted:.4f} at delta {delta:g}; {spent:.4f} of"
            f" budget.epsilon {budget:.4f} is spent. Nothing was charged. Ask for a study with more noise or fewer"
            " rounds; a spent budget does not refill"
        )
