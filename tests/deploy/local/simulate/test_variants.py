"""A study with other silos, or without noise."""

import pytest

from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.variants import renamed, without_noise
from policies.plan import quorum
from policies.plan.release import plan
from support.studies import tiny_study


@pytest.mark.parametrize("mode", ["local", "distributed"])
@pytest.mark.parametrize("count", [3, 4, 12])
def test_other_silos_get_a_study_that_they_could_run(mode, count):
    study = tiny_study(privacy={"mode": mode})
    silos = tuple(f"ward-{number}" for number in range(count))
    other = renamed(study, silos)
    quorum.require(other)
    assert other.silos == silos
    assert [release.noise for release in plan(other)] == [release.noise for release in plan(study)]


def test_the_studys_own_silos_change_nothing():
    study = tiny_study()
    assert renamed(study, study.silos) is study


def test_too_few_silos_are_refused_by_name():
    with pytest.raises(SimulationError, match="cannot have 1 silos"):
        renamed(tiny_study(), ["north"])


def test_a_study_without_noise_has_none_anywhere_and_is_valid():
    public = without_noise(tiny_study(privacy={"mode": "distributed"}))
    assert {release.noise for release in plan(public)} == {0.0}
    assert type(public).model_validate(public.model_dump(mode="json")) == public
