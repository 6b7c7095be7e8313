"""Virtual silos in one group or in several."""

from functools import partial
from operator import methodcaller
from pathlib import Path

import pytest

from deploy.local.simulate import groups
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.groups import FILES_IN, Founding, Group, in_this_process
from policies.plan.release import plan
from protos.messages import Place
from silo_agent.learning.model.shared import SharedModel
from support.simulated import SOURCE, several
from support.studies import tiny_study

STUDY = tiny_study()


def founding(study=STUDY):
    silos = SOURCE.draw(study, 1).silos
    return Founding(study, silos, 1, "cpu", len(silos))


@pytest.mark.parametrize(
    ("count", "names"),
    [(1, [["north", "south", "west"]]), (2, [["north", "west"], ["south"]]), (9, [["north"], ["south"], ["west"]])],
)
def test_silos_are_dealt_to_groups_of_which_the_first_leads(count, names):
    whole = founding()
    parts = whole.parts(count)
    assert [list(part.silos) for part in parts] == names
    assert [part.leads for part in parts] == [True] + [False] * (len(names) - 1)
    assert all(part.silos[name] is whole.silos[name] for part in parts for name in part.silos)
    assert {(part.study, part.seed, part.device, part.all_silos) for part in parts} == {(STUDY, 1, "cpu", 3)}


@pytest.mark.parametrize("changes", [{}, {"heads": {"solver": "hierarchical"}}, {"recipe": "fedper"}])
@pytest.mark.parametrize("count", [2, 3])
def test_groups_change_no_bit(count, changes):
    study = tiny_study(**changes)
    cohorts = SOURCE.draw(study, 1)
    one, more = (simulate(study, cohorts, seed=1, hosts=hosts) for hosts in (in_this_process, partial(several, count)))
    assert one.model.digest == more.model.digest
    assert (one.exact, one.together, one.published) == (more.exact, more.together, more.published)
    assert (one.own is None) == (more.own is None) == (changes.get("recipe") is None)
    assert one.own is None or one.own.exact == more.own.exact


def test_a_silos_complete_model_is_found_by_its_name_wherever_it_is():
    """Groups have the silos in another order than the run."""
    study = tiny_study(recipe="fedper")
    cohorts = SOURCE.draw(study, 1)
    without_test = cohorts.__class__(cohorts.silos)
    one, two = (simulate(study, without_test, seed=1, hosts=hosts) for hosts in (in_this_process, partial(several, 2)))
    assert one.exact == two.exact


def test_a_sum_is_of_all_silos_of_the_run_however_few_a_group_has():
    """What a silo's share of the noise is depends on how many there are."""
    study = tiny_study(privacy={"mode": "distributed"})
    release, model = plan(study).round(0)[0], SharedModel.start(study)
    call = methodcaller("contributed", release, Place(study.digest, 0, 1), model)
    with in_this_process(founding(study)) as whole, several(3, founding(study)) as parts:
        assert sum(parts.ask(call)).tolist() == whole.ask(call)[0].tolist()


def test_files_lie_in_memory_or_where_the_one_who_began_the_process_says_and_are_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(groups, "_MEMORY", tmp_path / "memory")
    monkeypatch.setenv(FILES_IN, str(tmp_path))
    group = Group(founding())
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["north", "south", "west"]
    group.close()
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv(FILES_IN)
    assert groups.memory_folder() is None
    (tmp_path / "memory").mkdir()
    with in_this_process(founding()):
        assert len(list((tmp_path / "memory").iterdir())) == 1
    assert not list((tmp_path / "memory").iterdir())
    assert Path(groups.memory_folder()) == tmp_path / "memory"
