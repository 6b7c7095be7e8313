"""What is trained or chosen beside a personal model and goes on from round to round.

MMD-D's deep kernels, the weights of MK-MMD's kernels, and the adversary. All of it reads the silo's records without
noise, so it is as private as they are. It stays in the personal model's file, where `State` has its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from policies.documents.study import Personal, Study
from policies.plan import shapes
from silo_agent.learning.personal.kernel_weights import Mixtures
from silo_agent.learning.terms.guesser import TrainedGuesser
from silo_agent.learning.terms.losses.deep_kernel import Trained
from silo_agent.learning.terms.losses.mk_mmd import GAMMAS
from silo_agent.learning.terms.losses.mmd_d import FEWEST
from silo_agent.learning.terms.term import Seen

State = Mapping[str, NDArray[np.floating[Any]]]
"""`kernel` (flat, one deep kernel after the other), `mixtures` (layers, 19), `adversary` (flat); each only if it was
trained."""
NAMES: Final = frozenset({"kernel", "mixtures", "adversary"})


class Companions:
    """The companions of one training. `state` is what an earlier round left. Raises ValueError if it does not fit.

    `look` gives what both models see of the records with the given numbers, which are below `count`.
    """

    def __init__(
        self,
        study: Study,
        plan: Personal,
        state: State,
        look: Callable[[NDArray[np.int64]], Seen],
        *,
        count: int,
        shuffle: np.random.Generator,
        device: torch.device | str = "cpu",
    ) -> None:
        self._count = count
        self._plan, self._left, self._look, self._shuffle = plan, state, look, shuffle
        widths = shapes.compared_widths(study)[: plan.depth]
        self._kernels = [Trained(width, device) for width in widths] if plan.mmd_d > 0.0 else []
        if "kernel" in state:
            _load_kernels(self._kernels or [Trained(width, device) for width in widths], state["kernel"])
        known = _mixtures(state, len(widths))
        self._mixtures = Mixtures(plan.mmd_every, look, known) if plan.mmd > 0.0 else None
        self._adversary: TrainedGuesser | None = None
        if plan.adversary > 0.0:
            counts = [len(factor.names) for factor in study.data.protected]
            self._adversary = TrainedGuesser(study.model.representation, counts, device)
            if "adversary" in state:
                self._adversary.load(state["adversary"])

    def seen(self, numbers: NDArray[np.int64]) -> Seen:
        """What a step sees of these records, after the companions have taken their steps on them."""
        seen, plan = self._look(numbers), self._plan
        if self._kernels and len(numbers) >= FEWEST:
            layers = seen.compared()
            for kernel, layer in zip(self._kernels, layers, strict=True):
                kernel.improve(layer.own, layer.constant, plan.kernel_steps, self._shuffle)
            deeper = zip(self._kernels[1:], seen.deeper, strict=True)
            seen = replace(
                seen,
                kernel=self._kernels[0].kernel,
                deeper=tuple(replace(layer, kernel=kernel.kernel) for kernel, layer in deeper),
            )
        if self._mixtures is not None:
            seen = replace(seen, mixtures=self._mixtures.at(seen))
        if self._adversary is not None and seen.batch.protected is not None:
            self._improve_adversary(self._adversary, len(numbers))
            seen = replace(seen, adversary=self._adversary.network)
        return seen

    def _improve_adversary(self, adversary: TrainedGuesser, batch: int) -> None:
        """Take its steps, each on so many records drawn anew: those of the model's step it would know by heart."""
        for _ in range(self._plan.adversary_steps):
            with torch.no_grad():
                drawn = self._look(self._shuffle.permutation(self._count)[:batch])
            if drawn.batch.protected is not None:
                adversary.improve(drawn.phi[:, : drawn.constant().shape[1]], drawn.batch.protected, 1)

    def taken(self, numbers: NDArray[np.int64]) -> None:
        """The model took a step on these records."""
        if self._mixtures is not None:
            self._mixtures.taken(numbers)

    def finish(self) -> dict[str, NDArray[np.floating[Any]]]:
        """End the training, and return the state for the next one. What this plan does not train is kept as it was."""
        state = dict(self._left)
        if self._kernels:
            state["kernel"] = np.concatenate([kernel.to_array() for kernel in self._kernels])
        if self._mixtures is not None:
            self._mixtures.finish()
            if self._mixtures.weights is not None:
                state["mixtures"] = self._mixtures.weights.astype(np.float32)
        if self._adversary is not None:
            state["adversary"] = self._adversary.to_array()
        return state


def require_fit(study: Study, state: State) -> None:
    """Raise ValueError if a study's personal model cannot have left this state."""
    plan = study.personal or Personal()
    widths = shapes.compared_widths(study)[: plan.depth]
    if "kernel" in state:
        _load_kernels([Trained(width) for width in widths], state["kernel"])
    _mixtures(state, len(widths))
    if "adversary" in state:
        counts = [len(factor.names) for factor in study.data.protected]
        TrainedGuesser(study.model.representation, counts or [1]).load(state["adversary"])


def _load_kernels(kernels: list[Trained], flat: NDArray[np.float32]) -> None:
    ends = np.cumsum([kernel.size for kernel in kernels])
    for kernel, part in zip(kernels, np.split(flat, ends[:-1]), strict=True):
        kernel.load(part)


def _mixtures(state: State, layers: int) -> NDArray[np.float64] | None:
    if "mixtures" not in state:
        return None
    known = state["mixtures"].astype(np.float64)
    if known.shape != (layers, len(GAMMAS)) or not np.isfinite(known).all() or known.min() < 0:
        msg = "the kernels' weights have another shape than their study says, or a value that they cannot have"
        raise ValueError(msg)
    return known
