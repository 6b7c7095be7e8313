"""How a sealed vector is laid out, in every ring: the values, one roster slot for each silo of the study, the checks.

Guarantees: the length depends on the study alone, never on who takes part, so that the coordinator knows every
upload's size beforehand. Slots stand in the order of the silos' sorted names; a silo puts 1 into its own and 0 into the
others, so that the opened sum shows who is in it, and how often. Behind them stand `CHECKS` linear checks of
`LIMBS` limbs each, the lowest first. Leaves what the checks are to `checks`, which only silos may know.
"""

from __future__ import annotations

CHECKS = 4
LIMBS = 4
"""A check is a number mod 2^64, carried in limbs that are added as integers: the rings are narrower, or wrap around."""
LIMB_BITS = 16
"""The limbs of 2^15 silos would still fit the narrowest ring."""


def sealed_values(values: int, silos: int) -> int:
    """Values of a sealed vector that carries so many, in a study of so many silos."""
    return values + silos + CHECKS * LIMBS
