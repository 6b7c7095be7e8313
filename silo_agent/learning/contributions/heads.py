"""Heads: second-order sums, from which one silo solves the next heads and the others check them.

docs/design/heads.md, "What is solved and checked".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crypto.rings.grid import from_grid, to_grid
from policies.plan import shapes
from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.contributions.contribution import Integers, Opened, Setting
from silo_agent.learning.contributions.counts import noised_counts
from silo_agent.learning.contributions.drawing import Grid, draw, summed
from silo_agent.learning.each_record import Rows, chunk_rows, sum_records
from silo_agent.learning.errors import SolutionError
from silo_agent.learning.heads.newton import solve
from silo_agent.learning.heads.sums import hessian_noise_sd, pack, rounding_slack, second_order_sums, unpack
from silo_agent.learning.model import HEAD_BOUND, SharedModel
from silo_agent.learning.private.release import rounding_sd
from silo_agent.learning.steady_features import steady_features

HEAD_STEP = 2.0**-20
ROUNDING_MARGIN = 128.0
"""Without noise, a direction in which no patient lies holds only the error of rounding to the grid. The repair treats
this error as if it were this many times larger. Then the error moves a head by about 0.006 at most. The curvature that
patients bring is far larger than what is repaired."""
HEAD_TOLERANCE = 2.0**-12
"""How far a solved head may lie from this silo's own solution. Eigensolvers of two machines differ by far less."""


class Heads:
    """Curvature and gradient at the common heads, summed over all silos."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.limit = Grid.of(setting.study).limit

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's packed sums at the model's heads."""
        return draw(self._setting, self._statistic(release, cohort, place, model), release, place, silos=silos)

    def rehearse(self, release: Release, cohort: Records, place: Place, model: SharedModel) -> None:
        """Sum made-up records."""
        self._statistic(release, cohort, place, model, strict=True)

    def _statistic(
        self, release: Release, cohort: Records, place: Place, model: SharedModel, *, strict: bool = False
    ) -> NDArray[np.float64]:
        setting = self._setting
        encoder, weights, together = model.build_encoder(), cohort.weights, chunk_rows(setting.study)
        most, clip = setting.study.privacy.max_patients, setting.study.heads.clip
        slack = rounding_slack(most, together, model.heads.shape[1], clip)

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            hessian, gradient = second_order_sums(
                steady_features(encoder, cohort.inputs[rows], images, setting.device),
                cohort.labels[rows],
                cohort.domains[rows],
                weights[rows],
                model.heads,
                family=setting.family,
                pooled=shapes.is_pooled(setting.study, place.round),
                clip=clip,
                slack=slack,
            )
            return pack(hessian, gradient, setting.family)

        return sum_records(len(cohort), release.values, term, rows=together, strict=strict)

    def open(self, _release: Release, total: Integers, _place: Place, model: SharedModel, _silos: int) -> Opened:
        """Pass the sum on. The model stays as it is until the sum is solved and the solution is adopted."""
        return Opened(model, unsolved=total)

    def solve(self, release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Integers:
        """Heads from the opened sums, (M W,) on the public grid of `HEAD_STEP`."""
        study, family = self._setting.study, self._setting.family
        pooled = shapes.is_pooled(study, place.round)
        blocks = 1 if pooled else len(study.data.domains)
        statistic, sd = summed(study, total, release, silos)
        hessian, gradient = unpack(statistic, blocks, shapes.head_width(study), family)
        if not sd:
            sd = ROUNDING_MARGIN * rounding_sd(silos=silos, step=Grid.of(study).step)
        sums = family.centred(hessian, gradient)
        heads = solve(model.heads, *sums, hessian_noise_sd(sd, family), study.heads, pooled=pooled)
        if not pooled:
            heads = np.where(self._small_domains()[:, None], model.heads, heads)
        return to_grid(heads.ravel(), HEAD_STEP, HEAD_BOUND)

    def adopt(
        self, solution: Integers, release: Release, total: Integers, place: Place, model: SharedModel, *, silos: int
    ) -> SharedModel:
        """Take the solver's heads if this silo's own solution agrees. Raises `SolutionError` if it does not."""
        own = self.solve(release, total, place, model, silos)
        slack, most = int(HEAD_TOLERANCE / HEAD_STEP), int(HEAD_BOUND / HEAD_STEP)
        low, high = np.maximum(own - slack, -most), np.minimum(own + slack, most)
        # The integers are compared, not subtracted: a solver may send -2^63, and a difference would overflow.
        if solution.shape != own.shape or ((solution < low) | (solution > high)).any():
            msg = "the solved heads are not what the opened sums give"
            raise SolutionError(msg)
        return model.with_heads(from_grid(solution, HEAD_STEP).reshape(model.heads.shape), place.round)

    def _small_domains(self) -> NDArray[np.bool_]:
        """Which domains (M,) have too few patients for a head of their own, by the noised counts."""
        study = self._setting.study
        smallest, domains = study.privacy.smallest_domain, len(study.data.domains)
        return noised_counts(self._setting.folder) < smallest if smallest else np.zeros(domains, np.bool_)
