"""Made-up records of a study's schema: public, and of every domain and label that there are rows for."""

from __future__ import annotations

import numpy as np

from policies.documents.study import Study
from policies.plan.families import form_of
from silo_agent.data.images import Images, PixelScale
from silo_agent.data.records import Records

_STRIDE = 104_729
"""A prime: it visits every class in turn, and spreads places of numbers over their range."""


def made_up_records(study: Study, count: int) -> Records:
    """`count` records of as many patients, always the same ones."""
    rng, data = np.random.default_rng(0), study.data
    images = None
    if data.image is not None:
        scale, size = PixelScale.of(data.image), (count, data.image.channels, data.image.height, data.image.width)
        images = Images(rng.integers(0, scale.top, size, scale.kind, endpoint=True), scale.top)
    rows, labels = np.arange(count, dtype=np.int64), form_of(data.label.count).labels
    inputs = rng.uniform(-1.0, 1.0, (count, data.inputs)).astype(np.float32)
    names = tuple(str(row) for row in rows)
    places = None if data.environment is None else rows % data.environment.count
    values = [rows * _STRIDE // labels % len(factor.names) for factor in data.protected]
    protected = np.stack(values, axis=1) if values else None
    classes, domains = rows * _STRIDE % labels, rows % len(data.domains)
    return Records(inputs, classes, domains, rows, names, images, places, protected)
