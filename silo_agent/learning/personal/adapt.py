"""A silo that was not in a study trains its own part of the model under the frozen shared part. Nothing leaves it.

Where a recipe keeps a part at the silos, a new silo has none, and the study is over. It trains that part alone: its
encoder under the shared heads (lg-fedavg), or its heads on the shared encoder (fedper, fedrep). Where a recipe keeps
nothing, it may move one of the two. The result is a personal model: it stays in the hospital, feeds no upload and is
read by nobody else, so no budget is charged, and steps are neither clipped nor noised. Its file is as private as the
records.

Guarantees: the frozen part keeps its bits. The model and these records alone decide every draw. A model of the silo's
own must gain more than half a standard error on patients whom it has not seen, or the shared model stays.

Sources: Liang et al. 2020 (LG-FedAvg, "new devices"); docs/new-silo.md, "A part of its own".
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.documents.recipes import Part
from policies.documents.study import Personal, Study
from policies.plan import shapes
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import features
from silo_agent.learning.errors import AdaptError
from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.choice import ERRORS, FEWEST, CandidateGain
from silo_agent.learning.personal.cross_validation import FOLDS, folds_of, gained, losses_of
from silo_agent.learning.personal.model import PersonalModel

EPOCHS: Final = 64
"""Most epochs, if the caller says nothing else."""
_MOMENTUM: Final = 0.9
_LABEL: Final = b"fedward adapt"


@dataclass(frozen=True, repr=False, eq=False)
class Adapted:
    """A silo's own model after `epochs` epochs of its `part`; with 0 epochs it is the shared model.

    `compared` has the gain of every number of epochs that was tried, by cross-validation over `patients` training
    patients; it is empty if they were too few.
    """

    model: PersonalModel
    part: Part
    epochs: int
    patients: int
    compared: tuple[CandidateGain, ...]

    def __repr__(self) -> str:
        return "Adapted(<private>)"

    @property
    def why(self) -> str:
        """The reason, as a sentence for people inside the hospital."""
        if not self.compared:
            return f"{self.patients} training patients are too few to compare models on ({FEWEST} are needed)"
        best = max(self.compared, key=lambda one: one.gain)
        of = f"in {FOLDS}-fold cross-validation over {self.patients} training patients"
        by = (
            f"{best.candidate} of the {self.part} lowered the loss of a patient by {best.gain:+.4f} +- {best.error:.4f}"
        )
        return f"{of} {by}" if self.epochs else f"{of} nothing gained more than half a standard error; {by}"


def part_of(study: Study, asked: Part | None = None) -> Part:
    """The part that a new silo trains; `asked` chooses where the recipe keeps none. Raises `AdaptError`."""
    recipe = study.composition
    if not recipe.shares:
        msg = (
            f"recipe {recipe.name} shares no part of the model, so there is nothing to train under; take another study"
        )
        raise AdaptError(msg)
    own = next(iter(recipe.kept), None)
    if own is not None and asked not in {None, own}:
        msg = (
            f"recipe {recipe.name} keeps the {own} at each silo and shares the rest; say --part {own}, or leave it out"
        )
        raise AdaptError(msg)
    part = own or asked or "heads"
    if part == "encoder" and not shapes.encoder_values(study):
        msg = f"model.encoder {study.model.encoder} has no weights to train; say --part heads"
        raise AdaptError(msg)
    return part


def adapt(
    shared: SharedModel,
    training: Records,
    *,
    part: Part | None = None,
    most: int = EPOCHS,
    device: torch.device | str = "cpu",
) -> Adapted:
    """Train this silo's `part` (`part_of`) on its training patients, for as many epochs as cross-validation says.

    Tries 1, 2, 4, ... epochs, `most` at most, with learning rate and batch size of the study's `personal`, or their
    defaults. Starts from the part that the shared model holds: of a kept encoder the public start, of kept heads zero.
    If no number of epochs gains, or with fewer than `FEWEST` patients, the result is the shared model. Raises
    `AdaptError`; also where the shared model would stay and the recipe keeps a part, which nobody has trained then.
    """
    study = shared.study
    part, lengths = part_of(study, part), _lengths(most)
    found: tuple[CandidateGain, ...] = ()
    if training.patient_count >= FEWEST:
        found = _compare(shared, training, part, lengths, device)
    best = max(range(len(found)), key=lambda place: found[place].gain, default=None)
    epochs, model = 0, PersonalModel.start(shared)
    if best is not None and found[best].gain > ERRORS * found[best].error:
        epochs = lengths[best]
        *_, model = _trained(shared, training, part, lengths[: best + 1], device)
    adapted = Adapted(model, part, epochs, training.patient_count, found)
    if not epochs and study.composition.keeps:
        msg = (
            f"{adapted.why}; recipe {study.recipe} keeps the {part} at each silo, so without one of your own this model"
            " cannot predict here: give more training patients, or ask for a study whose recipe keeps nothing"
        )
        raise AdaptError(msg)
    return adapted


def _lengths(most: int) -> list[int]:
    """Numbers of epochs to try."""
    if most < 1:
        msg = f"at most {most} epochs train nothing; give 1 or more"
        raise AdaptError(msg)
    return [1 << place for place in range(most.bit_length())]


def _compare(
    shared: SharedModel, records: Records, part: Part, lengths: list[int], device: torch.device | str
) -> tuple[CandidateGain, ...]:
    """The gain of each number of epochs over the shared model, on patients whom neither has seen.

    If the silo took part in the study after all, the shared model has seen them, and the comparison favours it.
    """
    before = losses_of(shared, records, device)
    after = np.zeros((len(lengths), len(records)))
    fold = folds_of(records.identities, shared.study.digest)
    for number in range(FOLDS):
        held = fold == number
        rows, others, left = held[records.patients], records.of_patients(~held), records.of_patients(held)
        for place, model in enumerate(_trained(shared, others, part, lengths, device)):
            after[place, rows] = losses_of(model, left, device)
    names = [f"{epochs} epoch{'s' if epochs > 1 else ''}" for epochs in lengths]
    return tuple(gained(name, before - own, records) for name, own in zip(names, after, strict=True))


def _trained(
    shared: SharedModel, records: Records, part: Part, lengths: list[int], device: torch.device | str
) -> Iterator[PersonalModel]:
    """The model after each number of epochs, in their order. Every patient counts once in the loss."""
    plan = shared.study.personal or Personal()
    training = _Training(shared, records, part, device)
    optimizer = torch.optim.SGD(training.trained, lr=plan.learning_rate, momentum=_MOMENTUM)
    seed = hashlib.sha256(_LABEL + bytes.fromhex(shared.digest)).digest()
    shuffle = np.random.Generator(np.random.PCG64(int.from_bytes(seed)))
    for epoch in range(1, lengths[-1] + 1):
        order = shuffle.permutation(len(records))
        for start in range(0, len(records), plan.batch_size):
            optimizer.zero_grad()
            torch.autograd.backward(training.loss(order[start : start + plan.batch_size]))
            optimizer.step()
        if epoch in lengths:
            yield training.model()


class _Training:
    """One silo's training of a part: what moves, and the loss of a batch."""

    def __init__(self, shared: SharedModel, records: Records, part: Part, device: torch.device | str) -> None:
        self._shared, self._records, self._device = shared, records, device
        self._network = PersonalModel.start(shared).network.to(device).requires_grad_(requires_grad=False)
        self._weights = torch.tensor(records.weights / records.weights.mean(), dtype=torch.float32, device=device)
        heads = self._network.heads
        # All domains' heads move by one common change, and each by one of its own if the study has heads by domain. A
        # domain without records here then moves with the others.
        apart = len(heads) if shared.study.heads.domain_rounds else 1
        self._common, self._own = torch.zeros_like(heads[:1]), torch.zeros_like(heads[:apart])
        self._phi: torch.Tensor | None = None
        if part == "heads":
            self.trained = [self._common.requires_grad_(), self._own.requires_grad_()]
            self._phi = features(self._network.encoder, records.inputs, records.images, device)
        else:
            self.trained = list(self._network.encoder.requires_grad_().parameters())

    def loss(self, chosen: NDArray[np.int64]) -> torch.Tensor:
        """Mean loss of these records."""
        records, family, device = self._records, self._shared.family, self._device
        if self._phi is None:
            images = None if records.images is None else torch.tensor(records.images.take(chosen), device=device)
            phi = self._network.encoder(torch.tensor(records.inputs[chosen], device=device), images)
        else:
            phi = self._phi[chosen]
        domains = torch.tensor(records.domains[chosen], device=device)
        logits = head_logits(phi, self._heads(), domains, family.form.logits)
        lost = family.losses(logits, torch.tensor(records.labels[chosen], device=device))
        return (self._weights[chosen] * lost).mean()

    def _heads(self) -> torch.Tensor:
        return self._network.heads + self._common + self._own

    def model(self) -> PersonalModel:
        """The model as it stands."""
        network = copy.deepcopy(self._network)
        network.heads = nn.Parameter(self._heads().detach().clone())
        return PersonalModel(self._shared.study, self._shared.round, network.to("cpu").requires_grad_())
