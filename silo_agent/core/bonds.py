"""What binds a silo in the sums of one tensor of a round, and what it may still sign, reveal and void. Pure.

Guarantees: one list is signed until T silos have voided it, or it is proven that a sum was spoilt. Who has revealed
does not void, and who has voided never reveals in the attempts that it voided. In one attempt the silo contributes
among one set of participants (docs/design/sums.md, "Voided lists", "Spoilt sums"). `storage.promises` keeps it all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from silo_agent.errors import SiloError


class SurvivorsError(SiloError):
    """A second survivor list was requested, or a voided sum. The message names only what the coordinator knows."""


@dataclass(frozen=True)
class Bonds:
    """A signed list, and the latest attempts in which something was promised; 0 for none.

    `of` names tensor and round for the messages.
    """

    names: tuple[str, ...] = ()
    """The list that this silo signed last."""
    signed: int = 0
    """In which this silo signed its list."""
    revealed: int = 0
    """In which this silo revealed."""
    voided: int = 0
    """Up to which this silo has promised to reveal nothing."""
    closed: int = 0
    """Up to which T silos have promised so: no sum of these attempts is ever opened."""
    spoilt: int = 0
    """Up to which a spoilt sum, of whatever tensor, has ended all that was begun in the round."""
    sent: int = 0
    """In which this silo contributed."""
    among: tuple[str, ...] = ()
    """The participants of that contribution, among whom its masks cancel."""

    @property
    def over(self) -> int:
        """The last attempt whose lists bind nobody any more."""
        return max(self.closed, self.spoilt)

    @property
    def binds(self) -> bool:
        """Whether the signed list counts: it is neither voided nor spoilt.

        If its attempt is unknown, it is never voided.
        """
        return bool(self.names) and (self.signed > self.over or not (self.signed or self.spoilt))

    @property
    def list(self) -> tuple[str, ...]:
        """The list that binds this silo; empty if none that it signed still counts."""
        return self.names if self.binds else ()

    def require(self, names: tuple[str, ...], of: str) -> None:
        """Raise `SurvivorsError` if this silo is bound to another list than these names."""
        if self.binds and self.names != names:
            msg = (
                f"this silo has signed a list of survivors for {of}: {', '.join(self.names)}; it takes part in no sum"
                " of others, so these silos must take part, or enough silos must void the list"
            )
            raise SurvivorsError(msg)

    def contribute(self, attempt: int, names: tuple[str, ...], of: str) -> Self:
        """Contribute among these participants.

        Raises `SurvivorsError` if this silo has contributed in this attempt among others, or in a later one. What it
        sealed then is under other masks, and what it reveals must fit them.
        """
        if attempt < self.sent or (attempt == self.sent and names != self.among):
            msg = (
                f"this silo has sealed its contribution to {of} in attempt {self.sent} among {', '.join(self.among)}."
                " It seals none among others or in an earlier attempt, so a new attempt is needed"
            )
            raise SurvivorsError(msg)
        return replace(self, sent=attempt, among=names)

    def sign(self, attempt: int, names: tuple[str, ...], of: str) -> Self:
        """Sign a list. The same again changes nothing.

        Raises `SurvivorsError` if another list binds this silo: if two sums differ in one silo, their difference is
        that silo's contribution. Raises it also for an attempt whose sum was voided or spoilt.
        """
        if attempt <= max(self.voided, self.over):
            msg = f"the sum of {of}, attempt {attempt}, was voided or spoilt; it is not signed"
            raise SurvivorsError(msg)
        self.require(names, of)
        # A version that kept no reveals stored the list, so this silo may have revealed it.
        revealed = attempt if self.names and not self.signed else self.revealed
        return replace(self, names=names, signed=max(self.signed, attempt), revealed=revealed)

    def reveal(self, attempt: int, of: str) -> Self:
        """Reveal for the signed list.

        Raises `SurvivorsError` if this silo has voided this attempt's sum, or if a spoilt sum has ended this attempt.
        """
        if attempt <= max(self.voided, self.spoilt):
            who = "a member has spoilt" if attempt <= self.spoilt else "this silo has voided"
            msg = f"{who} the sum of {of}, so this silo reveals nothing for it"
            raise SurvivorsError(msg)
        return replace(self, revealed=max(self.revealed, attempt))

    def void(self, through: int) -> Self | None:
        """Promise to reveal nothing in the attempts up to `through`.

        None if this silo has revealed in an attempt that T silos have not closed and no spoilt sum has ended.
        """
        unknown = bool(self.names) and not self.signed
        if unknown or self.revealed > self.over:
            return None
        return replace(self, voided=max(self.voided, through))

    def close(self, through: int) -> Self:
        """Take note that T silos have voided the attempts up to `through`. A list signed there binds no more."""
        return replace(self, closed=max(self.closed, through))
