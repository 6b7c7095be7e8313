"""All that is measured on one seed's cohorts: the studies, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.accuracy.real import central, fedavg
from bench.accuracy.real.judging import Judged
from bench.accuracy.real.plans import plan_of
from deploy.local.simulate.alone import alone
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.outcome import RunMetrics
from deploy.local.simulate.silos import Cohorts
from deploy.local.simulate.variants import without_noise
from policies.accounting import accountant
from policies.accounting.accountant import with_fields
from policies.documents.study import Study

HIERARCHICAL: Final = "hierarchical"
POOLED: Final = "pooled solver"
BLIND: Final = "outcome-blind clip"
"""The hierarchical solver with records cut by their worst outcome (`heads.clip_by: worst`)."""
FEDAVG, WEIGHTED = "FedAvg with DP-SGD", "FedDAR-WA"
CENTRAL, BOOSTING, ALONE = "central regression", "gradient boosting", "hospitals alone"
PRIVATE: Final = (HIERARCHICAL, POOLED, BLIND, FEDAVG, WEIGHTED)
"""Measured at each epsilon, and without noise."""
OPEN: Final = (CENTRAL, BOOSTING, ALONE)
"""Measured once for each split."""
Key = tuple[str, float | None]
"""Method and epsilon; None: no noise, or no privacy at all."""


@dataclass(frozen=True, repr=False, eq=False)
class MethodResults(RunMetrics):
    """Every method's figures on one seed."""

    by: Mapping[Key, Judged]


@dataclass(frozen=True)
class Everything:
    """A run of the bench's own for `many.each_seed`. Seeds below `splits` also measure what has no noise."""

    name: str
    epsilons: tuple[float, ...]
    splits: int

    def __call__(self, study: Study, cohorts: Cohorts, *, seed: int) -> MethodResults:
        """Measure one seed."""
        by_method: dict[Key, Judged] = {}
        first: RunMetrics | None = None
        for epsilon in self.epsilons if seed >= self.splits else (*self.epsilons, None):
            for method, own in ((HIERARCHICAL, study), (POOLED, pooled_only(study)), (BLIND, outcome_blind(study))):
                noised = without_noise(own) if epsilon is None else accountant.calibrate(own, epsilon)
                outcome = simulate(noised, cohorts, seed=seed)
                risks = [
                    outcome.model.predict(part.inputs, part.domains, part.images)[:, 1] for part in cohorts.measured
                ]
                by_method[method, epsilon] = Judged.of(outcome, cohorts, risks)
                first = first or outcome
            for method, weighted in ((FEDAVG, False), (WEIGHTED, True)):
                plan, several = plan_of(self.name, epsilon, weighted=weighted)
                recipe = fedavg.FedAvgRecipe(plan, epsilon, several, weighted)
                risks = recipe.risks(study, cohorts, seed=seed)
                by_method[method, epsilon] = Judged.of(central.measured(study, cohorts, seed, risks), cohorts, risks)
        if seed < self.splits:
            for method, run in ((CENTRAL, central.regression), (BOOSTING, central.boosting)):
                risks = run(cohorts, seed=seed)
                by_method[method, None] = Judged.of(central.measured(study, cohorts, seed, risks), cohorts, risks)
            by_method[ALONE, None] = Judged.of(alone(study, cohorts, seed=seed))
        if first is None:
            msg = "give at least one epsilon"
            raise ValueError(msg)
        return MethodResults(study, seed, first.exact, first.together, by_method)


def outcome_blind(study: Study) -> Study:
    """The study with the clip that does not depend on outcomes."""
    return with_fields(study, {"heads.clip_by": "worst"})


def pooled_only(study: Study) -> Study:
    """The study with one head for all domains, by four of Newton's steps."""
    return with_fields(study, {"heads.solver": "newton", "heads.pooled_rounds": 4, "heads.domain_rounds": 0})
