"""Counts: patients by domain, the first sum of a study. It gives the domain weights and shows the small domains."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.plan.release import Release
from protos.messages import Place
from silo_agent.data.records import Records
from silo_agent.learning.each_record import Rows, exact_weights, sum_records
from silo_agent.learning.heads.domain_weights import domain_counts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases import noising
from silo_agent.learning.releases.contribution import Integers, Opened, Setting
from silo_agent.learning.releases.noising import SumGrid, draw, summed
from silo_agent.learning.releases.possible_sums import MostPatients
from silo_agent.storage.checked import read_checked, write_checked
from silo_agent.storage.folders import StudyFolder


def noised_counts(folder: Path) -> NDArray[np.float64]:
    """The opened, noised sizes (M,) of the domains. Raises `LocalFileError` if they are damaged or not there."""
    return np.array(json.loads(read_checked(StudyFolder(folder).counts)), np.float64)


def of_large_domains(setting: Setting, heads: NDArray[np.float64], model: SharedModel) -> NDArray[np.float64]:
    """The heads (M, W), and the model's own for domains that have too few patients by the noised counts."""
    return np.where(small_domains(setting)[:, None], model.heads, heads)


def small_domains(setting: Setting) -> NDArray[np.bool_]:
    """Which domains (M,) have too few patients by the noised counts (`privacy.smallest_domain`)."""
    smallest, domains = setting.study.privacy.smallest_domain, len(setting.study.data.domains)
    return noised_counts(setting.folder) < smallest if smallest else np.zeros(domains, np.bool_)


class Counts:
    """Patients by domain, over all silos."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self.limit = SumGrid.of(setting.study).limit

    def contribute(self, release: Release, cohort: Records, place: Place, _model: SharedModel, silos: int) -> Integers:
        """This silo's patients by domain."""
        return draw(self._setting, self.statistic(release, cohort), release, place, silos=silos)

    def rehearse(self, release: Release, cohort: Records, _place: Place, _model: SharedModel) -> None:
        """Count made-up patients."""
        self.statistic(release, cohort, strict=True)

    def statistic(self, release: Release, cohort: Records, *, strict: bool = False) -> NDArray[np.float64]:
        """The counts without noise, (release.values,). Private: only `contribute` and made-up records use it."""
        domains, weights = cohort.domains, exact_weights(cohort.weights)

        def term(rows: Rows) -> NDArray[np.float64]:
            return domain_counts(domains[rows], weights[rows], release.values)

        return sum_records(len(cohort), release.values, term, strict=strict)

    def require_possible(
        self, release: Release, total: Integers, _place: Place, silos: int, patients: MostPatients
    ) -> None:
        """Numbers of patients, each silo's clamped."""
        values, judge = noising.judge(self._setting.study, total, release, silos)
        judge.not_negative(values)
        judge.inside(values, silos * patients.clamp)

    def open(self, release: Release, total: Integers, _place: Place, model: SharedModel, silos: int) -> Opened:
        """Store the domains' noised sizes. The model stays as it is."""
        counts, _ = summed(self._setting.study, total, release, silos)
        write_checked(StudyFolder(self._setting.folder).counts, json.dumps(counts.tolist()).encode())
        return Opened(model)
