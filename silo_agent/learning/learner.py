"""What one study computes at one silo: contributions from its records, and what opened sums make of the model.

Two halves. `contribute_*` reads private records and returns noised integers on a public grid; the gate calls it after
the charge and nothing else may. `open_*`, `solve` and `adopt` read opened sums alone, so all silos get the same from
the same integers. The formulas are `silo_agent.learning`'s; this module fits them to the study's numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from crypto.entropy import Entropy
from crypto.rings.grid import from_grid, to_grid, to_grid_stochastic
from crypto.rings.rings import ring_of
from crypto.stream import KEY_BYTES, KeyStream
from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.costs import Cohort, Cost
from protos.messages import Place, Tensor
from silo_agent.data.reader import read_fitting_records
from silo_agent.data.records import Records
from silo_agent.data.split import split
from silo_agent.learning.device import choose_device
from silo_agent.learning.encoder.encoder import flatten, unflatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.evaluation.evaluation import DomainResult, results_from_histograms, score_histograms
from silo_agent.learning.heads.domain_weights import domain_counts, domain_weights
from silo_agent.learning.heads.newton import solve
from silo_agent.learning.heads.sums import centred, hessian_noise_sd, pack, second_order_sums, unpack
from silo_agent.learning.model import HEAD_BOUND, SharedModel
from silo_agent.learning.personal import PersonalModel
from silo_agent.learning.private.dpsgd import require_accountable, train_encoder
from silo_agent.learning.private.release import grid, release, rounding_sd, sum_sd
from silo_agent.learning.terms.prior import Prior
from silo_agent.logs import TrainingLog
from silo_agent.storage.durable import write_whole

log = structlog.get_logger()
Integers = NDArray[np.int64]
UPDATE_STEPS = {"ring32": 1 << 21, "ring64": 1 << 36, "ckks": 1 << 25}
"""Grid steps of an encoder coordinate between 0 and `max_update`, by ring: the sum of 256 silos fits each."""
HEAD_STEP = 2.0**-20
ROUNDING_MARGIN = 128.0
"""Without noise, directions in which nobody lies hold what rounding to the grid left there. Repaired as if it were this
much larger, it moves a head by about 0.006 at most; curvature that patients bring lies far above."""
HEAD_TOLERANCE = 2.0**-12
"""How far a solved head may lie from this silo's own solution; eigensolvers of two machines differ by far less."""


class SolutionError(LearningError):
    """The solver's heads are not what the opened sums give."""


class SumError(LearningError):
    """An opened sum is no sum of this roster's contributions."""


@dataclass(frozen=True)
class Results:
    """What the sealed, noised metric sums say of each domain, with 95 % intervals; `noise_sd` is on every cell."""

    study: str
    domains: tuple[str, ...]
    by_domain: tuple[DomainResult, ...]
    noise_sd: float


class Learner:
    """One study at one silo. `folder` keeps models, results and the training log."""

    def __init__(
        self,
        study: Study,
        data: Path,
        data_set: str,
        holdout: float,
        folder: Path,
        *,
        identified_by: Sequence[str],
        entropy: Entropy,
        personal_entropy: Entropy,
        device: str,
    ) -> None:
        """`entropy` feeds what leaves, `personal_entropy` what stays: neither can shift the other's draws.

        `data_set`, `holdout` and `identified_by` are the policy's, and draw the two cohorts.

        Raises `Refused` where what the encoder's updates are made of cannot be accounted for.
        """
        require_accountable(study)
        self.study, self._folder, self._entropy, self._personal_entropy = study, folder, entropy, personal_entropy
        self._device = choose_device(device)
        self._data, self._data_set, self._holdout = data, data_set, holdout
        self._identified_by = tuple(identified_by)
        self._records: tuple[Records, Records] | None = None
        self._log = TrainingLog(folder / "training.jsonl")
        self._limit = ring_of("ckks").limit(len(study.silos))
        self._step, self._bound = grid(study.privacy.max_patients, self._limit)

    # --- private half ---------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Read and split the records that fit the study. Raises `DataError` where the whole file cannot be used."""
        if self._records is None:
            records = read_fitting_records(self._data, self.study.data, self._identified_by)
            self._records = split(records, self._data_set, self._holdout)

    def contribution(self, tensor: Tensor, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's noised integers for a tensor. Only the gate calls this, after the charge."""
        makers: dict[Tensor, Callable[[Place, SharedModel, int], Integers]] = {
            Tensor.COUNTS: self._contribute_counts,
            Tensor.HEADS: self._contribute_heads,
            Tensor.ENCODER: self._contribute_encoder,
            Tensor.METRICS: self._contribute_metrics,
        }
        self.load()
        integers = makers[tensor](place, model, silos)
        if len(integers) != shapes.values(self.study, place.round, tensor):
            msg = f"{tensor} has {len(integers)} values, the study's shape says otherwise"
            raise ValueError(msg)
        return integers

    def _contribute_counts(self, place: Place, _model: SharedModel, silos: int) -> Integers:
        records = self._training
        counts = domain_counts(records.domains, records.patients, len(self.study.data.domains))
        return self._release(
            counts, Tensor.COUNTS, place, silos=silos, noise=self.study.privacy.count_noise, cohort="training"
        )

    def _contribute_heads(self, place: Place, model: SharedModel, silos: int) -> Integers:
        records = self._training
        hessian, gradient = second_order_sums(
            model.features(records.inputs, records.images, self._device),
            records.labels,
            records.domains,
            records.patients,
            model.heads,
            pooled=shapes.is_pooled(self.study, place.round),
            clip=self.study.heads.clip,
        )
        noise = self._head_noise(place.round)
        statistic = pack(hessian, gradient, classes=self.study.data.label.count)
        return self._release(statistic, Tensor.HEADS, place, silos=silos, noise=noise, cohort="training")

    def _contribute_encoder(self, place: Place, model: SharedModel, _silos: int) -> Integers:
        study, plan = self.study, self.study.encoder
        update = train_encoder(
            model.build_encoder(),
            model.heads,
            self._training,
            plan,
            domain_weights=domain_weights(self._counts(), plan.weight_clip),
            prior=self._prior(model, place.round),
            mode=study.privacy.mode,
            entropy=self._entropy,
            device=self._device,
        )
        self._log.record(place, Tensor.ENCODER, Cost("training", plan.sampling_rate, plan.noise, plan.steps))
        if update.prior is not None and plan.prior == "local":
            write_whole(self._prior_path(place.round), flatten(update.prior).astype("<f4").tobytes())
        stream = KeyStream(self._entropy.bytes(KEY_BYTES), b"encoder rounding")
        return to_grid_stochastic(update.vector, self._update_step, plan.max_update, stream)

    def _contribute_metrics(self, place: Place, model: SharedModel, silos: int) -> Integers:
        records, plan = self._evaluation, self.study.evaluation
        histograms = score_histograms(
            model.predict(records.inputs, records.domains, records.images, self._device),
            records.labels,
            records.domains,
            records.patients,
            count=len(self.study.data.domains),
            bins=plan.bins,
        )
        return self._release(histograms, Tensor.METRICS, place, silos=silos, noise=plan.noise, cohort="evaluation")

    def _release(
        self, statistic: NDArray[np.float64], tensor: Tensor, place: Place, *, silos: int, noise: float, cohort: Cohort
    ) -> Integers:
        privacy = self.study.privacy
        integers = release(
            statistic,
            noise=noise,
            mode=privacy.mode,
            silos=silos,
            colluders=privacy.colluders,
            step=self._step,
            bound=self._bound,
            limit=self._limit,
            stream=KeyStream(self._entropy.bytes(KEY_BYTES), tensor.encode()),
        )
        self._log.record(place, tensor, Cost(cohort, 1.0, noise, 1))
        return integers

    def train_personal(self, model: SharedModel) -> None:
        """Train the model that never leaves; it reads the shared one as a constant and feeds no upload.

        Once for every round: a process that begins again trains nothing anew that it has trained.
        """
        plan = self.study.personal
        if plan is None:
            return
        self.load()
        path = self._folder / "personal.safetensors"
        personal = PersonalModel.load(path) if path.exists() else PersonalModel.start(model)
        if path.exists() and personal.round >= model.round:
            return
        personal.train(model, self._training, plan, entropy=self._personal_entropy, device=self._device).save(path)

    # --- public half ----------------------------------------------------------------------------------------------
    def check_sum(self, tensor: Tensor, total: Integers, silos: int) -> None:
        """Refuse a sum that `silos` clamped contributions cannot give. Raises `SumError`."""
        bound = UPDATE_STEPS[self.study.encoder.sealing] if tensor is Tensor.ENCODER else self._limit
        if np.abs(total).max(initial=0) > silos * bound:
            msg = f"the opened {tensor} is no sum of {silos} contributions: one exceeds the study's bound"
            raise SumError(msg)

    def open_counts(self, total: Integers) -> None:
        """Remember the domains' noised sizes; the encoder's domain weights follow from them."""
        counts = from_grid(total, self._step)
        write_whole(self._folder / "counts.json", json.dumps(counts.tolist()).encode())

    def solve(self, total: Integers, place: Place, model: SharedModel, silos: int) -> Integers:
        """Heads from the opened sums, on the public grid."""
        study = self.study
        pooled = shapes.is_pooled(study, place.round)
        blocks = 1 if pooled else len(study.data.domains)
        classes, width = study.data.label.count, shapes.head_width(study)
        hessian, gradient = unpack(from_grid(total, self._step), blocks, width, classes=classes)
        sd = self._sum_sd(self._head_noise(place.round), len(total), silos)
        if not sd:
            sd = ROUNDING_MARGIN * rounding_sd(silos=silos, step=self._step)
        sums = centred(hessian, gradient, classes=classes)
        heads = solve(model.heads, *sums, hessian_noise_sd(sd, classes=classes), study.heads, pooled=pooled)
        if not pooled:
            heads = np.where(self._small_domains()[:, None], model.heads, heads)
        return to_grid(heads.ravel(), HEAD_STEP, HEAD_BOUND)

    def adopt(self, solution: Integers, total: Integers, place: Place, model: SharedModel, silos: int) -> SharedModel:
        """Take the solver's heads where this silo's own solution agrees. Raises `SolutionError`."""
        own = self.solve(total, place, model, silos)
        slack, most = int(HEAD_TOLERANCE / HEAD_STEP), int(HEAD_BOUND / HEAD_STEP)
        low, high = np.maximum(own - slack, -most), np.minimum(own + slack, most)
        # Compared, not subtracted: a solver may send -2^63, whose distance overflows.
        if solution.shape != own.shape or ((solution < low) | (solution > high)).any():
            msg = "the solved heads are not what the opened sums give"
            raise SolutionError(msg)
        return model.with_heads(from_grid(solution, HEAD_STEP).reshape(model.heads.shape), place.round)

    def open_encoder(self, total: Integers, model: SharedModel, silos: int) -> SharedModel:
        """Add the uniform mean of the silos' updates to the shared encoder."""
        return model.with_update(from_grid(total, self._update_step), silos)

    def open_metrics(self, total: Integers, silos: int) -> Results:
        """Metrics by domain from the noised histograms; written to `results.json`."""
        study = self.study
        sums = from_grid(total, self._step)
        noise_sd = self._sum_sd(study.evaluation.noise, len(total), silos)
        by_domain = results_from_histograms(
            sums,
            noise_sd,
            count=len(study.data.domains),
            classes=study.data.label.count,
            bins=study.evaluation.bins,
            rng=np.random.default_rng(0),
            smallest=study.privacy.smallest_domain,
        )
        results = Results(study.digest, study.data.domains, by_domain, noise_sd)
        write_whole(self._folder / "results.json", json.dumps(asdict(results), indent=1).encode())
        return results

    # --- inside ---------------------------------------------------------------------------------------------------
    @property
    def _update_step(self) -> float:
        plan = self.study.encoder
        return plan.max_update / UPDATE_STEPS[plan.sealing]

    @property
    def _training(self) -> Records:
        self.load()
        return self._records[0]  # type: ignore[index]  # load() has just filled it

    @property
    def _evaluation(self) -> Records:
        self.load()
        return self._records[1]  # type: ignore[index]  # load() has just filled it

    def _head_noise(self, round_number: int) -> float:
        plan = self.study.heads
        return plan.pooled_noise if shapes.is_pooled(self.study, round_number) else plan.domain_noise

    def _sum_sd(self, noise: float, values: int, silos: int) -> float:
        privacy = self.study.privacy
        return sum_sd(
            noise=noise, mode=privacy.mode, silos=silos, colluders=privacy.colluders, step=self._step, values=values
        )

    def _counts(self) -> NDArray[np.float64]:
        return np.array(json.loads((self._folder / "counts.json").read_bytes()), np.float64)

    def _small_domains(self) -> NDArray[np.bool_]:
        """Which domains (M,) hold too few patients, by the noised counts, for a head of their own."""
        smallest, domains = self.study.privacy.smallest_domain, len(self.study.data.domains)
        return self._counts() < smallest if smallest else np.zeros(domains, np.bool_)

    def _prior(self, model: SharedModel, round_number: int) -> Prior | None:
        """The r(z|y) that a round's training starts from; where it is local, what the rounds before it left.

        Never what the same round left: were its draw lost in a crash and made again, two trainings would have fed it
        for one charge.
        """
        prior = model.build_prior()
        if prior is not None and self.study.encoder.prior == "local":
            kept = [path for r in range(1, round_number) if (path := self._prior_path(r)).exists()]
            if kept:
                unflatten(prior, np.frombuffer(kept[-1].read_bytes(), "<f4"))
        return prior

    def _prior_path(self, round_number: int) -> Path:
        return self._folder / f"prior-{round_number}.f32"
