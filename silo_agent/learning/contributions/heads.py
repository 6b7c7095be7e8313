"""Heads: second-order sums, from which one silo solves the next heads and the others check them.

docs/design/heads.md, "What is solved and checked".
"""

from __future__ import annotations

from dataclasses import dataclass

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
from silo_agent.learning.heads import hierarchical, newton
from silo_agent.learning.heads.evidence import Evidence, mixed
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
        setting, blocks = self._setting, shapes.head_blocks(self._setting.study, place.round)
        encoder, weights, together = model.build_encoder(), cohort.weights, chunk_rows(setting.study)
        most, clip = setting.study.privacy.max_patients, setting.study.heads.clip
        slack = rounding_slack(most, together + blocks, model.heads.shape[1], clip)
        pooled = shapes.is_pooled(setting.study, place.round)
        evidence = None if pooled or not len(model.evidence) else model.gathered

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            sums = second_order_sums(
                steady_features(encoder, cohort.inputs[rows], images, setting.device),
                cohort.labels[rows],
                cohort.domains[rows],
                weights[rows],
                model.heads,
                family=setting.family,
                pooled=pooled,
                clip=clip,
                slack=slack,
                frame=None if evidence is None else evidence.frame,
                norm_bound=encoder.norm_bound,
            )
            return pack(*(sums if evidence is None else mixed(*sums, evidence.share)), setting.family)

        return sum_records(len(cohort), release.values, term, rows=together, strict=strict)

    def open(self, _release: Release, total: Integers, _place: Place, model: SharedModel, _silos: int) -> Opened:
        """Pass the sum on. The model stays as it is until the sum is solved and the solution is adopted."""
        return Opened(model, unsolved=total)

    def solve(self, release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Integers:
        """Heads from the opened sums, (M W,) on the public grid of `HEAD_STEP`.

        With the hierarchical solver the triangle of the frame and the share of the next round follow on the same grid.
        """
        opened = self._opened(release, total, place, silos)
        if not len(model.evidence):
            return to_grid(self._newton(opened, place, model).ravel(), HEAD_STEP, HEAD_BOUND)
        evidence = self._gathered(opened, place, model)
        heads, frame, share = self._next(evidence, opened, place, model)
        triangle = frame[np.triu_indices(len(frame))]
        return to_grid(np.concatenate([heads.ravel(), triangle, [share]]), HEAD_STEP, HEAD_BOUND)

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
        values = from_grid(solution, HEAD_STEP)
        heads = values[: model.heads.size].reshape(model.heads.shape)
        if not len(model.evidence):
            return model.with_heads(heads, place.round)
        evidence = self._gathered(self._opened(release, total, place, silos), place, model)
        return model.with_heads(heads, place.round, evidence.turned(values[model.heads.size : -1], float(values[-1])))

    # --- opened sums ----------------------------------------------------------------------------------------------
    def _opened(self, release: Release, total: Integers, place: Place, silos: int) -> _Sums:
        """The sums by block, and the noise on each value of their packed form."""
        study, family = self._setting.study, self._setting.family
        statistic, sd = summed(study, total, release, silos)
        blocks = shapes.head_blocks(study, place.round)
        sums = family.centred(*unpack(statistic, blocks, shapes.head_width(study), family))
        return _Sums(*sums, sd or ROUNDING_MARGIN * rounding_sd(silos=silos, step=Grid.of(study).step))

    def _newton(self, opened: _Sums, place: Place, model: SharedModel) -> NDArray[np.float64]:
        plan, pooled = self._setting.study.heads, shapes.is_pooled(self._setting.study, place.round)
        sd = hessian_noise_sd(opened.noise_sd, self._setting.family)
        heads = newton.solve(model.heads, opened.hessian, opened.gradient, sd, plan, pooled=pooled)
        return heads if pooled else self._large_domains(heads, model)

    def _gathered(self, opened: _Sums, place: Place, model: SharedModel) -> Evidence:
        """The evidence with this round's sums, if it is a round of the domains."""
        if shapes.is_pooled(self._setting.study, place.round):
            return model.gathered
        clip = self._setting.study.heads.clip
        return model.gathered.plus(
            clip * opened.hessian, clip * opened.gradient, model.heads, noise_sd=clip * opened.noise_sd
        )

    def _next(
        self, evidence: Evidence, opened: _Sums, place: Place, model: SharedModel
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Heads, frame and share after a round of the hierarchical solver."""
        study, family = self._setting.study, self._setting.family
        if shapes.is_pooled(study, place.round):
            heads, frame = self._newton(opened, place, model), evidence.frame
            if place.round == study.heads.pooled_rounds:
                sd = hessian_noise_sd(opened.noise_sd, family)
                edge = newton.noise_edge(sd, model.heads.shape[1], study.heads.repair)
                frame = hierarchical.frame_of(opened.hessian[0], edge, family.form.logits)
            return heads, frame, evidence.share
        scale = hierarchical.Scale(family.hessian_factor, family.gradient_divisor)
        share, bias = study.heads.pooled_share, study.model.bias
        solved = hierarchical.solve(evidence, scale, family.form.logits, share, bias=bias)
        return self._large_domains(solved.heads, model), evidence.frame, solved.share

    def _large_domains(self, heads: NDArray[np.float64], model: SharedModel) -> NDArray[np.float64]:
        """The heads, and the model's own for domains that have too few patients by the noised counts."""
        study = self._setting.study
        smallest, domains = study.privacy.smallest_domain, len(study.data.domains)
        small = noised_counts(self._setting.folder) < smallest if smallest else np.zeros(domains, np.bool_)
        return np.where(small[:, None], model.heads, heads)


@dataclass(frozen=True, eq=False, repr=False)
class _Sums:
    """Opened curvature (B, W, W) and gradient (B, W) in units of the clip, and the noise on each packed value."""

    hessian: NDArray[np.float64]
    gradient: NDArray[np.float64]
    noise_sd: float
