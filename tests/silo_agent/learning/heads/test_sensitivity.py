"""One record moves the heads' sums by at most 1, to the last bit, over the whole range that documents may state."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policies.documents.sections.heads import HeadPlan
from policies.documents.study import NUMBER
from silo_agent.data.records import record_weights
from silo_agent.learning.heads.calibration import blocks, intercept_sums
from silo_agent.learning.heads.evidence import mixed
from silo_agent.learning.heads.hierarchical import CURVATURE
from silo_agent.learning.heads.sums import pack, rounding_slack, second_order_sums
from silo_agent.learning.model.shared import HEAD_BOUND
from silo_agent.learning.outcomes.registry import family_of

LEAST_CLIP = HeadPlan.model_json_schema()["properties"]["clip"]["minimum"]
KINDS = [2, 3, 5, 12, NUMBER]
GAPS = [0.0, 1e-9, 1e-3, 0.48, 2.0, 9.0, 18.4, 19.0, 25.0, 36.0, 37.0, 45.0, 300.0, 700.0, 745.0, 760.0]
LONGEST = 4.0
"""No input is longer, in units of its scale: sqrt(10) of numbers with an indicator each, random features, phi."""


def squared(vector):
    """The square of a float64 vector's norm, without any rounding."""
    return sum(Fraction(value) ** 2 for value in vector.tolist())


def released(phi, labels, domains, heads, classes, *, clip, frame=None, share=None, bound=LONGEST, patients=None):
    family = family_of(classes) if share is None else family_of(classes).with_curvature(CURVATURE)
    alone = np.zeros(len(labels), np.int64)
    sums = second_order_sums(
        torch.tensor(phi),
        labels,
        domains,
        record_weights(alone if patients is None else patients),
        heads,
        family=family,
        pooled=False,
        clip=clip,
        frame=frame,
        norm_bound=bound,
    )
    return pack(*(sums if share is None else mixed(*sums, share)), family)


def at_gaps(gaps, length, bias):
    """A record of one input of this length, and one head whose logits have these gaps to the first class's 0."""
    logits = np.array([0.0, *gaps]) if len(gaps) > 1 else np.array(gaps)
    rows = np.zeros((len(logits), 1 + bias))
    rows[:, 0] = logits / max(length, 1e-300)
    return np.array([[length]]), rows.reshape(1, -1)


@pytest.mark.parametrize("classes", [2, 3, 5, NUMBER])
@pytest.mark.parametrize("clip", [LEAST_CLIP, 0.03, 1.0])
def test_at_no_gap_of_logits_is_a_record_longer_than_one(classes, clip):
    """Where one class is nearly sure, its curvature and residual are what is left to 1, and that must not cancel."""
    family = family_of(classes)
    ways = [(gap,) * (family.form.logits - 1) for gap in GAPS] if classes in {3, 5} else [(g,) for g in GAPS]
    signs = (-1.0, 1.0)
    for way, sign, length in itertools.product(ways, signs, (1e-3, 1.0, LONGEST)):
        phi, heads = at_gaps([sign * gap for gap in way], length, bias=False)
        for label in {0, family.form.labels - 1}:
            found = released(phi, np.array([label]), np.array([0]), heads, classes, clip=clip)
            assert squared(found) <= 1, (way, sign, length, label)


def log_uniform(least, most):
    return st.floats(math.log(least), math.log(most)).map(lambda value: min(max(math.exp(value), least), most))


@st.composite
def any_patient(draw):
    """Whatever a study may state and a record may be: records, domains, heads, clip, frame and share of a release."""
    classes, width, domains = draw(st.sampled_from(KINDS)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    records, bias, seed = draw(st.integers(1, 4)), draw(st.booleans()), draw(st.integers(0, 2**32 - 1))
    form, r = family_of(classes).form, np.random.default_rng(seed)
    phi = r.normal(size=(records, width)) * r.choice([0.0, 1.0, 1.0], (records, width))
    phi *= draw(log_uniform(1e-9, LONGEST)) / np.maximum(np.linalg.norm(phi, axis=1, keepdims=True), 1e-300)
    rows = r.normal(size=(domains, form.logits, width + bias)) * draw(log_uniform(1e-6, 300.0))
    gap = draw(st.one_of(st.sampled_from(GAPS), st.floats(0.0, 60.0)))
    rows[:, :, -1] += np.where(r.random((domains, form.logits)) < 0.5, gap, 0.0)
    heads = np.clip(rows.reshape(domains, -1), -HEAD_BOUND, HEAD_BOUND)
    frame = None
    if draw(st.booleans()):
        turn = np.linalg.qr(r.normal(size=(width + bias, width + bias)))[0]
        ends = draw(log_uniform(1e-6, HEAD_BOUND)), draw(log_uniform(1e-6, HEAD_BOUND))
        frame = (turn * np.geomspace(*ends, width + bias)) @ turn.T
        frame = np.triu(frame) + np.triu(frame, 1).T
    labels, own = r.integers(0, form.labels, records), r.integers(0, domains, records)
    clip, share = draw(log_uniform(LEAST_CLIP, 1.0)), draw(st.one_of(st.none(), st.floats(0.0, 0.95)))
    return (phi, labels, own, heads, classes), {"clip": clip, "frame": frame, "share": share}


@given(any_patient())
@settings(max_examples=400)
def test_no_patient_of_any_study_is_longer_than_one(patient):
    where, how = patient
    assert squared(released(*where, **how)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "width"), [(64, 6), (12, 40), (2, 512), (NUMBER, 512)])
def test_nor_is_a_patient_of_the_widest_studies(classes, width):
    """Most classes, and most numbers that a head reads: there the most products are rounded and added."""
    form, r, best = family_of(classes).form, np.random.default_rng(width), Fraction(0)
    for gap, clip, framed in itertools.product((0.0, 19.0, 37.0), (LEAST_CLIP, 1.0), (False, True)):
        phi = r.normal(size=(1, width))
        phi *= LONGEST / np.linalg.norm(phi)
        heads = r.normal(size=(1, form.logits, width + 1)) * r.choice([1e-3, 1.0])
        heads[:, :, -1] += np.where(r.random(form.logits) < 0.5, gap, 0.0)
        frame = np.diag(np.geomspace(1e-3, HEAD_BOUND, width + 1)) if framed else None
        where = phi, r.integers(0, form.labels, 1), np.array([0]), heads.reshape(1, -1), classes
        best = max(best, squared(released(*where, clip=clip, frame=frame, share=0.3 if framed else None)))
    assert 0.999 < best <= 1


def tried(values, classes, length):
    """One record, one head, frame and clip from real numbers: what the search walks over."""
    logits, width = family_of(classes).form.logits, 2
    phi, rows, stretch, (clip, size) = np.split(values, np.cumsum([width, logits * (width + 1), width + 1]))
    phi = (phi / max(np.linalg.norm(phi), 1e-9) * length / (1 + math.exp(-np.clip(size, -30, 30))))[None]
    clip = LEAST_CLIP ** (1 / (1 + math.exp(-np.clip(clip, -30, 30))))
    frame = np.diag(np.exp(np.clip(stretch, -7, math.log(HEAD_BOUND))))
    return phi, np.clip(rows, -HEAD_BOUND, HEAD_BOUND)[None], clip, frame


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3, 5, NUMBER])
@pytest.mark.parametrize("gap", [0.0, 19.0, 36.0])
def test_a_search_over_all_that_may_be_stated_comes_close_to_one_and_no_further(classes, gap):
    """From sure predictions as well, where norms once lost their digits and records came to be 1.15 long."""
    rng, best = np.random.default_rng(classes), Fraction(0)
    logits = family_of(classes).form.logits
    for framed, label in itertools.product((False, True), {0, family_of(classes).form.labels - 1}):

        def worst(values, framed=framed, label=label):
            phi, heads, clip, frame = tried(values, classes, LONGEST)
            chosen = {"clip": clip, "frame": frame if framed else None, "share": 0.3 if framed else None}
            return squared(released(phi, np.array([label]), np.array([0]), heads, classes, **chosen))

        at, step = rng.normal(size=2 + logits * 3 + 3 + 2), 1.0
        at[4 : 2 + logits * 3 : 3] -= gap * rng.random(logits)
        value = worst(at)
        for _ in range(150):
            other = at + step * rng.normal(size=len(at)) * (rng.random(len(at)) < 0.4)
            found = worst(other)
            at, value, step = (other, found, 1.3 * step) if found > value else (at, value, 0.97 * step)
        best = max(best, value)
    assert 0.999 < best <= 1


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
@pytest.mark.parametrize("clip", [LEAST_CLIP, 1.0])
@pytest.mark.parametrize("gap", [0.0, 12.0, 30.0])
def test_the_slack_covers_what_rounding_moves_in_a_frame_of_long_inputs_and_sure_predictions(classes, clip, gap):
    """The sum of all is that of each alone to within half the slack, and none alone needs any of it."""
    r, count, width = np.random.default_rng(int(gap)), 100, 9
    family = family_of(classes)
    phi = r.normal(size=(count, width - 1))
    phi *= (LONGEST - 0.5) / np.linalg.norm(phi, axis=1, keepdims=True)
    rows = r.normal(size=(family.form.logits, width)) * 0.3
    rows[1 if classes == 3 else 0 :, -1] -= gap
    frame = np.linalg.qr(r.normal(size=(width, width)))[0]
    frame = (frame * np.geomspace(1e-3, HEAD_BOUND, width)) @ frame.T
    frame = np.triu(frame) + np.triu(frame, 1).T
    labels, own, heads = np.zeros(count, np.int64), np.zeros(count, np.int64), rows.reshape(1, -1)
    chosen = {"clip": clip, "frame": frame, "share": 0.4}
    whole = released(phi, labels, own, heads, classes, **chosen, patients=np.arange(count))
    alone = [released(phi[i : i + 1], labels[:1], own[:1], heads, classes, **chosen) for i in range(count)]
    exact = np.array([math.fsum(column) for column in np.array(alone).T])
    slack = rounding_slack(count, count + 2, heads.shape[1])
    assert slack < 1e-11
    assert np.linalg.norm(whole - exact) <= slack / 2
    assert max(map(squared, alone)) <= 1


@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), log_uniform(1e-3, 1000.0), st.booleans())
@example(3, 0, 1000.0, True)
def test_no_patient_moves_the_calibration_by_more_than_one(classes, seed, spread, pooled):
    form, r = family_of(classes).form, np.random.default_rng(seed)
    phi, heads = r.normal(size=(3, 2)), r.normal(size=(2, form.logits * 3)) * spread
    sums = intercept_sums(
        torch.tensor(phi),
        r.integers(0, form.labels, 3),
        r.integers(0, 2, 3),
        record_weights(np.zeros(3, np.int64)),
        heads,
        family=family_of(classes),
        norm_bound=LONGEST,
    )
    assert squared(blocks(sums, pooled=pooled)) <= 1


@pytest.mark.parametrize("classes", KINDS)
@pytest.mark.parametrize("pooled", [True, False])
def test_a_prediction_that_is_wholly_wrong_moves_the_calibration_by_one_and_no_more(classes, pooled):
    """Its terms are exactly 1 long, and the scales of the blocks, sqrt(1/2) each, are rounded upwards."""
    form = family_of(classes).form
    heads = np.tile(np.array([[800.0] if form.logits == 1 else [800.0] + [0.0] * (form.logits - 1)]).T, (1, 2))
    heads[:, 0] = 0.0
    for label in {0, form.labels - 1}:
        given_record = torch.zeros(1, 1), np.array([label]), np.array([0]), np.ones(1)
        sums = intercept_sums(*given_record, heads.reshape(1, -1), family=family_of(classes))
        assert squared(blocks(sums, pooled=pooled)) <= 1
