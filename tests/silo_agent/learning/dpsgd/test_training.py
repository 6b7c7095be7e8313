import dataclasses

import numpy as np
import pytest
import torch

from policies.documents.terms import TERMS
from policies.errors import CostError
from policies.plan import shapes
from policies.plan.release import plan as plan_of
from silo_agent.learning.dpsgd import training
from silo_agent.learning.dpsgd.batches import Batches
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.schedule import learning_rate
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.training import SEALED_NORM, Training, sum_gradients, train_encoder
from silo_agent.learning.encoder.encoder import build_encoder, flatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.gaussian import gaussian
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.cmi import FixedPrior, Prior, fixed_prior, gaussian_kl, prior_of
from silo_agent.learning.terms.losses.cross_entropy import cross_entropy
from silo_agent.learning.terms.losses.l2r import squared_norm
from support.entropy import SeededEntropy
from support.releases import a_release

DOMAINS = 3
FIXED, PLAIN = {"cmi": 0.3, "prior": "fixed"}, {"l2r_norm": "plain"}
"""Options of FedSR's terms."""
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")


@pytest.fixture
def silent(monkeypatch):
    """DP-SGD without its noise, on the grid of no noise: clipping can be seen. It exists in this file alone."""
    monkeypatch.setattr(PrivateStep, "draw", lambda _: None)
    fine = StepGrid.fine
    monkeypatch.setattr(StepGrid, "fine", lambda clip, _: dataclasses.replace(fine(clip, 0.0), sigma=1.0))


KINDS = [
    {},
    {"cmi": 0.3},
    {"cmi": 0.2, "cmi_scale": True},
    {"cmi": 0.3, "skip": True, "random_features": 6},
    {"bias": False},
]


def heads_of(study, seed=1):
    return np.random.default_rng(seed).normal(size=(DOMAINS, shapes.head_width(study))) * 3


def charged(plan):
    """The release that a ledger would be charged for."""
    numbers = {"noise": plan.noise, "sampling_rate": plan.sampling_rate, "count": plan.steps}
    return a_release(tensor="encoder", **numbers)


def tables_of(study, plan):
    """r(z|y) at its start, or the fixed one."""
    return fixed_prior(study.model, study.data) if plan.prior == "fixed" else prior_of(study.model, study.data, plan)


def family(study):
    return family_of(study.data.label.count)


def train(
    study,
    records,
    *,
    entropy=0,
    device="cpu",
    weights=(0.5, 1.0, 2.0),
    prior=None,
    heads=None,
    mode="local",
    joint=0,
    heads_alone=False,
    **changes,
):
    plan = study.encoder.model_copy(update=changes)
    encoder = build_encoder(study.model, study.data, stochastic=plan.cmi > 0)
    if plan.cmi > 0 and prior is None:
        prior = tables_of(study, plan)
    return train_encoder(
        Training(
            encoder=encoder,
            heads=heads_of(study) if heads is None else heads,
            records=records,
            plan=plan,
            release=charged(plan),
            family=family(study),
            domain_weights=np.array(weights),
            prior=prior,
            device=device,
            joint=joint,
            heads_alone=heads_alone,
        ),
        mode=mode,
        entropy=SeededEntropy(entropy),
    )


def one_at_a_time(study, records, latent, weights=(0.5, 1.0, 2.0), *, joint=0, heads_alone=False):
    """Gradient of every record's loss over [encoder, prior, heads], by plain autograd on a batch of this record alone.

    Of the heads, the first `joint` are trained; with `heads_alone` the gradients of the others are zeros.
    """
    plan = study.encoder
    encoder = build_encoder(study.model, study.data, stochastic=plan.cmi > 0)
    fixed = plan.prior == "fixed"
    prior = tables_of(study, plan)
    length = squared_norm if plan.l2r_norm == "squared" else lambda phi: phi.norm(dim=1)
    parameters = [*encoder.parameters(), *(prior.parameters() if plan.cmi > 0 and not fixed else ())]
    heads = torch.tensor(heads_of(study)[: joint or None], dtype=torch.float32, requires_grad=joint > 0)
    still = len(parameters) if heads_alone else 0
    parameters += [heads] * (joint > 0)
    gradients = []
    for i in range(len(records)):
        x, y = torch.tensor(records.inputs[i : i + 1]), torch.tensor(records.labels[i : i + 1])
        d = torch.tensor(records.domains[i : i + 1])
        own = torch.zeros_like(d) if joint == 1 else d
        images = None if records.images is None else torch.tensor(records.images.take(slice(i, i + 1)))
        mean, deviation = encoder.moments(x, images)
        phi = encoder.read(mean if deviation is None else mean + deviation * latent[i : i + 1], x)
        loss = weights[int(d)] * cross_entropy(family(study), phi, heads, own, y) + plan.l2r * length(phi)
        if deviation is not None:
            scale = prior.scale_of(y) if plan.cmi_scale else 1.0
            loss = loss + plan.cmi * gaussian_kl(scale * mean, scale * deviation, *prior(y))
        parts = torch.autograd.grad(loss.sum(), parameters)
        parts = [torch.zeros_like(part) if at < still else part for at, part in enumerate(parts)]
        gradients.append(torch.cat([part.ravel() for part in parts]).double().numpy())
    return np.array(gradients)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("kind", [*KINDS, FIXED, PLAIN])
def test_a_step_sums_clipped_gradients_of_one_record_at_a_time(make_study, make_records, monkeypatch, kind):
    norm = kind.get("l2r_norm", "squared")
    study = make_study(**{name: value for name, value in kind.items() if name != "l2r_norm"})
    records = make_records(40)
    one = {"l2r": 0.2, "l2r_norm": norm, "steps": 1, "sampling_rate": 1.0, "clip": 0.7}
    plan = study.encoder.model_copy(update=one)
    study = study.model_copy(update={"encoder": plan})
    latent = np.random.default_rng(5).normal(size=(40, study.model.representation))
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: latent.copy())
    update = train(study, records)
    gradients = one_at_a_time(study, records, torch.tensor(latent, dtype=torch.float32))
    norms = np.linalg.norm(gradients, axis=1)
    assert norms.min() < 0.7 < norms.max()
    clipped = gradients * np.minimum(1, 0.7 / norms)[:, None]
    expected = -plan.learning_rate * clipped.sum(axis=0) / plan.batch_size
    assert len(update.vector) == shapes.encoder_values(study) + shapes.prior_values(study)
    np.testing.assert_allclose(update.vector, expected, atol=1e-5)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("term", [None, *(term.field for term in TERMS if term.part == "encoder")])
@pytest.mark.parametrize("trained", [(1, False), (3, False), (3, True)])
def test_heads_trained_in_the_step_have_the_gradients_of_one_record_at_a_time_under_each_term(
    make_study, make_records, monkeypatch, term, trained
):
    """As the recipes train them: with the encoder, one for all or one for each domain, or alone, as FedRep's."""
    joint, heads_alone = trained
    fields = {} if term is None else {term: 0.3}
    study, records = make_study(cmi=fields.get("cmi", 0.0)), make_records(30)
    plan = study.encoder.model_copy(update=fields | {"steps": 1, "sampling_rate": 1.0, "clip": 0.7})
    study = study.model_copy(update={"encoder": plan})
    latent = np.random.default_rng(5).normal(size=(30, study.model.representation))
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: latent.copy())
    heads = np.repeat(heads_of(study)[:1], DOMAINS, axis=0) if joint == 1 else heads_of(study)
    update = train(study, records, heads=heads, joint=joint, heads_alone=heads_alone)
    drawn = torch.tensor(latent, dtype=torch.float32)
    gradients = one_at_a_time(study, records, drawn, joint=joint, heads_alone=heads_alone)
    norms = np.linalg.norm(gradients, axis=1)
    assert norms.min() < 0.7 < norms.max()
    clipped = gradients * np.minimum(1, 0.7 / norms)[:, None]
    expected = -plan.learning_rate * clipped.sum(axis=0) / plan.batch_size
    np.testing.assert_allclose(update.vector, expected, atol=1e-5)
    own = joint * shapes.head_width(study)
    assert np.abs(update.vector[-own:]).max() > 1e-3
    assert update.vector[:-own].any() != heads_alone


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("cmi", "clip"), [(0.0, 0.05), (0.0, 1.0), (0.3, 0.05), (0.3, 1.0)])
def test_removing_one_patient_moves_the_summed_update_by_at_most_the_clip(
    make_study, make_records, monkeypatch, cmi, clip
):
    study, records = make_study(cmi=cmi), make_records(30)
    latent = np.random.default_rng(5).normal(size=(30, study.model.representation))
    plan = {"steps": 1, "sampling_rate": 1.0, "clip": clip, "learning_rate": 1.0, "batch_size": 1, "max_update": 1e6}
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: latent.copy())
    whole = train(study, records, **plan).vector
    moved = []
    for gone in range(0, 30, 3):
        kept = np.arange(30) != gone
        monkeypatch.setattr(training, "gaussian", lambda stream, shape, kept=kept: latent[kept])
        moved.append(np.linalg.norm(train(study, records.of_patients(kept), **plan).vector - whole))
    assert max(moved) <= clip * (1 + 1e-4)
    assert max(moved) > clip * 0.5


def test_a_patient_with_many_records_moves_it_by_no_more(make_study, make_records, silent):
    study = make_study()
    records = make_records(30, patients=4)
    plan = {"steps": 1, "sampling_rate": 1.0, "clip": 0.1, "learning_rate": 1.0, "batch_size": 1, "max_update": 1e6}
    update = train(study, records, **plan).vector
    assert np.linalg.norm(update) <= 4 * 0.1 * (1 + 1e-4)


def test_the_noise_has_the_charged_size_and_the_public_denominator(make_study, make_records):
    # About 100,000 weights: five standard errors are 1.1 %.
    study = make_study(inputs=300, hidden=(330,), representation=4)
    records = make_records(12, inputs=300)
    nobody = records.of_patients(np.zeros(12, bool))
    for batch_size, noise, clip in ((10, 1.0, 1.0), (40, 3.0, 0.5)):
        plan = {"steps": 4, "batch_size": batch_size, "noise": noise, "clip": clip, "learning_rate": 0.1}
        update = train(study, nobody, **plan).vector
        expected = 0.1 * noise * clip * np.sqrt(4) / batch_size
        assert abs(update.std() / expected - 1) < 5 / np.sqrt(2 * len(update))
        assert abs(update.mean()) < 5 * expected / np.sqrt(len(update))
    crowd = train(study, make_records(200, inputs=300), **plan).vector
    assert abs((crowd - update).std() / expected) < 1, "the private number of patients must not scale the noise"


def test_noise_is_fresh_every_step_and_every_call(make_study, make_records):
    study = make_study()
    nobody = make_records(3).of_patients(np.zeros(3, bool))
    one, two = (train(study, nobody, steps=steps, sampling_rate=1.0).vector for steps in (1, 2))
    assert not np.allclose(two, 2 * one)
    assert np.array_equal(train(study, nobody).vector, train(study, nobody).vector)
    assert not np.array_equal(train(study, nobody).vector, train(study, nobody, entropy=1).vector)


def test_noise_and_sampling_come_from_the_entropy_and_not_from_torch(make_study, make_records):
    study, records = make_study(cmi=0.1), make_records(50)
    torch.manual_seed(0)
    first = train(study, records).vector
    torch.manual_seed(1)
    np.testing.assert_array_equal(first, train(study, records).vector)


def hopeless(records):
    return dataclasses.replace(records, labels=1 - records.labels)


def solved(records):
    """One class alone: the loss is next to nothing from the first step on."""
    return dataclasses.replace(records, labels=np.ones_like(records.labels), inputs=np.full_like(records.inputs, 1.0))


def empty(records):
    return records.of_patients(np.zeros(records.patient_count, bool))


@pytest.mark.parametrize("cmi", [0.0, 0.1])
@pytest.mark.parametrize("other", [hopeless, solved, empty])
def test_no_record_says_when_training_ends_or_which_step_is_kept(make_study, make_records, monkeypatch, cmi, other):
    """Whatever the records are: the plan's steps, the plan's draws of noise, and the upload is what the last left."""
    study, records = make_study(cmi=cmi), make_records(40)
    start = flatten(build_encoder(study.model, study.data, stochastic=cmi > 0))
    one, another = (watched(monkeypatch, study, own) for own in (records, other(records)))
    for drawn, noises, left, update in (one, another):
        assert len(drawn) == len(left) == 7
        np.testing.assert_allclose(update[: len(start)], left[-1][: len(start)] - start, atol=1e-7)
        assert [len(noise) for noise in noises] == [len(left[-1])] * 7
    assert all(np.array_equal(own, others) for own, others in zip(one[1], another[1], strict=True))


def watched(monkeypatch, study, records):
    """Batches, noise, weights after every step, and the update of seven steps."""
    drawn, noises, left = [], [], []
    with monkeypatch.context() as patch:
        for kind, method, note in (
            (training.PatientSampler, "draw", lambda _, rows: drawn.append(rows)),
            (PrivateStep, "take", lambda self, _: left.append(flat(self.params))),
        ):
            patch.setattr(kind, method, noted(getattr(kind, method), note))
        draw = PrivateStep.draw

        def seen(self):
            pieces = [list(own) for own in draw(self)]
            noises.append(np.concatenate([piece for own in pieces for piece in own]))
            return [iter(own) for own in pieces]

        patch.setattr(PrivateStep, "draw", seen)
        update = train(study, records, steps=7).vector
    return drawn, noises, left, update


def noted(call, note):
    """The call, with what it returned noted beside whom it was asked of."""

    def noting(self, *given):
        result = call(self, *given)
        note(self, result)
        return result

    return noting


def flat(parameters):
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])


@pytest.mark.parametrize("cmi", [0.0, 0.1])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_no_patients_and_rare_batches_are_normal(make_study, make_records, cmi, label):
    study, records = make_study(cmi=cmi), make_records(20)
    one_class = dataclasses.replace(records, labels=np.full(20, label))
    for data, rate in ((one_class, 0.5), (records, 0.01), (records.of_patients(np.zeros(20, bool)), 1.0)):
        update = train(study, data, sampling_rate=rate, steps=5)
        assert np.isfinite(update.vector).all()
        assert update.vector.any()


def test_empty_batches_between_full_ones_leave_no_gradient_behind(make_study, make_records, silent, monkeypatch):
    study, records = make_study(), make_records(20)
    plan = {"steps": 3, "sampling_rate": 0.5}
    everyone = np.arange(20)
    for order in ([everyone, everyone[:0], everyone], [everyone, everyone]):
        batches = iter(order)
        monkeypatch.setattr(training.PatientSampler, "draw", lambda _, batches=batches: next(batches))
        update = train(study, records, **(plan | {"steps": len(order)})).vector
        if len(order) == 3:
            with_gap = update
    np.testing.assert_array_equal(with_gap, update)


def test_a_gradient_that_overflows_counts_as_zero(make_study, make_records, silent):
    study, records = make_study(), make_records(20)
    heads = heads_of(study)
    heads[0] = 1e30
    plan = {"steps": 1, "sampling_rate": 1.0, "clip": 1.0, "learning_rate": 1.0, "batch_size": 1}
    update = train(study, records, heads=heads, weights=(1e30, 1.0, 1.0), **plan).vector
    assert np.isfinite(update).all()


def test_updates_are_clamped_to_the_public_bound(make_study, make_records):
    update = train(make_study(), make_records(20), learning_rate=1e6, max_update=0.25).vector
    assert np.abs(update).max() == 0.25
    diverged = train(make_study(), make_records(20), learning_rate=1e38, max_update=0.25).vector
    assert np.isfinite(diverged).all()
    assert np.abs(diverged).max() <= 0.25


@pytest.mark.parametrize("scale", [False, True])
def test_a_local_prior_is_trained_in_the_same_steps_and_not_uploaded(make_study, make_records, scale):
    averaged, local = (make_study(cmi=0.5, cmi_scale=scale, prior=where) for where in ("averaged", "local"))
    records = make_records(60)
    both, alone = train(averaged, records), train(local, records)
    size = shapes.encoder_values(local)
    assert len(alone.vector) == size == plan_of(local).release(1, "encoder").values
    np.testing.assert_array_equal(both.vector[:size], alone.vector)
    start = flatten(Prior(4, 2, scaled=scale))
    assert (np.abs(flatten(alone.prior) - start) > 0).all()
    np.testing.assert_allclose(flatten(alone.prior) - start, both.vector[size:], atol=1e-6)
    again = train(local, records, prior=alone.prior)
    assert not np.array_equal(again.vector, alone.vector)


def test_what_is_given_stays_as_it_was(make_study, make_records):
    study = make_study(cmi=0.1)
    encoder, prior = build_encoder(study.model, study.data, stochastic=True), Prior(4, 2)
    heads, before = heads_of(study), flatten(encoder)
    kept = heads.copy()
    train_encoder(
        Training(
            encoder=encoder,
            heads=heads,
            records=make_records(30),
            plan=study.encoder,
            release=charged(study.encoder),
            family=family(study),
            domain_weights=np.ones(3),
            prior=prior,
        ),
        mode="local",
        entropy=SeededEntropy(0),
    )
    np.testing.assert_array_equal(flatten(encoder), before)
    np.testing.assert_array_equal(flatten(prior), flatten(Prior(4, 2)))
    np.testing.assert_array_equal(heads, kept)
    assert all(not hasattr(p, "grad_sample") for p in encoder.parameters())


def test_a_plan_and_a_model_that_do_not_fit_are_refused(make_study, make_records):
    plain, stochastic = make_study(), make_study(cmi=0.1)
    for study, other, prior in (
        (plain, stochastic, None),
        (stochastic, plain, Prior(4, 2)),
        (plain, plain, Prior(4, 2)),
        (plain, stochastic, Prior(4, 2)),
        (stochastic, plain, None),
    ):
        encoder = build_encoder(study.model, study.data, stochastic=study.encoder.cmi > 0)
        with pytest.raises(LearningError, match="cmi"):
            train_encoder(
                Training(
                    encoder=encoder,
                    heads=heads_of(study),
                    records=make_records(5),
                    plan=other.encoder,
                    release=charged(other.encoder),
                    family=family(study),
                    domain_weights=np.ones(3),
                    prior=prior,
                ),
                mode="local",
                entropy=SeededEntropy(0),
            )


def test_the_log_and_the_texts_hold_public_numbers_only(make_study, make_records):
    class Log:
        def __init__(self):
            self.events = []

        def info(self, event, **values):
            self.events.append((event, values))

    study, log = make_study(), Log()
    update = train_encoder(
        Training(
            encoder=build_encoder(study.model, study.data, stochastic=False),
            heads=heads_of(study),
            records=make_records(30),
            plan=study.encoder,
            release=charged(study.encoder),
            family=family(study),
            domain_weights=np.ones(3),
        ),
        mode="local",
        entropy=SeededEntropy(0),
        log=log,
    )
    assert log.events == [("encoder trained", {"steps": 3})]
    assert repr(update) == "EncoderUpdate(<private>)"


def test_training_without_noise_lowers_the_loss(make_study, make_records, silent):
    study, records = make_study(), make_records(400)
    plan = {"sampling_rate": 0.5, "batch_size": 200, "learning_rate": 2.0, "max_update": 1e3}
    heads = heads_of(study)
    losses = []
    for steps in (1, 60):
        encoder = build_encoder(study.model, study.data, stochastic=False)
        update = train(study, records, heads=heads, **(plan | {"steps": steps}), weights=(1.0, 1.0, 1.0))
        training.unflatten(encoder, flatten(encoder) + update.vector.astype(np.float32))
        with torch.no_grad():
            losses.append(
                cross_entropy(
                    family(study),
                    encoder(torch.tensor(records.inputs)),
                    torch.tensor(heads, dtype=torch.float32),
                    torch.tensor(records.domains),
                    torch.tensor(records.labels),
                ).mean().item()
            )  # fmt: skip
    assert losses[1] < losses[0] - 0.1


# --- classes, images, parts of a batch, no noise ----------------------------------------------------------------------
NETWORKS = {
    None: {},
    "cnn": {"image": 8, "encoder": "cnn", "channels": (4, 4)},
    "resnet18": {"image": 32, "encoder": "resnet18"},
}


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("case", [(None, 4, 0.3), ("cnn", 2, 0.0), ("cnn", 3, 0.3)])
def test_a_step_with_classes_and_images_sums_clipped_gradients_of_one_record_at_a_time(
    make_study, make_records, monkeypatch, case
):
    network, classes, cmi = case
    count = 40
    study = make_study(cmi=cmi, classes=classes, **NETWORKS[network])
    records = make_records(count, classes=classes, image=NETWORKS[network].get("image"))
    one = study.encoder.model_copy(update={"l2r": 0.2, "steps": 1, "sampling_rate": 1.0, "max_update": 1e6})
    study = study.model_copy(update={"encoder": one})
    latent = np.random.default_rng(5).normal(size=(count, study.model.representation))
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: latent.copy())
    gradients = one_at_a_time(study, records, torch.tensor(latent, dtype=torch.float32))
    norms = np.linalg.norm(gradients, axis=1)
    clip = float(np.median(norms))
    update = train(study, records, clip=clip)
    clipped = gradients * np.minimum(1, clip / norms)[:, None]
    expected = -one.learning_rate * clipped.sum(axis=0) / one.batch_size
    np.testing.assert_allclose(update.vector, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("case", [(None, 0.0), (None, 0.3), ("cnn", 0.0), ("cnn", 0.3)])
@pytest.mark.parametrize("size", [1, 7, 20])
def test_a_batch_in_parts_is_the_whole_batch_with_the_noise_of_one(make_study, make_records, monkeypatch, size, case):
    network, cmi = case
    study = make_study(cmi=cmi, classes=3, **NETWORKS[network])
    records = make_records(40, classes=3, image=NETWORKS[network].get("image"))
    plan = {"steps": 3, "sampling_rate": 0.5, "clip": 0.4, "noise": 0.7}
    whole = train(study, records, **plan).vector
    drawn, taken = [], []
    draw, take = PrivateStep.draw, Batches.take
    monkeypatch.setattr(PrivateStep, "draw", lambda self: drawn.append(1) or draw(self))
    monkeypatch.setattr(Batches, "take", lambda self, rows: taken.append((len(rows), take(self, rows))) or taken[-1][1])
    monkeypatch.setattr(training, "_steady_rows", lambda *_: size)
    parts = train(study, records, **plan).vector
    np.testing.assert_allclose(parts, whole, atol=1e-5 * np.abs(whole).max())
    assert max(count for count, _ in taken) == size
    assert {len(batch.y) for _, batch in taken} == {size}, "every chunk has the same shape"
    assert len(taken) > 3 or size == 20
    assert len(drawn) == 3, "noise is drawn once a step"


@pytest.mark.parametrize(
    ("needed", "batch", "rows"),
    [
        (1, 10, 64),
        (1, 1000, 224),
        (1, 10**6, 1024),
        (1 << 20, 10**6, 512),
        (1 << 22, 10, 32),
        (1 << 23, 10**6, 64),
        (1 << 27, 10**6, 4),
        (1 << 28, 10**6, 2),
        (1 << 29, 10**6, 1),
        (1 << 30, 10**6, 1),
    ],
)
def test_a_chunk_has_the_usual_rows_more_for_large_batches_and_none_that_memory_has_no_room_for(
    make_study, monkeypatch, needed, batch, rows
):
    monkeypatch.setattr(training, "_bytes_per_record", lambda _: needed)
    plan = make_study().encoder.model_copy(update={"batch_size": batch})
    assert training._rows(None, plan) == rows
    assert rows * needed <= training.PART_BYTES or rows == 1


def test_heads_that_are_trained_beside_a_local_prior_are_in_the_update(make_study, make_records):
    study = make_study(cmi=0.2, prior="local")
    width = heads_of(study).shape[1]
    alone, joint = (train(study, make_records(40), joint=count).vector for count in (0, 2))
    assert len(alone) == shapes.encoder_values(study)
    assert len(joint) == shapes.encoder_values(study) + 2 * width
    assert joint[-2 * width :].all()


def test_heads_of_an_encoder_without_weights_are_examined_too(make_study, monkeypatch):
    examined = []
    monkeypatch.setattr(training, "_require_accountable", lambda *given, **_: examined.append(given[1]))
    monkeypatch.setattr(shapes, "trained_heads", lambda _, number: 2 if number > 1 else 0)
    study = make_study()
    training.require_accountable(study.model_copy(update={"model": study.model.model_copy(update={"encoder": "raw"})}))
    assert examined == [2], "of a round without trained heads there is nothing"


def test_parts_are_smaller_where_a_record_takes_more_memory(make_study, make_records):
    def needed(study, **how):
        return training._bytes_per_record(
            training._Trained(build_encoder(study.model, study.data, stochastic=False), None, **how)
        )

    wide = make_study(hidden=(300, 200))
    assert needed(wide, factored=False) == 4 * shapes.encoder_values(wide)
    assert needed(wide) == 4 * 6 * (wide.data.inputs + 300 + 300 + 200 + 200 + wide.model.representation)
    deep = make_study(**(NETWORKS["resnet18"] | {"image": 64}))
    assert needed(deep) < needed(deep, factored=False) / 3
    small, large = (make_study(**(NETWORKS["cnn"] | {"image": image})) for image in (16, 64))
    assert needed(large) > 10 * needed(small)
    resnet = make_study(**(NETWORKS["resnet18"] | {"image": 224}))
    assert 2 < training.PART_BYTES // needed(resnet) < 12


def test_images_are_taken_step_by_step(make_study, make_records, monkeypatch):
    study, records = make_study(**NETWORKS["cnn"]), make_records(60, image=8)
    asked = []
    take = type(records.images).take
    monkeypatch.setattr(type(records.images), "take", lambda self, rows: asked.append(len(rows)) or take(self, rows))
    train(study, records, sampling_rate=0.2, steps=4)
    assert len(asked) == 4
    assert max(asked) < 60


@pytest.mark.parametrize("cmi", [0.0, 0.2])
def test_without_noise_nothing_is_drawn_and_clipping_stays(make_study, make_records, monkeypatch, cmi):
    study, records = make_study(cmi=cmi), make_records(30)
    with monkeypatch.context() as patch:
        fine = StepGrid.fine
        patch.setattr(PrivateStep, "draw", lambda _: None)
        patch.setattr(StepGrid, "fine", lambda clip, _: dataclasses.replace(fine(clip, 0.0), sigma=1.0))
        expected = train(study, records, clip=0.3).vector
    asked = []
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: asked.append(shape) or gaussian(stream, shape))
    update = train(study, records, clip=0.3, noise=0.0, mode="none").vector
    np.testing.assert_array_equal(update, expected)
    assert all(shape[1:] == (4,) for shape in asked), "of normals only those of FedSR's latent are drawn"
    assert len(asked) == (3 if cmi else 0)
    nobody = records.of_patients(np.zeros(30, bool))
    assert not train(study, nobody, noise=0.0, mode="none").vector.any()


@pytest.mark.parametrize(
    ("mode", "noise"), [("local", 0.0), ("distributed", 0.0), ("none", 1.0), ("local", float("nan"))]
)
def test_noise_that_does_not_fit_the_mode_is_refused_before_anything_is_read(make_study, make_records, mode, noise):
    with pytest.raises((LearningError, CostError), match="noise"):
        train(make_study(), make_records(5), mode=mode, noise=noise)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: GPU and CPU DP-SGD steps are not compared")
@pytest.mark.parametrize("cmi", [0.0, 0.3])
def test_gpu_and_cpu_take_the_same_step_under_the_same_noise(make_study, make_records, cmi):
    study, records = make_study(cmi=cmi), make_records(200)
    cpu, gpu = (train(study, records, device=device, steps=1).vector for device in ("cpu", "cuda"))
    np.testing.assert_allclose(cpu, gpu, atol=1e-5)


def test_latent_noise_is_standard_normal_and_separate_from_the_steps_noise(make_study, make_records, monkeypatch):
    asked = []

    def record(stream, shape):
        asked.append((id(stream), shape))
        return gaussian(stream, shape)

    monkeypatch.setattr(training, "gaussian", record)
    train(make_study(cmi=0.1), make_records(20), steps=1, sampling_rate=1.0)
    latent = [stream for stream, shape in asked if shape == (20, 4)]
    assert len(latent) == 1
    assert latent[0] not in {stream for stream, shape in asked if shape != (20, 4)}


# --- momentum, schedule, sums of one step -----------------------------------------------------------------------------
@pytest.mark.usefixtures("silent")
def test_momentum_and_schedule_move_the_weights_as_by_hand(make_study, make_records):
    """The rate is so small that the gradient stays the same, and rounding of the weights is all that differs."""
    study, records = make_study(), make_records(20)
    fixed = {"sampling_rate": 1.0, "clip": 0.7, "batch_size": 1, "learning_rate": 1e-3}
    (gradient,) = (-train(study, records, steps=1, **fixed).vector / 1e-3,)
    moved = train(study, records, steps=3, momentum=0.5, schedule="cosine", **fixed).vector
    rates = [learning_rate(study.encoder.model_copy(update={**fixed, "schedule": "cosine"}), i, 3) for i in range(3)]
    expected = -gradient * (rates[0] + rates[1] * 1.5 + rates[2] * 1.75)
    np.testing.assert_allclose(moved, expected, rtol=0.05, atol=2e-4)


@pytest.mark.usefixtures("silent")
def test_a_later_round_goes_on_along_the_schedule(make_study, make_records):
    study, records = make_study(), make_records(20)
    plan = study.encoder.model_copy(update={"steps": 1, "sampling_rate": 1.0, "schedule": "cosine"})
    encoder = build_encoder(study.model, study.data, stochastic=False)
    first, last = (
        train_encoder(
            Training(
                encoder=encoder,
                heads=heads_of(study),
                records=records,
                plan=plan,
                release=charged(plan),
                family=family(study),
                domain_weights=np.ones(DOMAINS),
                first=at,
                whole=4,
            ),
            mode="local",
            entropy=SeededEntropy(0),
        ).vector
        for at in (0, 3)
    )
    np.testing.assert_allclose(last, first * learning_rate(plan, 3, 4) / learning_rate(plan, 0, 4), atol=1e-6)


def test_the_rates_of_a_rounds_steps_are_those_of_the_whole_schedule(make_study, make_records):
    study = make_study()
    plan = study.encoder.model_copy(update={"steps": 3, "schedule": "cosine"})
    training = Training(
        encoder=build_encoder(study.model, study.data, stochastic=False),
        heads=heads_of(study),
        records=make_records(2),
        plan=plan,
        release=charged(plan),
        family=family(study),
        domain_weights=np.ones(DOMAINS),
        first=1,
        whole=4,
    )
    assert list(training.rates) == [learning_rate(plan, step, 4) for step in (1, 2, 3)]


def summed(study, records, heads=None, **changes):
    plan = study.encoder.model_copy(update=changes)
    prior = prior_of(study.model, study.data, plan) if plan.cmi > 0 else None
    return sum_gradients(
        Training(
            encoder=build_encoder(study.model, study.data, stochastic=plan.cmi > 0),
            heads=heads_of(study) if heads is None else heads,
            records=records,
            plan=plan,
            family=family(study),
            domain_weights=np.array((0.5, 1.0, 2.0)),
            prior=prior,
            release=charged(plan),
        ),
        entropy=SeededEntropy(0),
    )


@pytest.mark.parametrize("kind", [{}, {"cmi": 0.3}, {"cmi": 0.3, "cmi_scale": True}])
def test_a_sealed_steps_sum_is_that_of_clipped_gradients_of_one_record_at_a_time(
    make_study, make_records, monkeypatch, kind
):
    study, records = make_study(**kind), make_records(40)
    latent = np.random.default_rng(5).normal(size=(40, study.model.representation))
    monkeypatch.setattr(training, "gaussian", lambda stream, shape: latent.copy())
    gradients = one_at_a_time(study, records, torch.tensor(latent, dtype=torch.float32))
    norms = np.linalg.norm(gradients, axis=1)
    clipped = gradients * np.minimum(1, 0.7 / norms)[:, None]
    total = summed(study, records, clip=0.7)
    assert len(total) == shapes.encoder_values(study) + shapes.prior_values(study)
    np.testing.assert_allclose(total / SEALED_NORM * 0.7, clipped.sum(axis=0), atol=1e-3)
    assert not summed(study, records.of_patients(np.zeros(40, bool)), clip=0.7).any()


@pytest.mark.parametrize("seed", range(4))
def test_a_patient_more_moves_a_sealed_steps_sum_by_its_own_integers_and_by_no_more_than_the_norm(
    make_study, make_records, seed
):
    """Heads are steep enough for every gradient to be clipped. The integers are exact, and so is the bound."""
    study, records = make_study(), make_records(70, seed=seed)
    heads = heads_of(study, seed) * 100
    whole = summed(study, records, heads, clip=0.01)
    for patient in np.random.default_rng(seed).choice(70, 3, replace=False):
        fewer = whole - summed(study, records.of_patients(np.arange(70) != patient), heads, clip=0.01)
        alone = summed(study, records.of_patients(np.arange(70) == patient), heads, clip=0.01)
        np.testing.assert_array_equal(fewer, alone)
        assert sum(int(value) ** 2 for value in fewer) <= SEALED_NORM**2


def test_fixed_tables_follow_from_the_seed_and_are_in_no_step(make_study, make_records):
    study, records = make_study(cmi=0.5, prior="fixed"), make_records(40)
    prior = SharedModel.start(study).build_prior()
    again, other = (FixedPrior(4, 2, seed).means for seed in (study.model.seed, study.model.seed + 1))
    assert torch.equal(prior.means, again)
    assert not torch.equal(prior.means, other)
    update = train(study, records, prior=prior)
    assert update.prior is None
    assert torch.equal(prior.means, again)
    assert len(update.vector) == shapes.encoder_values(study)
    assert shapes.prior_values(study) == 0


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"l2r": 0.3, "l2r_norm": "plain"}, {"cmi": 0.3, "prior": "fixed"}])
def test_options_of_fedsr_are_steady_and_per_record(make_study, changes):
    study = make_study()
    training.require_accountable(study.model_copy(update={"encoder": study.encoder.model_copy(update=changes)}))
