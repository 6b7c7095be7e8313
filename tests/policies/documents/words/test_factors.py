import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.documents.words.factors import times


@pytest.mark.parametrize(
    ("epsilon", "said"),
    [
        (0.0, "1.00 times"), (0.05, "1.06 times"), (1.0, "2.72 times"), (2.30, "9.98 times"), (2.31, "10.1 times"),
        (3.0, "20.1 times"), (4.6, "99.5 times"), (4.61, "101 times"), (8.0, "2,990 times"),
        (20.0, "486,000,000 times"), (32.0, "more than a billion times"), (math.inf, "more than a billion times"),
    ],
)  # fmt: skip
def test_a_factor_can_be_repeated_and_is_never_too_small(epsilon, said):
    assert times(epsilon) == said


@given(st.floats(0.0, 20.0))
def test_it_is_rounded_up_by_at_most_a_hundredth(epsilon):
    said = float(times(epsilon).removesuffix(" times").replace(",", ""))
    assert math.exp(epsilon) * (1 - 1e-9) <= said <= math.exp(epsilon) * 1.0101
