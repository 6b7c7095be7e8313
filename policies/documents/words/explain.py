"""A policy in plain words, for people who answer for patients and need not know the mathematics.

Guarantees: every number in the text comes from the policy, and the text mentions every field (a test changes each field
and looks for a changed text). The text explains epsilon by the odds of a guess. An observer has to tell whether a
patient is in the data, and thinks both equally likely at first. The observer is right at most
(exp(epsilon) + delta) / (1 + exp(epsilon)) of the time (Kairouz, Oh and Viswanath 2015, Thm. 2.1: (epsilon, delta)
bounds a test's two errors).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from policies.documents.policy import Policy
from policies.documents.sections.data import Code
from policies.documents.sections.evaluation import METRICS
from policies.documents.sections.spelling import UTF_8, Spelling
from policies.documents.words.factors import times

_MODES: Final = {
    "local": "this hospital hides every release with noise of its own, whatever the others do",
    "distributed": "the hospitals of a study add the noise together, each a part",
}
_NETWORKS: Final = {
    "mlp": "small networks on table columns",
    "cnn": "small image networks",
    "resnet18": "ResNet-18 on images",
}
_SEALINGS: Final = {
    "ring": "masks that cancel in the sum, with or without a second layer of encryption",
    "ckks": "masks that cancel in the sum, and a second layer of encryption under them",
}
_DELIMITERS: Final = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabulators",
    "|": "vertical bars",
    ":": "colons",
    "^": "circumflexes",
    "~": "tildes",
}


def explain(policy: Policy) -> tuple[tuple[str, str], ...]:
    """Return headings and paragraphs, in reading order."""
    return (
        ("Whose data", _whose(policy)),
        ("What may be lost", _loss(policy)),
        ("What epsilon means here", _meaning(policy)),
        ("What one study may ask", _study(policy)),
        ("What hides a contribution", _hiding(policy)),
        ("What may be said about groups", _groups(policy)),
        ("Which studies", _studies(policy)),
        ("How long it is kept", _keeping(policy)),
        ("Who may change this policy", _changing(policy)),
        ("What no policy can promise", _limits_of_all(policy)),
    )


def guess(epsilon: float, delta: float) -> float:
    """Return the largest chance with which an even guess about one patient's presence can become right."""
    return (1.0 + delta * math.exp(-epsilon)) / (1.0 + math.exp(-epsilon))


def _whose(policy: Policy) -> str:
    data = policy.data_set
    unit = (
        "What is protected is the patient, with all records of that person here"
        if data.unit == "patient"
        else "What is protected is the single record; a person behind several records is protected less"
    )
    public = (
        " The data are declared PUBLIC: no budget binds, and studies may run on them without any noise."
        if data.public
        else " The data are private: nothing computed from them leaves without noise."
    )
    delimiter = _DELIMITERS[data.file.delimiter]
    named = f"are {_listed(data.file.columns)}, in this order" if data.file.columns else "are named by its first line"
    characters = "" if data.file.encoding == UTF_8 else f" Its characters are in {data.file.encoding}."
    marks = policy.spelling.missing
    missing = (
        "" if marks is None else f" Cells of {_listed(map(repr, marks)) or 'nothing'} mean that nothing is recorded."
    )
    codes = (
        f" Own codes stand in {_listed(f'{column} ({_codes(own)})' for column, own in policy.spelling.codes.items())}."
        if policy.spelling.codes
        else ""
    )
    return (
        f"The data set {data.id}. {unit}. The data say in {_listed(data.identified_by)} whose record it is. The cells"
        f" of a CSV file are parted by {delimiter}, and its columns {named}; no study can say otherwise."
        f"{characters}{missing}{codes}{_spelt(policy.spelling)} {data.holdout:.0%} of the {data.unit}s are kept apart"
        f" to measure models and never train one.{public}"
        f" {policy.contact} answers for this policy."
    )


def _spelt(spelling: Spelling) -> str:
    """What a file says otherwise than studies do, but for its marks and codes."""
    said = []
    if spelling.decimal == ",":
        said.append("Numbers have a comma before their fraction.")
    if spelling.absent:
        said.append(f"The hospital does not have {_listed(spelling.absent)}; their cells count as not recorded.")
    said += [f"Dates of {column} are written as {form}." for column, form in spelling.dates.items()]
    said += [
        f"{column} is the time from {one.start} to {one.end} in {one.unit}." for column, one in spelling.between.items()
    ]
    for column, own in spelling.units.items():
        other = f", and is converted for studies that ask for {_listed(own.into)}" if own.into else ""
        said.append(f"{column} is in {own.unit}{other}.")
    return " ".join(["", *said])


def _codes(own: Mapping[str, Code | None]) -> str:
    return ", ".join(f"{code} for {'not recorded' if meant is None else repr(meant)}" for code, meant in own.items())


def _loss(policy: Policy) -> str:
    budget = policy.budget
    return (
        f"Over all studies together the data set may lose an epsilon of {budget.epsilon:g} at delta {budget.delta:g},"
        f" counted for one {policy.data_set.unit} added or removed. What is spent never comes back: not by a restart, a"
        f" new version, a new year or a new policy. {budget.expires} is the last day on which anything is charged; the"
        " rest of the budget is not carried over by itself."
    )


def _meaning(policy: Policy) -> str:
    budget, limits, unit = policy.budget, policy.limits, policy.data_set.unit
    if policy.data_set.public:
        return f"Nothing: for public data no epsilon binds, and the {budget.epsilon:g} of the budget is a figure only."
    return (
        f"An observer knows all other {unit}s, sees everything that ever left this hospital, and has to tell whether"
        f" one certain {unit} was among the data. By tossing a coin the observer is right half of the time. With the"
        f" whole budget spent, this can become at most {_percent(guess(budget.epsilon, budget.delta))} of the time;"
        f" after one study of the largest price at most {_percent(guess(limits.study_epsilon, budget.delta))}. These"
        f" are ceilings against an observer with unlimited means, not expectations. In other words: one {unit}'s"
        f" presence makes any conclusion from the releases at most {times(budget.epsilon)} more or less"
        f" likely, except with a chance of {budget.delta:g}."
    )


def _study(policy: Policy) -> str:
    limits, split = policy.limits, policy.split
    shares = ", ".join(
        f"{name} {share:.0%}"
        for name, share in (
            ("encoder updates", split.encoder),
            ("head sums", split.heads),
            ("patient counts", split.counts),
            ("quality figures", split.metrics),
        )
    )
    networks = _listed(_NETWORKS[name] for name in limits.architectures)
    return (
        f"At most an epsilon of {limits.study_epsilon:g}, repeated attempts included, and {limits.round_epsilon:g} in"
        f" any single round. Of the {limits.study_epsilon:g} each kind of release may take, counted alone, at most:"
        f" {shares}. (Epsilons do not add up, so the shares may sum to more than the whole.) At most {limits.rounds}"
        f" rounds, each charged at most {limits.charged_attempts} times. It may train {networks}, with at most"
        f" {limits.encoder_weights:,} weights and a representation {limits.representation} numbers wide, and need at"
        f" most {limits.memory_mib:,} MiB of memory. In one step of training a patient takes part with a chance of at"
        f" most {limits.sampling_rate:g}, and moves the sum by at most {limits.clip:g} before noise."
    )


def _hiding(policy: Policy) -> str:
    many = policy.colluders
    others = "another hospital conspires" if many == 1 else f"{many} others conspire"
    return (
        f"This hospital joins no sum of fewer than {policy.min_silos} hospitals, itself included; the sum must stay"
        f" closed even if {others} with the coordinator. Noise: "
        f"{_listed((_MODES[mode] for mode in policy.noise_modes), 'or')}, as the study says. Encoder updates are sealed"
        f" by {_SEALINGS[policy.encoder_sealing]}; everything else is always sealed by both."
    )


def _groups(policy: Policy) -> str:
    small = (
        f"A group with fewer than {policy.smallest_domain} patients in the noised sums of all hospitals gets no model"
        " part and no figure of its own"
        if policy.smallest_domain
        else "Groups of any size may get a model part and figures of their own"
    )
    published = (
        f"A study may publish these noised quality figures: {_listed(METRICS[name].words for name in policy.publish)}"
        if policy.publish
        else "No quality figure may be published; the hospitals of a study see the noised ones among themselves"
    )
    return f"{small}. {published}."


def _studies(policy: Policy) -> str:
    if policy.studies is None:
        text = "Every study within these limits may run; nobody is asked again."
    elif not policy.studies:
        text = "No study may run until its digest is added to the policy."
    else:
        text = f"Only these, by digest: {', '.join(policy.studies)}. Any change to a study gives it another digest."
    rules = [
        f"those {_listed([rule.text for rule in rules], 'or')} get the data {data}"
        for data, rules in policy.approved_data.items()
    ]
    if rules:
        text += f" Of the studies that may run, {_listed(rules)} without anybody being asked."
    polls = (
        f" Before a study is created, each author may ask about {policy.polls} of them a day, and hears whether this"
        " hospital would take part, whether a person has to decide, or that it refuses, and nothing more."
    )
    text += (
        f" A study without data waits until an engineer of the hospital gives it some.{polls if policy.polls else ''}"
    )
    return text


def _keeping(policy: Policy) -> str:
    days = policy.retention_days
    return (
        f"{days} {'day' if days == 1 else 'days'} after the day on which a study ended, the hospital's agent removes"
        " the study's private and secret files by itself: the hospital's own model and its training state,"
        " contributions before they were sealed, keys and sealed bytes. The ledger, the policies that were in force,"
        " the cosignatures, the study's text, the shared model with its noised figures, the training log and the"
        " record of what was used up stay. Copies elsewhere (backups, exports, predictions) are the hospital's duty."
        f" A shared model that this hospital has helped to train {'may' if policy.hand_over else 'is not to'} be handed"
        " over to hospitals that have not."
    )


def _changing(policy: Policy) -> str:
    signed = (
        "anybody who may write the file and run the command"
        if policy.approvers is None
        else f"two of these people, whose signatures the agent checks: {_listed(policy.approvers)}"
    )
    return (
        f"{signed[0].upper()}{signed[1:]}. A running agent stops charging when the file changes. The changed policy"
        " comes into force by `fedward-silo policy reload`; the ledger records it for ever."
    )


def _limits_of_all(policy: Policy) -> str:
    return (
        "That nobody learns from the model what is true of patients in general; that the same"
        f" {policy.data_set.unit} in another hospital's data is not counted there too (each hospital keeps its own"
        " budget, and the losses of several compose, to more than the sum of their epsilons in many cases:"
        " `fedward-silo ledger together` computes it); or anything against people who can read the hospital's own"
        " machines."
    )


def _percent(share: float) -> str:
    """Return four digits, rounded up, so that a ceiling is never shown too low and 99.97 % not as certainty."""
    return f"{math.ceil(share * 1e4) / 1e2:g}%"


def _listed(items: Iterable[str], word: str = "and") -> str:
    *most, last = [*items] or [""]
    return f"{', '.join(most)} {word} {last}" if most else last
