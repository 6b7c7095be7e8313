"""How far a measured AUC lies from that of many patients."""

import numpy as np

from silo_agent.forecast.sampling import area_variance
from silo_agent.learning.figures.evaluation import auc


def test_it_is_the_variance_of_measured_areas_or_a_little_more():
    rng = np.random.default_rng(3)
    labels = np.repeat([1, 0], [30, 120])
    areas = [auc(rng.normal(size=150) + labels, labels) for _ in range(800)]
    assert 0.95 < area_variance(0.76, 30, 120) / np.var(areas) < 1.5


def test_more_patients_say_more():
    assert area_variance(0.8, 100, 300) < area_variance(0.8, 50, 150)
    assert area_variance(1.0, 1, 1) == 0.0
