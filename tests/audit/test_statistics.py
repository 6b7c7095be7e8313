"""Every statistic accepts the real code. test_mutants.py says which faults the statistics find."""

import pytest

from audit.statistics import FALSE_ALARMS, STATISTICS


@pytest.mark.sampled
@pytest.mark.parametrize("name", STATISTICS)
def test_the_real_code_passes(name, tmp_path):
    verdict = STATISTICS[name](tmp_path)
    assert verdict.holds, verdict.seen


def test_every_statistic_states_how_often_it_condemns_right_code():
    assert set(FALSE_ALARMS) == set(STATISTICS)
    assert sum(FALSE_ALARMS.values()) < 1e-4
