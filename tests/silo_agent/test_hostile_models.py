"""A model made by somebody else, finite and otherwise anything: one patient's influence stays what was charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policies.plan import shapes
from policies.plan.release import encoder_release, plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.dpsgd import clipping, training
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.errors import SolutionError
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.heads import HEAD_STEP
from silo_agent.learning.releases.noising import SumGrid
from support.entropy import SeededEntropy
from support.releases import contribution
from support.studies import tiny_study

pytestmark = pytest.mark.sampled
OPEN = {
    "heads": {"pooled_noise": 0, "domain_noise": 0},
    "encoder": {"noise": 0, "steps": 1, "sampling_rate": 1.0},
    "evaluation": {"noise": 0},
    "privacy": {"mode": "none", "count_noise": 0},
}
"""What is released is what the noise would have been added to."""
LABELS = {
    2: {"column": "ill", "positive": [1], "negative": [0]},
    3: {"column": "ill", "classes": [[0], [1], [2]], "positive": [], "negative": []},
}
LARGEST = float(np.finfo(np.float64).max)
PATIENTS = 8


def loud(width):
    """Any finite weights, those at the ends of the format's range among them, and those that overflow with others."""
    numbers = np.finfo(f"f{width // 8}")
    shares = st.floats(-1.0, 1.0, width=16).map(lambda share: share * float(numbers.max))
    ends = [numbers.max, numbers.max / 2, numbers.max**0.5, numbers.tiny, numbers.smallest_subnormal, 1.0, 0.0]
    signed = [float(sign * end) for end in ends for sign in (1, -1)]
    return st.sampled_from(signed) | shares | st.floats(allow_nan=False, allow_infinity=False, width=width)


@st.composite
def models(draw, study):
    """A model before a round of heads or the calibration; encoder and prior the public start or anything.

    The heads of all domains are alike in round 1.
    """
    model = SharedModel.start(study)
    number = draw(st.integers(1, study.rounds))
    rows = len(model.heads) if number > 1 else 1
    heads = draw(arrays(np.float64, (rows, model.heads.shape[1]), elements=loud(64)))
    own = {}
    for part in ("encoder", "prior"):
        if draw(st.booleans()):
            own[part] = draw(arrays(np.float32, getattr(model, part).shape, elements=loud(32)))
    if number > 1 and len(model.evidence):
        size = draw(st.sampled_from([0.0, 1.0, 30.0, HEAD_BOUND]))
        frame = draw(arrays(np.float64, (len(model.gathered.frame),) * 2, elements=st.floats(-1.0, 1.0)))
        own["evidence"] = framed(model, size * (frame + frame.T) / 2, draw(st.floats(0.0, 0.95)))
    return replace(model, round=number, heads=np.tile(heads, (len(model.heads) // rows, 1)), **own)


def framed(model, frame, share):
    """The evidence after pooled rounds with any frame and share."""
    return model.gathered.turned(frame[np.triu_indices(len(frame))], share).to_array()


def cohort(study):
    rng = np.random.default_rng(study.data.label.count)
    return Records(
        rng.uniform(-1, 1, (PATIENTS, 2)).astype(np.float32),
        rng.integers(0, study.data.label.count, PATIENTS),
        rng.integers(0, 2, PATIENTS),
        np.arange(PATIENTS),
        tuple(map(str, range(PATIENTS))),
    )


def make_learner(study, folder):
    sources = {"draws": FreshDraws(SeededEntropy(1))}
    return Learner(study, DataSet(Path("none"), Division("ward", 0.25, ("patient",))), folder, **sources, device="cpu")


@pytest.fixture(scope="module", params=[(2, "newton"), (3, "newton"), (2, "hierarchical"), (3, "hierarchical")])
def learner(request, tmp_path_factory):
    """Of a study of two classes, and of three, with each solver, without noise."""
    classes, solver = request.param
    heads = OPEN["heads"] | {"solver": solver, "calibration": "pooled" if solver == "newton" else "domain"}
    study = tiny_study(**OPEN | {"data": {"label": LABELS[classes]}, "heads": heads})
    return make_learner(study, tmp_path_factory.mktemp("silo"))


def released(learner, tensor, model, records):
    """Integers times their grid's step, and the accounted sensitivity after rounding."""
    learner._records = records, records
    number = plan(model.study).last if tensor is Tensor.METRICS else model.round
    integers = contribution(learner, tensor, Place(model.study.digest, number, 1), model, 3)
    step = SumGrid.of(learner.study).step
    return integers * step, 1.0 + step * len(integers) ** 0.5


def apart(gone):
    return np.arange(PATIENTS) != gone


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(data=st.data())
def test_one_patient_moves_what_is_released_by_what_was_charged(learner, data):
    model = data.draw(models(learner.study))
    tensor = data.draw(st.sampled_from([Tensor.HEADS, Tensor.METRICS] if model.round > 1 else [Tensor.HEADS]))
    everybody = cohort(learner.study)
    whole, most = released(learner, tensor, model, everybody)
    for gone in range(PATIENTS):
        fewer, _ = released(learner, tensor, model, everybody.of_patients(apart(gone)))
        assert np.linalg.norm(whole - fewer) <= most


@pytest.mark.parametrize("learner", [(2, "hierarchical"), (3, "hierarchical")], indirect=True)
def test_a_patient_whom_the_frame_makes_long_counts_as_one_in_a_domain_round(learner):
    """Every term reaches the clip, so it would show if clip and release weighed the curvature differently."""
    model, everybody = SharedModel.start(learner.study), cohort(learner.study)
    model = model.with_heads(np.zeros_like(model.heads), 2)
    model = replace(model, evidence=framed(model, 30.0 * np.eye(len(model.gathered.frame)), 0.3))
    whole, most = released(learner, Tensor.HEADS, model, everybody)
    for gone in range(PATIENTS):
        fewer, _ = released(learner, Tensor.HEADS, model, everybody.of_patients(apart(gone)))
        assert 0.99 <= np.linalg.norm(whole - fewer) <= most


def test_heads_that_overflow_for_one_patient_do_not_take_the_others_away(learner):
    """The weights are chosen so that the logits of the patient with the largest first feature alone overflow."""
    model, everybody = SharedModel.start(learner.study), cohort(learner.study)
    first = model.features(everybody.inputs).numpy()[:, 0].astype(np.float64)
    *_, second, largest = np.argsort(first)
    bias = LARGEST * 0.9
    heads = np.zeros_like(model.heads)
    heads[:, 0], heads[:, 2] = (LARGEST - bias) / ((first[second] + first[largest]) / 2), bias
    model = model.with_heads(heads, 2)
    whole, most = released(learner, Tensor.HEADS, model, everybody)
    fewer, _ = released(learner, Tensor.HEADS, model, everybody.of_patients(apart(largest)))
    assert np.linalg.norm(fewer) > 1.0
    assert np.linalg.norm(whole - fewer) <= most


def summed(model, records):
    """The clipped gradients of all records over everything that is trained, added up: float64 (weights,)."""
    sums = []
    step, unit = PrivateStep.take, clipping.StepGrid.fine(model.study.encoder.clip, 0.0).unit

    def noted(self):
        sums.append(np.concatenate([total.numpy() * unit for total in self.totals]))
        step(self)

    latent = np.random.default_rng(1).normal(size=(PATIENTS, model.study.model.representation))
    latent = latent[[int(name) for name in records.identities]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateStep, "take", noted)
        patch.setattr(training, "gaussian", lambda *_: latent)
        training.train_encoder(
            training.Training(
                encoder=model.build_encoder(),
                heads=model.heads,
                records=records,
                plan=model.study.encoder,
                release=encoder_release(model.study),
                family=model.family,
                domain_weights=np.ones(2),
                prior=model.build_prior(),
            ),
            mode="none",
            entropy=SeededEntropy(1),
        )
    (found,) = sums
    assert len(found) == len(flatten(model.build_encoder())) + shapes.prior_values(model.study)
    return found


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@given(data=st.data())
def test_one_patient_moves_the_summed_gradient_by_the_clip(classes, stochastic, data):
    encoder = OPEN["encoder"] | ({"cmi": 0.1} if stochastic else {})
    study = tiny_study(**OPEN | {"data": {"label": LABELS[classes]}, "encoder": encoder})
    model = data.draw(models(study))
    gone = data.draw(st.integers(0, PATIENTS - 1))
    everybody = cohort(study)
    whole, fewer = summed(model, everybody), summed(model, everybody.of_patients(apart(gone)))
    assert np.linalg.norm(whole - fewer) <= study.encoder.clip * (1 + 1e-12)


@pytest.mark.parametrize("clip", [1e-26, 1.0, 100.0])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e19, 1e37, 3.4e38, np.inf, np.nan])
def test_a_gradient_of_any_size_is_clipped_or_counts_as_zero(clip, size):
    """It is the second of three records', and in one part of what is trained; the other parts are as large as clips."""
    gradients = [
        torch.tensor([[0.0, 0.0], [size, 0.6 * clip], [0.0, 0.0]]),
        torch.tensor([[0.0], [0.2 * clip], [0.0]]),
    ]
    grid, totals = (
        clipping.StepGrid.of(clip, 1.0),
        [torch.zeros(2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)],
    )
    clipping.add_integers(totals, clipping.to_integers(gradients, grid), 3, grid)
    found = np.concatenate([total.numpy() for total in totals]).tolist()
    assert sum(value**2 for value in found) <= 2**40
    if not np.isfinite(size):
        assert not any(found)


def test_solved_heads_beyond_the_bound_are_not_adopted(tmp_path):
    study = tiny_study(heads={"max_step": 1e6})
    learner, model = make_learner(study, tmp_path), SharedModel.start(study)
    model = model.with_heads(np.full_like(model.heads, 2 * HEAD_BOUND), 0)
    place = Place(study.digest, 1, 1)
    total = np.zeros(plan(study).release(1, Tensor.HEADS).values, np.int64)
    solution = learner.solve(total, place, model, 3)
    assert np.array_equal(solution, np.full(len(solution), HEAD_BOUND / HEAD_STEP))
    assert learner.adopt(solution, total, place, model, 3).heads.max() == HEAD_BOUND
    with pytest.raises(SolutionError):
        learner.adopt(solution + 1, total, place, model, 3)
