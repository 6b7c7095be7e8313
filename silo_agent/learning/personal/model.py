"""The personal model: trained on the silo's own records, held close to the frozen shared model. It never leaves.

The agent does not train it; a process of its own does (`personal_process`). It reads the shared model as a constant and
feeds nothing that is uploaded, so it costs no privacy budget. For the same reason its gradients need no clipping, and
its terms may depend on more than one record. Its file is as private as the records on which it was trained.

Sources: Li et al. 2021 (Ditto, Algorithm 1); docs/design/terms.md, "Ditto, MK-MMD and cosine".
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crypto.entropy import Entropy
from policies.documents.sections.personal import PERSONAL_MOMENTUM
from policies.documents.study import Personal, Study
from policies.plan import shapes, terms
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records
from silo_agent.learning.encoder.encoder import Encoder, features, flatten, unflatten
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.model import files
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.registry import family_of_study
from silo_agent.learning.personal import mixed_batches
from silo_agent.learning.personal.companions import NAMES, Companions, State, require_fit
from silo_agent.learning.terms.environments import Steps, require_state
from silo_agent.learning.terms.registry import model_loss
from silo_agent.learning.terms.term import Batch, LayerPair, Seen

_KIND = "personal"
_ENVIRONMENTS = "environments"
"""Name of the state of terms that compare environments (`invariance.steps`) among what a model keeps."""
_CHUNK = 1 << 22
"""Most values of one intermediate matrix of a prediction."""


class _Network(nn.Module):
    """An encoder and M linear heads (M, W), all trainable."""

    def __init__(self, encoder: Encoder, heads: NDArray[np.float64]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.Parameter(torch.tensor(heads, dtype=torch.float32))


@dataclass(frozen=True, repr=False, eq=False)
class PersonalModel:
    """One silo's own model. It is immutable: `train` returns the next one.

    `round` is the round of the shared model that it read last. `state`: what was trained or chosen beside it
    (`beside.companions`, `invariance.steps`); empty before the first step.
    """

    study: Study
    round: int
    network: _Network
    state: State = field(default_factory=dict)

    def __repr__(self) -> str:
        return "PersonalModel(<private>)"

    @classmethod
    def start(cls, shared: SharedModel, heads: NDArray[np.float64] | None = None) -> Self:
        """The first personal model: the shared model itself, or its encoder under other `heads` (M, W)."""
        return cls(
            shared.study, shared.round, _Network(shared.build_encoder(), shared.heads if heads is None else heads)
        )

    def train(
        self,
        shared: SharedModel,
        records: Records,
        plan: Personal,
        *,
        entropy: Entropy,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Minimise the terms of `plan` (`terms.of_personal`) for `plan.epochs` epochs. `shared` stays constant.

        Uses SGD with momentum; the momentum starts at zero each time. Where a term compares environments, each has its
        share of every batch. Without records the model stays as it is.
        """
        asked = terms.of_personal(plan)
        anchor = _Network(shared.build_encoder(), shared.heads).to(device).requires_grad_(requires_grad=False)
        network = copy.deepcopy(self.network).to(device)
        optimizer = torch.optim.SGD(network.parameters(), lr=plan.learning_rate, momentum=PERSONAL_MOMENTUM)
        shuffle = np.random.Generator(np.random.PCG64(int.from_bytes(entropy.bytes(32))))
        steps = self._steps(plan) if terms.compares_environments(asked) else None

        def look(chosen: NDArray[np.int64]) -> Seen:
            return _seen(network, anchor, self._batch(network, records, chosen), plan.depth)

        beside = Companions(self.study, plan, self.state, look, count=len(records), shuffle=shuffle, device=device)
        for _ in range(plan.epochs):
            apart = None if steps is None else records.environments
            order = shuffle.permutation(len(records)) if apart is None else mixed_batches.order(apart, shuffle)
            for start in range(0, len(records), plan.batch_size):
                optimizer.zero_grad()
                chosen = order[start : start + plan.batch_size]
                seen = beside.seen(chosen)
                whole = model_loss if steps is None else steps.loss
                torch.autograd.backward(whole(asked, seen, network, anchor))
                optimizer.step()
                beside.taken(chosen)
        state = beside.finish() | ({} if steps is None else {_ENVIRONMENTS: steps.to_array()})
        return type(self)(self.study, shared.round, network.to("cpu"), state)

    def _steps(self, plan: Personal) -> Steps:
        count, known = _environments(self.study), self.state.get(_ENVIRONMENTS)
        return Steps.start(plan, count) if known is None else Steps.from_array(plan, count, known.astype(np.float64))

    def _batch(self, network: _Network, records: Records, chosen: NDArray[np.int64]) -> Batch:
        device, where = network.heads.device, records.environments
        return Batch(
            x=torch.tensor(records.inputs[chosen], device=device),
            images=None if records.images is None else torch.tensor(records.images.take(chosen), device=device),
            y=torch.tensor(records.labels[chosen], device=device),
            domains=torch.tensor(records.domains[chosen], device=device),
            weights=None,
            heads=network.heads,
            family=self.family,
            environments=None if where is None else torch.tensor(where[chosen], device=device),
            protected=None if records.protected is None else torch.tensor(records.protected[chosen], device=device),
        )

    def predict(
        self,
        inputs: NDArray[np.float32] | Inputs,
        domains: NDArray[np.int64],
        images: Images | None = None,
        device: torch.device | str = "cpu",
    ) -> NDArray[np.float64]:
        """Probability of every class, float64 (n, C); inputs and images as for `SharedModel.predict`."""
        network = copy.deepcopy(self.network).to(device)
        phi = features(network.encoder, inputs, images, device)
        chunk, rows = max(_CHUNK // network.heads.shape[1], 1), self.family.form.logits
        with torch.no_grad():
            pairs = zip(torch.split(phi, chunk), torch.split(torch.tensor(domains, device=device), chunk), strict=True)
            logits = [head_logits(part, network.heads, own, rows).double().cpu().numpy() for part, own in pairs]
        return self.family.probabilities(np.concatenate(logits))

    @property
    def family(self) -> Family:
        """The family of the study's outcomes."""
        return family_of_study(self.study)

    def to_bytes(self) -> bytes:
        """The model as safetensors, with its study. The bytes are private."""
        heads = self.network.heads.detach().numpy()
        tensors = {"encoder": flatten(self.network.encoder), "heads": heads, **self.state}
        return files.encode(_KIND, self.study, self.round, tensors)

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Inverse of `to_bytes`. Raises `ModelFileError`."""
        study, round_number, tensors = files.decode(_KIND, blob)
        shape = (len(study.data.domains), shapes.head_width(study))
        state: dict[str, NDArray[np.floating[Any]]] = {
            name: tensors.pop(name).astype(np.float32) for name in sorted(NAMES & set(tensors))
        }
        environments = tensors.pop(_ENVIRONMENTS, None)
        if set(tensors) != {"encoder", "heads"} or tensors["heads"].shape != shape:
            msg = "the model file lacks a tensor of its study; train the personal model again"
            raise ModelFileError(msg)
        encoder = Encoder(study.model, study.data, stochastic=terms.is_stochastic(study.encoder))
        try:
            unflatten(encoder, tensors["encoder"].astype(np.float32))
            require_fit(study, state)
            if environments is not None:
                require_state(environments.astype(np.float64), _environments(study))
                state[_ENVIRONMENTS] = environments.astype(np.float64)
        except ValueError:
            msg = (
                "the model file's encoder, or what was trained beside it (deep kernel, kernels' weights, adversary,"
                " environments), is not its study's; train the personal model again"
            )
            raise ModelFileError(msg) from None
        return cls(study, round_number, _Network(encoder, tensors["heads"].astype(np.float64)), state)

    def save(self, path: Path) -> None:
        """Write the model durably, readable by its owner alone."""
        files.write(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a model. Raises `ModelFileError`, also if there is no file."""
        with files.naming(path):
            return cls.from_bytes(files.read(path))


def train_round(
    path: Path,
    shared: SharedModel,
    training: Callable[[], Records],
    *,
    entropy: Entropy,
    device: torch.device | str = "cpu",
) -> None:
    """Train the personal model at `path` once on the shared model of a round; a round that it has read is not repeated.

    Does nothing if the study wants no personal model. Raises `ModelFileError` and whatever the training raises.
    """
    wanted = shared.study.personal
    if wanted is None:
        return
    known = PersonalModel.load(path) if path.exists() else None
    if known is not None and known.round >= shared.round:
        return
    personal = known or PersonalModel.start(shared)
    personal.train(shared, training(), wanted, entropy=entropy, device=device).save(path)


def _environments(study: Study) -> int:
    """E, the number of the study's environments; 0 if it names none."""
    return 0 if study.data.environment is None else study.data.environment.count


def _seen(network: _Network, anchor: _Network, batch: Batch, depth: int) -> Seen:
    phi, own = network.encoder.layered(batch.x, batch.images)
    with torch.no_grad():
        shared, constant = anchor.encoder.layered(batch.x, batch.images)
    deeper = tuple(LayerPair(*pair) for pair in zip(own[: depth - 1], constant[: depth - 1], strict=True))
    return Seen(batch, phi, reference=shared[:, : anchor.encoder.representation], deeper=deeper)
