import json
import math

import pytest

from deploy.demo.recount import recount
from policies.accounting.accountant import gaussian_epsilon


def log(path, *lines):
    names = ("cohort", "noise_multiplier", "sampling_rate", "times")
    path.write_text("".join(json.dumps(dict(zip(names, line, strict=True))) + "\n" for line in lines))
    return path


def test_a_plain_gaussian_costs_what_the_closed_formula_says(tmp_path):
    found = recount(log(tmp_path / "log", ("training", 1.5, 1.0, 1)), 1e-5)
    assert found == pytest.approx(gaussian_epsilon(1 / 1.5, 1e-5), rel=0.01)


def test_cohorts_are_counted_by_themselves(tmp_path):
    training = ("training", 1.5, 1.0, 2)
    both = recount(log(tmp_path / "both", training, ("evaluation", 3.0, 1.0, 1)), 1e-5)
    assert both == recount(log(tmp_path / "one", training), 1e-5)
    assert both < recount(log(tmp_path / "together", training, ("training", 3.0, 1.0, 1)), 1e-5)


def test_what_ran_without_noise_has_no_bound(tmp_path):
    assert recount(log(tmp_path / "log", ("training", 1.5, 1.0, 1), ("evaluation", 0.0, 1.0, 1)), 1e-5) == math.inf


def test_a_log_of_another_delta_is_counted_anew(tmp_path):
    path = log(tmp_path / "log", ("training", 1.5, 1.0, 1))
    assert recount(path, 1e-3) < recount(path, 1e-5)
