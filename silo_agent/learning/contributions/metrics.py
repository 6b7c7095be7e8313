"""Metrics: held-out patients by domain, class and score, the last sum of a study. The results follow from it."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.contributions.contribution import Integers, Opened, Setting
from silo_agent.learning.contributions.drawing import Grid, draw, summed
from silo_agent.learning.each_record import Rows, chunk_rows, exact_weights, sum_records
from silo_agent.learning.evaluation.evaluation import Results, results_from_histograms, score_histograms
from silo_agent.learning.model import SharedModel
from silo_agent.learning.steady_features import steady_features
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StudyFolder


class Metrics:
    """Histograms of the shared model's scores, over all silos."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.limit = Grid.of(setting.study).limit

    def contribute(self, release: Release, cohort: Records, place: Place, model: SharedModel, silos: int) -> Integers:
        """This silo's histograms of its held-out patients."""
        return draw(self._setting, self._statistic(release, cohort, model), release, place, silos=silos)

    def rehearse(self, release: Release, cohort: Records, _place: Place, model: SharedModel) -> None:
        """Count made-up records by score."""
        self._statistic(release, cohort, model, strict=True)

    def _statistic(
        self, release: Release, cohort: Records, model: SharedModel, *, strict: bool = False
    ) -> NDArray[np.float64]:
        setting = self._setting
        encoder, weights = model.build_encoder(), exact_weights(cohort.weights)

        def term(rows: Rows) -> NDArray[np.float64]:
            images = None if cohort.images is None else cohort.images.subset(rows)
            return score_histograms(
                model.probabilities(
                    steady_features(encoder, cohort.inputs[rows], images, setting.device), cohort.domains[rows]
                ),
                cohort.labels[rows],
                cohort.domains[rows],
                weights[rows],
                setting.family,
                count=len(setting.study.data.domains),
                bins=setting.study.evaluation.bins,
            )

        return sum_records(len(cohort), release.values, term, rows=chunk_rows(setting.study), strict=strict)

    def open(self, release: Release, total: Integers, _place: Place, model: SharedModel, silos: int) -> Opened:
        """Compute the metrics by domain from the noised histograms, and store them. The model stays as it is."""
        study = self._setting.study
        sums, noise_sd = summed(study, total, release, silos)
        by_domain = results_from_histograms(
            sums,
            noise_sd,
            self._setting.family,
            count=len(study.data.domains),
            bins=study.evaluation.bins,
            rng=np.random.default_rng(0),
            smallest=study.privacy.smallest_domain,
        )
        results = Results(study.digest, study.data.domains, by_domain, noise_sd)
        write_whole(StudyFolder(self._setting.folder).results, json.dumps(asdict(results), indent=1).encode())
        return Opened(model, results=results)
