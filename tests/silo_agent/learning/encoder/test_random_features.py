import hashlib
import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from policies.documents.study import NUMBER, DataSchema, DomainColumn, Label, Model
from policies.plan.families import form_of
from silo_agent.data.records import record_weights
from silo_agent.learning.encoder.encoder import build_encoder, features
from silo_agent.learning.encoder.random_features import SPREAD, Beside, raw_scale
from silo_agent.learning.heads.evidence import mixed
from silo_agent.learning.heads.hierarchical import CURVATURE
from silo_agent.learning.heads.sums import pack, second_order_sums
from silo_agent.learning.outcomes.registry import family_of
from support.studies import tiny_study

RAW = {"encoder": "raw", "hidden": ()}
ALL_KINDS = [
    {"skip": True},
    {"skip": True, "bias": False},
    {"skip": True, "random_features": 6},
    {**RAW, "representation": 4, "random_features": 6},
]
FAMILIES = [2, 3, NUMBER]
M = 3


def model(**changes):
    return Model(**({"hidden": (8,), "representation": 3, "seed": 7} | changes))


def data(categories=1):
    """Two numbers and a category of two codes: four inputs."""
    number = {"kind": "number", "minimum": -1, "maximum": 1}
    return DataSchema.model_validate(
        {
            "label": Label(column="y", positive=(1,), negative=(0,)),
            "domain": (DomainColumn(column="d", values=(0,), names=("all",)),),
            "features": (
                *({"column": f"x{i}", **number} for i in range(2)),
                *({"kind": "category", "column": f"c{i}", "values": (0, 1)} for i in range(categories)),
            ),
        }
    )


def inputs(count, seed=0):
    r = np.random.default_rng(seed)
    codes = np.eye(2)[r.integers(0, 2, count)]
    return np.column_stack([r.uniform(-1, 1, (count, 2)), codes]).astype(np.float32)


@cache
def network(**changes):
    return build_encoder(model(**changes), data(), stochastic=False)


def test_inputs_are_divided_by_about_their_norm_and_counted_ones_as_what_they_are():
    features = [
        {"kind": "number", "column": "age", "minimum": 0, "maximum": 120},
        {"kind": "number", "column": "smokes", "minimum": 0, "maximum": 1},
        {"kind": "number", "column": "lactate", "minimum": 0, "maximum": 1.5, "fill": 1},
        {"kind": "number", "column": "share", "minimum": 0, "maximum": 0.5},
        {"kind": "number", "column": "score", "minimum": -1, "maximum": 1},
        {"kind": "category", "column": "ward", "values": ["x", "y"], "optional": True},
    ]
    schema = tiny_study(data={"features": features}).data
    assert raw_scale(schema, "even") == pytest.approx(math.sqrt(1 + 5 / 5))
    assert raw_scale(schema, "counted") == pytest.approx(math.sqrt(1 + 1 + 5 / 5))


@pytest.mark.parametrize("kind", ["raw", "skip", "random"])
def test_every_place_that_divides_by_the_norm_follows_the_study(kind):
    features = [{"kind": "number", "column": name, "minimum": 0, "maximum": 1} for name in ("one", "two")]
    skip = {"skip": True, "random_features": 4 if kind == "random" else 0}
    changes = {"encoder": "raw", "hidden": [], "representation": 2} if kind == "raw" else skip
    found = {}
    for way in ("even", "counted"):
        untrained = {"encoder": {"rounds": 0}} if kind == "raw" else {}
        study = tiny_study(data={"features": features}, model=changes | {"input_scale": way}, **untrained)
        encoder = build_encoder(study.model, study.data, stochastic=False)
        found[way] = encoder.scale if kind == "raw" else encoder.beside.scale
        if kind == "random":
            found[way] = 1.0 / float(np.abs(encoder.beside.weight.numpy()).max())
    assert found["counted"] / found["even"] == pytest.approx(math.sqrt(2 / (2 / 5)))


def test_a_head_reads_the_representation_then_the_inputs_then_the_random_features():
    x = inputs(20)
    encoder, plain = network(skip=True, random_features=6), network()
    read = features(encoder, x)
    assert read.shape == (20, encoder.width) == (20, 3 + 4 + 6)
    torch.testing.assert_close(read[:, :3], features(plain, x))
    scale = math.sqrt(1 + 2 / 5)
    np.testing.assert_allclose(read[:, 3:7], x / scale, rtol=1e-6)
    own = encoder.beside
    by_hand = math.sqrt(2 / 6) * np.cos(x.astype(np.float64) @ own.weight.numpy().T + own.bias.numpy())
    np.testing.assert_allclose(read[:, 7:], by_hand, atol=1e-6)


def test_without_either_nothing_stands_beside_and_nothing_is_made():
    encoder = network()
    assert (encoder.width, encoder.beside.width, encoder.norm_bound) == (3, 0, 1.0)
    assert encoder.beside(torch.zeros(2, 4)).shape == (2, 0)
    assert len(list(network(skip=True, random_features=6).parameters())) == len(list(encoder.parameters()))


def test_the_public_bound_is_that_of_cosines_and_ranges():
    assert network(random_features=6).beside.norm_bound == math.sqrt(2.0)
    longest = math.sqrt(3 / (1 + 2 / 5))
    assert network(skip=True, random_features=6).beside.norm_bound == pytest.approx(math.hypot(longest, math.sqrt(2.0)))


@pytest.mark.parametrize("kind", ALL_KINDS)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=8)
def test_no_record_is_longer_than_the_public_bound(kind, seed):
    encoder = network(**kind)
    x = inputs(20, seed)
    x[0, :2] = 1.0
    assert features(encoder, x).norm(dim=1).max() <= encoder.norm_bound * (1 + 1e-6)


def test_random_directions_are_the_same_everywhere_and_follow_from_the_seed():
    own = Beside(model(skip=True, random_features=9), data())
    digest = hashlib.sha256(own.weight.numpy().tobytes() + own.bias.numpy().tobytes()).hexdigest()
    assert digest == "87945decad02ac1055c01e5703874c8f3e4fc63042695a916e3509957fe3212b"
    other = Beside(model(skip=True, random_features=9, seed=8), data())
    assert not torch.equal(own.weight, other.weight)


def test_random_directions_have_the_public_spread():
    own = Beside(model(**RAW, representation=4, random_features=256), data())
    width = SPREAD / math.sqrt(1 + 2 / 5)
    assert own.weight.std().item() == pytest.approx(width, rel=0.05)
    assert own.weight.abs().max().item() <= math.sqrt(3) * width
    assert 0 <= own.bias.min().item() < own.bias.max().item() < 2 * math.pi


def statistic(encoder, records, heads, classes, *, clip=1.0, share=None):
    """The packed terms of one patient with these records."""
    x, labels, domains = records
    frame = None if share is None else np.diag(np.linspace(0.2, 5.0, encoder.row))
    family = family_of(classes) if share is None else family_of(classes).with_curvature(CURVATURE)
    sums = second_order_sums(
        features(encoder, x),
        labels,
        domains,
        record_weights(np.zeros(len(x), np.int64)),
        heads,
        family=family,
        pooled=False,
        clip=clip,
        frame=frame,
        norm_bound=encoder.norm_bound,
    )
    return pack(*(sums if share is None else mixed(*sums, share)), family)


def drawn(encoder, classes, seed, count=4, spread=4.0):
    r = np.random.default_rng(seed)
    form = form_of(classes)
    heads = r.normal(0, spread, (M, form.logits * encoder.row))
    return (inputs(count, seed), r.integers(0, form.labels, count), r.integers(0, M, count)), heads


@pytest.mark.parametrize(("kind", "classes"), list(itertools.product(ALL_KINDS, FAMILIES)))
@given(
    st.integers(0, 2**32 - 1),
    st.tuples(st.floats(0.01, 1.0), st.sampled_from([None, 0.0, 0.6]), st.floats(0.1, 1e4)),
)
@settings(max_examples=10)
def test_one_patient_moves_the_sums_of_wide_heads_by_at_most_one(kind, classes, seed, chosen):
    """What heads read may be longer than C: the clip bounds the term, in every family, in any frame."""
    encoder, (clip, share, spread) = network(**kind), chosen
    records, heads = drawn(encoder, classes, seed, spread=spread)
    found = statistic(encoder, records, heads, classes, clip=clip, share=share)
    assert np.linalg.norm(found) <= 1 + 1e-12


@pytest.mark.parametrize("classes", FAMILIES)
def test_removing_a_patient_at_random_takes_this_patients_term_alone(classes):
    encoder = network(skip=True, random_features=6)
    (x, labels, domains), heads = drawn(encoder, classes, 3, count=30)
    patients = np.random.default_rng(4).integers(0, 8, 30)
    patients[:8] = range(8)

    def packed(kept):
        own = np.unique(patients[kept], return_inverse=True)[1]
        sums = second_order_sums(
            features(encoder, x)[torch.from_numpy(kept)],
            labels[kept],
            domains[kept],
            record_weights(own),
            heads,
            family=family_of(classes),
            pooled=False,
            clip=0.5,
            norm_bound=encoder.norm_bound,
        )
        return pack(*sums, family_of(classes))

    whole = packed(np.ones(30, np.bool_))
    moved = [np.linalg.norm(whole - packed(patients != patient)) for patient in range(8)]
    assert max(moved) <= 1 + 1e-9
    assert min(moved) > 0


@pytest.mark.parametrize("classes", FAMILIES)
def test_the_worst_case_that_a_search_finds_reaches_one_and_no_more(classes):
    encoder = network(skip=True, random_features=6)
    form = form_of(classes)
    width = form.logits * encoder.row

    def shortfall(values):
        x = np.concatenate([np.tanh(values[:2]), [1.0, 0.0]]).astype(np.float32)[None]
        heads = np.tile(values[2:], (1, 1))
        return -np.linalg.norm(statistic(encoder, (x, np.array([0]), np.array([0])), heads, classes))

    start = np.random.default_rng(1).normal(0, 1.0, 2 + width)
    found = minimize(shortfall, start, method="Powell", options={"maxfev": 80}).fun
    assert 1 - 1e-3 <= -found <= 1 + 1e-12
