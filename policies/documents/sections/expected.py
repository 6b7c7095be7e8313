"""What the author of a study expects of the data, and how long a phase may last."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import MOST_SILOS, Seconds


class Expected(Closed):
    """What the study's author expects of the data: public guesses, written down before anybody looked.

    Rules and forecasts start from them. Nothing that a silo computes from records depends on them.
    """

    patients: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...],
        Field(min_length=1, max_length=MOST_SILOS),
        About(
            "patients of each silo, fit for training, in the order of `silos`; one number stands for every silo",
            comment="of each silo, fit for training",
            unit="list of patients",
            question="Expected patients for training of a hospital, or of each, with commas between",
        ),
    ]
    shares: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1)], ...],
        Field(max_length=256),
        About(
            "share of the patients in each domain, in the domains' order; `[]`: all alike",
            comment="of the patients in each domain; []: all alike",
            unit="list of shares",
            change="some domains are rare",
        ),
    ] = ()
    prevalence: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        About(
            "of the patients who have the outcome, of two classes; `null`: one half",
            comment="of the outcome; null: one half",
            unit="share",
            question="Expected share of patients with the outcome, of two classes (empty: one half)",
        ),
    ] = None
    """Share of the patients who have the outcome, of two classes. None: one half, and of more classes equal shares."""
    effect: Annotated[
        Annotated[float, Field(gt=0, lt=1)] | None,
        About(
            "the AUC that publications report for such features, of patients whom the model had not seen, or that an"
            " earlier study's charged release told (`plan --after`); never a look at private records; `null`: a common"
            " range",
            comment="AUC, or R^2 of a number, without noise; null: a common range",
            unit="AUC, or R^2 of a number",
            change="comparable results were published",
            question="AUC, or R^2 of a number, that publications report for such features (empty: a common range)",
        ),
    ] = None
    """How well the features tell the outcome without noise: AUC for classes, R^2 for a number. None: a common range."""


class Deadlines(Closed):
    """Seconds that each phase may last before the attempt is aborted."""

    offer: Annotated[Seconds, About("for answers to the offer of a round", unit="seconds")] = 120.0
    keys: Annotated[Seconds, About("for each step of keys and shares", unit="seconds")] = 120.0
    train: Annotated[
        Seconds,
        About(
            "for computing and uploading a contribution",
            unit="seconds",
            change="images are trained, or lines are slow: raise",
        ),
    ] = 1800.0
    open: Annotated[Seconds, About("for signing, revealing and opening a sum", unit="seconds")] = 300.0
    solve: Annotated[Seconds, About("for solving and adopting the heads", unit="seconds")] = 300.0
