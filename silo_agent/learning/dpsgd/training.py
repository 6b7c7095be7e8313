"""DP-SGD on the encoder with the heads frozen: Opacus per-sample gradients, our own sampling, sums and noise.

Guarantees for each step: patients enter by Poisson sampling with the public rate. A patient's gradient over everything
that is trained (encoder and r tables together) becomes integers of a bounded l2 norm; if that cannot be, it counts as
zero, without a word. The integers are added exactly, and integer noise is added to the sum (`rounded`). Only then does
anything become a float again, for the public division by `plan.batch_size` and the move of the weights. The private
number of patients scales nothing. An empty batch passes the same code.

What a patient adds follows from the patient's record alone: records pass in chunks of one public shape, filled up with
made-up rows, and `steady` examines that no row moves another's bits. Noise and sampling come from the given entropy and
are drawn on the CPU, so a GPU trains with the same noise. Without noise nothing is trained, unless the mode is `none`,
which is for public data. The plan alone says how many steps there are and which model is taken: no loss or metric of
the records is ever looked at.

The gate has charged the ledger before. Rounding to the sealing's grid comes after. docs/design/noise.md, "Integers in a
step", has the argument.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.grad_sample import GradSampleModule
from torch import nn

from crypto.entropy import Entropy
from crypto.stream import KeyStream
from policies.documents.study import DataSchema, EncoderPlan, Model, Study
from policies.plan import shapes, terms
from policies.plan.families import form_of
from policies.plan.release import Release
from silo_agent.data.records import Records
from silo_agent.learning.dpsgd import examination
from silo_agent.learning.dpsgd.batches import Batches, InputKind, made_up, make_up_weights, picked
from silo_agent.learning.dpsgd.chunk_independence import HOSTILE, is_steady, steady_kernels
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.gradients import Gradients
from silo_agent.learning.dpsgd.noise_ahead import Ahead
from silo_agent.learning.dpsgd.outer_products import OuterProducts, factors_of, mark_positions, positions
from silo_agent.learning.dpsgd.rounded_gaussian import RoundedGaussian
from silo_agent.learning.dpsgd.sampling import PatientSampler
from silo_agent.learning.dpsgd.schedule import learning_rate
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.trained_heads import TrainedHeads
from silo_agent.learning.encoder.encoder import Encoder, flatten, unflatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.noise.gaussian import gaussian
from silo_agent.learning.noise.noised_sum import Mode, check_noise
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.terms.losses.cmi import FixedPrior, Prior, fixed_prior, prior_of
from silo_agent.learning.terms.registry import record_losses, require_per_record
from silo_agent.learning.terms.term import Batch, Latent, Seen

# Opacus hooks every layer, and torch warns that no input of it needs a gradient. That is as it should be: the inputs
# are the records.
warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)

PART_BYTES = 1 << 29
"""Memory that the gradients and activations of one chunk may take: 512 MiB."""
_USUAL_BYTES, _USUAL_ROWS, _MOST_ROWS, _CHUNKS = 1 << 27, 64, 1024, 4
"""A chunk has 64 rows, fewer where they would take more than 128 MiB, and up to 1,024 where four chunks would not hold
the expected batch. Small chunks leave few made-up rows, large ones call the network less often."""
_PERIODS = (32, 4)
"""Chunks of whole 32s, else of whole fours, where memory allows: kernels take rows in groups, and what is left over in
another way. Of a stochastic encoder 248 rows were not steady on a processor on which 224 and 256 are."""
SEALED_NORM = StepGrid.of(1.0, 0.0).norm
"""l2 norm of a patient's integers in a sealed step, 2^20."""
_FLOAT = 4
_FACTORS = 6
"""Memory of a linear layer's factors, counted in float32: activations, factors, and their integers in float64."""
_MAPS = 16
"""Memory of a pass through an image network, counted in maps of its largest size. The outputs of all its layers take
less than ten. In addition, Opacus unfolds one layer's input into nine values for each value."""
_NARROW, _SIDE = 8, 64
"""Largest layer width, and largest side of an image in pixels, of the small network on which losses are examined."""
_EXAMINED: dict[tuple[object, ...], bool] = {}
"""Whether chunks of a network, a shape and a device were found steady in this process."""


class Log(Protocol):
    """What training needs of a structlog logger."""

    def info(self, event: str, **values: object) -> object:
        """Record an event. Only public values may be given."""
        ...


@dataclass(frozen=True, repr=False)
class EncoderUpdate:
    """The result of training. `vector`, float64: changes of the encoder, of r(z|y) if it is averaged, of trained heads.

    Every coordinate is finite and within +-`plan.max_update`. `prior` is r(z|y) after training. If it is local, it is
    kept at the silo. It was trained in the same charged steps, so the next round may start from it.
    """

    vector: NDArray[np.float64]
    prior: Prior | None

    def __repr__(self) -> str:
        return "EncoderUpdate(<private>)"


class _Trained(nn.Module):
    """Everything that one step trains. One module holds it, so that one clip bounds all of it."""

    def __init__(
        self,
        encoder: Encoder,
        prior: Prior | FixedPrior | None,
        heads: TrainedHeads | None = None,
        *,
        heads_alone: bool = False,
        factored: bool = True,
    ) -> None:
        super().__init__()
        self.factored = factored
        """Whether linear layers' gradients by record are kept as factors. Sealed steps have whole ones."""
        self.encoder = encoder
        if factored and encoder.image_network is not None and encoder.image is not None:
            mark_positions(encoder.image_network, encoder.image)
        self.prior = prior if isinstance(prior, Prior) else None
        self.heads = heads
        self._fixed = prior if isinstance(prior, FixedPrior) else None
        if heads_alone:
            for part in (self.encoder, self.prior):
                if part is not None:
                    part.requires_grad_(requires_grad=False)

    @property
    def moving(self) -> int:
        """Number of values that the steps move."""
        return sum(one.numel() for one in self.parameters() if one.requires_grad)

    def uploaded(self, plan: EncoderPlan, kept: Collection[str]) -> list[nn.Parameter]:
        """The weights that leave the silo, noised."""
        stays: set[str] = {*kept, *(("prior",) if plan.prior == "local" else ())}
        return [one for name, part in self.named_children() if name not in stays for one in part.parameters()]

    def extra_repr(self) -> str:
        """Tell networks apart of which other parts are trained."""
        return f"moving={self.moving}, factored={self.factored}"

    def hooked(self) -> GradSampleModule:
        """This network with gradients by record."""
        kind = OuterProducts if self.factored else GradSampleModule
        return kind(self, loss_reduction="sum")

    @property
    def tables(self) -> Prior | FixedPrior | None:
        """r(z|y), trained or fixed."""
        return self._fixed if self.prior is None else self.prior


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Training:
    """What a silo trains for an upload, from what, and where these steps stand among the study's.

    `heads` (M, W) are frozen, but for the first `joint` (0, 1 or M), which are trained in the same steps, under the
    same clip and noise; with `heads_alone` the encoder stands still meanwhile. `domain_weights` (M,) are u_m, which
    multiply the cross-entropy. `prior` is given exactly if a term of `plan` is stochastic. Parts named in `kept` stay
    at the silo. `release` gives the number of steps, the sampling rate and the noise. `first` is the number of the
    study's steps before these, and `whole` how many it has in all (None: these); the learning rate follows from both.
    """

    encoder: Encoder
    heads: NDArray[np.float64]
    records: Records
    plan: EncoderPlan
    release: Release
    family: Family
    domain_weights: NDArray[np.float64]
    prior: Prior | FixedPrior | None = None
    joint: int = 0
    heads_alone: bool = False
    kept: Collection[str] = ()
    device: torch.device | str = "cpu"
    first: int = 0
    whole: int | None = None

    def __repr__(self) -> str:
        return "Training(<private>)"

    @property
    def rates(self) -> Iterator[float]:
        """The learning rate of each step."""
        whole = self.release.count if self.whole is None else self.whole
        return (learning_rate(self.plan, self.first + number, whole) for number in range(self.release.count))


def train_encoder(training: Training, *, mode: Mode, entropy: Entropy, log: Log | None = None) -> EncoderUpdate:
    """Train a copy of the encoder (and of the prior) and return the change, sampled and noised as it was charged.

    The loss of a record is the sum of the plan's terms (`terms.of_upload`) under the heads. Terms that read weights
    alone (`terms.of_steps`) are added to the noised steps of the parts that are uploaded: not of those that are kept,
    and not of tables that stay at the silo. If there are no patients, the update is noise alone. `mode` is the study's;
    it is `none` exactly if the release's noise is 0. The momentum begins at zero in every round.

    Raises `LearningError` if encoder, plan and mode do not fit together, `Refused` if terms or parts cannot be
    accounted for (terms/registry.py, examination.py).
    """
    plan, release = training.plan, training.release
    check_noise(release.noise, mode)
    key = entropy.bytes(32)
    run = _Run(training, StepGrid.fine(plan.clip, release.noise), key)
    sampler = PatientSampler(training.records.patients, release.sampling_rate, KeyStream(key, b"dpsgd sampling"))
    with steady_kernels(run.device), _noise(key, run.grid, release, run.trained.moving) as noise:
        _take_steps(run, training, sampler, noise)
    run.hooked.remove_hooks()
    if log is not None:
        log.info("encoder trained", steps=release.count)
    return _update(run.trained, _parameters(training), plan)


def _take_steps(run: _Run, training: Training, sampler: PatientSampler, noise: Ahead | None) -> None:
    """What only the steps need is gone when they have been taken: the sums of a large network are large."""
    plan, gradients = training.plan, run.gradients()
    drawn, own = run.trained.uploaded(plan, training.kept), terms.of_steps(plan)
    step = PrivateStep(run.optimizer, run.grid, plan.batch_size, noise, training.rates, terms=own, drawn=drawn)
    for _ in range(training.release.count):
        gradients(step.totals, sampler.draw())
        step.take()


def sum_gradients(training: Training, *, entropy: Entropy) -> NDArray[np.int64]:
    """The exact sum of all patients' clipped gradients in units of clip / `SEALED_NORM`, int64 (n,), without noise.

    One record of each patient enters, at random. A patient's integers have an l2 norm of at most `SEALED_NORM`, or are
    all zero. Losses, errors and the order of the values are those of `train_encoder`; the averaged prior comes last.
    """
    key = entropy.bytes(32)
    run = _Run(training, StepGrid.of(training.plan.clip, 0.0), key, factored=False)
    sampler = PatientSampler(training.records.patients, 1.0, KeyStream(key, b"dpsgd sampling"))
    totals = [torch.zeros(one.numel(), dtype=torch.int64, device=run.device) for one in run.trained.parameters()]
    with steady_kernels(run.device):
        run.gradients()(totals, sampler.draw())
    run.hooked.remove_hooks()
    return np.concatenate([np.zeros(0, np.int64), *(total.cpu().numpy() for total in totals)])


class _Run:
    """A copy of the network that gradients by record are taken of, and what clips them."""

    def __init__(self, training: Training, grid: StepGrid, key: bytes, *, factored: bool = True) -> None:
        plan, encoder, prior = training.plan, training.encoder, training.prior
        require_per_record(terms.of_upload(plan))
        self._stochastic = terms.is_stochastic(plan)
        if (prior is not None) != self._stochastic or encoder.stochastic != self._stochastic:
            msg = "a prior and a stochastic encoder belong to a study with encoder.cmi above 0, and only to it"
            raise LearningError(msg)
        self.device, self.grid = torch.device(training.device), grid
        self._training = training
        heads = TrainedHeads(training.heads[: training.joint]) if training.joint else None
        parts = copy.deepcopy(encoder).requires_grad_(), copy.deepcopy(prior), heads
        trained = _Trained(*parts, heads_alone=training.heads_alone, factored=factored)
        self.trained = trained.to(self.device).train()
        self.optimizer = _optimizer(self.trained, plan)
        images = None if training.records.images is None else training.records.images.shape
        kind = InputKind(training.records.inputs.shape[1], images, training.family)
        with steady_kernels(self.device):
            self._rows = _steady_rows(self.trained, plan, kind, self.device)
        self.hooked = self.trained.hooked()
        self._latent = KeyStream(key, b"dpsgd latent")

    def gradients(self) -> Callable[[Sequence[torch.Tensor], NDArray[np.int64]], None]:
        """What adds the integers of a step's records to totals. To be called, and used, among `steady_kernels`."""
        training, plan, records, rows = self._training, self._training.plan, self._training.records, self._rows
        each = Gradients(self.hooked, lambda batch, own: _losses(self.trained, batch, plan, own), self.grid, rows)
        batches = Batches(
            records, training.heads, training.domain_weights, training.family, device=self.device, rows=rows
        )

        def add(totals: Sequence[torch.Tensor], drawn: NDArray[np.int64]) -> None:
            width = self.trained.encoder.representation
            own = gaussian(self._latent, (len(drawn), width)) if self._stochastic else None
            batches.expect(drawn)
            for begin in range(0, max(len(drawn), 1), rows):
                part = slice(begin, begin + rows)
                each.add(totals, batches, drawn[part], None if own is None else own[part])

        return add


def require_accountable(study: Study, device: torch.device | str = "cpu") -> None:
    """Examine what `train_encoder` would train for a study, with the code that trains. Raises `Refused`.

    It reads only made-up records, so it can run before any charge. Layers are examined at full size, and so are the
    bits of gradients on the device that trains. Losses and gradients are examined on the same architecture with few
    values in each layer, because the number of values does not change whether records mix.
    """
    require_per_record(terms.of_upload(study.encoder))
    heads_first = study.composition.order == "heads-first"
    for joint in sorted({shapes.trained_heads(study, 1), shapes.trained_heads(study, study.rounds)}):
        if study.model.encoder != "raw" or joint:  # otherwise there are no weights to train
            _require_accountable(study, joint, device, heads_alone=heads_first)
    if heads_first:
        _require_accountable(study, 0, device)


def steady_rows(study: Study, device: torch.device | str) -> tuple[int, int]:
    """Rows of a chunk of a study's training on a device, and how many they are if they are steady there."""
    device, whole = torch.device(device), _untrained(study.model, study.data, study.encoder)
    with steady_kernels(device):
        return _steady_rows(whole, study.encoder, InputKind.of(study.data), device), _rows(whole, study.encoder)


def _require_accountable(study: Study, joint: int, device: torch.device | str, *, heads_alone: bool = False) -> None:
    whole = _untrained(study.model, study.data, study.encoder, joint, heads_alone=heads_alone)
    examination.require_layers(whole)
    model, data = _small(study.model, study.data)
    trained = _untrained(model, data, study.encoder, joint, heads_alone=heads_alone).double().train()
    rng = np.random.default_rng(0)
    make_up_weights(trained, rng)
    batch, latent = made_up(trained.encoder, next(trained.parameters()), InputKind.of(data), rng)
    optimizer = _optimizer(trained, study.encoder)
    hooked = trained.hooked()

    def losses(part: slice) -> torch.Tensor:
        return _losses(trained, picked(batch, part), study.encoder, latent[part])

    examination.require_apart(hooked, optimizer, losses, len(batch.y))
    device = torch.device(device)
    with steady_kernels(device):
        _steady_rows(whole, study.encoder, InputKind.of(study.data), device)


def _untrained(
    model: Model, data: DataSchema, plan: EncoderPlan, joint: int = 0, *, heads_alone: bool = False
) -> _Trained:
    stochastic = terms.is_stochastic(plan)
    prior: Prior | FixedPrior | None = None
    if stochastic:
        prior = fixed_prior(model, data) if plan.prior == "fixed" else prior_of(model, data, plan)
    encoder = Encoder(model, data, stochastic=stochastic)
    width = form_of(data.label.count).logits * encoder.row
    heads = TrainedHeads(np.zeros((joint, width))) if joint else None
    return _Trained(encoder, prior, heads, heads_alone=heads_alone, factored=not plan.sealed_steps)


def _optimizer(trained: _Trained, plan: EncoderPlan) -> torch.optim.SGD:
    """The optimizer of the one step that clips and noises. Raises `Refused`, also for layers that mix records."""
    examination.require_layers(trained)
    moved = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(moved, lr=plan.learning_rate, momentum=plan.momentum)
    examination.require_noised(trained, optimizer)
    return optimizer


@contextmanager
def _noise(key: bytes, grid: StepGrid, release: Release, values: int) -> Iterator[Ahead | None]:
    """What the steps' noise is taken from, `values` integers for each; None if the release has none."""
    if not release.noise:
        yield None
        return
    law, stream = RoundedGaussian(grid.sigma), KeyStream(key, b"dpsgd noise")
    with Ahead(lambda count: law.draw(stream, count), values, release.count) as ahead:
        yield ahead


def _steady_rows(untrained: _Trained, plan: EncoderPlan, kind: InputKind, device: torch.device) -> int:
    """Rows of a chunk, from public constants; one if the rows of a chunk were not steady.

    Examines a copy of the network with made-up weights, once in a process for each kind of network. A record that is
    alone in its chunk has nobody beside it, so that needs no examination.
    """
    rows = _rows(untrained, plan)
    if rows == 1:
        return rows
    seen = (repr(untrained), _losses, terms.of_upload(plan), kind.inputs, kind.image, kind.family.form)
    examined = (*seen, rows, str(device), torch.get_num_threads())
    if examined not in _EXAMINED:
        _EXAMINED[examined] = _is_steady(copy.deepcopy(untrained).to(device).train(), plan, kind, rows)
    return rows if _EXAMINED[examined] else 1


def _rows(untrained: _Trained, plan: EncoderPlan) -> int:
    """Rows of a chunk if they are steady: few made-up rows, and no more memory than `PART_BYTES`."""
    needed = _bytes_per_record(untrained)
    usual = max(1, min(_USUAL_ROWS, _USUAL_BYTES // needed))
    rows = min(max(1, PART_BYTES // needed), _MOST_ROWS, max(usual, math.ceil(plan.batch_size / _CHUNKS)))
    period = next((period for period in _PERIODS if rows >= period), 1)
    return rows // period * period


def _is_steady(trained: _Trained, plan: EncoderPlan, kind: InputKind, rows: int) -> bool:
    rng = np.random.default_rng(1)
    make_up_weights(trained, rng)
    batch, latent = made_up(trained.encoder, next(trained.parameters()), kind, rng)
    for values in (batch.x, batch.images):
        if values is not None:
            values[HOSTILE] = math.nan
    grid = (StepGrid.fine if trained.factored else StepGrid.of)(plan.clip, 0.0)
    hooked = trained.hooked()
    gradients = Gradients(hooked, lambda batch, own: _losses(trained, batch, plan, own), grid, rows)
    try:
        return is_steady(
            lambda numbers: gradients.by_record(picked(batch, numbers), latent[numbers]), gradients.to_integers, rows
        )
    finally:
        hooked.remove_hooks()  # they hold the network, and it may be large


def _small(model: Model, data: DataSchema) -> tuple[Model, DataSchema]:
    """The same architecture with few values in each layer, on few features and small images."""
    if model.encoder == "raw":
        return model, data  # the heads are as wide as the inputs
    narrow = {
        "hidden": tuple(min(width, _NARROW) for width in model.hidden),
        "channels": tuple(min(width, _NARROW) for width in model.channels),
        "representation": min(model.representation, _NARROW),
        "random_features": min(model.random_features, _NARROW),
    }
    image = data.image
    if image is not None:
        # Six halvings, the most that a cnn may ask for, leave one pixel.
        image = image.model_copy(update={"height": min(image.height, _SIDE), "width": min(image.width, _SIDE)})
    return model.model_copy(update=narrow), data.model_copy(
        update={"features": data.features[:_NARROW], "image": image}
    )


def _bytes_per_record(trained: _Trained) -> int:
    """Memory of one record's gradients and activations."""
    weights = sum(parameter.numel() for parameter in trained.parameters())
    if trained.factored:
        for layer in trained.modules():
            if (own := factors_of(layer)) is not None:
                kept = sum(one.numel() for one in layer.parameters())
                weights += _FACTORS * positions(layer) * (own.inputs + len(layer.weight)) - kept  # type: ignore[arg-type]  # a tensor
    return _FLOAT * (weights + _MAPS * trained.encoder.largest_map)


def _losses(trained: _Trained, batch: Batch, plan: EncoderPlan, latent: NDArray[np.float64] | None) -> torch.Tensor:
    """Loss of every record, (b,). `latent` (b, k): standard normals if the encoder is stochastic, else None."""
    mean, deviation = trained.encoder.moments(batch.x, batch.images)
    drawn = mean
    if deviation is not None and latent is not None:
        drawn = mean + deviation * torch.from_numpy(latent).to(mean)
    phi = trained.encoder.read(drawn, batch.x)
    moments = None
    if deviation is not None and trained.tables is not None:
        scale = None if trained.prior is None else trained.prior.scale_of(batch.y)
        moments = Latent(mean, deviation, trained.tables, scale)
    if trained.heads is not None:
        batch = trained.heads.read_by(batch)
    return record_losses(terms.of_upload(plan), Seen(batch, phi, moments))


def _parameters(training: Training) -> Iterator[nn.Parameter]:
    """The weights before the steps, in the order of those of `_Trained`."""
    yield from training.encoder.parameters()
    if isinstance(training.prior, Prior):
        yield from training.prior.parameters()
    if training.joint:
        yield from TrainedHeads(training.heads[: training.joint]).parameters()


def _update(trained: _Trained, starts: Iterable[nn.Parameter], plan: EncoderPlan) -> EncoderUpdate:
    """What the steps changed, tensor by tensor: a network may be large."""
    own = trained.prior
    stays = {id(one) for one in own.parameters()} if own is not None and plan.prior == "local" else set()
    vector, bound, first = np.zeros(sum(one.numel() for one in trained.parameters())), plan.max_update, 0
    for parameter, start in zip(trained.parameters(), starts, strict=True):
        if id(parameter) in stays:
            continue
        change = vector[first : first + parameter.numel()]
        change[:] = parameter.detach().cpu().numpy().ravel()
        change -= start.detach().cpu().numpy().ravel()
        np.nan_to_num(change, copy=False, nan=0.0, posinf=bound, neginf=-bound)
        np.clip(change, -bound, bound, out=change)
        first += len(change)
    vector = vector[:first]
    prior = None
    if trained.prior is not None:
        own = trained.prior
        prior = Prior(trained.encoder.representation, own.mean.num_embeddings, scaled=own.scale is not None)
        unflatten(prior, flatten(trained.prior))
    return EncoderUpdate(vector, prior)
