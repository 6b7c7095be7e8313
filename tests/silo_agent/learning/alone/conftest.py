"""Records whose outcome two columns decide, of any kind of outcome."""

import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.alone.design import Design
from silo_agent.learning.outcomes.registry import family_of


@pytest.fixture(scope="package")
def designed():
    def _make(classes, n=300, seed=0):
        rng = np.random.default_rng(seed)
        x = rng.normal(2.0, [1.0, 5.0, 0.0], (n, 3)).astype(np.float32)
        signal = (x[:, 0] - 2.0) - (x[:, 1] - 2.0) / 5.0
        edges = np.linspace(-1, 1, classes - 1) if classes > 2 else [0.0]
        labels = (np.clip(signal / 8.0, -1, 1) + 1) * 2**19 if classes == NUMBER else np.digitize(signal, edges)
        return Design(x, labels.astype(np.int64), rng.uniform(0.1, 1.0, n), family_of(classes))

    return _make
