from __future__ import annotations

import pytest

from policies.web import words


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 s"), (0.4, "under 1 s"), (1, "1 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"),
     (172_800, "2 days")],
)  # fmt: skip
def test_spans(seconds, told):
    assert words.span(seconds) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1.5e6, "1.5 MB"), (2e9, "2.0 GB"), (3e12, "3.0 TB")],
)
def test_sizes(count, told):
    assert words.size(count) == told


def test_times_and_places_on_an_axis():
    assert words.time(0) == "never"
    assert words.time(1_700_000_000) == "2023-11-14 22:13:20 UTC"
    assert [words.along(value, 0, 2) for value in (-1, 0, 0.5, 2, 9)] == ["0.00", "0.00", "25.00", "100.00", "100.00"]
    assert words.along(1.0, 1.0, 1.0) == "0.00"
