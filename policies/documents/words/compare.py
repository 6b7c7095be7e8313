"""What a new policy changes compared with an old one: field by field, looser or stricter, in words.

Guarantees: every field in which two policies differ is named, and two equal policies have no difference. If all
differences are `stricter` or `neutral`, the new policy refuses whatever the old one refused (a test checks `decide`
field by field). This module does not say which policy is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Final

from policies.documents.policy import OLDEST, Policy


class Change(StrEnum):
    """What a difference means for the patients."""

    LOOSER = "looser"
    STRICTER = "stricter"
    NEUTRAL = "neutral"
    FIXED = "fixed"
    """The ledger is bound to the field. It does not open with the new policy."""


@dataclass(frozen=True)
class Difference:
    """A difference in one field, with its direction. `text` is a sentence about it."""

    field: str
    change: Change
    text: str


_MORE_IS_LOOSER: Final = {
    "budget.epsilon": "the data set may lose an epsilon of {new} in all, before {old}",
    "budget.expires": "studies may be charged until {new}, before until {old}",
    "retention_days": "private files of a study are kept for {new} days after its end, before for {old}",
    "limits.study_epsilon": "one study may cost an epsilon of {new}, before {old}",
    "limits.round_epsilon": "one round may cost an epsilon of {new}, before {old}",
    "limits.rounds": "a study may have {new} rounds, before {old}",
    "limits.charged_attempts": "{new} attempts of a round may be charged, before {old}",
    "limits.encoder_weights": "the encoder may have {new} weights, before {old}",
    "limits.representation": "the representation may be {new} wide, before {old}",
    "limits.sampling_rate": "a patient may take part in a training step with a chance of {new}, before {old}",
    "limits.clip": "a patient's gradient may be as long as {new}, before {old}",
    "limits.memory_mib": "a study may need {new} MiB of memory, before {old}",
    "split.encoder": "encoder updates alone may take {new} of a study's epsilon, before {old}",
    "split.heads": "head sums alone may take {new} of a study's epsilon, before {old}",
    "split.counts": "counts alone may take {new} of a study's epsilon, before {old}",
    "split.metrics": "metrics alone may take {new} of a study's epsilon, before {old}",
}
_MORE_IS_STRICTER: Final = {
    "min_silos": "a sum needs at least {new} silos, before {old}",
    "colluders": "sums must withstand {new} colluding silos, before {old}",
    "smallest_domain": "groups below {new} patients get nothing of their own, before below {old}",
}
_LISTS: Final = {
    "noise_modes": "noise of the kind {value} is {now} allowed",
    "limits.architectures": "the architecture {value} is {now} allowed",
    "publish": "the metric {value} may {now} be published",
}
_BOUND: Final = (
    "data_set.id",
    "data_set.unit",
    "data_set.identified_by",
    "data_set.holdout",
    "data_set.file.delimiter",
    "data_set.file.columns",
    "data_set.file.encoding",
    "data_set.public",
    "budget.delta",
)
_MARKS: Final = {".": "point", ",": "comma"}
_SEALINGS: Final = ("ring", "ckks")
"""From the weaker to the stronger."""


def differences(old: Policy, new: Policy) -> tuple[Difference, ...]:
    """Return the changes from `old` to `new`: what becomes looser, then what the ledger forbids, then the rest."""
    found = [
        *_numbers(old, new, _MORE_IS_LOOSER, more=Change.LOOSER, less=Change.STRICTER),
        *_numbers(old, new, _MORE_IS_STRICTER, more=Change.STRICTER, less=Change.LOOSER),
        *_lists(old, new),
        *_sealing(old, new),
        *_handing_over(old, new),
        *_studies(old, new),
        *_approved_data(old, new),
        *_polls(old, new),
        *_approvers(old, new),
        *_bound(old, new),
        *_spelling(old, new),
        *_contact(old, new),
    ]
    order = (Change.LOOSER, Change.FIXED, Change.STRICTER, Change.NEUTRAL)
    return tuple(sorted(found, key=lambda difference: order.index(difference.change)))


def value_of(policy: Policy, field: str) -> Any:
    """Return the value of a field that is named as `part.field`."""
    found: Any = policy
    for name in field.split("."):
        found = getattr(found, name)
    return found


def _numbers(old: Policy, new: Policy, texts: dict[str, str], *, more: Change, less: Change) -> Iterable[Difference]:
    for field, text in texts.items():
        before, after = value_of(old, field), value_of(new, field)
        if before != after:
            change = more if after > before else less
            yield Difference(field, change, text.format(old=_shown(before), new=_shown(after)))


def _shown(value: float | date) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _lists(old: Policy, new: Policy) -> Iterable[Difference]:
    for field, text in _LISTS.items():
        before, after = value_of(old, field), value_of(new, field)
        for value in after:
            if value not in before:
                yield Difference(field, Change.LOOSER, text.format(value=value, now="now"))
        for value in before:
            if value not in after:
                yield Difference(field, Change.STRICTER, text.format(value=value, now="no longer"))


def _sealing(old: Policy, new: Policy) -> Iterable[Difference]:
    if old.encoder_sealing != new.encoder_sealing:
        stronger = _SEALINGS.index(new.encoder_sealing) > _SEALINGS.index(old.encoder_sealing)
        text = f"encoder updates are sealed at least by {new.encoder_sealing}, before by {old.encoder_sealing}"
        yield Difference("encoder_sealing", Change.STRICTER if stronger else Change.LOOSER, text)


def _polls(old: Policy, new: Policy) -> Iterable[Difference]:
    if old.polls != new.polls:
        change = Change.LOOSER if new.polls > old.polls else Change.STRICTER
        text = f"{new.polls} words a day to each author about studies that are not created, before {old.polls}"
        yield Difference("polls", change, text)


def _handing_over(old: Policy, new: Policy) -> Iterable[Difference]:
    if old.hand_over != new.hand_over:
        word, change = ("now", Change.LOOSER) if new.hand_over else ("no longer", Change.STRICTER)
        yield Difference(
            "hand_over", change, f"shared models may {word} be handed over to silos that did not train them"
        )


def _studies(old: Policy, new: Policy) -> Iterable[Difference]:
    if old.studies is None and new.studies is not None:
        text = f"only {len(new.studies)} listed studies may run, before every study within the limits"
        yield Difference("studies", Change.STRICTER, text)
    elif old.studies is not None and new.studies is None:
        text = f"every study within the limits may run, before {len(old.studies)} listed ones"
        yield Difference("studies", Change.LOOSER, text)
    elif old.studies is not None and new.studies is not None:
        for digest in new.studies:
            if digest not in old.studies:
                yield Difference("studies", Change.LOOSER, f"study {digest} may now run")
        for digest in old.studies:
            if digest not in new.studies:
                yield Difference("studies", Change.STRICTER, f"study {digest} may no longer run")


def _approved_data(old: Policy, new: Policy) -> Iterable[Difference]:
    """Compare which studies get data by a rule, rule by rule: a rule more is looser."""
    before, after = (
        {(data, rule.text) for data, rules in policy.approved_data.items() for rule in rules} for policy in (old, new)
    )
    for data, named in sorted(after - before):
        text = f"studies {named} may now use {data} without being asked"
        yield Difference("approved_data", Change.LOOSER, text)
    for data, named in sorted(before - after):
        text = f"studies {named} may no longer use {data} without being asked"
        yield Difference("approved_data", Change.STRICTER, text)


def _approvers(old: Policy, new: Policy) -> Iterable[Difference]:
    """Compare the approvers. One more person who may sign is looser: two of more people are easier to find."""
    if old.approvers is None and new.approvers is not None:
        yield Difference("approvers", Change.STRICTER, f"two of {', '.join(new.approvers)} must sign, before nobody")
    elif old.approvers is not None and new.approvers is None:
        yield Difference("approvers", Change.LOOSER, f"nobody must sign, before two of {', '.join(old.approvers)}")
    elif old.approvers is not None and new.approvers is not None:
        for person in new.approvers:
            if person not in old.approvers:
                yield Difference("approvers", Change.LOOSER, f"{person} may now sign")
        for person in old.approvers:
            if person not in new.approvers:
                yield Difference("approvers", Change.STRICTER, f"{person} may no longer sign")


def _bound(old: Policy, new: Policy) -> Iterable[Difference]:
    for field in _BOUND:
        before, after = value_of(old, field), value_of(new, field)
        if before != after:
            before, after = (_said(value) for value in (before, after))
            if field.startswith("data_set.file.") and old.version == OLDEST:
                # Nothing bound it before: each study said it.
                text = f"{before} became {after}: only a ledger that was made before version 0.6 opens with it"
                yield Difference(field, Change.LOOSER, text)
                continue
            text = f"{before} became {after}, but it is fixed for the life of the data set: its ledger will not open"
            yield Difference(field, Change.FIXED, text)


def _said(value: object) -> str:
    """A value of a field that the ledger is bound to, in words."""
    if isinstance(value, tuple):
        return ", ".join(value) or "a header line"
    return repr(value) if value == "\t" else str(value)


def _spelling(old: Policy, new: Policy) -> Iterable[Difference]:
    """Compare how the file spells things. It decides how a record is read, and not whether a study is taken."""
    before, after = old.spelling, new.spelling
    if before.missing != after.missing:
        texts = ("as studies say" if marks is None else repr(list(marks)) for marks in (before.missing, after.missing))
        yield Difference("spelling.missing", Change.NEUTRAL, "{} became {}".format(*texts))
    for column in dict.fromkeys([*before.codes, *after.codes]):
        if before.codes.get(column) != after.codes.get(column):
            yield Difference("spelling.codes", Change.NEUTRAL, f"the codes of column {column} are read otherwise")
    if before.decimal != after.decimal:
        text = f"numbers have a {_MARKS[after.decimal]} before their fraction, before a {_MARKS[before.decimal]}"
        yield Difference("spelling.decimal", Change.NEUTRAL, text)
    for column in sorted(set(before.absent) ^ set(after.absent)):
        text = f"the hospital has {'no' if column in after.absent else 'a'} column {column}"
        yield Difference("spelling.absent", Change.NEUTRAL, text)
    for field, old_ones, new_ones, text in (
        ("spelling.dates", before.dates, after.dates, "the dates of column {} are read otherwise"),
        ("spelling.between", before.between, after.between, "column {} is the time between other dates"),
        ("spelling.units", before.units, after.units, "the unit of column {} is said otherwise"),
    ):
        for column in dict.fromkeys([*old_ones, *new_ones]):
            if old_ones.get(column) != new_ones.get(column):
                yield Difference(field, Change.NEUTRAL, text.format(column))


def _contact(old: Policy, new: Policy) -> Iterable[Difference]:
    if old.contact != new.contact:
        yield Difference("contact", Change.NEUTRAL, f"{new.contact} answers for the policy, before {old.contact}")
