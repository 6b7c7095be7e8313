"""DP-SGD on the encoder with the heads frozen: Opacus per-sample gradients, our own sampling and noise.

Guarantees for each step: patients enter by Poisson sampling with the public rate. A patient's gradient over everything
that is trained (encoder and r tables together) is clipped to `plan.clip`; if it cannot be clipped, it counts as zero.
Gaussian noise of sd noise * clip is added before the public division by `plan.batch_size`. The private number of
patients scales nothing. Empty batches still add noise.

Noise and sampling come from the given entropy and are drawn on the CPU, so a GPU trains with the same noise. A batch
passes in parts of bounded memory, whose clipped sums are added up; its noise is drawn once. Without noise nothing is
trained, unless the mode is `none`, which is for public data. The plan alone says how many steps there are and which
model is taken: no loss or metric of the records is ever looked at.

The gate has charged the ledger before. Rounding to the grid and sealing come after.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

from crypto.entropy import Entropy
from crypto.stream import KEY_BYTES, KeyStream
from policies.documents.study import DataSchema, EncoderPlan, Model, Study
from policies.plan import terms
from policies.plan.release import Release, encoder_release
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import Encoder, flatten, unflatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.families.family import Family
from silo_agent.learning.families.registry import family_of
from silo_agent.learning.private import accountable
from silo_agent.learning.private.noise import gaussian
from silo_agent.learning.private.release import Mode, check_noise
from silo_agent.learning.private.sampling import PatientSampler
from silo_agent.learning.terms.cmi import Prior
from silo_agent.learning.terms.registry import record_losses, require_per_record
from silo_agent.learning.terms.term import Batch, Latent, Seen

# Opacus hooks every layer, and torch warns that no input of it needs a gradient. That is as it should be: the inputs
# are the records.
warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)

PART_BYTES = 1 << 29
"""Memory that the gradients and activations of one part of a batch may take: 512 MiB."""
_FLOAT = 4
_MAPS = 16
"""Memory of a pass through an image network, counted in maps of its largest size. The outputs of all its layers take
less than ten. In addition, Opacus unfolds one layer's input into nine values for each value."""
_NARROW, _SIDE = 8, 64
"""Largest layer width, and largest side of an image in pixels, of the small network on which losses are examined."""
_DOMAINS, _LABELS = (0, 0, 0, 1), (0, 0, 1, 1)
"""Domains and labels of the made-up records. Some pairs of records share both, some share one, some share neither."""


class Log(Protocol):
    """What training needs of a structlog logger."""

    def info(self, event: str, **values: object) -> object:
        """Record an event. Only public values may be given."""
        ...


@dataclass(frozen=True, repr=False)
class EncoderUpdate:
    """The result of training. `vector`, float64: changes of the encoder, and then of r(z|y) if it is averaged.

    Every coordinate is finite and within +-`plan.max_update`. `prior` is r(z|y) after training. If it is local, it is
    kept at the silo. It was trained in the same charged steps, so the next round may start from it.
    """

    vector: NDArray[np.float64]
    prior: Prior | None

    def __repr__(self) -> str:
        return "EncoderUpdate(<private>)"


class _Trained(nn.Module):
    """Everything that one step trains. One module holds it, so that one clip bounds all of it."""

    def __init__(self, encoder: Encoder, prior: Prior | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.prior = prior


class _Optimizer(DPOptimizer):  # type: ignore[misc]  # Opacus publishes no types
    """Opacus' clipping; the noise comes from a key stream instead of torch's generator."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, plan: EncoderPlan, release: Release, stream: KeyStream
    ) -> None:
        super().__init__(
            optimizer,
            noise_multiplier=release.noise,
            max_grad_norm=plan.clip,
            expected_batch_size=plan.batch_size,
            loss_reduction="mean",
        )
        self._stream = stream

    def clip_and_accumulate(self) -> None:
        # Opacus scales by clip / norm. If a gradient is not finite, this would spoil the sum of all patients. If the
        # factor is below the smallest normal number, it is rounded so coarsely that the clip would not hold. A finite
        # model from outside can cause both for a patient of its choice. Such a patient counts as zero.
        parameters: Sequence[Any] = self.params
        samples: list[torch.Tensor] = [parameter.grad_sample for parameter in parameters]
        if len(samples[0]):
            norms = torch.stack([sample.reshape(len(sample), -1).norm(2, dim=1) for sample in samples], dim=1)
            numbers = torch.finfo(norms.dtype)
            lost = ~(norms.norm(2, dim=1) <= min(self.max_grad_norm / numbers.tiny, numbers.max))
            for sample in samples:
                sample.masked_fill_(lost.view(-1, *[1] * (sample.dim() - 1)), 0.0)
        super().clip_and_accumulate()

    def add_noise(self) -> None:
        parameters: Sequence[Any] = self.params
        for parameter in parameters:
            parameter.grad = (parameter.summed_grad + self.draw(parameter.summed_grad)).view_as(parameter)

    def draw(self, reference: torch.Tensor) -> torch.Tensor:
        if self.noise_multiplier == 0.0:
            return torch.zeros_like(reference)
        noise = gaussian(self._stream, tuple(reference.shape)) * (self.noise_multiplier * self.max_grad_norm)
        return torch.from_numpy(noise).to(reference)


def train_encoder(
    encoder: Encoder,
    heads: NDArray[np.float64],
    records: Records,
    plan: EncoderPlan,
    release: Release,
    *,
    family: Family,
    domain_weights: NDArray[np.float64],
    prior: Prior | None,
    mode: Mode,
    entropy: Entropy,
    device: torch.device | str = "cpu",
    log: Log | None = None,
) -> EncoderUpdate:
    """Train a copy of `encoder` (and of `prior`) and return the change, sampled and noised as it was charged.

    `release` gives the number of steps, the sampling rate and the noise; `plan` gives the rest. The loss of a record is
    the sum of the plan's terms (`terms.of_upload`) under the frozen `heads` (M, W). In it, the cross-entropy is
    multiplied by u_m of `domain_weights` (M,). `prior` must be given exactly if a term is stochastic. If there are no
    patients, the update is noise alone. `mode` is the study's; it is `none` exactly if `release.noise` is 0.

    Raises `LearningError` if encoder, plan and mode do not fit together, `Refused` if terms or parts cannot be
    accounted for (terms/registry.py, accountable.py).
    """
    check_noise(release.noise, mode)
    require_per_record(terms.of_upload(plan))
    stochastic = terms.is_stochastic(plan)
    if (prior is not None) != stochastic or encoder.stochastic != stochastic:
        msg = "a prior and a stochastic encoder belong to a study with encoder.cmi above 0, and only to it"
        raise LearningError(msg)
    trained = _Trained(copy.deepcopy(encoder), copy.deepcopy(prior)).to(device).train()
    start = flatten(trained)
    key = entropy.bytes(32)
    hooked, optimizer = _prepare(trained, plan, release, KeyStream(key, b"dpsgd noise"))
    sampler = PatientSampler(records.patients, release.sampling_rate, KeyStream(key, b"dpsgd sampling"))
    latent = KeyStream(key, b"dpsgd latent")
    batches = _Batches(records, heads, domain_weights, family, torch.device(device))
    size = max(PART_BYTES // _bytes_per_record(trained), 1)
    for _ in range(release.count):
        drawn = sampler.draw()
        noise = gaussian(latent, (len(drawn), encoder.representation)) if encoder.stochastic and len(drawn) else None
        for first in range(0, max(len(drawn), 1), size):
            part = slice(first, first + size)
            optimizer.zero_grad(set_to_none=True)
            if len(drawn):
                own = None if noise is None else noise[part]
                torch.autograd.backward(_losses(trained, batches.take(drawn[part]), plan, own).sum())
            else:
                _no_gradients(trained)
            # A skipped step clips and adds up, but draws no noise.
            optimizer.signal_skip_step(do_skip=first + size < len(drawn))
            optimizer.step()
    hooked.remove_hooks()
    if log is not None:
        log.info("encoder trained", steps=release.count)
    return _update(trained, start, plan)


def require_accountable(study: Study) -> None:
    """Examine what `train_encoder` would train for a study, with the code that trains. Raises `Refused`.

    It reads only made-up records, so it can run before any charge. Layers are examined at full size. Losses and
    gradients are examined on the same architecture with few values in each layer, because the number of values does not
    change whether records mix.
    """
    require_per_record(terms.of_upload(study.encoder))
    accountable.require_layers(_untrained(study.model, study.data, study.encoder))
    model, data = _small(study.model, study.data)
    trained = _untrained(model, data, study.encoder).double().train()
    made_up = np.random.default_rng(0)
    with torch.no_grad():
        for parameter in trained.parameters():
            spread = parameter[0].numel() ** -0.5
            parameter.copy_(torch.from_numpy(made_up.uniform(-spread, spread, tuple(parameter.shape)) + 0.1))
    batch, latent = _made_up(trained, data, made_up)
    hooked, optimizer = _prepare(
        trained, study.encoder, encoder_release(study), KeyStream(bytes(KEY_BYTES), b"dpsgd examined")
    )

    def losses(part: slice) -> torch.Tensor:
        images = None if batch.images is None else batch.images[part]
        own = replace(
            batch,
            x=batch.x[part],
            images=images,
            y=batch.y[part],
            domains=batch.domains[part],
            weights=None if batch.weights is None else batch.weights[part],
        )
        return _losses(trained, own, study.encoder, latent[part])

    accountable.require_apart(hooked, optimizer, losses, len(batch.y))


def _untrained(model: Model, data: DataSchema, plan: EncoderPlan) -> _Trained:
    stochastic = terms.is_stochastic(plan)
    prior = Prior(model.representation, data.label.count) if stochastic else None
    return _Trained(Encoder(model, data, stochastic=stochastic), prior)


def _prepare(
    trained: _Trained, plan: EncoderPlan, release: Release, stream: KeyStream
) -> tuple[GradSampleModule, _Optimizer]:
    """Gradients by record, and the one step that clips and noises them. Raises `Refused`."""
    accountable.require_layers(trained)
    hooked = GradSampleModule(trained, loss_reduction="sum")
    optimizer = _Optimizer(torch.optim.SGD(trained.parameters(), lr=plan.learning_rate), plan, release, stream)
    accountable.require_noised(trained, optimizer)
    return hooked, optimizer


def _small(model: Model, data: DataSchema) -> tuple[Model, DataSchema]:
    """The same architecture with few values in each layer, on few features and small images."""
    narrow = {
        "hidden": tuple(min(width, _NARROW) for width in model.hidden),
        "channels": tuple(min(width, _NARROW) for width in model.channels),
        "representation": min(model.representation, _NARROW),
    }
    image = data.image
    if image is not None:
        # Six halvings, the most that a cnn may ask for, leave one pixel.
        image = image.model_copy(update={"height": min(image.height, _SIDE), "width": min(image.width, _SIDE)})
    return model.model_copy(update=narrow), data.model_copy(
        update={"features": data.features[:_NARROW], "image": image}
    )


def _made_up(trained: _Trained, data: DataSchema, rng: np.random.Generator) -> tuple[Batch, NDArray[np.float64]]:
    """Made-up records, public, in float64, all different; and normals (count, k) for a stochastic encoder."""
    count, k = len(_LABELS), trained.encoder.representation
    image = data.image
    images = None
    if image is not None:
        images = torch.from_numpy(rng.uniform(-1, 1, (count, image.channels, image.height, image.width)))
    family = family_of(data.label.count)
    batch = Batch(
        torch.from_numpy(rng.uniform(-1, 1, (count, data.inputs))),
        images,
        torch.tensor(_LABELS),
        torch.tensor(_DOMAINS),
        torch.from_numpy(rng.uniform(0.5, 2.0, count)),
        torch.from_numpy(rng.normal(size=(max(_DOMAINS) + 1, family.form.logits * (k + 1)))),
        family,
    )
    return batch, rng.normal(size=(count, k))


class _Batches:
    """The records. Labels and domains are copied to the device once, inputs and images when a batch needs them."""

    def __init__(
        self,
        records: Records,
        heads: NDArray[np.float64],
        weights: NDArray[np.float64],
        family: Family,
        device: torch.device,
    ) -> None:
        self._device, self._family = device, family
        self._images = records.images
        self._inputs = records.inputs
        self._y = torch.tensor(records.labels, device=device)
        self._domains = torch.tensor(records.domains, device=device)
        self._weights = torch.tensor(weights, dtype=torch.float32, device=device)
        self._heads = torch.tensor(heads, dtype=torch.float32, device=device)

    def take(self, drawn: NDArray[np.int64]) -> Batch:
        rows = torch.from_numpy(drawn).to(self._device)
        domains = self._domains[rows]
        images = None if self._images is None else torch.tensor(self._images.take(drawn), device=self._device)
        x = torch.tensor(self._inputs[drawn], device=self._device)
        return Batch(x, images, self._y[rows], domains, self._weights[domains], self._heads, self._family)


def _bytes_per_record(trained: _Trained) -> int:
    """Memory of one record's gradients and activations."""
    weights = sum(parameter.numel() for parameter in trained.parameters())
    return _FLOAT * (weights + _MAPS * trained.encoder.largest_map)


def _losses(trained: _Trained, batch: Batch, plan: EncoderPlan, latent: NDArray[np.float64] | None) -> torch.Tensor:
    """Loss of every record, (b,). `latent` (b, k): standard normals if the encoder is stochastic, else None."""
    mean, deviation = trained.encoder.moments(batch.x, batch.images)
    drawn = mean
    if deviation is not None and latent is not None:
        drawn = mean + deviation * torch.from_numpy(latent).to(mean)
    phi = trained.encoder.squash(drawn)
    moments = None
    if deviation is not None and trained.prior is not None:
        moments = Latent(mean, deviation, trained.prior)
    return record_losses(terms.of_upload(plan), Seen(batch, phi, moments))


def _no_gradients(trained: _Trained) -> None:
    """Give an empty batch per-sample gradients of length 0. Opacus' own hooks disagree on their shape for tables."""
    parameters: Sequence[Any] = list(trained.parameters())
    for parameter in parameters:
        parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))


def _update(trained: _Trained, start: NDArray[np.float32], plan: EncoderPlan) -> EncoderUpdate:
    end = flatten(trained)
    delta = end.astype(np.float64) - start
    if trained.prior is not None and plan.prior == "local":
        delta = delta[: sum(parameter.numel() for parameter in trained.encoder.parameters())]
    bound = plan.max_update
    vector = np.clip(np.nan_to_num(delta, nan=0.0, posinf=bound, neginf=-bound), -bound, bound)
    prior = None
    if trained.prior is not None:
        prior = Prior(trained.encoder.representation, trained.prior.mean.num_embeddings)
        unflatten(prior, flatten(trained.prior))
    return EncoderUpdate(vector, prior)
