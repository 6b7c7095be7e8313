"""What the opened sums of an earlier study say of the data: patients, shares, prevalence, effect.

Guarantees that nothing is read but noised sums that all silos of the earlier study have opened, and what follows from
them: the domains' sizes, the held-out patients by class, the results. Their release was charged, so looking at them
costs nothing, and a study may be accepted or changed for what they say. No record and no private file is read.

A published AUC is that of a model that learned under noise. The effect is what the features must tell for a forecast
of the earlier study to come to that AUC: the inverse of a forecast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from policies.documents.study import BINARY, Study
from policies.plan.derive import HELD_OUT
from silo_agent.forecast.assumptions import UNSURE, Asked, KnownData
from silo_agent.forecast.forecast import figure_of, outcomes, reached_without_noise
from silo_agent.learning.errors import LearningError
from silo_agent.learning.releases.counts import noised_counts
from silo_agent.storage.folders import StudyFolder

WIDEST: Final = 0.2
"""A domain whose published interval is wider says too little of the effect."""
_TRIED: Final = {"auc": (0.55, 0.65, 0.75, 0.85, 0.95), "r2": (0.05, 0.2, 0.4, 0.6, 0.8)}
"""Effects that are gone through; between them the forecast is taken as a straight line."""
_DRAWS, _SEED = 4, 2
_PUBLISHED: Final = 2.0 * NormalDist().inv_cdf(0.975)
"""Deviations between the ends of a published interval."""
_FLAT: Final = 0.2
"""If the forecast rises by less than this for each unit of the effect, the noise hides the effect."""


def known_after(study: Study, earlier: Study, folder: StudyFolder, held_out: float = HELD_OUT) -> KnownData:
    """What `folder`, a silo's folder of the study `earlier`, says for `study`.

    `held_out`: share of a hospital's patients who do not train. Raises `LearningError` with the fix if the earlier
    study has another outcome or other domains, has opened no counts yet, or if its results are another study's.
    """
    for field in ("label", "domain"):
        if getattr(study.data, field) != getattr(earlier.data, field):
            msg = (
                f"--after: data.{field} of study {earlier.digest[:12]} is another than this study's, so its sums say"
                " nothing of it; name a study that has the same, or give --patients, --prevalence and --effect"
            )
            raise LearningError(msg)
    if not folder.counts.is_file():
        msg = (
            f"--after: study {earlier.digest[:12]} has opened no counts here; name one that has come past its first"
            " round"
        )
        raise LearningError(msg)
    counts = np.maximum(noised_counts(folder.path), 0.0)
    total = max(float(counts.sum()), 1.0)
    patients, shares = (max(round(total / len(earlier.silos)), 1),), tuple(map(float, counts / total))
    if not counts.any():
        shares = (1.0 / len(counts),) * len(counts)
    whole = f"{total:,.0f} patients who train at {len(earlier.silos)} hospitals"
    notes = [f"After {earlier.name} ({earlier.digest[:12]}), from its opened sums: {whole}."]
    rate = _prevalence(study, folder)
    if rate is None and study.data.label.count == BINARY:
        notes.append("It keeps no sums of its outcome: the prevalence is what the study expects, or --prevalence.")
    effect, unsure = None, UNSURE
    if study.data.features != earlier.data.features:
        notes.append("Its features are others: the effect is what this study expects, or --effect.")
    elif study.data.image is None:
        asked = Asked(patients * len(earlier.silos), shares, 0.5 if rate is None else rate, (0.5,), held_out)
        effect, unsure = _effect(earlier, asked, folder)
        notes.append(
            "Its published figures do not tell the effect: it is what this study expects, or --effect."
            if effect is None
            else f"Its published figures tell an effect of {effect:.3f}, give or take {unsure:.3f}."
        )
    return KnownData(patients, shares, rate, effect, unsure, tuple(notes))


def _prevalence(study: Study, folder: StudyFolder) -> float | None:
    """Share of the outcome among the held-out patients of all domains, by their noised sums."""
    if study.data.label.count != BINARY or not folder.classes.is_file():
        return None
    negative, positive = (max(float(count), 0.0) for count in json.loads(folder.classes.read_bytes()))
    if not negative or not positive:
        return None
    return positive / (negative + positive)


def _effect(earlier: Study, asked: Asked, folder: StudyFolder) -> tuple[float | None, float]:
    """The effect with which a forecast of the earlier study comes to its published figures, and its deviation."""
    figure = figure_of(earlier)
    if not folder.results.is_file() or figure not in _TRIED:
        return None, UNSURE
    results = json.loads(folder.results.read_bytes())
    if results.get("study") != earlier.digest:
        msg = (
            f"--after: {folder.results} holds the results of another study than {earlier.digest[:12]}; restore the file"
            " from a backup, or give --effect and move it away"
        )
        raise LearningError(msg)
    told = [(m, own[figure]) for m, own in enumerate(results["by_domain"]) if _is_told(own[figure])]
    about = [m for m, _ in told if asked.shares[m] > 0]
    if not about:
        return None, UNSURE
    values = [(own["value"], (own["high"] - own["low"]) / _PUBLISHED) for m, own in told if m in about]
    published = float(np.mean([value for value, _ in values]))
    sampling = math.sqrt(sum(sd**2 for _, sd in values)) / len(values)
    return _inverse(earlier, asked, about, published, sampling)


def _is_told(estimate: Mapping[str, Any] | None) -> bool:
    return estimate is not None and estimate["value"] is not None and estimate["high"] - estimate["low"] <= WIDEST


def _inverse(
    earlier: Study, asked: Asked, about: Sequence[int], published: float, sampling: float
) -> tuple[float | None, float]:
    """The effect at which the forecast is `published`, and its deviation from `sampling` and from the law's draws.

    Forecasts are tried by the law's limits; the effect is what the study would reach without noise at the one found.
    """
    tried = np.array(_TRIED[figure_of(earlier)])
    draws = [outcomes(earlier, asked.of(value), value, draws=_DRAWS, seed=_SEED, about=about) for value in tried]
    middles = np.maximum.accumulate([float(np.nanmean(own)) for own in draws])
    limit = float(np.interp(published, middles, tried))
    place = int(np.clip(np.searchsorted(tried, limit), 1, len(tried) - 1))
    slope = float((middles[place] - middles[place - 1]) / (tried[place] - tried[place - 1]))
    if slope < _FLAT:
        return None, UNSURE
    law = float(np.mean([np.nanstd(draws[n], ddof=1) for n in (place - 1, place)]))
    return reached_without_noise(earlier, asked, limit, about), max(math.hypot(sampling, law) / slope, UNSURE)
