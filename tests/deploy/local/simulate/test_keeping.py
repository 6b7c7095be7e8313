"""Results that are kept, so that a run goes on where it was stopped."""

from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest

from deploy.local.simulate import keeping
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.keeping import KeptResults, keeper
from deploy.local.simulate.many import each_seed
from deploy.local.simulate.outcome import RunMetrics
from support.simulated import SOURCE, guess
from support.studies import tiny_study

STUDY = tiny_study()
NAMED = {"measured": "study", "records": "0" * 64}


def kept_in(folder, study=STUDY, **named):
    return KeptResults(folder, study, **(NAMED | named))


def figures(run):
    return None if run is None else (type(run), run.study, run.seed, run.exact, run.together)


@pytest.mark.parametrize("recipe", ["second-order", "lg-fedavg"])
def test_a_result_comes_back_whole(tmp_path, recipe):
    """The second recipe's silos have models of their own, so its outcome has all parts."""
    study = tiny_study(recipe=recipe)
    kept = recipe == "lg-fedavg"
    run = simulate(study, SOURCE.draw(study, 4), seed=4, ensemble=kept)
    assert (run.own is not None, run.ensemble is not None) == (kept, kept)
    kept_in(tmp_path, study).keep(4, run)
    assert {len(path.stem) for path in tmp_path.iterdir()} == {40}, "a digest, short enough for every file system"
    (back,) = kept_in(tmp_path, study).of_all((3, 4)).values()
    assert figures(back) == figures(run)
    assert back.published == run.published
    assert back.model.to_bytes() == run.model.to_bytes()
    assert [figures(back.own), figures(back.ensemble)] == [figures(run.own), figures(run.ensemble)]


def test_infinities_and_what_is_not_known_come_back(tmp_path):
    run = guess(STUDY, SOURCE.draw(STUDY, 1), seed=1)
    odd = replace(run.together, auc=None, calibration=np.inf)
    kept_in(tmp_path).keep(1, RunMetrics(STUDY, 1, run.exact, odd))
    assert kept_in(tmp_path).of_all((1,))[1].together == odd


def test_nothing_is_taken_for_the_result_of_something_else(tmp_path, monkeypatch):
    kept_in(tmp_path).keep(1, guess(STUDY, SOURCE.draw(STUDY, 1), seed=1))
    assert set(kept_in(tmp_path).of_all((1, 2))) == {1}
    assert not kept_in(tmp_path, tiny_study(name="another")).of_all((1,))
    assert not kept_in(tmp_path, measured="alone").of_all((1,))
    assert not kept_in(tmp_path, records="1" * 64).of_all((1,))
    monkeypatch.setattr(keeping, "version", lambda name: version(name) + ".1")
    assert not kept_in(tmp_path).of_all((1,))


@pytest.mark.parametrize("broken", ["cut", "unreadable", "no model", "another model"])
def test_a_damaged_result_is_told_by_its_file(tmp_path, broken):
    kept_in(tmp_path).keep(1, simulate(STUDY, SOURCE.draw(STUDY, 1), seed=1))
    (file,), (model,) = tmp_path.glob("*.json"), tmp_path.glob("*.safetensors")
    if broken == "cut":
        file.write_bytes(file.read_bytes()[:-9])
    elif broken == "unreadable":
        file.unlink()
        file.mkdir()
    elif broken == "no model":
        model.unlink()
    else:
        model.write_bytes(model.read_bytes()[:-1] + b"?")
    with pytest.raises(SimulationError, match=f"{file} is no result that was kept .*; remove it, and run again"):
        kept_in(tmp_path).of_all((1,))


def test_figures_are_not_there_before_their_model(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "no room")

    run = simulate(STUDY, SOURCE.draw(STUDY, 1), seed=1)
    monkeypatch.setattr(keeping.SharedModel, "save", full)
    with pytest.raises(OSError, match="no room"):
        kept_in(tmp_path).keep(1, run)
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_stopped_goes_on_with_the_seeds_that_are_left(tmp_path):
    begun, heard = [], []

    def run(study, cohorts, *, seed):
        begun.append(seed)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return guess(study, cohorts, seed=seed)

    kept = keeper(tmp_path, STUDY, SOURCE, "study")
    with pytest.raises(KeyboardInterrupt):
        each_seed(run, STUDY, SOURCE, (5, 3, 4), kept=kept)
    found = each_seed(run, STUDY, SOURCE, (5, 3, 4), kept=kept, done=lambda: heard.append(len(heard)))
    assert begun == [5, 3, 3, 4]
    assert heard == [0, 1, 2], "what was kept counts as done, too"
    assert [run.seed for run in found] == [5, 3, 4]
    each_seed(run, STUDY, SOURCE, (5, 3, 4), kept=kept)
    assert begun == [5, 3, 3, 4]


def test_without_a_folder_nothing_is_kept():
    assert keeper(None, STUDY, SOURCE, "study") is None
