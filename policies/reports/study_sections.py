"""What a study's document says to a board: what was asked, who was invited, what is protected, at what price."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from policies.documents.study import BINARY, CategoryFeature, Label, NumericFeature, Study
from policies.documents.words.explain import guess
from policies.documents.words.factors import times
from policies.reports.blocks import Block, Bullets, Card, Cell, Paragraph, Section, grid
from policies.reports.guarantee import Guarantee, unit_of

_RECIPE_NAMES: Final = {"second-order": "heads from noised sums of gradient and curvature (FedDAR)"}
_MOST_NAMED: Final = 40
"""Columns that are listed one by one."""


@dataclass(frozen=True)
class TookPart:
    """One hospital and what it did. Why it did not take part is between it and the operator."""

    silo: str
    what: str


def outcome(label: Label) -> str:
    """The outcome in words."""
    if label.number is not None:
        low, high, scale = label.number
        along = "" if scale == "linear" else f", on the scale {scale}"
        return f"column {label.column}, a number from {low:g} to {high:g}{along}"
    if label.count == BINARY:
        ill, well = (", ".join(map(str, codes)) for codes in (label.codes[1], label.codes[0]))
        return f"column {label.column}: {ill} means yes, {well} means no"
    return f"column {label.column}, {label.count} classes"


def predictors(study: Study) -> str:
    """What the model reads of a record, in words."""
    features = study.data.features
    names = [one.column for one in features]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    numbers = sum(isinstance(one, NumericFeature) for one in features)
    codes = sum(isinstance(one, CategoryFeature) for one in features)
    parts = [f"{len(names)} columns ({numbers} numbers, {codes} codes): {', '.join(names[:_MOST_NAMED])}{more}"]
    if study.data.image is not None:
        image = study.data.image
        parts.append(f"an image of {image.height} x {image.width} pixels in column {image.column}")
    return "; ".join(parts if names else parts[1:])


def asked(study: Study) -> Section:
    """What the study set out to predict, of whom, and how."""
    heads, encoder = study.heads, study.model.encoder
    how = _RECIPE_NAMES.get(study.recipe, f"recipe {study.recipe}")
    by = " and ".join(factor.column for factor in study.data.domain)
    rows: list[tuple[str | Cell, ...]] = [
        ("Outcome", outcome(study.data.label)),
        ("Read of each record", predictors(study)),
        (_groups(study), f"{', '.join(study.data.domains)} (by {by})"),
        ("How it was learned", f"{how}; encoder {encoder}"),
        ("Rounds", f"{heads.pooled_rounds} for all groups together, then {heads.domain_rounds} by group"),
    ]
    if study.data.protected:
        columns = ", ".join(factor.column for factor in study.data.protected)
        rows.append(("Attributes that are compared for fairness", columns))
    if study.data.label.count == BINARY:
        rows.append(("A patient counts as ill", f"from a risk of {study.threshold:g} on"))
    return Section("What was asked", (grid(("", ""), rows),))


def who_took_part(study: Study, parties: Sequence[TookPart]) -> Section:
    """Who was invited, and what became of it."""
    needed = f"{len(study.silos)} hospitals were invited. Every sum holds at least {study.min_silos} of them."
    if not parties:
        return Section("Who took part", (Paragraph(f"{needed} They are {', '.join(study.silos)}."),))
    table = grid(("Hospital", "What it did"), [(one.silo, one.what) for one in parties])
    return Section("Who took part", (Paragraph(needed), table))


def protected(found: Guarantee) -> Section:
    """What was protected, and from whom."""
    noised, unit = "noised " if found.private else "", found.unit
    model = (
        f"Differential privacy for every {unit}: epsilon {found.epsilon:.2f} at delta {found.delta:g} over the study"
        if found.private
        else "Nothing: no noise was used, because every hospital's policy declares these data public"
    )
    rows: list[tuple[str | Cell, ...]] = [
        (
            "The coordinator",
            "Which hospital takes part, when, and the size of each upload",
            "Every upload is sealed with keys that only hospitals hold. It adds what it cannot read",
        ),
        (
            "Another hospital",
            f"The {noised}sum over the hospitals that took part",
            "Single contributions are masked: they open only as a sum of the whole roster",
        ),
        ("Whoever gets the model", "The model and the published figures", model),
        ("The network", "Times and sizes", "TLS with a certificate on both sides; hospitals only dial out"),
    ]
    blocks: tuple[Block, ...] = (
        grid(("Who looks", "What they could see", "What keeps the rest from them"), rows),
        Paragraph(found.noise_means, "small"),
        Bullets(tuple(line.replace("`", "") for line in (*found.protects, *found.does_not_protect))),
    )
    return Section("What was protected, and from whom", blocks)


def price(found: Guarantee, budget: float | None = None) -> Section:
    """What the study cost a patient's privacy, in numbers and in sentences that a person can repeat.

    `budget` is a hospital's whole budget, if it is known.
    """
    unit = found.unit
    if not found.private:
        return Section("What it cost", (Paragraph("No privacy budget: no noise was used, on public data."),))
    rows: list[tuple[str | Cell, ...]] = [("By the study's plan", f"{found.planned:.4f}")]
    if found.charged is not None:
        rows.append(("Charged at this hospital, repeated attempts included", f"{found.charged:.4f}"))
    rows += [
        (f"Of the plan, for a {unit} of {many} of its hospitals", f"{bound:.4f}")
        for many, bound in found.several.items()
    ]
    if budget is not None and math.isfinite(budget):
        rows.append(("This hospital's budget for all studies together", f"{budget:g}"))
    sure = _percent(guess(found.epsilon, found.delta))
    text = (
        f"Whoever sees all that the study released can become at most {times(found.epsilon)} more or less sure that one"
        f" {unit} was among the data, except with a chance of {found.delta:g}. Somebody who would be right half of the"
        f" time by tossing a coin can be right at most {sure} of the time. These are ceilings against an observer with"
        " unlimited means."
    )
    return Section("What it cost", (grid(("Epsilon", ""), rows, numbers=1), Paragraph(text)))


def headline(study: Study, found: Guarantee) -> tuple[Card, ...]:
    """The numbers of privacy and size that stand at the top of a report."""
    epsilon = f"{found.epsilon:.2f}" if found.private else "none"
    aside = f"at delta {found.delta:g}, for every {found.unit}" if found.private else "no noise: data declared public"
    return (
        Card("Epsilon of the study", epsilon, aside),
        Card("Hospitals invited", str(len(study.silos)), f"at least {study.min_silos} in every sum"),
        Card(_groups(study), str(len(study.data.domains)), f"each {unit_of(study)} is in one"),
    )


def has_heads_of_domains(study: Study) -> bool:
    """Whether each domain has a head of its own, and not all the same one."""
    return study.heads.domain_rounds > 0 and not study.composition.one_head


def _groups(study: Study) -> str:
    return "Groups with a head of their own" if has_heads_of_domains(study) else "Groups that are compared, one head"


def facts(study: Study) -> tuple[str, ...]:
    """The line below a report's title."""
    return (
        f"study {study.digest[:16]}",
        f"{len(study.silos)} hospitals",
        f"{len(study.data.domains)} domains",
        f"{study.rounds} rounds",
    )


def _percent(share: float) -> str:
    """Rounded up, so that a ceiling is never shown too low."""
    return f"{math.ceil(share * 1000.0 - 1e-9) / 10.0:g} %"
