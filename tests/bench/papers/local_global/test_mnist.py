"""What the table says of measured seeds, and that a whole seed is measured and kept."""

import numpy as np
import pytest
import torch

from bench.papers.local_global import mnist
from bench.papers.local_global.network import Digits, VisitTraining
from bench.papers.local_global.silos import SiloSchedule


def seed(local, moved=50, new=95.0, old=98.0):
    accuracies = {mnist.FEDAVG: 97.0, mnist.TURN: 96.0, mnist.LOCAL_GLOBAL: local}
    return {
        "curve": [96.5, 97.5],
        "local": accuracies | {mnist.TUNED: 99.0, mnist.ALONE: 98.0},
        "new": accuracies,
        "joined": {
            "new": {mnist.UNDER_TOP: new, mnist.ALL_LAYERS: 94.0, mnist.TOGETHER: 90.0},
            "old": {mnist.UNDER_TOP: old, mnist.ALL_LAYERS: 20.0, mnist.TOGETHER: 96.0},
            "alone": 94.0,
            "few": [80.0, 70.0],
        },
        "values": [100, moved],
    }


def missed(found):
    return [line.name for line in mnist.figures(found) if not line.met]


def test_all_is_met_if_every_seed_is_good_enough():
    found = [seed(98.0), seed(98.2), seed(98.4)]
    assert not missed(found)
    lines = {line.name: line.measured for line in mnist.figures(found)}
    assert lines["values moved, LG-FedAvg of FedAvg"] == "50.0 % (50 of 100)"
    assert lines["local test, LG-FedAvg less FedAvg"] == "+1.20 points (+0.70 to +1.70)"
    assert lines["the same, less FedAvg's best round"].startswith("+0.70 points")
    assert lines["new test, LG-FedAvg"] == "98.20 % (98.00 to 98.40)"
    assert lines["old silos afterwards, FedAvg, new silo alone"] == "20.00 % (20.00 to 20.00)"
    assert lines["new turned silo, 300 digits, no study"] == "70.00 % (70.00 to 70.00)"


@pytest.mark.parametrize(
    ("worst", "line"),
    [
        (seed(98.0, moved=57), "values moved, LG-FedAvg of FedAvg"),
        (seed(92.0), "local test, LG-FedAvg less FedAvg"),
        (seed(98.2, new=89.9), "new turned silo, under the top"),
        (seed(98.2, old=94.9), "old silos afterwards, the same bits"),
    ],
)
def test_one_bad_seed_is_a_miss(worst, line):
    assert missed([seed(98.0), worst, seed(98.4)]) == [line]


def test_a_seed_is_measured_once_and_kept(tmp_path, monkeypatch):
    plan = SiloSchedule(
        silos=10,
        drawn=2,
        rounds=10,
        joint=5,
        apart=2,
        alone=1,
        newcomer=1,
        together=1,
        training=VisitTraining(batch=20),
    )
    for name, value in (("PLAN", plan), ("_KEPT", tmp_path), ("NEW_DIGITS", 60), ("NEW_TESTS", 20), ("FEW_DIGITS", 20)):
        monkeypatch.setattr(mnist, name, value)
    drawn = np.random.default_rng(1)
    parts = tuple(
        Digits(torch.from_numpy(drawn.integers(256, size=(count, 784), dtype=np.uint8)), torch.arange(count) % 10)
        for count in (200, 100)
    )
    monkeypatch.setattr(mnist, "read", lambda _: parts)
    found = mnist.measure(tmp_path, 3)
    full, top = 633_226, 99_978
    assert found["values"] == [
        (10 * (10 + 2) + 10) * full,
        5 * (10 + 2) * full + 10 * (full - top) + (2 * (10 + 2) + 10) * top + 10 * (full - top),
    ]
    assert len(found["curve"]) == 2
    assert found["local"].keys() == {mnist.FEDAVG, mnist.TURN, mnist.LOCAL_GLOBAL, mnist.TUNED, mnist.ALONE}
    monkeypatch.setattr(mnist, "read", None)
    assert mnist.measure(tmp_path, 3) == found
