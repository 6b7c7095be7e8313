"""How much one certificate may take: at the limit, one above, and all reasons at once."""

from __future__ import annotations

import pytest

from coordinator.config import Quotas
from coordinator.core.quotas import QuotaError, Usage, require_calm, require_within

LIMITS = Quotas(open_studies=2, created_a_day=5, gigabytes=1.5)


def test_the_last_one_that_fits_is_taken():
    require_within(LIMITS, Usage(1, 4, 500_000_000), 1_000_000_000)


@pytest.mark.parametrize(
    ("usage", "more", "said"),
    [
        (Usage(2, 0, 0), 0, r"^2 studies of this certificate are open, and quotas\.open_studies is 2: wait"),
        (Usage(0, 5, 0), 0, r"^this certificate created 5 studies within 24 hours, and quotas\.created_a_day is 5"),
        (Usage(0, 0, 500_000_000), 1_000_000_001, r"take 1\.50 GB of the spool, and quotas\.gigabytes is 1\.5$"),
        (Usage(9, 9, 0), 2_000_000_000, r"^9 studies .*; this certificate created 9 .*; rounds .* 2\.00 GB"),
    ],
)
def test_one_more_is_refused_with_the_number_and_the_limit(usage, more, said):
    with pytest.raises(QuotaError, match=said):
        require_within(LIMITS, usage, more)


def test_a_day_has_so_many_actions():
    limits = Quotas(actions_a_day=10)
    require_calm(limits, 9)
    with pytest.raises(QuotaError, match=r"^this certificate did 10 actions .* quotas\.actions_a_day is 10: wait"):
        require_calm(limits, 10)
