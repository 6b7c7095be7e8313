"""The package's tree of errors. Two of its types are elsewhere: `DocumentError` (document.py), `Refused` (refusals.py).

Guarantees: every error that this package raises on purpose is a `PolicyError`, and its text names the fix. Errors that
need different handling have different types: a spent budget is a normal outcome, a failed write is a fault of the
machine, a broken chain is the fault of a person or program.
"""

from __future__ import annotations


class PolicyError(Exception):
    """Base of everything that `policies` raises on purpose."""


class CostError(PolicyError, ValueError):
    """A privacy cost or plan cannot be accounted for, because it is unknown, not finite or not positive."""


class LedgerError(PolicyError):
    """Base of the ledger's errors."""


class LedgerMissingError(LedgerError):
    """There is no ledger at the path. It is not created automatically, because a new ledger would be a full budget."""


class LedgerExistsError(LedgerError):
    """A ledger exists already at the path where a new one was to be made."""


class LedgerBusyError(LedgerError):
    """Another process holds the ledger."""


class LedgerMismatchError(LedgerError):
    """The ledger belongs to another data set, hold-out or delta than the policy states."""


class LedgerTamperedError(LedgerError):
    """The ledger's chain is broken: it was edited, cut, rolled back or damaged."""


class LedgerRolledBackError(LedgerTamperedError):
    """The ledger lacks an entry that others cosigned. It is an older copy or has another history."""


class CosignError(LedgerError):
    """A checkpoint of a ledger, or a cosignature, cannot be used."""


class ExportError(LedgerError):
    """An export of a ledger is altered, incomplete, or not priced as the accountant prices it."""


class LedgerWriteError(LedgerError):
    """A debit could not be made durable. Nothing may be computed under it."""


class LedgerShortError(LedgerWriteError):
    """The write failed for want of room or of open files, say. The ledger is as it was, and the same may work later."""


class ChargeConflictError(LedgerError):
    """The same (study, round, tensor, attempt) was charged before, at another cost."""


class BudgetRefused(LedgerError):  # noqa: N818 - a refusal, not a fault
    """A debit would overdraw the data set's budget. Nothing was written.

    The attributes are epsilons at the ledger's delta: `spent` before the debit, `wanted` after it, and the `budget`.
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
