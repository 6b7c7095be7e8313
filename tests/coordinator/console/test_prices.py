"""Prices of studies: computed once, by the study's own delta, and not kept without end."""

from __future__ import annotations

import pytest

from coordinator.console import prices
from coordinator.console.prices import KnownPrices
from support.studies import tiny_study

STUDY, OTHER = tiny_study(), tiny_study(name="other", privacy={"delta": 1e-6})


@pytest.mark.parametrize(
    ("asked", "computed", "given"),
    [
        ("of", "price", lambda study: (study, study.privacy.delta)),
        ("guarantee", "guarantee", lambda study: (study, None)),
    ],
)
def test_each_study_is_computed_once_until_too_many_are_known(monkeypatch, asked, computed, given):
    made = []
    monkeypatch.setattr(prices, computed, lambda *about: made.append(about) or len(made))
    monkeypatch.setattr(prices, "_MOST", 2)
    known = getattr(KnownPrices(), asked)
    assert [known(STUDY), known(OTHER), known(STUDY)] == [1, 2, 1]
    assert made == [given(STUDY), given(OTHER)]
    third = tiny_study(name="third")
    assert [known(third), known(OTHER), known(third), known(STUDY)] == [3, 2, 3, 4]


def test_the_delta_is_the_studys():
    assert KnownPrices().of(OTHER).delta == 1e-6
