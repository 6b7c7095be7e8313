"""What a silo signs for the public: the metrics that the study lists under `publish:`, rounded.

The figures come from noised sums that were already charged, so publishing them costs nothing. Silos with different
processors may compute slightly different figures. Rounding makes them equal, so that the coordinator can show figures
that several silos have signed.
"""

from __future__ import annotations

import math

from common.figure_words import MOVED
from policies.documents.study import ALL_PATIENTS, Metric, Study
from protos.messages import Figure, Publication
from silo_agent.data.outcome import half_range
from silo_agent.learning.figures.evaluation import DomainResult, Estimate, NumberResult, Results
from silo_agent.learning.figures.influence import largest_hospital, moved

_USUAL_DIGITS = 3


def publication(study: Study, results: Results) -> Publication:
    """The listed metrics of every domain, in the study's order, and of all patients if the study says so.

    If the study says how large its hospitals are (`expected.patients`), each figure is followed by how far the largest
    could have moved it.
    """
    figures = []
    counted = sum(one.patients.value or 0.0 for one in results.by_domain)
    hospital = largest_hospital(study.expected, len(study.silos), counted)
    together = () if results.together is None else ((ALL_PATIENTS, results.together),)
    for domain, result in (*zip(results.domains, results.by_domain, strict=True), *together):
        for metric in study.publish:
            estimate: Estimate | None = getattr(result, metric)
            if estimate is not None:
                digits = _digits(study, metric)
                value = None if estimate.value is None else round(estimate.value, digits)
                figures.append(Figure(domain, metric, value, round(estimate.low, digits), round(estimate.high, digits)))
                far = None if value is None or hospital is None else moved(metric, value, _sizes(result), hospital)
                if far is not None:
                    figures.append(Figure(domain, f"{metric}{MOVED}", round(far, digits), 0.0, round(far, digits)))
    return Publication(study.digest, tuple(figures))


def _sizes(result: DomainResult | NumberResult) -> tuple[float, ...]:
    return result.sizes if isinstance(result, DomainResult) else ()


def _digits(study: Study, metric: Metric) -> int:
    """Digits behind the point. Errors are rounded to a thousandth of half the label's range, or a little finer."""
    if metric == "patients":
        return 0
    if metric in {"mae", "mean_error"}:
        return _USUAL_DIGITS - math.floor(math.log10(half_range(study.data.label)))
    return _USUAL_DIGITS
