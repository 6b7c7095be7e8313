"""Which figures of the held-out patients are released, and how they are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import Noise


class Evaluation(Closed):
    """Metric sums over the patients whom the silo holds out, released once, after the last round."""

    bins: Annotated[
        int,
        Field(ge=2, le=256),
        About(
            "score bins of the noised histograms; more resolve better and hold more noise",
            comment="of the score, in the noised histograms",
            unit="bins",
            change="there are many held-out patients: 20",
        ),
    ] = 10
    """Bins of the score. The sums of a number have none."""
    noise: Annotated[
        Noise,
        About(
            "noise of the results; it is paid from the held-out patients' budget, not from training's",
            comment="deviation; paid from the held-out patients' own budget",
            unit="deviation at sensitivity 1",
            change="intervals are too wide: lower",
        ),
    ]
    largest_error: Annotated[
        float,
        Field(gt=0, le=1),
        bounds.within(1e-3, 1),
        About(
            "a number's error beyond it counts as this large, and noise shrinks with it",
            comment="of a number: share of its range beyond which errors count alike",
            unit="share of the range",
            change="errors are hardly ever as large as half of the range: `0.5`",
            since="0.6",
        ),
    ] = 1.0
    """Of a number: an error beyond this share of the label's range counts as this one in the noised figures. The noise
    of the mean absolute error is in proportion to it, that of the mean squared error to its square."""
    auc: Annotated[
        Literal["cells", "fitted"],
        About(
            (
                "how AUC and accuracy follow from the noised counts: from the cells alone, or from a risk"
                " that is fitted to them, with narrower intervals; two classes"
            ),
            comment="fitted: from a risk that is fitted to the noised bins",
            change="new studies: `fitted`, with `bins: 20`",
            since="0.6",
        ),
    ] = "cells"
    """How the AUC of two classes follows from the noised histograms. cells: from the cells' own counts, with a
    bootstrap's interval. fitted: from a risk that rises with the score and is fitted to all cells, with a narrower
    interval."""
    threshold: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        About(
            (
                "risk from which on a patient counts as ill, of two classes: in accuracy, false negatives and"
                " `predicted`, and a bin's edge; `null`: `expected.prevalence`, or one half"
            ),
            comment="risk from which on a patient counts as ill; null: expected.prevalence, or one half",
            unit="risk",
            change="the risk from which on somebody acts is known",
            since="0.7",
        ),
    ] = None
    together: Annotated[
        bool,
        About(
            'figures of "all patients" beside the domains\', from the same sums; costs no epsilon',
            comment="figures of all patients together as well",
            change="new studies: `true`",
            since="0.6",
        ),
    ] = False
    together_share: Annotated[
        float,
        Field(ge=0, le=0.9),
        bounds.within(0.01, 0.9, zero=True),
        About(
            (
                "how much of the noised counts, by square, are those of all patients together; 0: they are the sum of"
                " the domains', with the noise of each"
            ),
            comment="share of the noised counts that is of all patients, which narrows their figures",
            unit="share",
            change="figures of all patients matter most: more",
            since="0.7",
        ),
    ] = 0.0
    """The domains' counts are then multiplied by the root of one less the share, and read with those of all."""


ALL_PATIENTS: Final = "all patients"
"""Stands for a domain's name where figures of all patients together are given."""

Metric = Literal[
    "auc",
    "accuracy",
    "balanced_accuracy",
    "false_negatives",
    "calibration",
    "expected_observed",
    "patients",
    "mae",
    "r2",
    "mean_error",
]
"""A metric by domain, from the noised sums."""


@dataclass(frozen=True)
class PublishedMetric:
    """What a metric says, and for which outcomes it is defined.

    It is computed in `silo_agent.learning.figures.evaluation`.
    """

    words: str
    """For people who read a policy."""
    classes: bool = True
    numbers: bool = False
    two_only: bool = False
    """Defined for two classes only."""


METRICS: Final[Mapping[Metric, PublishedMetric]] = {
    "auc": PublishedMetric("area under the ROC curve", two_only=True),
    "accuracy": PublishedMetric("accuracy"),
    # The mean of the classes' shares of right predictions.
    "balanced_accuracy": PublishedMetric("balanced accuracy"),
    # The share of the second class that is predicted as the first.
    "false_negatives": PublishedMetric("share of the ill who are called well", two_only=True),
    "calibration": PublishedMetric("calibration error"),
    # Of the second class; of more than two classes the predictions' confidence over the share that is right.
    "expected_observed": PublishedMetric("predicted over observed numbers"),
    "patients": PublishedMetric("noised number of held-out patients", numbers=True),
    "mae": PublishedMetric("mean absolute error", classes=False, numbers=True),
    "r2": PublishedMetric("share of the variance explained", classes=False, numbers=True),
    # Of prediction less outcome.
    "mean_error": PublishedMetric("mean error", classes=False, numbers=True),
}
OF_NUMBERS: Final = frozenset(name for name, metric in METRICS.items() if metric.numbers)
OF_CLASSES: Final = frozenset(name for name, metric in METRICS.items() if metric.classes)
