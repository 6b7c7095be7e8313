"""How many silos a study's sums need, how many may be missing, how many a silo deals with, and how many there may be.

Guarantees: the number is computed from all silos that the study lists, and not from those that take part. So no
coordinator can lower it by showing silos a small roster (docs/design/sums.md, "Thresholds"). The coordinator and every
silo call `require`; the study's schema does not, so that studies of earlier versions can still be read.
`crypto.secagg.survivors.threshold` is the same number for the protocol, and `crypto.secagg.circle` has the same
neighbours; tests compare them.
"""

from __future__ import annotations

from typing import Final

from policies.documents.study import Study
from policies.refusals import Reason, Refused

MOST: Final = 256
"""Silos that a federation's messages and sums carry. A study that is simulated may name more (`MOST_SILOS`)."""

_ALL_UP_TO: Final = 64


def least(silos: int, colluders: int) -> int:
    """The least T that t colluders of N silos cannot get round: T > t and 2T > N + t."""
    return max(colluders + 1, (silos + colluders) // 2 + 1)


def needed(study: Study) -> int:
    """T: how many silos must take part in a sum, sign who is in it, and open it."""
    return max(least(len(study.silos), study.privacy.colluders), study.min_silos)


def spare(study: Study) -> int:
    """How many of the study's silos may be missing from a sum. With distributed noise none may vanish in a round."""
    return len(study.silos) - needed(study)


def holders(study: Study) -> int:
    """Most silos that hold shares of one silo's secrets, whatever the roster (docs/design/sums.md, "The circle")."""
    reach = max(2, spare(study) + study.privacy.colluders + 1)
    return min(len(study.silos), max(_ALL_UP_TO, 2 * reach + 1))


def require(study: Study) -> None:
    """Raise `Refused` if there are too many silos, or `min_silos` is below what silos and colluders need."""
    silos, colluders = len(study.silos), study.privacy.colluders
    if silos > MOST:
        raise Refused(
            Reason.TOO_MANY_SILOS,
            f"study.silos names {silos}, and a federation has {MOST} at most; only `fedward simulate` runs larger ones."
            f" Name {MOST} or fewer",
        )
    bound = least(silos, colluders)
    if study.min_silos < bound:
        raise Refused(
            Reason.TOO_FEW_SILOS,
            f"study.min_silos is {study.min_silos}; more than half of the {silos} study.silos and {colluders}"
            f" privacy.colluders together are needed, so that no two different sums of a tensor can be opened. Set"
            f" study.min_silos to {bound} or more, and create the study under a new name",
        )
