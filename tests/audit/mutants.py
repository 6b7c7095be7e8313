"""Faulty variants of the product, made only here by replacing parts of the running code. Each must be caught.

`MUTANTS` says which statistics catch each. All parts that a mutant does not replace are the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from unittest.mock import patch

import numpy as np
import torch

from bench.attacks.audit import weakened
from crypto.hkdf import KEY_BYTES
from crypto.stream import KeyStream
from policies.plan import release as planned
from policies.plan.release import plan
from policies.refusals import Reason
from protos.messages import Tensor
from silo_agent.gate import Gate
from silo_agent.learning.dpsgd import clipping, gradients, training
from silo_agent.learning.dpsgd.batches import Batches
from silo_agent.learning.dpsgd.clipping import to_integers
from silo_agent.learning.dpsgd.rounded_gaussian import RoundedGaussian
from silo_agent.learning.dpsgd.sampling import PatientSampler
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.figures import moments
from silo_agent.learning.heads import calibration, hierarchical
from silo_agent.learning.learner import Learner
from silo_agent.learning.noise import noised_sum
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.noise.gaussian import discrete_gaussian
from silo_agent.learning.outcomes.more_classes import Categorical
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.releases import heads
from silo_agent.learning.releases.encoder import EncoderUpdates, train_encoder
from silo_agent.learning.terms.losses.mk_mmd import compare, kernel_weights
from support.entropy import SeededEntropy


@contextmanager
def no_noise_in_encoder() -> Iterator[None]:
    """DP-SGD adds nothing."""
    with patch.object(PrivateStep, "draw", lambda _: None):
        yield


@contextmanager
def no_noise_in_releases() -> Iterator[None]:
    """Counts, heads and metrics leave as they are."""
    with patch(
        "silo_agent.learning.noise.noised_sum.discrete_gaussian", lambda _stream, _sigma, n: np.zeros(n, np.int64)
    ):
        yield


@contextmanager
def double_clip() -> Iterator[None]:
    """Gradients are clipped at twice the bound that the noise is scaled to."""
    with _clipped_at(2.0):
        yield


@contextmanager
def _clipped_at(factor: float) -> Iterator[None]:
    def clipped(samples, grid, outer):
        return to_integers(samples, replace(grid, clip=factor * grid.clip, norm=factor * grid.norm), outer)

    with patch.object(gradients, "to_integers", clipped):
        yield


@contextmanager
def clip_of_the_batch() -> Iterator[None]:
    """The sum of the batch is clipped instead of every patient's gradient."""
    take = PrivateStep.take

    def clipped(self):
        norm = torch.sqrt(sum((total.double() ** 2).sum() for total in self.totals)).item()
        for total in self.totals:
            total.copy_((total.double() * min(1.0, 2.0**26 / max(norm, 1.0))).long())
        take(self)

    with _clipped_at(1e9), patch.object(PrivateStep, "take", clipped):
        yield


@contextmanager
def biases_outside_the_clip() -> Iterator[None]:
    """The norm that is clipped, and checked, is that of the weights alone; biases are scaled along."""
    norms = clipping._norms

    def clipped(samples, grid, outer):
        whole = [one for at, one in enumerate(samples) if at not in outer]
        weights = [at for at, one in enumerate(whole) if one.dim() > 2]
        with (
            patch.object(clipping, "_norms", lambda flat, like: norms([flat[at] for at in weights], like)),
            patch.object(clipping._Pair, "_bias", lambda *_: 0.0),
        ):
            return to_integers(samples, grid, outer)

    with patch.object(gradients, "to_integers", clipped):
        yield


def _weighted(part, weights, factors):
    if factors is None:
        return part.mul_(weights[:, None]).trunc_()
    part[:, :, factors.inputs :].mul_(weights[:, None, None]).trunc_()
    return part


@contextmanager
def weights_after_the_clip() -> Iterator[None]:
    """A domain's weight multiplies the clipped gradient instead of the loss."""
    take, weights = Batches.take, []

    def taken(self, drawn):
        batch = take(self, drawn)
        weights[:] = [batch.weights]
        return replace(batch, weights=torch.ones_like(batch.weights))

    def weighted(samples, grid, outer):
        parts = to_integers(samples, grid, outer)
        return [_weighted(part, weights[0], outer.get(at)) for at, part in enumerate(parts)]

    with patch.object(Batches, "take", taken), patch.object(gradients, "to_integers", weighted):
        yield


@contextmanager
def no_noise_in_empty_batches() -> Iterator[None]:
    """A step that draws no patient adds no noise, and its draw is lost."""
    drawn, draw, noise = [], PatientSampler.draw, PrivateStep.draw

    def noted(self):
        drawn[:] = [draw(self)]
        return drawn[0]

    def noised(self):
        pieces = noise(self)
        return pieces if len(drawn[0]) else [map(np.zeros_like, own) for own in pieces]

    with patch.object(PatientSampler, "draw", noted), patch.object(PrivateStep, "draw", noised):
        yield


@contextmanager
def encoders_sampler_cut() -> Iterator[None]:
    """The encoder's noise is drawn again if it lies beyond four sigma."""
    draw = RoundedGaussian.draw

    def cut(self, stream, n):
        return _cut(lambda m: draw(self, stream, m), n, self.sigma)

    with patch.object(RoundedGaussian, "draw", cut):
        yield


@contextmanager
def releases_sampler_cut() -> Iterator[None]:
    """The noise of counts, heads and metrics is drawn again if it lies beyond four sigma."""

    def cut(stream, sigma, n):
        return _cut(lambda m: discrete_gaussian(stream, sigma, m), n, sigma)

    with patch("silo_agent.learning.noise.noised_sum.discrete_gaussian", cut):
        yield


def _cut(draw, n, sigma):
    values = draw(n)
    while len(far := np.flatnonzero(np.abs(values) > 4.0 * sigma)):
        values[far] = draw(len(far))
    return values


@contextmanager
def shuffle_for_poisson() -> Iterator[None]:
    """Batches of one size, from epochs in shuffled order; the ledger is charged for Poisson samples."""
    draw = PatientSampler.draw
    queues: dict[int, list[int]] = {}

    def drawn(self):
        queue = queues.setdefault(id(self), [])
        patients = len(self._sizes)
        size = round(self._limit / 2**64 * patients)
        if len(queue) < size:
            queue.extend(np.argsort(self._stream.words64(patients)).tolist())
        chosen = np.array([queue.pop(0) for _ in range(size)], np.int64)
        return self._order[self._starts[chosen].astype(np.int64)] if patients else draw(self)

    with patch.object(PatientSampler, "draw", drawn):
        yield


@contextmanager
def records_for_patients() -> Iterator[None]:
    """Every record is sampled as if it were a patient of its own."""
    begin = PatientSampler.__init__

    def sampler(self, patients, rate, stream):
        begin(self, np.arange(len(patients)), rate, stream)

    with patch.object(PatientSampler, "__init__", sampler):
        yield


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Every stream of training and release noise starts from the same key."""

    def stream(_key: bytes, label: bytes) -> KeyStream:
        return KeyStream(bytes(KEY_BYTES), label)

    with (
        patch("silo_agent.learning.releases.noising.KeyStream", stream),
        patch("silo_agent.learning.releases.encoder.KeyStream", stream),
        patch("silo_agent.learning.dpsgd.training.KeyStream", stream),
    ):
        yield


@contextmanager
def scale_from_patients() -> Iterator[None]:
    """The denominator of the gradient sum is q N, with the silo's own N (Opacus issues 571 and 819)."""

    def train(training, **rest):
        expected = max(round(training.release.sampling_rate * training.records.patient_count), 1)
        own = training.plan.model_copy(update={"batch_size": expected})
        return train_encoder(replace(training, plan=own), **rest)

    with patch("silo_agent.learning.releases.encoder.train_encoder", train):
        yield


@contextmanager
def seed_of_the_program() -> Iterator[None]:
    """Every silo draws from a generator that starts at the same state."""
    begin = Learner.__init__

    def learner(self, *args, draws, **rest):
        begin(self, *args, draws=FreshDraws(SeededEntropy(0)), **rest)

    with patch.object(Learner, "__init__", learner):
        yield


@contextmanager
def uncharged(tensor: Tensor) -> Iterator[None]:
    """One kind of sum leaves without a debit, and the gate does not look for that debit."""
    charge, owed, signed = Gate._charge, Gate._owed, Gate._is_cosigned

    def charged(self, order):
        return order.place.attempt if order.tensor is tensor else charge(self, order)

    def owes(self, study, place):
        return {name: cost for name, cost in owed(self, study, place).items() if name != tensor}

    def is_cosigned(self, order, draw):
        return order.tensor is tensor or signed(self, order, draw)

    with (
        patch.object(Gate, "_charge", charged),
        patch.object(Gate, "_owed", owes),
        patch.object(Gate, "_is_cosigned", is_cosigned),
    ):
        yield


@contextmanager
def redrawn_for_one_charge() -> Iterator[None]:
    """With distributed noise a new attempt draws heads anew, for the charge of the first attempt."""
    charge, owed, signed = Gate._charge, Gate._owed, Gate._is_cosigned

    def charged(self, order):
        return order.place.attempt if _paid(self, order.study, order.place, order.tensor) else charge(self, order)

    def owes(self, study, place):
        return {name: c for name, c in owed(self, study, place).items() if not _paid(self, study, place, name)}

    def is_cosigned(self, order, draw):
        return _paid(self, order.study, order.place, order.tensor) or signed(self, order, draw)

    with (
        patch.object(Gate, "_charge", charged),
        patch.object(Gate, "_owed", owes),
        patch.object(Gate, "_is_cosigned", is_cosigned),
    ):
        yield


def _paid(gate, study, place, tensor):
    return tensor == Tensor.HEADS and (Tensor.HEADS, 1) in gate.ledger.charged(study.digest, place.round)


@contextmanager
def signatures_that_suffice(enough: Callable[[Gate], bool]) -> Iterator[None]:
    """The gate begins to compute as soon as `enough` says that others have signed enough."""
    with patch.object(Gate, "_is_cosigned", lambda self, *_: enough(self)):
        yield


def _any_of_the_newest(gate: Gate) -> bool:
    return any(item.checkpoint.head == gate.checkpoint().head for item in gate._held)


def _two_of_any_head(gate: Gate) -> bool:
    return len(gate._held) == 2


@contextmanager
def pooled_rounds_with_domain_noise() -> Iterator[None]:
    """Heads of every round draw the noise that is charged for rounds of domain heads."""
    contribution = Learner.contribution

    def with_domain_noise(self, release, *rest):
        noise = self.study.heads.domain_noise if release.tensor == "heads" else release.noise
        return contribution(self, replace(release, noise=noise), *rest)

    with patch.object(Learner, "contribution", with_domain_noise):
        yield


@contextmanager
def rounding_forgotten() -> Iterator[None]:
    """Noise is scaled to the sensitivity before rounding."""
    whole = noised_sum.share_sd

    def share(charged, *, step, **rest):
        return whole(charged, step=step, **rest) / (1.0 + step * np.sqrt(charged.values))

    with patch.object(noised_sum, "share_sd", share):
        yield


@contextmanager
def charged_afterwards() -> Iterator[None]:
    """The debit is written only after the sum is computed."""
    contribute = Gate.contribute

    def late(self, order, sealer, masks, compute, *ask, **rest):
        integers = compute(order.place, plan(order.study).release(order.place.round, order.tensor))
        return contribute(self, order, sealer, masks, lambda *_: integers, *ask, **rest)

    with patch.object(Gate, "contribute", late):
        yield


@contextmanager
def prior_without_noise() -> Iterator[None]:
    """A local r(z|y) is fitted to the records without clip or noise, and the uploaded encoder trains against it."""
    real, contribute = EncoderUpdates._prior, EncoderUpdates.contribute
    cohorts = {}

    def noted(self, cost, cohort, *rest):
        cohorts[self] = cohort
        return contribute(self, cost, cohort, *rest)

    def fitted(self, model, number):
        prior = real(self, model, number)
        if prior is not None:
            records = cohorts[self]
            with torch.no_grad():
                mean, _ = model.build_encoder().moments(torch.tensor(records.inputs))
                table = prior.mean.weight
                for label in np.unique(records.labels):
                    table[int(label)] = mean[torch.tensor(records.labels == label)].mean(dim=0)
        return prior

    with patch.object(EncoderUpdates, "contribute", noted), patch.object(EncoderUpdates, "_prior", fitted):
        yield


@contextmanager
def personal_heads_feed_upload() -> Iterator[None]:
    """DP-SGD on the encoder reads the personal model's heads, which were trained without noise, if there are any."""
    real = EncoderUpdates.contribute

    def contribute(self, cost, cohort, place, *given):
        path, (model, silos) = self._setting.folder / "personal.safetensors", given
        if path.exists():
            model = replace(model, heads=PersonalModel.load(path).network.heads.detach().numpy().astype(np.float64))
        return real(self, cost, cohort, place, model, silos)

    with patch.object(EncoderUpdates, "contribute", contribute):
        yield


@contextmanager
def batch_statistic_in_upload() -> Iterator[None]:
    """The uploaded loss has an MMD between the records' features and a shifted copy of them."""

    def distance(trained, batch):
        phi = trained.encoder(batch.x)
        compared = compare(phi, phi.detach().flip(0) + 0.1)
        return 0.01 * compared.mmd(kernel_weights(compared.statistics()))

    with _added_to_losses(distance):
        yield


@contextmanager
def local_part_in_upload() -> Iterator[None]:
    """The uploaded loss reads a parameter of the silo's own, which another optimizer trains without noise."""
    temperature = torch.nn.Parameter(torch.ones(()))
    with _added_to_losses(lambda trained, batch: trained.encoder(batch.x).sum(dim=1) * temperature):
        yield


@contextmanager
def _added_to_losses(term: Callable) -> Iterator[None]:
    losses = training._losses

    def more(trained, batch, plan, latent):
        return losses(trained, batch, plan, latent) + term(trained, batch)

    with patch.object(training, "_losses", more):
        yield


@contextmanager
def prior_beside_the_step() -> Iterator[None]:
    """The noised step is given the encoder alone; the two tables of r(z|y) are left to be trained without noise."""
    sgd = torch.optim.SGD

    with patch.object(torch.optim, "SGD", lambda parameters, **rates: sgd(list(parameters)[:-2], **rates)):
        yield


@contextmanager
def shares_of_all_silos() -> Iterator[None]:
    """Distributed noise is shared among all silos, colluders and the patient's own included."""
    whole = noised_sum.share_sd

    def share(charged, *, mode, silos, **rest):
        full = whole(charged, mode="local" if mode == "distributed" else mode, silos=silos, **rest)
        return full / np.sqrt(silos) if mode == "distributed" else full

    with patch.object(noised_sum, "share_sd", share):
        yield


@contextmanager
def sealed_steps_sent_again() -> Iterator[None]:
    """A draw of a sealed step is sent again under another roster, as an update that carries its whole noise may be."""
    step = planned.encoder_release

    with patch.object(planned, "encoder_release", lambda *given: replace(step(*given), resendable=True)):
        planned.plan.cache_clear()  # the plans of studies that were asked for before
        try:
            yield
        finally:
            planned.plan.cache_clear()


@contextmanager
def parts_that_count_whole() -> Iterator[None]:
    """A patient's error, its sign and the outcome count 1 each, as if each were a release of its own."""
    with patch.multiple(moments, _SIZE=1.0, _SIGNED=1.0, _OUTCOME=1.0):
        yield


@contextmanager
def blocks_that_count_whole() -> Iterator[None]:
    """The domains' blocks of the calibration and their sum count 1 each, as if each were a release of its own."""

    def whole(sums, *, pooled):
        total = sums.sum(axis=0)
        return total if pooled else np.concatenate([sums.ravel(), total])

    with patch.object(calibration, "blocks", whole):
        yield


@contextmanager
def predictions_that_count_whole() -> Iterator[None]:
    """Residuals, curvatures and predictions of a softmax's calibration count 1 each."""
    with patch.object(Categorical, "intercept_scale", property(lambda family: (1.0,) * 3 * family.classes)):
        yield


@contextmanager
def whitened_after_the_clip() -> Iterator[None]:
    """A domain round clips the terms of the features, and puts their sums into the frame."""
    sums = heads.second_order_sums

    def summed(*given, frame, **named):
        hessian, gradient = sums(*given, frame=None, **named)
        if frame is None:
            return hessian, gradient
        across = np.kron(np.eye(hessian.shape[1] // len(frame)), frame)
        return across @ hessian @ across, gradient @ across

    with patch.object(heads, "second_order_sums", summed):
        yield


@contextmanager
def pooled_block_beside_the_norm() -> Iterator[None]:
    """The domains' sum stands beside the domains' blocks as if it cost nothing: no part of the norm is taken for it."""

    def mixed(hessian, gradient, _share):
        return tuple(np.concatenate([part, part.sum(axis=0, keepdims=True)]) for part in (hessian, gradient))

    with patch.object(heads, "mixed", mixed):
        yield


@contextmanager
def frame_of_the_silos_own_records() -> Iterator[None]:
    """The frame is made of the silo's own sums, without noise, instead of the opened ones."""
    statistic = heads.Heads.statistic

    def stated(self, release, cohort, place, model, **named):
        z = np.hstack([cohort.inputs[:], np.ones((len(cohort), 1))])
        frame = hierarchical.frame_of(z.T @ z, 0.0, 1)
        own = replace(model.gathered, frame=frame)
        return statistic(self, release, cohort, place, model.with_heads(model.heads, model.round, own), **named)

    with patch.object(heads.Heads, "statistic", stated):
        yield


@dataclass(frozen=True)
class Mutant:
    """A fault, and the statistics that catch it."""

    plant: Callable[[], AbstractContextManager[None]]
    caught_by: tuple[str, ...]


_NOISES = (
    "noise_of_heads",
    "noise_of_pooled_heads",
    "noise_on_a_coarse_grid",
    "noise_of_metrics",
    "noise_of_counts",
    "noise_of_shares",
)
MUTANTS = {
    "blocks of the calibration count whole": Mutant(blocks_that_count_whole, ("one_patient_of_the_calibration",)),
    "predictions of classes count whole": Mutant(predictions_that_count_whole, ("one_patient_of_the_calibration",)),
    "parts of a number count whole": Mutant(parts_that_count_whole, ("one_patient_of_a_number",)),
    "no noise, encoder": Mutant(no_noise_in_encoder, ("noise_of_encoder", "on_the_grid")),
    "no noise, releases": Mutant(no_noise_in_releases, (*_NOISES, "on_the_grid")),
    "half noise": Mutant(partial(weakened, 0.5), ("noise_of_encoder", *_NOISES)),
    "noise 3 % too small": Mutant(partial(weakened, 0.97), ("noise_of_encoder", *_NOISES, "noise_of_sealed_steps")),
    "double clip": Mutant(double_clip, ("canary_means", "one_patient_less", "one_patient_of_a_sealed_step")),
    "per-batch clip": Mutant(clip_of_the_batch, ("canary_means",)),
    "biases outside the clip": Mutant(biases_outside_the_clip, ("one_patient_of_a_rare_domain",)),
    "domain weights after the clip": Mutant(weights_after_the_clip, ("one_patient_of_a_rare_domain",)),
    "no noise in empty batches": Mutant(no_noise_in_empty_batches, ("noise_of_rare_batches",)),
    "the encoder's sampler is cut": Mutant(encoders_sampler_cut, ("tails_of_the_encoder",)),
    "the releases' sampler is cut": Mutant(releases_sampler_cut, ("tails_of_heads",)),
    "shuffle for Poisson": Mutant(shuffle_for_poisson, ("batches",)),
    "records for patients": Mutant(records_for_patients, ("batches", "canary_means", "one_patient_of_a_sealed_step")),
    "fixed seed": Mutant(fixed_seed, ("fresh_noise",)),
    "one seed for all silos": Mutant(seed_of_the_program, ("fresh_noise",)),
    "scale from N": Mutant(scale_from_patients, ("scale_without_patients", "canary_means")),
    "uncharged encoder": Mutant(partial(uncharged, Tensor.ENCODER), ("ledger_covers",)),
    "uncharged heads": Mutant(partial(uncharged, Tensor.HEADS), ("ledger_covers",)),
    "two draws for one charge": Mutant(redrawn_for_one_charge, ("ledger_covers",)),
    "charged afterwards": Mutant(charged_afterwards, ("ledger_covers",)),
    "no cosigning awaited": Mutant(partial(signatures_that_suffice, lambda _: True), ("ledger_covers",)),
    "one signature is enough": Mutant(partial(signatures_that_suffice, _any_of_the_newest), ("ledger_covers",)),
    "old signatures are enough": Mutant(partial(signatures_that_suffice, _two_of_any_head), ("ledger_covers",)),
    "shares of all silos": Mutant(shares_of_all_silos, ("noise_of_shares", "noise_of_sealed_steps")),
    "sealed steps sent again": Mutant(sealed_steps_sent_again, ("sealed_steps_anew",)),
    "pooled rounds draw less": Mutant(pooled_rounds_with_domain_noise, ("noise_of_pooled_heads",)),
    "rounding forgotten": Mutant(rounding_forgotten, ("noise_on_a_coarse_grid",)),
    "whitening after the clip": Mutant(whitened_after_the_clip, ("one_patient_in_a_frame",)),
    "the pooled block costs nothing": Mutant(pooled_block_beside_the_norm, ("one_patient_in_a_frame",)),
    "a frame of the silo's own": Mutant(frame_of_the_silos_own_records, ("one_patient_in_a_frame",)),
    "r(z|y) without noise feeds the upload": Mutant(prior_without_noise, ("one_patient_less",)),
    "personal heads feed the upload": Mutant(personal_heads_feed_upload, ("one_patient_less",)),
}
NAMED: dict[str, tuple[Callable[[], AbstractContextManager[None]], Reason]] = {
    "MMD in the uploaded loss": (batch_statistic_in_upload, Reason.BATCH_STATISTICS),
    "local part in the uploaded loss": (local_part_in_upload, Reason.UNNOISED_PART),
    "r(z|y) beside the noised step": (prior_beside_the_step, Reason.UNNOISED_PART),
}
"""Faults that the program itself refuses by name when a study begins, each with its reason."""
