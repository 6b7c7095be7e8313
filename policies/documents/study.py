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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from policies.documents import bounds, consistency
from policies.documents.data_schema import (
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
from policies.documents.document import read_document
from policies.documents.fields import StudyFields
from policies.documents.sections import (
    ALL_PATIENTS,
    Deadlines,
    EncoderPlan,
    Evaluation,
    Expected,
    HeadPlan,
    Metric,
    Model,
    Name,
    Personal,
    Privacy,
    Recipe,
)
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
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


_INVARIANCE: Final = (("irm", 0.0), ("irm_after", 0), ("group_dro", 0.0), ("group_rate", 0.01))
_ADDED: tuple[tuple[tuple[str, ...], object], ...] = (
    (("publish",), []),
    (("data", "image"), None),
    (("data", "label", "classes"), []),
    (("data", "features", "*", "outside"), "drop"),
    (("model", "channels"), [16, 32]),
    (("model", "skip"), False),
    (("model", "random_features"), 0),
    (("model", "first_biases"), 0.0),
    (("model", "bias"), True),
    (("model", "samples"), 0),
    (("encoder", "sealing"), "ring32"),
    (("data", "label", "minimum"), None),
    (("data", "label", "maximum"), None),
    (("data", "label", "scale"), "linear"),
    (("encoder", "rounds"), None),
    (("encoder", "schedule"), "constant"),
    (("encoder", "momentum"), 0.0),
    (("encoder", "cmi_scale"), False),
    (("encoder", "sealed_steps"), False),
    (("heads", "solver"), "newton"),
    (("heads", "pooled_share"), 0.3),
    (("heads", "calibration"), "none"),
    (("heads", "calibration_noise"), 0.0),
    (("evaluation", "largest_error"), 1.0),
    (("evaluation", "auc"), "cells"),
    (("evaluation", "together"), False),
    (("privacy", "smallest_domain"), 0),
    (("expected",), None),
    (("recipe",), "second-order"),
    (("continues",), None),
    (("heads", "steps"), 20),
    (("heads", "learning_rate"), 1.0),
    (("heads", "ridge"), 1e-3),
    (("encoder", "warm_up"), 0),
    (("encoder", "every"), 1),
    (("encoder", "together"), False),
    (("encoder", "head_steps"), 0),
    (("encoder", "proximal"), 0.0),
    (("personal", "cosine"), 0.0),
    (("personal", "mmd_d"), 0.0),
    (("personal", "kernel_steps"), 5),
    (("data", "environment"), None),
    *((("personal", field), default) for field, default in _INVARIANCE),
    *((("encoder", field), default) for field, default in _INVARIANCE),
    (("personal", "mmd_every"), 1),
    (("personal", "depth"), 1),
    (("personal", "adversary"), 0.0),
    (("personal", "adversary_steps"), 5),
    (("data", "protected"), []),
    (("encoder", "l2r_norm"), "squared"),
    (("pace",), "prompt"),
    (("pace_seconds",), 60),
)
"""Fields added since the first version, with their defaults. "*" stands for every entry of a list."""


def _parts(document: Any, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """The parts of a document that a path leads to."""
    parts = [document]
    for name in path:
        parts = [inner for part in parts for inner in (part if name == "*" else [part[name]]) if inner is not None]
    return parts


def load_study(path: Path) -> Study:
    """Read a study from YAML. Raises `DocumentError` with file, field and fix, and `Refused` (unaccountable.py)."""
    return read_document(path, Study)


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
    """Read a study without the bounds that are younger than it may be. Raises ValueError and `Refused`."""
    return Study.model_validate_json(canonical, strict=False, context=bounds.STORED)


def bounds_broken(study: Study) -> tuple[str, ...]:
    """Return a sentence for every bound that the study breaks: field, value and fix. Empty if it keeps all."""
    try:
        Study.model_validate(study.model_dump(mode="json"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        return tuple(f"study.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in found)
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
