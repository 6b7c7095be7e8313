"""What the bench of real data judges, and the cohorts it draws."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from bench.accuracy.real import __main__ as bench
from bench.accuracy.real.data_sets import TUNING, TenSplits
from bench.accuracy.real.judging import Runs
from bench.accuracy.real.methods import (
    ALONE,
    CENTRAL,
    FEDAVG,
    HIERARCHICAL,
    OPEN,
    POOLED,
    PRIVATE,
    outcome_blind,
    pooled_only,
)
from deploy.local.simulate.silos import identified
from support.made_up import MadeUp
from support.studies import tiny_study


def runs(mean, worst, ratio=1.0):
    """The same of ten splits, nearly."""
    areas = np.tile([worst, 2 * mean - worst], (10, 1)) + 1e-6 * np.random.default_rng(1).normal(size=(10, 2))
    return Runs(areas, np.arange(10), np.array([True, True]), np.full(10, ratio))


def judged(name, epsilon, **changed):
    found = {(method, None): runs(0.9, 0.88) for method in (*OPEN, *PRIVATE)}
    found |= {(method, epsilon): runs(0.85, 0.8) for method in PRIVATE}
    found[HIERARCHICAL, epsilon] = changed.get("own", runs(0.9, 0.88))
    found[ALONE, None] = changed.get("alone", runs(0.85, 0.8))
    for method, key in ((POOLED, "pooled"), (FEDAVG, "fedavg")):
        found[method, epsilon] = changed.get(key, found[method, epsilon])
    found[CENTRAL, None] = changed.get("central", found[CENTRAL, None])
    figures = bench.judged(name, found, [epsilon])
    assert json.loads(json.dumps([asdict(figure) for figure in figures]))
    return {figure.name.removeprefix(f"{name}, epsilon {epsilon:g}, ") for figure in figures if not figure.met}


LEVEL, RATIO = "mean / worst domain", "mean prediction / observed rate"


def test_every_wanted_figure_can_be_missed():
    assert judged("adult", 1.0) == set()
    assert judged("adult", 1.0, own=runs(0.899, 0.88)) == {LEVEL}
    assert judged("adult", 1.0, own=runs(0.91, 0.869)) == {LEVEL}
    assert judged("diabetes", 4.0, own=runs(0.654, 0.64), pooled=runs(0.6, 0.6), fedavg=runs(0.6, 0.6)) == {
        LEVEL,
        f"less {ALONE}",
    }
    assert judged("heart", 8.0, central=runs(0.911, 0.88)) == {f"less {CENTRAL}"}
    assert judged("heart", 8.0, central=runs(0.9, 0.891)) == {f"less {CENTRAL}"}
    assert judged("heart", 4.0, alone=runs(0.9, 0.7)) == {f"less {ALONE}"}
    assert judged("heart", 2.0, fedavg=runs(0.901, 0.7)) == {f"less {FEDAVG}"}
    assert judged("heart", 2.0, pooled=runs(0.9, 0.884)) == {f"less {POOLED}"}
    assert judged("heart", 2.0, own=runs(0.9, 0.88, ratio=0.89)) == {RATIO}


def test_without_the_files_it_says_which_are_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["real", "--data", str(tmp_path), "--only", "heart"])
    assert bench.main() == 1
    assert "processed.cleveland.data" in capsys.readouterr().out.replace("\n", "")


def test_an_interval_needs_two_draws(monkeypatch):
    monkeypatch.setattr("sys.argv", ["real", "--draws", "1"])
    with pytest.raises(SystemExit):
        bench.main()


def test_a_seed_names_its_split_and_tuning_has_others():
    cohorts = MadeUp(patients=200, test=10).draw(tiny_study(), 1)
    source = TenSplits("made", {name: identified(silo.training) for name, silo in cohorts.silos.items()}, 0.3)
    first, again, other, tuned = (
        next(iter(source.draw(tiny_study(), seed).silos.values())) for seed in (3, 13, 4, TUNING + 3)
    )
    assert first.held_out.identities == again.held_out.identities
    assert first.held_out.identities not in (other.held_out.identities, tuned.held_out.identities)
    assert first.held_out.patient_count == pytest.approx(0.3 * 200, abs=25)


def test_the_outcome_blind_clip_differs_in_nothing_else():
    study = tiny_study()
    other = outcome_blind(study)
    assert other.heads == study.heads.model_copy(update={"clip_by": "worst"})
    assert other.heads.clip_by != study.heads.clip_by


def test_the_pooled_solver_has_no_round_by_domain():
    heads = pooled_only(tiny_study()).heads
    assert (heads.solver, heads.domain_rounds) == ("newton", 0)
