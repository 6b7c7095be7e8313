"""A small study and made-up records for the tests of this folder."""

import numpy as np
import pytest

from policies.documents.study import (
    DataSchema,
    DomainColumn,
    EncoderPlan,
    Evaluation,
    HeadPlan,
    Image,
    Label,
    Model,
    NumericFeature,
    Personal,
    Privacy,
    Study,
)
from silo_agent.data.images import Images
from silo_agent.data.records import Records


@pytest.fixture
def make_study():
    def _make(inputs=5, domains=3, *, cmi=0.0, cmi_scale=False, prior="averaged", classes=2, image=None, **model):
        codes = (
            {"positive": (1,), "negative": (0,)} if classes == 2 else {"classes": tuple((c,) for c in range(classes))}
        )
        return Study(
            version=1,
            name="test",
            purpose="tests",
            silos=("a", "b", "c"),
            min_silos=2,
            data=DataSchema(
                label=Label(column="y", **codes),
                domain=(DomainColumn(column="d", values=tuple(range(domains)), names=tuple("abcdefgh"[:domains])),),
                features=tuple(
                    NumericFeature(column=f"x{i}", kind="number", minimum=-1, maximum=1) for i in range(inputs)
                ),
                image=None if image is None else Image(column="scan", height=image, width=image),
            ),
            model=Model(**({"hidden": (8,), "representation": 4, "seed": 7} | model)),
            heads=HeadPlan(pooled_noise=1.0, domain_noise=1.0),
            encoder=EncoderPlan(
                steps=3,
                sampling_rate=0.5,
                batch_size=10,
                learning_rate=0.5,
                noise=1.0,
                cmi=cmi,
                cmi_scale=cmi_scale,
                prior=prior,
            ),
            evaluation=Evaluation(noise=1.0),
            personal=Personal(),
            privacy=Privacy(delta=1e-5, mode="local", count_noise=1.0),
        )

    return _make


@pytest.fixture
def make_records():
    def _make(n, *, seed=0, inputs=5, domains=3, patients=None, classes=2, image=None):
        r = np.random.default_rng(seed)
        x = r.uniform(-1, 1, (n, inputs)).astype(np.float32)
        d = r.integers(0, domains, n)
        if classes == 2:
            y = (r.random(n) < 1 / (1 + np.exp(-4 * x[:, 0] * np.where(d == 0, 1, -1)))).astype(np.int64)
        else:
            y = ((x[:, 0] * np.where(d == 0, 1, -1) + 1) / 2 * classes).astype(np.int64).clip(0, classes - 1)
        whose = np.arange(n) if patients is None else np.unique(r.integers(0, patients, n), return_inverse=True)[1]
        names = tuple(f"p{i}" for i in range(len(set(whose.tolist()))))
        scans = None
        if image is not None:
            # The class is told by which rows are bright.
            bright = np.arange(image) * classes // image == y[:, None]
            levels = r.integers(0, 64, (n, 1, image, image)) + 192 * bright[:, None, :, None]
            scans = Images(levels.astype(np.uint8))
        return Records(x, y, d, whose.astype(np.int64), names, scans)

    return _make
