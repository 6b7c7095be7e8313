"""The layout of a sealed vector in every ring: the values, one roster slot for each silo of the study, the checks.

Guarantees: the length depends on the study alone, never on who takes part, so the coordinator knows the size of every
upload beforehand. The slots are in the order of the silos' sorted names. A silo puts 1 into its own slot and 0 into the
others, so the opened sum shows who is in it, and how often. After the slots come `CHECKS` linear checks of `LIMBS`
limbs each, the lowest limb first. `checks`, which only silos may import, says what the checks are.
"""

from __future__ import annotations

CHECKS = 4
LIMBS = 4
"""Limbs of a check. A check is a number mod 2^64; limbs are added as integers, since rings are narrower or wrap."""
LIMB_BITS = 16
"""The limbs of 2^15 silos would still fit the narrowest ring."""


def sealed_values(values: int, silos: int) -> int:
    """Values of a sealed vector that carries so many, in a study of so many silos."""
    return values + silos + CHECKS * LIMBS


SHARE_BYTES = 33
"""Bytes of a Shamir share of a 32-byte secret (`dealt.shamir`)."""
