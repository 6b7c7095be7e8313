"""Metrics: held-out patients by domain, the last sum of a study. The results follow from it.

Patients count by class and score, or by error and outcome if the label is a number.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.outcome import half_range
from silo_agent.data.records import Records
from silo_agent.learning.each_record import Rows, chunk_rows, exact_weights, sum_records
from silo_agent.learning.figures.blocks import MetricBlocks
from silo_agent.learning.figures.evaluation import (
    DomainResult,
    NumberResult,
    Results,
    results_from_histograms,
    score_histograms,
)
from silo_agent.learning.figures.moments import moment_cells, results_from_moments
from silo_agent.learning.model.kept_parts import completed
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import is_of_classes
from silo_agent.learning.releases import noising
from silo_agent.learning.releases.contribution import Integers, Opened, Setting
from silo_agent.learning.releases.noising import SumGrid, draw, summed
from silo_agent.learning.releases.possible_sums import MostPatients
from silo_agent.learning.releases.steady_features import steady_features
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StudyFolder


class MetricSums:
    """Histograms of the shared model's scores, or moments of its errors, over all silos."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._blocks = MetricBlocks.of(setting.study)
        self.limit = SumGrid.of(setting.study).limit

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's counts of its held-out patients."""
        return draw(self._setting, self.statistic(release, cohort, model), release, place, silos=silos)

    def rehearse(self, release: Release, cohort: Records, _place: Place, model: SharedModel) -> None:
        """Count made-up records."""
        self.statistic(release, cohort, model, strict=True)

    def statistic(
        self, release: Release, cohort: Records, model: SharedModel, *, strict: bool = False
    ) -> NDArray[np.float64]:
        """The cells without noise, (release.values,). Private: only `contribute` and made-up records use it."""
        setting, family, count = self._setting, self._setting.family, self._blocks.domains
        model = completed(model, StudyFolder(setting.folder), setting.study.rounds + 1)
        encoder, weights, plan = model.build_encoder(), exact_weights(cohort.weights), setting.study.evaluation

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            features = steady_features(encoder, cohort.inputs[rows], images, setting.device, to_predict=True)
            labels, domains = cohort.labels[rows], cohort.domains[rows]
            predictions = model.probabilities(features, domains)
            if not is_of_classes(family):
                largest = plan.largest_error
                return moment_cells(predictions, labels, domains, weights[rows], count=count, largest_error=largest)
            return score_histograms(predictions, labels, domains, weights[rows], family, count=count, bins=plan.bins)

        values = count * (release.values // len(self._blocks.scales))
        cells = sum_records(len(cohort), values, term, rows=chunk_rows(setting.study), strict=strict)
        return self._blocks.laid_out(cells)

    def require_possible(
        self, release: Release, total: Integers, _place: Place, silos: int, patients: MostPatients
    ) -> None:
        """No cell is negative, and no domain has more held-out patients than its training patients allow.

        The moments of a number's errors may be negative; they are bounded alone.
        """
        values, judge = noising.judge(self._setting.study, total, release, silos)
        of_classes, scales, by_domain = is_of_classes(self._setting.family), self._blocks.scales, patients.held_out()
        most_of = [*by_domain, sum(by_domain)][: len(scales)]
        for block, scale, most in zip(values.reshape(len(scales), -1), scales, most_of, strict=True):
            own, cells = replace(judge, sd=judge.sd / scale, rounding=judge.rounding / scale), block / scale
            own.within(cells, most)
            if of_classes:
                own.not_negative(cells)
                own.at_most(cells, most)

    def open(self, release: Release, total: Integers, _place: Place, model: SharedModel, silos: int) -> Opened:
        """Compute the metrics by domain from the noised sums, and store them. The model stays as it is.

        The patients of each class over all domains are stored, too: forecasts of later studies start from them.
        """
        study, folder = self._setting.study, StudyFolder(self._setting.folder)
        opened = self._blocks.combined(*summed(study, total, release, silos))
        by_domain = self._results(opened.domains, opened.domain_sd, self._blocks.domains)
        together = None
        if study.evaluation.together:
            (together,) = self._results(opened.whole, opened.whole_sd, 1)
        results = Results(study.digest, study.data.domains, by_domain, opened.domain_sd, together)
        write_whole(folder.results, json.dumps(_stored(results), indent=1).encode())
        if is_of_classes(self._setting.family):
            classes = opened.whole.reshape(self._setting.family.form.classes, -1).sum(axis=1)
            write_whole(folder.classes, json.dumps(classes.tolist()).encode())
        return Opened(model, results=results)

    def _results(
        self, sums: NDArray[np.float64], noise_sd: float, count: int
    ) -> tuple[DomainResult | NumberResult, ...]:
        """What sums of `count` domains say of each."""
        study, family = self._setting.study, self._setting.family
        smallest = study.privacy.smallest_domain
        if not is_of_classes(family):
            return results_from_moments(
                sums,
                noise_sd,
                half_range(study.data.label),
                count=count,
                largest_error=study.evaluation.largest_error,
                smallest=smallest,
            )
        return results_from_histograms(
            sums,
            noise_sd,
            family,
            count=count,
            bins=study.evaluation.bins,
            rng=np.random.default_rng(0),
            smallest=smallest,
            fitted=study.evaluation.auc == "fitted",
        )


def _stored(results: Results) -> dict[str, Any]:
    """The figures alone, in the form that files of results have had from the start."""
    content = asdict(results)
    for one in (*content["by_domain"], content["together"] or {}):
        one.pop("sizes", None)
    return content
