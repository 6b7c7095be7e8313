"""Four silos of made-up digits: what moves, what is shared, and what a new silo leaves alone."""

import numpy as np
import pytest
import torch

from bench.papers.local_global import network, silos
from bench.papers.local_global.deal import Dealt
from bench.papers.local_global.network import Digits, VisitTraining, lower, upper
from bench.papers.local_global.silos import SeedRun, Silos, SiloSchedule, Traffic

SIZES = (16, 32, 24, 20, 12, 4)
TOP = 20 * 25 + 12 * 21 + 4 * 13
WHOLE = 32 * 17 + 24 * 33 + TOP
PLAN = SiloSchedule(
    silos=4, drawn=2, rounds=30, joint=20, apart=3, alone=1, newcomer=10, together=1, training=VisitTraining(batch=4)
)


def made_up(seed, count, classes):
    """Digits whose class lights its own row of four pixels."""
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes)[torch.randint(len(classes), (count,), generator=drawn)]
    images = torch.randint(100, (count, 4, 4), generator=drawn)
    images[torch.arange(count), labels] += 120
    return Digits(images.flatten(1).to(torch.uint8), labels)


@pytest.fixture
def run():
    classes = [(0, 1), (1, 2), (2, 3), (3, 0)]
    training, test = ([made_up(10 * part + at, 40, own) for at, own in enumerate(classes)] for part in (1, 2))
    return SeedRun(PLAN, Dealt(training, test, np.array(classes)), 1)


@pytest.fixture
def turn(run):
    return run.fedavg(network.start(1, SIZES), 1, PLAN.joint, Traffic(), [])


def test_a_round_of_fedavg_moves_the_model_to_all_and_from_those_drawn(run):
    traffic, curve = Traffic(), []
    run.fedavg(network.start(1, SIZES), 1, 5, traffic, curve)
    assert traffic.values == 5 * (4 + 2) * WHOLE
    assert len(curve) == 1


def test_rounds_apart_move_the_top_alone(run, turn):
    traffic = Traffic(7)
    models = run.local_global(turn, traffic)
    assert traffic.values == 7 + 4 * (WHOLE - TOP) + 3 * (4 + 2) * TOP + 4 * TOP
    assert all(torch.equal(a, b) for model in models for a, b in zip(upper(model), upper(models[0]), strict=True))
    assert not torch.equal(upper(models[0])[0], upper(turn)[0])
    visited = {silo for number in range(21, 24) for silo in run._drawn(number)}
    changed = {silo for silo, model in enumerate(models) if not torch.equal(model[0], turn[0])}
    assert changed == visited
    assert len({model[0].sum().item() for silo, model in enumerate(models) if silo in visited}) == len(visited)


def test_a_new_silo_learns_under_the_top_and_changes_nothing_of_the_old_ones(run, turn):
    models = run.local_global(turn, Traffic())
    before = run.outputs(models)
    own, test = (made_up(seed, 120, [1, 2, 3, 0]) for seed in (5, 6))
    own, test = (Digits(255 - digits.images, digits.labels) for digits in (own, test))
    begin = [*lower(turn), *upper(models[0])]
    joined = run.join(begin, own, frozen=network.TOP)
    assert all(torch.equal(one, other) for one, other in zip(upper(joined), upper(begin), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(run.outputs(models), before, strict=True))
    assert silos.right(joined, test) > silos.right(begin, test) + 10.0
    changed = run.together(turn, own)
    assert not torch.equal(upper(changed)[0], upper(turn)[0])


def test_the_same_seed_draws_the_same_rounds(run, turn):
    again = run.fedavg(network.start(1, SIZES), 1, PLAN.joint, Traffic(), [])
    assert all(torch.equal(one, other) for one, other in zip(again, turn, strict=True))


def test_local_accuracy_weighs_silos_alike_and_models_vote_together(run):
    wide, narrow = made_up(1, 30, [0]), made_up(2, 10, [1])
    always = [[torch.zeros(4, 16), torch.eye(4)[label]] for label in (0, 1)]
    own = SeedRun(PLAN, Dealt([], [wide, narrow], np.array([])), 1)
    assert own.local(always) == 100.0
    assert own.local([always[0]] * 2) == 50.0
    sure = [torch.zeros(4, 16), 9.0 * torch.eye(4)[1]]
    assert silos.right_together([always[0], always[0], sure], narrow) == 100.0
    assert silos.right_together([always[0], always[0], always[1]], narrow) == 0.0


@pytest.mark.slow  # a process begins by importing torch
def test_workers_find_the_same_bits(run):
    begin = network.start(1, SIZES)
    with Silos(run.dealt.training, PLAN.training, workers=2) as workers:
        spread = SeedRun(PLAN, run.dealt, run.seed, workers)
        pairs = [
            (spread.fedavg(begin, 1, 2, Traffic(), []), run.fedavg(begin, 1, 2, Traffic(), [])),
            *zip(spread.alone(begin), run.alone(begin), strict=True),
        ]
    assert all(torch.equal(one, other) for mine, theirs in pairs for one, other in zip(mine, theirs, strict=True))
