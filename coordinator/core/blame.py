"""What follows from a proven spoilt sum: who leaves, who sits out, or that the study ends (docs/design/sums.md).

Pure. `crypto.secagg.blame` says what the lists of the spoilt sums prove; this module says what is done about it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from crypto.secagg.blame import named, provable, sit_out

Lists = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Verdict:
    """What is known after a spoilt sum, and what is done about it."""

    named: tuple[str, ...]
    """Silos that leave the study, because every explanation contains them."""
    aside: tuple[str, ...]
    """Silos that sit out until another sum is spoilt. Nobody says that they are guilty."""
    over: bool
    """Whether nobody else can be spared, so that the study ends."""
    why: str
    """What is known, in words."""


def judge(
    active: Sequence[str], lists: Lists, colluders: int, threshold: int, first: int, *, away: Collection[str] = ()
) -> Verdict:
    """Judge the lists of all spoilt sums of a study of which `active` silos are left. `first` rotates who sits out.

    Silos that are `away` sit out rather than others.
    """
    guilty = named(lists, colluders)
    staying = [name for name in active if name not in guilty]
    spare = len(staying) - threshold
    aside = sit_out(staying, lists, colluders, spare, first, away=away) if spare >= 0 else None
    return Verdict(tuple(sorted(guilty)), tuple(sorted(aside or ())), aside is None, known(lists, colluders))


def known(lists: Lists, colluders: int) -> str:
    """Say in words who spoilt the sums, as far as their lists prove it; empty if no sum was spoilt."""
    if not lists:
        return ""
    many = f"{len(lists)} attempts were spoilt" if len(lists) > 1 else "an attempt was spoilt"
    most = f"if at most {colluders} {'silo is' if colluders == 1 else 'silos are'} hostile"
    if guilty := sorted(named(lists, colluders)):
        return f"{many}, and {', '.join(guilty)} took part in it, {most}"
    suspects = sorted(provable(lists, colluders))
    return f"{many} by at least one of {', '.join(suspects)}; no smaller set can be proven, {most}"
