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
from silo_agent.learning.each_record import Rows, chunk_rows, sum_records
from silo_agent.learning.errors import SolutionError
from silo_agent.learning.heads import calibration, hierarchical, newton
from silo_agent.learning.heads.evidence import Evidence, mixed
from silo_agent.learning.heads.sums import hessian_noise_sd, pack, rounding_slack, second_order_sums, unpack
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.learning.noise.noised_sum import rounding_sd
from silo_agent.learning.outcomes.family import Family, is_of_classes
from silo_agent.learning.releases import local_heads, noising
from silo_agent.learning.releases.contribution import Integers, Opened, Setting
from silo_agent.learning.releases.counts import of_large_domains, small_domains
from silo_agent.learning.releases.noising import SumGrid, draw, summed
from silo_agent.learning.releases.possible_sums import MostPatients
from silo_agent.learning.releases.steady_features import steady_features

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
        self.limit = SumGrid.of(setting.study).limit

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's packed sums at the model's heads."""
        return draw(self._setting, self.statistic(release, cohort, place, model), release, place, silos=silos)

    def rehearse(self, release: Release, cohort: Records, place: Place, model: SharedModel) -> None:
        """Sum made-up records."""
        self.statistic(release, cohort, place, model, strict=True)

    def statistic(
        self, release: Release, cohort: Records, place: Place, model: SharedModel, *, strict: bool = False
    ) -> NDArray[np.float64]:
        """The packed sums without noise, (release.values,). Private: only `contribute` and made-up records use it."""
        if shapes.is_calibration(self._setting.study, place.round):
            return self._intercepts(release, cohort, model, strict=strict)
        setting, blocks = self._setting, shapes.head_blocks(self._setting.study, place.round)
        if setting.study.composition.local_heads:
            return local_heads.statistic(setting, cohort, place, model, rehearsed=strict)
        encoder, weights, together = model.build_encoder(), cohort.weights, chunk_rows(setting.study)
        most, plan = setting.study.privacy.max_patients, setting.study.heads
        slack = rounding_slack(most, together + blocks, model.heads.shape[1])
        pooled = shapes.is_pooled(setting.study, place.round)
        evidence = None if pooled or not len(model.evidence) else model.gathered
        family = self._family(place)

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            sums = second_order_sums(
                steady_features(encoder, cohort.inputs[rows], images, setting.device),
                cohort.labels[rows],
                cohort.domains[rows],
                weights[rows],
                model.heads,
                family=family,
                pooled=pooled,
                clip=plan.clip,
                blind=plan.clip_by == "worst",
                slack=slack,
                frame=None if evidence is None else evidence.frame,
                norm_bound=encoder.norm_bound,
            )
            return pack(*(sums if evidence is None else mixed(*sums, evidence.share)), family)

        return sum_records(len(cohort), release.values, term, rows=together, strict=strict)

    def _intercepts(
        self, release: Release, cohort: Records, model: SharedModel, *, strict: bool
    ) -> NDArray[np.float64]:
        """The calibration's blocks."""
        setting, study = self._setting, self._setting.study
        encoder, together = model.build_encoder(), chunk_rows(study)
        slack = rounding_slack(study.privacy.max_patients, together, model.heads.shape[1])

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            sums = calibration.intercept_sums(
                steady_features(encoder, cohort.inputs[rows], images, setting.device),
                cohort.labels[rows],
                cohort.domains[rows],
                cohort.weights[rows],
                model.heads,
                family=setting.family,
                slack=slack,
                norm_bound=encoder.norm_bound,
            )
            return calibration.blocks(sums, pooled=study.heads.calibration == "pooled")

        return sum_records(len(cohort), release.values, term, rows=together, strict=strict)

    def require_possible(
        self, release: Release, total: Integers, place: Place, silos: int, patients: MostPatients
    ) -> None:
        """Each block is at most as long as its patients are many, and its curvature is not negative.

        Local heads (FedDAR's own recipes) have no bound, and are for public data alone.
        """
        study = self._setting.study
        if study.composition.local_heads:
            return
        values, judge = noising.judge(study, total, release, silos)
        blocks = shapes.head_blocks(study, place.round)
        most = patients.of_blocks(blocks)
        if shapes.is_calibration(study, place.round):
            for block, of_block in zip(values.reshape(blocks, -1), most, strict=True):
                judge.within(block, of_block)
            return
        family = self._family(place)
        width = shapes.head_width(study)
        triangles = values[: blocks * (width * (width + 1) // 2)].reshape(blocks, -1)
        gradients = values[triangles.size :].reshape(blocks, -1)
        hessians, _ = unpack(values, blocks, width, family)
        for triangle, gradient, hessian, of_block in zip(triangles, gradients, hessians, most, strict=True):
            judge.within(np.concatenate([triangle, gradient]), of_block)
            judge.curved(hessian * family.hessian_factor, of_block)

    def open(self, _release: Release, total: Integers, _place: Place, model: SharedModel, _silos: int) -> Opened:
        """Pass the sum on. The model stays as it is until the sum is solved and the solution is adopted."""
        return Opened(model, unsolved=total)

    def solve(self, release: Release, total: Integers, place: Place, model: SharedModel, silos: int) -> Integers:
        """Heads from the opened sums, (M W,) on the public grid of `HEAD_STEP`.

        With the hierarchical solver the triangle of the frame and the share of the next round follow on the same grid,
        except in the calibration, which moves the intercepts alone.
        """
        if shapes.is_calibration(self._setting.study, place.round):
            return to_grid(self._calibrated(release, total, silos, model).ravel(), HEAD_STEP, HEAD_BOUND)
        if self._setting.study.composition.local_heads:
            sd = ROUNDING_MARGIN * rounding_sd(silos=silos, step=SumGrid.of(self._setting.study).step)
            averaged = local_heads.solve(self._setting, total, place, model, noise_sd=sd)
            return to_grid(averaged.ravel(), HEAD_STEP, HEAD_BOUND)
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
        return self.taken(solution, release, total, place, model, silos=silos)

    def taken(
        self, solution: Integers, release: Release, total: Integers, place: Place, model: SharedModel, *, silos: int
    ) -> SharedModel:
        """The model with a solution of `solve`, which is not checked here."""
        values = from_grid(solution, HEAD_STEP)
        heads = values[: model.heads.size].reshape(model.heads.shape)
        if not len(model.evidence) or shapes.is_calibration(self._setting.study, place.round):
            return model.with_heads(heads, place.round)
        evidence = self._gathered(self._opened(release, total, place, silos), place, model)
        if place.round == shapes.last_pooled(self._setting.study):
            evidence = evidence.emptied()
        return model.with_heads(heads, place.round, evidence.turned(values[model.heads.size : -1], float(values[-1])))

    def _family(self, place: Place) -> Family:
        """The family as this round's release weighs curvature and gradient."""
        study, family = self._setting.study, self._setting.family
        by_domain = study.heads.solver == "hierarchical" and not shapes.is_pooled(study, place.round)
        return family.with_curvature(hierarchical.CURVATURE) if by_domain else family

    # --- opened sums ----------------------------------------------------------------------------------------------
    def _opened(self, release: Release, total: Integers, place: Place, silos: int) -> _Sums:
        """The sums by block, and the noise on each value of their packed form."""
        study, family = self._setting.study, self._family(place)
        statistic, sd = summed(study, total, release, silos)
        blocks = shapes.head_blocks(study, place.round)
        sums = family.centred(*unpack(statistic, blocks, shapes.head_width(study), family))
        rounding = ROUNDING_MARGIN * rounding_sd(silos=silos, step=SumGrid.of(study).step)
        return _Sums(*sums, sd or rounding, is_noised=sd > 0.0)

    def _calibrated(self, release: Release, total: Integers, silos: int, model: SharedModel) -> NDArray[np.float64]:
        """The heads (M, W) with the intercepts that the calibration gives them."""
        study = self._setting.study
        statistic, sd = summed(study, total, release, silos)
        shifts = calibration.shifts(
            statistic,
            sd or ROUNDING_MARGIN * rounding_sd(silos=silos, step=SumGrid.of(study).step),
            self._setting.family,
            small_domains(self._setting),
            pooled=study.heads.calibration == "pooled",
        )
        rows = model.heads.reshape(*shifts.shape, -1).copy()
        rows[..., -1] += shifts
        return rows.reshape(model.heads.shape)

    def _newton(self, opened: _Sums, place: Place, model: SharedModel) -> NDArray[np.float64]:
        plan, pooled = self._setting.study.heads, shapes.is_pooled(self._setting.study, place.round)
        sd = hessian_noise_sd(opened.noise_sd, self._setting.family)
        heads = newton.solve(model.heads, opened.hessian, opened.gradient, sd, plan, pooled=pooled)
        heads = self._shortened(heads, opened, model, np.eye(model.heads.shape[1]))
        return heads if pooled else of_large_domains(self._setting, heads, model)

    def _gathered(self, opened: _Sums, place: Place, model: SharedModel) -> Evidence:
        """The evidence with this round's sums. Those that an unfinished encoder gave are left out."""
        study = self._setting.study
        if (shapes.head_round(study, place.round) or 0) <= study.encoder_rounds:
            return model.gathered
        clip, pooled = study.heads.clip, shapes.is_pooled(study, place.round)
        add = model.gathered.before if pooled else model.gathered.plus
        return add(clip * opened.hessian, clip * opened.gradient, model.heads, noise_sd=clip * opened.noise_sd)

    def _next(
        self, evidence: Evidence, opened: _Sums, place: Place, model: SharedModel
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Heads, frame and share after a round of the hierarchical solver."""
        study, family = self._setting.study, self._family(place)
        if shapes.is_pooled(study, place.round):
            heads, frame = self._newton(opened, place, model), evidence.frame
            if place.round == shapes.last_pooled(study):
                pooled = evidence.pooled
                sd = hessian_noise_sd(pooled.weight**-0.5, family)
                edge = newton.noise_edge(sd, model.heads.shape[1], study.heads.repair)
                frame = hierarchical.frame_of(pooled.hessian[0] / pooled.weight, edge, family.form.logits)
            return heads, frame, evidence.share
        scale = hierarchical.Scale(family.hessian_factor, family.gradient_divisor)
        share, bias = study.heads.pooled_share, study.model.bias
        solved = hierarchical.solve(evidence, scale, family.form.logits, share, bias=bias)
        heads = self._shortened(
            solved.heads, opened, model, np.linalg.inv(np.kron(np.eye(family.form.logits), evidence.frame))
        )
        return of_large_domains(self._setting, heads, model), evidence.frame, solved.share

    def _shortened(
        self, heads: NDArray[np.float64], opened: _Sums, model: SharedModel, back: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The heads, no further from the model's than sums without noise tell. `back` (W, W) leads to their frame.

        Noise makes the curvature itself uncertain: steps are then bounded by the repair and the posterior. A number's
        curvature is the same everywhere.
        """
        if opened.is_noised or not is_of_classes(self._setting.family):
            return heads
        moves, blocks = heads - model.heads, opened.hessian[: len(heads)]
        return model.heads + newton.shortening(moves @ back.T, blocks, model.heads)[:, None] * moves


@dataclass(frozen=True, eq=False, repr=False)
class _Sums:
    """Opened curvature (B, W, W) and gradient (B, W) in units of the clip, and the noise on each packed value.

    If nothing was noised, `noise_sd` is that of rounding, with a margin.
    """

    hessian: NDArray[np.float64]
    gradient: NDArray[np.float64]
    noise_sd: float
    is_noised: bool
