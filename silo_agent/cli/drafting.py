"""From an author's answers to a draft of a study, with all faults at once and each under its option."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from policies.documents.document import DocumentError, check_document
from policies.documents.draft import Draft
from silo_agent.cli import answers
from silo_agent.errors import SiloError

OPTIONS: Final = {
    "name": "--name",
    "purpose": "--purpose",
    "silos": "--silo",
    "min_silos": "--silo",
    "publish": "--publish",
    "data.patient": "--patient",
    "data.missing": "--missing",
    "data": "--feature, --label, --domain",
    "expected.patients": "--patients",
    "expected.shares": "--shares",
    "expected.prevalence": "--prevalence",
    "expected.effect": "--effect",
    "expected": "--patients",
    "privacy.epsilon": "--epsilon",
    "privacy.delta": "--delta",
    "privacy.mode": "--mode",
    "privacy.colluders": "--colluders",
}
"""The option that fills a field."""
HINTS: Final = {
    "--name": "write a-z, 0-9 and hyphens, for example readmission",
    "--purpose": "write a sentence of at most 2000 characters",
    "--silo": "name two hospitals or more, in a-z, 0-9 and hyphens, once for each",
    "--patients": "write whole numbers, one for all hospitals or one for each",
    "--shares": "write a share for each domain, with sum 1",
    "--prevalence": "write a share between 0 and 1",
    "--effect": "write a number between 0 and 1",
    "--epsilon": "write a number above 0 and at most 32",
    "--delta": "leave it out, or write a number such as 1e-6",
    "--mode": "write local or distributed, or leave it out",
    "--colluders": "write a number below that of the hospitals, or leave it out",
}
"""What to write, where the document's schema says only what is wrong."""
NEEDED: Final = {
    "name": "--name readmission",
    "purpose": '--purpose "who will use the model, and for what"',
    "silos": "--silo NAME, once for each hospital",
    "label": f"--label {answers.LABEL}",
    "domains": f"--domain {answers.DOMAIN}",
    "patients": "--patients 6000, the patients that a hospital is expected to have for training",
    "epsilon": "--epsilon 4, the most that the study may cost a patient",
}
"""What must be answered, with an example."""


class FaultyAnswersError(SiloError):
    """Some answers cannot be used. `str()` has one line for each, with its option and its fix."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("\n".join(["no study is written:", *faults]))


@dataclass
class Answers:
    """What was said, as it was said; None or an empty list where nothing was."""

    name: str | None = None
    purpose: str | None = None
    silos: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    columns: Path | None = None
    label: str | None = None
    domains: list[str] = field(default_factory=list)
    patient: str | None = None
    missing: list[str] = field(default_factory=list)
    patients: str | None = None
    shares: str | None = None
    prevalence: float | None = None
    effect: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    mode: str | None = None
    colluders: int | None = None
    publish: list[str] | None = None
    own_models: bool | None = None

    def lacking(self) -> list[str]:
        """Names of what must still be answered."""
        missing = [name for name in NEEDED if getattr(self, name) in (None, [], "")]
        return missing if self.features or self.columns else [*missing, "features"]


def draft_of(said: Answers, faults: list[str]) -> tuple[Draft, dict[str, str]]:
    """The draft and the units of its columns. Raises `FaultyAnswersError` with `faults` and all further ones."""
    faults = [
        *faults,
        *(f"{NEEDED[name].split()[0]} is missing; write {NEEDED[name]}" for name in said.lacking() if name in NEEDED),
    ]
    if not said.features and said.columns is None:
        faults.append(f"--feature is missing; write --feature {answers.FEATURE}, or --columns FILE.csv")
    features = list(answers.parsed("--feature", said.features, answers.feature, faults))
    units: dict[str, str] = {}
    if said.columns is not None:
        listed, units, wrong = answers.columns(said.columns)
        features += listed
        faults += wrong
    labels = list(answers.parsed("--label", filter(None, [said.label]), answers.label, faults))
    domains = list(answers.parsed("--domain", said.domains, answers.domain, faults))
    numbers = {name: _numbers(f"--{name}", getattr(said, name), faults) for name in ("patients", "shares")}
    # What is missing is filled in, so that the faults of all other answers are told too.
    document: dict[str, Any] = {
        "name": said.name or "unnamed",
        "purpose": said.purpose or "none",
        "silos": said.silos or ["one", "two"],
        "data": {
            "missing": ["", *said.missing],
            "patient": said.patient or None,
            "label": labels[0] if labels else {"column": "\N{REPLACEMENT CHARACTER}", "positive": [1], "negative": [0]},
            "domain": domains or [{"column": "any", "values": [1], "names": ["any"]}],
            "features": features or [{"kind": "number", "column": "any", "minimum": 0, "maximum": 1}],
        },
        "privacy": _given(epsilon=said.epsilon or 1.0, delta=said.delta, mode=said.mode, colluders=said.colluders),
        "expected": {
            "patients": numbers["patients"] or [1],
            **_given(shares=numbers["shares"] or None, prevalence=said.prevalence, effect=said.effect),
        },
        # Without MMD it fits every encoder, also one whose inputs stand as they are.
        **_given(publish=said.publish, personal={"mmd": 0.0} if said.own_models else None),
    }
    if said.epsilon is not None:
        document["privacy"]["epsilon"] = said.epsilon
    try:
        draft = check_document(document, Draft, "")
    except DocumentError as error:
        raise FaultyAnswersError([*faults, *by_option(error)]) from None
    if faults:
        raise FaultyAnswersError(faults)
    return draft, units


def by_option(error: DocumentError) -> Iterator[str]:
    """The faults of a document, each under the option that fills the field."""
    for fault in error.faults:
        path, _, text = fault.removeprefix("field ").replace("Value error, ", "").partition(": ")
        path = text.split()[0] if path == "(document)" and text else path
        option = next((option for begin, option in OPTIONS.items() if f"{path}.".startswith(f"{begin}.")), "")
        hint = f"; {HINTS[option]}" if option in HINTS and ";" not in text else ""
        yield f"{option}: {text}{hint}" if option else answers.plain(fault)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _numbers(option: str, text: str | None, faults: list[str]) -> list[float]:
    found: list[float] = []
    for part in (text or "").split(",") if text else ():
        value = answers.code_of(part)
        if isinstance(value, str):
            faults.append(
                f"{option} {part!r}: this is not a number; write for example {'0.7,0.3' if 'sh' in option else '6000'}"
            )
        else:
            found.append(value)
    return found
