"""The ledgers of ten recorded studies against two accountants that are not ours (recorded/generate.py wrote them)."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from opacus.accountants import PRVAccountant

from policies.ledger.chain import Genesis, check_chain
from policies.ledger.events import costs_of

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
PRV_ERROR = 0.002
"""What Opacus is allowed to be off by; its answer lies that much above its own estimate."""


def ledger_of(path: Path) -> tuple[Genesis, float, list[Counter[tuple[float, float]]]]:
    """Genesis, stated epsilon, and for each cohort how often each (sampling rate, noise) was charged."""
    genesis, entries = check_chain(tuple(row) for row in json.loads(path.read_text())["chain"])
    cohorts = {"training": Counter(), "evaluation": Counter()}
    for entry in entries:
        for cost in costs_of(entry.event):
            cohorts[cost.cohort][cost.sampling_rate, cost.noise] += cost.count
    return genesis, entries[-1].epsilon, [kinds for kinds in cohorts.values() if kinds]


def by_dp_accounting(kinds: Counter[tuple[float, float]], delta: float) -> float:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for (rate, noise), count in kinds.items():
        event = GaussianDpEvent(noise)
        accountant.compose(event if rate == 1 else PoissonSampledDpEvent(rate, event), count)
    return accountant.get_epsilon(delta)


def by_opacus(kinds: Counter[tuple[float, float]], delta: float) -> float:
    accountant = PRVAccountant()
    accountant.history = [(noise, rate, count) for (rate, noise), count in kinds.items()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return accountant.get_epsilon(delta, eps_error=PRV_ERROR, delta_error=delta / 1000)


def test_ten_studies_are_recorded():
    assert len(RECORDED) == 10


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_ledger_agrees_with_dp_accounting_and_is_never_below(path):
    genesis, stated, cohorts = ledger_of(path)
    straight = max(by_dp_accounting(kinds, genesis.delta) for kinds in cohorts)
    assert stated == pytest.approx(straight, rel=0.01)
    # Its grid rounds plain Gaussians up, where the ledger has the closed form: that is the last six digits.
    assert stated >= straight * (1 - 2e-6)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_ledger_agrees_with_opacus_and_is_never_below(path):
    genesis, stated, cohorts = ledger_of(path)
    estimate = max(by_opacus(kinds, genesis.delta) for kinds in cohorts) - PRV_ERROR
    assert stated == pytest.approx(estimate, rel=0.01)
    assert stated >= estimate - PRV_ERROR
