from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crypto.rings.rings import RINGS
from crypto.secagg.layout import CHECKS, LIMB_BITS, LIMBS, sealed_values


@given(st.integers(0, 1 << 40), st.integers(2, 256))
def test_values_slots_and_sixteen_limbs(values, silos):
    assert sealed_values(values, silos) == values + silos + 16


def test_limbs_make_up_64_bits_and_their_sums_fit_every_ring():
    assert LIMBS * LIMB_BITS == 64
    assert CHECKS == 4
    for ring in RINGS.values():
        assert ring.max_sum >= 256 * ((1 << LIMB_BITS) - 1)
        assert ring.limit(256) > (1 << LIMB_BITS) - 1
