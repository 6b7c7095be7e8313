"""What an epsilon means, as a number that a person can repeat."""

from __future__ import annotations

import math
from typing import Final

_SMALL: Final = 10.0
_MOST: Final = math.log(1e9)
_DIGITS: Final = 3


def times(epsilon: float) -> str:
    """How much more or less sure somebody may become: e to the `epsilon`, rounded up, with the word "times".

    Three digits without an exponent: 2.72, 33.2, 2,990.
    """
    if epsilon > _MOST:
        return "more than a billion times"
    factor = math.exp(epsilon)
    unit = 10.0 ** (math.floor(math.log10(factor)) + 1 - _DIGITS)
    up = math.ceil(factor / unit - 1e-9) * unit
    return f"{up:,.0f} times" if up >= 10.0 ** (_DIGITS - 1) else f"{up:.{1 if up >= _SMALL else 2}f} times"
