"""A noise that a silo could not draw on the grid of its sums is refused by name, before anybody is charged."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crypto.rings.rings import ring_of
from crypto.stream import KeyStream
from policies.documents import bounds
from policies.documents.study import Study
from policies.plan import grids
from policies.plan.release import noise_field, plan
from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd import training
from silo_agent.learning.noise.gaussian import MAX_SIGMA, discrete_gaussian
from silo_agent.learning.noise.noised_sum import share_sd
from silo_agent.learning.releases.noising import SumGrid
from support.releases import a_release

NOISES = ["privacy.count_noise", "heads.pooled_noise", "heads.domain_noise", "evaluation.noise"]
CALIBRATED = {"heads.calibration": "pooled", "heads.calibration_noise": 5e4}


def wide(make_study, changes=None, silos=128):
    """A study whose grid is coarse: 128 silos of 5 million patients, in steps of 1 / 16; its noises are large."""
    names = [f"site-{number}" for number in range(silos)]
    coarse = {"silos": names, "min_silos": silos, "privacy.max_patients": 5_000_000, "privacy.mode": "distributed"}
    return make_study(coarse | dict.fromkeys(NOISES, 5e4) | (changes or {}))


def refused(study):
    with pytest.raises(Refused) as found:
        grids.require(study)
    assert found.value.reason is Reason.BOUNDS
    assert [reason for reason, _ in grids.faults(study)] == [Reason.BOUNDS]
    return found.value.text


def test_a_study_that_fits_is_no_fault(make_study):
    for study in (make_study(), wide(make_study), wide(make_study, CALIBRATED)):
        grids.require(study)
        assert not list(grids.faults(study))


@pytest.mark.parametrize("field", [*NOISES, "heads.calibration_noise"])
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_each_noise_that_is_too_small_is_named_with_what_would_do(make_study, field, mode):
    study = wide(make_study, CALIBRATED | {"privacy.mode": mode, field: 0.02})
    text = refused(study)
    assert f"study.{field} is 0.02; on the grid of 0.0625 that study.privacy.max_patients 5,000,000 and 128" in text
    assert text.count("Set") == 1
    noise = float(re.search(rf"Set study.{field} to (\S+) or more", text)[1])
    grids.require(wide(make_study, CALIBRATED | {"privacy.mode": mode, field: noise}))
    refused(wide(make_study, CALIBRATED | {"privacy.mode": mode, field: noise * 0.98}))


def test_fewer_patients_would_do_as_well_and_how_few_is_said(make_study):
    few = int(
        re.search(r"max_patients to (\S+) or less", refused(wide(make_study, {NOISES[0]: 0.02})))[1].replace(",", "")
    )
    assert 10_000 < few < 5_000_000
    grids.require(wide(make_study, {NOISES[0]: 0.02, "privacy.max_patients": few}))
    refused(wide(make_study, {NOISES[0]: 0.02, "privacy.max_patients": few + few // 50}))


def test_where_no_number_of_patients_would_do_none_is_said(make_study):
    """Of a study that was stored before noise had a least value: it is too small for the finest grid."""
    fine, tiny = (
        Study.model_validate(
            make_study({"privacy.max_patients": 1000}).model_dump() | {"evaluation": {"noise": noise}},
            context=bounds.STORED,
        )
        for noise in (1e-3, 1e-6)
    )
    grids.require(fine)
    assert re.search(r"Set study.evaluation.noise to \S+ or more$", refused(tiny))


def test_all_that_is_wrong_is_said_but_no_long_list(make_study):
    text = refused(wide(make_study, dict.fromkeys(NOISES, 0.02)))
    assert text.count("study.privacy.count_noise is 0.02;") == 1
    assert text.endswith("; and 1 more")


def test_public_data_have_no_noise_to_fit(make_study):
    grids.require(wide(make_study, dict.fromkeys(NOISES, 0.0) | {"privacy.mode": "none", "encoder.noise": 0.0}))


@given(
    silos=st.integers(3, 256),
    patients=st.integers(1, 10_000_000),
    noise=st.floats(math.log(1e-3), math.log(1e6)).map(lambda value: min(max(math.exp(value), 1e-3), 1e6)),
    mode=st.sampled_from(["local", "distributed"]),
)
@settings(max_examples=60, deadline=None)
def test_a_study_passes_exactly_if_a_silo_can_draw_all_of_its_noises(make_study, silos, patients, noise, mode):
    """By the silo's own grid and share, in the smallest and in the largest roster."""
    least = 2 * silos // 3 + 1
    names = [f"site-{number}" for number in range(silos)]
    changes = {"silos": names, "min_silos": least, "privacy.max_patients": patients, "privacy.mode": mode}
    study = make_study(changes | dict.fromkeys(NOISES, noise))
    step = SumGrid.of(study).step
    releases = [release for release in plan(study) if release.tensor != "encoder"]
    sigmas = [
        share_sd(release, mode=mode, silos=size, colluders=1, step=step) / step
        for release in releases
        for size in (least, silos)
    ]
    assert max(sigmas) < MAX_SIGMA
    assert (min(sigmas) >= grids.LEAST_SIGMA) == (not list(grids.faults(study)))
    assert {noise_field(study, 0, "counts"), noise_field(study, study.rounds, "heads")} <= set(NOISES)


def test_what_counts_is_the_largest_roster(make_study):
    """Of 128 silos 65 may do. A noise that only they could draw is refused, for a roster of all is offered first."""
    distributed = {"privacy.mode": "distributed", "privacy.colluders": 1}
    wanted = {size: grids.LEAST_SIGMA * 0.0625 * (size - 2) ** 0.5 / (1 + 0.0625 * 2) for size in (65, 128)}
    between = {"min_silos": 65, "privacy.count_noise": (wanted[65] + wanted[128]) / 2} | distributed
    assert "study.privacy.count_noise" in refused(wide(make_study, between))
    grids.require(wide(make_study, between | {"privacy.count_noise": wanted[128] * 1.05}))


def test_the_steps_of_an_encoder_have_the_grid_of_their_integers(make_study):
    """It is fine: every noise that a study may state lies above the least. A coarser one would be refused."""
    sealed = {"encoder.sealed_steps": True, "encoder.sealing": "ring64", "encoder.sampling_rate": 1.0}
    least = make_study(sealed | {"encoder.noise": 1e-3, "privacy.max_patients": 1000})
    grids.require(least)
    with pytest.MonkeyPatch.context() as coarse:
        coarse.setattr(grids, "SEALED_NORM", 1 << 10)
        assert "study.encoder.noise is 0.001" in refused(least)


def test_the_least_deviation_makes_a_sum_of_shares_one_discrete_gaussian():
    """Theorem 5 of Kairouz, Liu, Steinke 2021, for 1,000 shares."""
    sums = (math.exp(-2 * math.pi**2 * grids.LEAST_SIGMA**2 * k / (k + 1)) for k in range(1, 1000))
    assert 10 * math.fsum(sums) < 1e-60


def test_both_ends_can_be_drawn():
    """The largest noise that a study may state, on the finest grid, of an encoder of a hundred million weights."""
    largest = grids.share_sd(
        a_release(noise=1e6, values=10**8), distributed=False, silos=2, colluders=0, step=1 / grids.SEALED_NORM
    )
    for sigma in (grids.LEAST_SIGMA, largest * grids.SEALED_NORM):
        assert len(discrete_gaussian(KeyStream(bytes(32), b"ends"), sigma, 3)) == 3


@given(st.integers(1, 256))
def test_the_limit_is_that_of_the_ring(silos):
    assert grids.limit(silos) == ring_of("ckks").limit(silos)


def test_the_grid_of_a_sealed_step_is_that_of_its_integers():
    assert grids.SEALED_NORM == training.SEALED_NORM


@given(st.integers(1, 10_000_000), st.integers(24, 30))
def test_the_grid_leaves_room_for_noise_and_covers_every_patient(max_patients, bits):
    sums = grids.sums_of(max_patients, 2**bits)
    assert sums.bound == max_patients
    assert sums.bound / sums.step <= 2 ** (bits - 1)
    assert math.log2(sums.step).is_integer()
    assert sums.step == grids.FINEST or sums.bound / (sums.step / 2) > 2 ** (bits - 1)
