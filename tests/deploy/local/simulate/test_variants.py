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


def test_each_mode_needs_no_more_silos_in_a_sum_than_it_must():
    """Of distributed noise two honest silos must be in it, beside those that may collude."""
    silos, privacy = ["a", "b", "c", "d"], {"colluders": 2}
    study = tiny_study(silos=silos, min_silos=4, privacy=privacy | {"mode": "local"})
    assert renamed(study, ["x", "y", "z"]).min_silos == 3
    with pytest.raises(SimulationError, match="cannot have 3 silos"):
        renamed(tiny_study(silos=silos, min_silos=4, privacy=privacy | {"mode": "distributed"}), ["x", "y", "z"])


def test_the_studys_own_silos_change_nothing():
    study = tiny_study()
    assert renamed(study, study.silos) is study


def test_each_other_silo_is_expected_to_be_like_the_mean_one():
    study = tiny_study(expected={"patients": [100, 200, 400]})
    assert renamed(study, ["a", "b"]).expected.patients == (233,)
    assert renamed(tiny_study(expected=None), ["a", "b"]).expected is None


def test_too_few_silos_are_refused_by_name():
    with pytest.raises(SimulationError, match="cannot have 1 silos"):
        renamed(tiny_study(), ["north"])


def test_a_study_without_noise_has_none_anywhere_and_is_valid():
    public = without_noise(tiny_study(privacy={"mode": "distributed"}))
    assert {release.noise for release in plan(public)} == {0.0}
    assert type(public).model_validate(public.model_dump(mode="json")) == public
