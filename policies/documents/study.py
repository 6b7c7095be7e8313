"""The study: what is learned, from which columns, at which price. Written once, named by its digest.

A study is public among the roster. Everything that a silo's training depends on is stated here as a public constant:
nothing in it may be derived from private data (docs/design/noise.md, "Public constants"). The digest is the SHA-256
of the canonical JSON form, so two YAML files that mean the same study have the same digest.

Every number, text and list is bounded (bounds.py). A study that was stored before a bound existed stays readable
(`parse_study`), but nobody creates it anew, decides for it or goes on with it (`require_bounds`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, to_jsonable_python

from policies import file_kinds
from policies.documents import bounds, consistency
from policies.documents.about import FIRST, described
from policies.documents.document import faults_of, parse_content, read_document
from policies.documents.fields import StudyFields
from policies.documents.sections.data import (
    BINARY,
    NUMBER,
    CategoryFeature,
    Code,
    ColumnName,
    DataSchema,
    DomainColumn,
    EnvironmentColumn,
    Feature,
    Image,
    Label,
    NumericFeature,
    Scale,
)
from policies.documents.sections.encoder import EncoderPlan
from policies.documents.sections.evaluation import ALL_PATIENTS, Evaluation, Metric
from policies.documents.sections.expected import Deadlines, Expected
from policies.documents.sections.heads import HeadPlan
from policies.documents.sections.kinds import Name, Recipe
from policies.documents.sections.model import Model
from policies.documents.sections.personal import Personal
from policies.documents.sections.privacy import Privacy
from policies.documents.unaccountable import refusal_of, require_noisable
from policies.refusals import Reason, Refused

__all__ = [
    "ALL_PATIENTS",
    "BINARY",
    "NUMBER",
    "CategoryFeature",
    "Code",
    "ColumnName",
    "DataSchema",
    "Deadlines",
    "DomainColumn",
    "EncoderPlan",
    "EnvironmentColumn",
    "Evaluation",
    "Expected",
    "Feature",
    "HeadPlan",
    "Image",
    "Label",
    "Metric",
    "Model",
    "Name",
    "NumericFeature",
    "Personal",
    "Privacy",
    "Recipe",
    "Scale",
    "Study",
    "bounds_broken",
    "load_study",
    "parse_study",
    "read_stored",
    "require_bounds",
]


class Study(StudyFields):
    """A whole study. `digest` names it on the wire, in mask labels and in every ledger entry."""

    KIND: ClassVar[str] = file_kinds.STUDY

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_by_name(cls, content: object, fit: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise `Refused` if the study asks for something that cannot be accounted for, however the study is read."""
        privacy = content.get("privacy") if isinstance(content, Mapping) else None
        if isinstance(privacy, Mapping) and "epsilon" in privacy:
            kind = "draft"
            raise PydanticCustomError(kind, _DRAFT)
        try:
            return fit(content)
        except ValidationError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            raise refusal from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        require_noisable(self.encoder, self.privacy.mode)
        found = [fault.text for fault in consistency.faults(self)]
        if not found:
            return self
        if len(found) == 1:
            raise ValueError(found[0])
        # Each is told as if it were the only one, on a line of its own.
        told = [
            InitErrorDetails(type="value_error", input=self.name, ctx={"error": ValueError(text)}) for text in found
        ]
        raise ValidationError.from_exception_data(type(self).__name__, told)

    def canonical(self) -> bytes:
        """Return the study as canonical JSON (sorted keys, no spaces), which travels and is hashed.

        Fields that the first version did not have are left out if they have their defaults, so that studies of the
        first version keep their names.
        """
        document = self.model_dump(mode="json")
        for path, default in _ADDED:
            for part in _parts(document, path[:-1]):
                if path[-1] in part and part[path[-1]] == default:
                    del part[path[-1]]
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    @property
    def threshold(self) -> float:
        """The risk from which on a patient counts as ill, of two classes: public, and stated before any data."""
        if self.evaluation.threshold is not None:
            return self.evaluation.threshold
        prevalence = None if self.expected is None else self.expected.prevalence
        return 0.5 if prevalence is None else prevalence

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def _path(place: str) -> tuple[str, ...]:
    """The names on the way to a field; "*" stands for every entry of a list."""
    return tuple(re.sub(r"\[.*?\]", ".*", place).split("."))


_ADDED: Final = tuple(
    (_path(one.path), to_jsonable_python(one.field.get_default()))
    for one in described(StudyFields)
    if one.about is not None and one.about.since != FIRST
)
"""Fields added since the first version, with their defaults."""


def _parts(document: Any, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """The parts of a document that a path leads to; a part that was left out has none."""
    parts = [document]
    for name in path:
        parts = [inner for part in parts for inner in (part if name == "*" else [part.get(name)]) if inner is not None]
    return parts


def load_study(path: Path) -> Study:
    """Read a study from YAML. Raises `DocumentError` with file, field and fix, and `Refused` (unaccountable.py)."""
    return read_document(path, Study)


def study_in(content: bytes, origin: str) -> Study:
    """Read a study from what a YAML file holds; `origin` is its name in messages. Raises as `load_study`."""
    return parse_content(content, Study, origin)


def parse_study(canonical: bytes, digest: str) -> Study:
    """Read a study from the wire or from where it was stored. Nothing may be decided for it before `require_bounds`.

    Raises ValueError if it is not the study that `digest` names, and `Refused` (unaccountable.py).
    """
    study = read_stored(canonical)
    if study.digest != digest:
        msg = f"the received study is {study.digest[:12]}, not {digest[:12]}"
        raise ValueError(msg)
    return study


def read_stored(canonical: bytes) -> Study:
    """Read a study without the bounds that are younger than it may be. Raises `Refused`, and ValueError in words."""
    try:
        return Study.model_validate_json(canonical, strict=False, context=bounds.STORED)
    except ValidationError as error:
        found = list(faults_of(error))
        more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        msg = f"this is no study: {'; '.join(found[:_LISTED])}{more}"
        raise ValueError(msg) from None


def bounds_broken(study: Study) -> tuple[str, ...]:
    """Return a sentence for every bound that the study breaks: field, value and fix. Empty if it keeps all."""
    try:
        Study.model_validate(study.model_dump(mode="json"))
    except ValidationError as error:
        return tuple(fault.replace("field ", "study.", 1) for fault in faults_of(error))
    return ()


def require_bounds(study: Study) -> None:
    """Raise `Refused` if the study breaks a bound. Whoever creates, decides or goes on with a study calls it first."""
    faults = bounds_broken(study)
    if faults:
        more = f"; and {len(faults) - _LISTED} more" if len(faults) > _LISTED else ""
        raise Refused(Reason.BOUNDS, "; ".join(faults[:_LISTED]) + more)


_DRAFT: Final = (
    "privacy.epsilon stands in a draft, and this command needs the numbers that follow from it; write them with"
    " `fedward-silo study complete DRAFT --out study.yaml`"
)
_LISTED: Final = 3
"""Most broken bounds that a refusal names."""
