"""A sum of honest contributions is never refused; one that garbage has spoilt is, if it is beyond any honest one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.plan import shapes
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.learning.errors import SumError
from silo_agent.learning.releases import possible_sums
from silo_agent.learning.releases.noising import SumGrid
from silo_agent.learning.releases.possible_sums import Judge, MostPatients, most_drawn, noise_margin, norm_margin
from support.local_federation import LocalFederation, write_patients
from support.studies import tiny_study

SLOPES = np.array([[7.0, -2.0], [-5.0, 4.0]])
SIZES = {"north": 240, "south": 400, "west": 300}
QUIET = {
    "heads": {"pooled_rounds": 1, "domain_rounds": 1, "pooled_noise": 3.0, "domain_noise": 3.0},
    "encoder": {"max_update": 8.0},
    "evaluation": {"noise": 3.0},
    "privacy": {"mode": "distributed", "count_noise": 3.0, "max_patients": 1000},
}


@pytest.fixture(scope="module", params=["newton", "hierarchical", "calibrated", "sealed"])
def federation(request, tmp_path_factory):
    """A study of 940 patients up to its end, all of whose sums are kept."""
    folder, rng = tmp_path_factory.mktemp("possible"), np.random.default_rng(3)
    files = {
        silo: write_patients(folder / f"{silo}.csv", rng, SLOPES, patients=patients) for silo, patients in SIZES.items()
    }
    changes = {
        "newton": {},
        "hierarchical": {"heads": {**QUIET["heads"], "solver": "hierarchical"}},
        "calibrated": {"heads": {**QUIET["heads"], "calibration": "domain", "calibration_noise": 3.0}},
        "sealed": {
            "encoder": {
                **QUIET["encoder"],
                "sealed_steps": True,
                "sampling_rate": 1.0,
                "sealing": "ring64",
                "noise": 3.0,
            }
        },
    }[request.param]
    return LocalFederation.gather(tiny_study(**{**QUIET, **changes}), files, folder / "silos").run()


def sums(federation):
    """Every sum of the study: place, tensor, and the contributions by silo."""
    study = federation.study
    for number in range(plan(study).last + 1):
        for tensor in map(Tensor, plan(study).tensors(number)):
            given = {silo: federation.payloads[number, tensor, silo] for silo in federation.learners}
            yield Place(study.digest, number, 1), tensor, given


def judged(federation, place, tensor, total, **words):
    federation.learners["north"].check_sum(tensor, np.asarray(total), place, 3, **words)


def test_what_one_silo_sends_ten_times_flipped_shows_in_every_sum(federation):
    seen = []
    for place, tensor, sent in sums(federation):
        total = sum(sent.values())
        judged(federation, place, tensor, total)
        if tensor is Tensor.ENCODER or (
            tensor is Tensor.HEADS and shapes.is_calibration(federation.study, place.round)
        ):
            continue  # such a sum is hardly longer than its noise
        with pytest.raises(SumError, match=f"the opened {tensor} is no sum of honest contributions"):
            judged(federation, place, tensor, total - 11 * sent["south"])
        seen.append(tensor)
    assert {Tensor.COUNTS, Tensor.HEADS, Tensor.METRICS} <= set(seen)


def test_random_values_far_within_the_ring_are_refused_in_every_sum(federation):
    rng = np.random.default_rng(5)
    for place, tensor, sent in sums(federation):
        total = sum(sent.values())
        limit = federation.learners["north"]._contributions[tensor].limit
        garbage = rng.integers(-limit, limit, len(total), endpoint=True)
        with pytest.raises(SumError, match=r"honest contributions|a value exceeds the study's bound"):
            judged(federation, place, tensor, total + garbage)


def test_a_silo_that_was_not_counted_may_bring_as_many_patients_as_the_study_allows(federation):
    place, tensor, sent = next(one for one in sums(federation) if one[1] is Tensor.HEADS)
    total = sum(sent.values())
    step = SumGrid.of(federation.study).step
    beyond = np.zeros_like(total)
    beyond[0] = int(1500 / step)
    with pytest.raises(SumError):
        judged(federation, place, tensor, beyond)
    judged(federation, place, tensor, beyond, uncounted=1)


# --- the bounds themselves --------------------------------------------------------------------------------------------
COUNTS = np.array([40.0, 400.0])


def known(**changes):
    return MostPatients.of(COUNTS, 0.0, 0.0, **{"uncounted": 0, "clamp": 1000.0, **changes})


def test_patients_are_bounded_by_domain_and_in_all():
    assert known().of_blocks(1) == [440.0]
    assert known().of_blocks(2) == [40.0, 400.0]
    assert known().of_blocks(3) == [40.0, 400.0, 440.0]
    noised = MostPatients.of(COUNTS, 2.0, 0.5, uncounted=0, clamp=1000.0)
    assert 15.0 < noised.by_domain[0] - 40.0 < 20.0
    assert noised.total - 440.0 > noised.by_domain[0] - 40.0
    assert known(uncounted=2).of_blocks(2) == [2040.0, 2400.0]
    assert MostPatients.of(np.array([-90.0, 5.0]), 0.0, 0.0, uncounted=0, clamp=10.0).by_domain.tolist() == [0.0, 5.0]


@given(patients=st.integers(1, 4000), held=st.floats(0.05, 0.5), seed=st.integers(0, 2**32 - 1))
def test_the_held_out_patients_of_a_random_split_are_never_too_many(patients, held, seed):
    out = int(np.random.default_rng(seed).binomial(patients, held))
    bound = MostPatients.of(np.array([float(patients - out)]), 0.0, 0.0, uncounted=0, clamp=1e9).held_out()[0]
    assert out <= bound <= 2.0 * (patients - out) + 40.0 * math.sqrt(patients) + 200.0


@given(
    values=st.integers(1, 300), patients=st.integers(0, 50), sd=st.sampled_from([0.0, 0.5, 30.0]), seed=st.integers(0)
)
def test_unit_terms_and_their_noise_are_never_refused(values, patients, sd, seed):
    rng = np.random.default_rng(seed % 2**32)
    terms = rng.normal(size=(patients, values))
    aligned = rng.random() < 0.5
    if aligned:
        terms[:] = terms[:1]
    terms /= np.maximum(np.linalg.norm(terms, axis=1, keepdims=True), 1e-12)
    vector = terms.sum(axis=0) + rng.normal(0.0, 1.0, values) * sd + rng.uniform(-0.001, 0.001, values)
    Judge("heads", sd, 0.001, 1e9).within(vector, float(patients))


@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_a_long_sum_of_integers_is_judged_as_its_values_are(values, seed):
    sums = np.random.default_rng(seed).integers(-(2**40), 2**40, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(possible_sums, "_PART", 16)
        length, largest = possible_sums._norm(sums), possible_sums._largest(sums)
    assert length == pytest.approx(np.linalg.norm(sums.astype(float)), rel=1e-12)
    assert largest == np.abs(sums).max()


def test_what_is_a_little_longer_than_all_patients_can_make_it_is_refused():
    judge, values = Judge("heads", 0.5, 0.0, 1000.0), np.full(100, 1.0)
    most = norm_margin(0.5, 100)
    judge.within(values * (40.0 + most) / 10.0 * 0.999, 40.0)
    with pytest.raises(SumError, match="longer than the counted patients"):
        judge.within(values * (40.0 + most) / 10.0 * 1.001, 40.0)
    single = np.zeros(100)
    single[3] = 40.0 + noise_margin(0.5, 100)
    judge.inside(single * 0.999, 40.0)
    with pytest.raises(SumError, match="a value exceeds what the counted patients"):
        judge.inside(single * 1.001, 40.0)
    Judge("heads", 0.5, 0.0, 40.0).within(values * 30.0, 40.0)  # clamped counts bound values, not lengths


@given(width=st.integers(1, 12), patients=st.integers(0, 40), seed=st.integers(0))
def test_curvatures_with_their_noise_are_never_refused_and_negative_ones_are(width, patients, seed):
    rng = np.random.default_rng(seed % 2**32)
    z = rng.normal(size=(patients, width))
    noise = rng.normal(0.0, 1.0, (width, width))
    noise = np.triu(noise, 1) / math.sqrt(2.0) + np.diag(np.diag(noise))
    noisy = z.T @ z + noise + np.triu(noise, 1).T
    judge = Judge("heads", 1.0, 0.0, 1e9)
    judge.curved(noisy, float(patients))
    away = rng.normal(size=width)
    away /= np.linalg.norm(away)
    with pytest.raises(SumError, match="a curvature is negative"):
        judge.curved(noisy - (noisy.trace() + 60.0 + 4.0 * width) * np.outer(away, away), float(patients))


@given(patients=st.integers(0, 5000), rate=st.floats(1e-3, 1.0), seed=st.integers(0, 2**32 - 1))
def test_more_patients_than_this_are_never_drawn(patients, rate, seed):
    assert np.random.default_rng(seed).binomial(patients, rate) <= most_drawn(patients, rate) <= patients


@pytest.mark.parametrize(("patients", "rate"), [(1e6, 1e-15), (1e12, 1e-3)])
def test_the_chance_of_more_drawn_patients_is_what_bernstein_says_of_one_rule(patients, rate):
    """exp(-t^2 / 2 / (n q + t / 3)) for t above the n q that are expected, where next to none or very many are."""
    expected = patients * rate
    more = most_drawn(patients, rate) - expected
    assert -(more**2) / 2.0 / (expected + more / 3.0) == pytest.approx(math.log(1e-15 / 2.0), rel=1e-3)
