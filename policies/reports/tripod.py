"""The items of TRIPOD+AI, filled as far as a study knows them.

Source: Collins et al. (2024), "TRIPOD+AI statement", BMJ 385:e078378, whose 27 items are named here in our own words.
What only the authors know is left to them by name, and nothing is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from common.figure_words import MOVED
from policies.documents.study import CategoryFeature, NumericFeature, Study
from policies.reports.blocks import Cell, Grid, Paragraph, Section, grid
from policies.reports.guarantee import Guarantee, unit_of
from policies.reports.published import PublishedFigure
from policies.reports.study_sections import has_heads_of_domains, outcome, predictors

AUTHORS: Final = "For the authors to write."
ITEMS: Final[Mapping[str, str]] = {
    "1": "Title: development or evaluation, population, outcome",
    "2": "Abstract",
    "3a": "Background: the setting in health care, and why a model",
    "3b": "Background: who will use it, for whom, where in the pathway",
    "3c": "Background: known inequalities between groups",
    "4": "Objectives",
    "5a": "Sources of data",
    "5b": "Dates of the data",
    "6a": "Setting: where participants come from",
    "6b": "Who is eligible",
    "6c": "Treatments received",
    "7": "Preparation of the data, alike in all groups or not",
    "8a": "Outcome, when and how it is assessed",
    "8b": "Who assesses the outcome, if it needs judgement",
    "8c": "Whether the assessment is blinded",
    "9a": "Choice of predictors",
    "9b": "Definition of predictors, when and how they are measured",
    "9c": "Who measures predictors, if they need judgement",
    "10": "Sample size",
    "11": "Missing data",
    "12a": "How data are used for training and evaluation",
    "12b": "How predictors enter the model",
    "12c": "Type of model, how it is built and tuned",
    "12d": "Differences between clusters, such as hospitals",
    "12e": "Measures of performance",
    "12f": "Changes of the model after evaluation",
    "12g": "How predictions are computed",
    "13": "Imbalance of the classes",
    "14": "Fairness: how it is looked at",
    "15": "Output of the model, and thresholds",
    "16": "Differences between data of training and evaluation",
    "17": "Ethical approval",
    "18a": "Funding",
    "18b": "Conflicts of interest",
    "18c": "Protocol",
    "18d": "Registration",
    "18e": "Sharing of data",
    "18f": "Sharing of code",
    "19": "Involvement of patients and the public",
    "20a": "Flow of participants",
    "20b": "Characteristics of participants, by setting and group",
    "20c": "Development compared with evaluation",
    "21": "Participants and outcome events in each analysis",
    "22": "The full model, so that others can predict with it",
    "23a": "Performance with intervals, also by group",
    "23b": "Differences of performance between clusters",
    "24": "Results of updating the model",
    "25": "Interpretation, with fairness, beside other studies",
    "26": "Limits",
    "27a": "Use with poor or missing inputs",
    "27b": "What users must be able to do",
    "27c": "Next steps",
}
"""What each item asks for."""


def section(
    study: Study, found: Guarantee, figures: Sequence[PublishedFigure], *, version: str, limits: Sequence[str] = ()
) -> Section:
    """All items in order. `limits` are those of the model card, if it is known here."""
    known = filled(study, found, figures, version=version, limits=limits)
    rows: list[tuple[str | Cell, ...]] = [
        (Cell(number, note=""), asks, known.get(number, AUTHORS)) for number, asks in ITEMS.items()
    ]
    told = f"{len(known)} of {len(ITEMS)} items follow from the study's document and its figures."
    table: Grid = grid(("Item", "Asks for", "Here"), rows)
    return Section("TRIPOD+AI", (Paragraph(f"{told} The others are left to the authors."), table))


def filled(
    study: Study, found: Guarantee, figures: Sequence[PublishedFigure], *, version: str, limits: Sequence[str] = ()
) -> dict[str, str]:
    """What the study knows, by item."""
    data, unit, heads = study.data, unit_of(study), study.heads
    many, groups = len(study.silos), ", ".join(data.domains)
    several = (
        "Each patient counts as one, with the mean of the records." if unit == "patient" else "Each record counts."
    )
    items = {
        "4": study.purpose,
        "5a": f"Tables of {many} hospitals ({', '.join(study.silos)}), each in its hospital's hands and read there.",
        "6a": f"{many} hospitals; every sum holds at least {study.min_silos} of them.",
        "7": f"{_prepared(study)} {several} The same at all hospitals and in all groups.",
        "8a": f"{_sentence(outcome(data.label))} When and how it is assessed: for the authors to write.",
        "9a": "The study's document lists them before training, and no step chooses among them."
        f" {_sentence(predictors(study))}",
        "11": _missing(study),
        "12a": f"Each hospital holds out a share of its {unit}s by its own policy. They never train; one sum"
        " measures the model on them.",
        "12b": _prepared(study),
        "12c": f"Recipe {study.recipe}, encoder {study.model.encoder}, {heads.pooled_rounds} rounds for all groups and"
        f" {heads.domain_rounds} by group, solver {heads.solver}, fixed before training. {found.noise_means}",
        "12d": f"A head for each of {groups}." if has_heads_of_domains(study) else f"One head for {groups}.",
        "12f": "None after the evaluation."
        + ("" if heads.calibration == "none" else f" Before it, calibration ({heads.calibration}) was the last round."),
        "12g": "By the exported model; its card says how each input is made.",
        "13": "Nothing is drawn anew or weighed by class.",
        "15": _output(study),
        "16": "The same hospitals, times and rules: a hash of the identifier alone decides who is held out.",
        "18c": f"The study's document, fixed and signed for before training; its SHA-256, {study.digest[:16]}...,"
        " stands whole at the end of this report.",
        "18e": "No record leaves a hospital.",
        "18f": f"FedWard {version}, Apache-2.0.",
        "22": "The exported model with its card (`fedward-silo export`).",
        "27a": _missing(study),
    }
    if data.protected or len(data.domains) > 1:
        more = ", ".join(factor.column for factor in data.protected)
        fair = f" Each hospital also compares groups of {more} inside." if more else ""
        items["14"] = f"Figures by group ({groups}), the worst beside the mean.{fair}"
    if study.expected is not None and study.expected.patients:
        patients = "; ".join(f"{one:,}" for one in study.expected.patients)
        items["10"] = f"Expected before training, {unit}s who train: {patients} (one number: at each hospital)."
    if figures:
        metrics = ", ".join(dict.fromkeys(one.metric for one in figures if not one.metric.endswith(MOVED)))
        counted = [one for one in figures if one.metric == "patients" and one.value is not None]
        items["12e"] = f"{metrics}, from noised sums, with 95 % intervals for noise and chance together."
        items["23a"] = "In the section on how good the model is, and for whom."
        items["23b"] = "By group in the same section. Single hospitals are never compared outside."
        if counted:
            told = ", ".join(f"{one.domain} about {max(one.value or 0.0, 0.0):.0f}" for one in counted)
            items["21"] = f"Held out, by noised counts: {told}. Counts of those who train: each hospital's own."
    if limits:
        items["26"] = " ".join(limits)
    return items


def _prepared(study: Study) -> str:
    parts = []
    numbers = [one for one in study.data.features if isinstance(one, NumericFeature)]
    codes = [one for one in study.data.features if isinstance(one, CategoryFeature)]
    if numbers:
        cut = sum(one.outside == "clip" for one in numbers)
        also = f", {cut} of them cut there" if cut else ""
        parts.append(f"{len(numbers)} numbers are scaled to [-1, 1] between public bounds{also}.")
    if codes:
        columns = "1 column of codes becomes" if len(codes) == 1 else f"{len(codes)} columns of codes become"
        parts.append(f"{columns} one input for each code.")
    if study.data.image is not None:
        parts.append("Images are resized and scaled to [-1, 1].")
    return " ".join(parts)


def _missing(study: Study) -> str:
    numbers = [one for one in study.data.features if isinstance(one, NumericFeature)]
    codes = [one for one in study.data.features if isinstance(one, CategoryFeature)]
    filled_in, flagged = (sum(one.fill is not None for one in numbers), sum(one.optional for one in codes))
    if not filled_in + flagged:
        return "A record with a missing cell is left out."
    return (
        f"A missing cell of {_counted(filled_in, 'number')} becomes a public value and an input that says so, one of"
        f" {_counted(flagged, 'column')} of codes an input for absence. Another missing cell leaves the record out."
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _output(study: Study) -> str:
    label = study.data.label
    if label.number is not None:
        return "A number within the outcome's public range."
    if label.count > 2:  # noqa: PLR2004  # two classes have a threshold
        return f"The probability of each of {label.count} classes; the largest decides."
    return f"The probability of the outcome. From {study.threshold:g} on a patient counts as ill."


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
