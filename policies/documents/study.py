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
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, model_validator

from policies.documents import bounds
from policies.documents.data_schema import (
    BINARY,
    NUMBER,
    CategoryFeature,
    Code,
    ColumnName,
    DataSchema,
    DomainColumn,
    Feature,
    Image,
    Label,
    NumericFeature,
    Scale,
)
from policies.documents.document import Closed, read_document
from policies.documents.sections import (
    ALL_PATIENTS,
    OF_CLASSES,
    OF_NUMBERS,
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
)
from policies.documents.terms import TERMS
from policies.documents.unaccountable import refusal_of
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
    "Scale",
    "Study",
    "bounds_broken",
    "load_study",
    "parse_study",
    "read_stored",
    "require_bounds",
]


class Study(Closed):
    """A whole study. `digest` names it on the wire, in mask labels and in every ledger entry."""

    version: Literal[1]
    name: Name
    purpose: Annotated[str, Field(min_length=1, max_length=2000), bounds.text(2000, lines=True)]
    silos: Annotated[tuple[Name, ...], Field(min_length=2, max_length=256)]
    min_silos: Annotated[int, Field(ge=2, le=256)]
    data: DataSchema
    model: Model
    heads: HeadPlan
    encoder: EncoderPlan
    evaluation: Evaluation
    personal: Personal | None = None
    publish: Annotated[tuple[Metric, ...], bounds.items(8)] = ()
    """Metrics of the last round's sums that the silos sign and the coordinator shows. Nothing else leaves the silos."""
    privacy: Privacy
    deadlines: Deadlines = Deadlines()
    expected: Expected | None = None
    """What the author expects of the data. Forecasts read it; nothing that is computed from records does."""
    pace: Literal["prompt", "padded"] = "prompt"
    """When a silo says what it had to read or compute from records. prompt: when it is done. padded: at the next
    multiple of `pace_seconds` after it was asked, so that the time of a computation does not show."""
    pace_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Most attempts of one round before the study ends."""

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_by_name(cls, content: object, fit: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise `Refused` if the study asks for something that cannot be accounted for, however the study is read."""
        try:
            return fit(content)
        except ValidationError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            raise refusal from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.silos)) != len(self.silos):
            msg = "a silo is listed twice"
            raise ValueError(msg)
        if self.min_silos > len(self.silos):
            msg = f"min_silos {self.min_silos} exceeds the {len(self.silos)} silos"
            raise ValueError(msg)
        if self.privacy.colluders >= self.min_silos:
            msg = f"privacy.colluders {self.privacy.colluders} leaves no honest silo among min_silos {self.min_silos}"
            raise ValueError(msg)
        self._check_model()
        self._check_noise()
        self._check_rounds()
        if self.pace == "padded" and self.pace_seconds >= min(self.deadlines.offer, self.deadlines.train):
            msg = f"pace_seconds {self.pace_seconds} must lie below deadlines.offer and deadlines.train"
            raise ValueError(msg)
        if len(set(self.reported)) != len(self.reported):
            msg = f"evaluation.together publishes figures of {ALL_PATIENTS!r}, and a domain has this name; rename it"
            raise ValueError(msg)
        if len(set(self.publish)) != len(self.publish):
            msg = "publish lists a metric twice"
            raise ValueError(msg)
        self._check_outcome()
        self._check_expected()
        if self.privacy.mode == "distributed" and self.min_silos - 1 - self.privacy.colluders < 1:
            msg = "distributed noise needs min_silos > colluders + 1"
            raise ValueError(msg)
        return self

    def _check_outcome(self) -> None:
        label = self.data.label
        known, kind = (OF_CLASSES, "classes") if label.number is None else (OF_NUMBERS, "a number")
        foreign = [metric for metric in self.publish if metric not in known]
        if foreign:
            msg = (
                f"publish lists {', '.join(foreign)}, but data.label is {kind}; choose among {', '.join(sorted(known))}"
            )
            raise ValueError(msg)
        if "auc" in self.publish and label.count != BINARY:
            msg = "publish lists auc, which is defined for two classes only; use balanced_accuracy"
            raise ValueError(msg)
        if self.evaluation.auc == "fitted" and label.count != BINARY:
            msg = "evaluation.auc fitted is for two classes, and data.label has others; leave it out"
            raise ValueError(msg)
        if label.number is None:
            if self.evaluation.largest_error != 1:
                msg = "evaluation.largest_error is for a number, but data.label is classes; leave it out"
                raise ValueError(msg)
            return
        for term in TERMS:
            if term.tables is not None and term.field is not None and getattr(self.encoder, term.field) > 0:
                msg = (
                    f"encoder.{term.field} has a table with a row for each class, but data.label is a number; leave"
                    " it out"
                )
                raise ValueError(msg)
        if self.evaluation.bins != Evaluation.model_fields["bins"].default:
            msg = "evaluation.bins are those of a score, but data.label is a number; leave them out"
            raise ValueError(msg)

    def _check_expected(self) -> None:
        expected, domains = self.expected, len(self.data.domains)
        if expected is None:
            return
        if len(expected.patients) not in {1, len(self.silos)}:
            msg = (
                f"expected.patients has {len(expected.patients)} numbers; write one, or one for each of the"
                f" {len(self.silos)} silos"
            )
            raise ValueError(msg)
        if expected.shares and (len(expected.shares) != domains or abs(sum(expected.shares) - 1) > _ROUNDED):
            msg = f"expected.shares must be {domains} numbers, one for each domain, with sum 1"
            raise ValueError(msg)
        if expected.prevalence is not None and self.data.label.count != BINARY:
            msg = "expected.prevalence is for a label of two classes; leave it out"
            raise ValueError(msg)

    def _check_model(self) -> None:
        image, encoder = self.data.image, self.model.encoder
        if (image is None) != (encoder in {"mlp", "raw"}):
            msg = f"model.encoder {encoder} and data.image do not fit: cnn and resnet18 read images, mlp and raw none"
            raise ValueError(msg)
        if encoder == "raw":
            self._check_raw()
        if image is not None and encoder == "cnn" and min(image.height, image.width) >> len(self.model.channels) < 1:
            msg = f"model.channels halves the image {len(self.model.channels)} times, and nothing of it is left"
            raise ValueError(msg)

    def _check_raw(self) -> None:
        inputs, model = self.data.inputs, self.model
        faults = {
            f"model.representation is {model.representation}; make it {inputs}": model.representation != inputs,
            "model.hidden lists layers; make it an empty list": bool(model.hidden),
            "the encoder is trained; set encoder.rounds to 0": self.encoder_rounds > 0,
            "encoder.l2r and encoder.cmi are terms of an encoder; leave them out": self.encoder.l2r + self.encoder.cmi
            > 0,
            "personal trains an encoder of its own; leave it out": self.personal is not None,
        }
        found = [fault for fault, there in faults.items() if there]
        if found:
            msg = f"model.encoder raw has no network for the {inputs} inputs, but {'; '.join(found)}"
            raise ValueError(msg)

    def _check_rounds(self) -> None:
        heads, classes = self.heads, self.data.label.count
        if self.encoder_rounds >= self.head_rounds > 0 and self.encoder.rounds:
            msg = f"encoder.rounds {self.encoder_rounds} must lie below the {self.head_rounds} rounds of the heads"
            raise ValueError(msg)
        if heads.calibration != "none" and classes not in {BINARY, NUMBER}:
            msg = (
                f"heads.calibration {heads.calibration} is for two classes or a number, and data.label has {classes}"
                " classes; leave it out"
            )
            raise ValueError(msg)
        if heads.solver != "hierarchical":
            return
        if self.data.label.number is not None:
            msg = "heads.solver hierarchical is for classes, and data.label is a number; choose newton"
            raise ValueError(msg)
        if not heads.domain_rounds:
            msg = "heads.solver hierarchical solves domain rounds, and heads.domain_rounds is 0; choose newton"
            raise ValueError(msg)
        if self.encoder_rounds >= heads.pooled_rounds:
            msg = (
                f"encoder.rounds {self.encoder_rounds} must lie below heads.pooled_rounds {heads.pooled_rounds}: with"
                " heads.solver hierarchical the encoder must not change any more when the last pooled round is summed"
            )
            raise ValueError(msg)
        width = (1 if classes == BINARY else classes) * (self.model.representation + 1)
        if width > _WIDEST:
            msg = (
                f"heads.solver hierarchical solves heads of at most {_WIDEST} weights, and these have {width}; make"
                " model.representation smaller or choose newton"
            )
            raise ValueError(msg)

    def _check_noise(self) -> None:
        noises = {
            "heads.pooled_noise": self.heads.pooled_noise,
            "heads.domain_noise": self.heads.domain_noise,
            "encoder.noise": self.encoder.noise,
            "evaluation.noise": self.evaluation.noise,
            "privacy.count_noise": self.privacy.count_noise,
        }
        if self.heads.calibration != "none":
            noises["heads.calibration_noise"] = self.heads.calibration_noise
        elif self.heads.calibration_noise:
            msg = "heads.calibration_noise is that of a round which heads.calibration none leaves out; leave it out too"
            raise ValueError(msg)
        for field, noise in noises.items():
            if (noise == 0) != (self.privacy.mode == "none"):
                msg = (
                    f"{field} is {noise:g}; noise must be 0 in all fields if privacy.mode is none, and above 0 in all"
                    " fields otherwise"
                )
                raise ValueError(msg)

    @property
    def reported(self) -> tuple[str, ...]:
        """Of whom figures are published: the domains, and with `evaluation.together` all patients."""
        return (*self.data.domains, *([ALL_PATIENTS] if self.evaluation.together else []))

    @property
    def rounds(self) -> int:
        """Number of training rounds. Round 0 sums the domain counts before them, one more round the metrics after."""
        return self.head_rounds + (self.heads.calibration != "none")

    @property
    def head_rounds(self) -> int:
        """Number of training rounds without the calibration, which is the last one if there is any."""
        return self.heads.pooled_rounds + self.heads.domain_rounds

    @property
    def encoder_rounds(self) -> int:
        """Number of rounds, from the first, in which the encoder is trained."""
        if self.encoder.rounds is not None:
            return self.encoder.rounds
        return (self.heads.pooled_rounds if self.heads.solver == "hierarchical" else self.head_rounds) - 1

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


_ADDED: tuple[tuple[tuple[str, ...], object], ...] = (
    (("publish",), []),
    (("data", "image"), None),
    (("data", "label", "classes"), []),
    (("data", "features", "*", "outside"), "drop"),
    (("model", "channels"), [16, 32]),
    (("encoder", "sealing"), "ring32"),
    (("data", "label", "minimum"), None),
    (("data", "label", "maximum"), None),
    (("data", "label", "scale"), "linear"),
    (("encoder", "rounds"), None),
    (("heads", "solver"), "newton"),
    (("heads", "pooled_share"), 0.3),
    (("heads", "calibration"), "none"),
    (("heads", "calibration_noise"), 0.0),
    (("evaluation", "largest_error"), 1.0),
    (("evaluation", "auc"), "cells"),
    (("evaluation", "together"), False),
    (("privacy", "smallest_domain"), 0),
    (("expected",), None),
    (("pace",), "prompt"),
    (("pace_seconds",), 60),
)
"""Fields added since the first version, with their defaults. "*" stands for every entry of a list."""


def _parts(document: Any, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """The parts of a document that a path leads to."""
    parts = [document]
    for name in path:
        parts = [inner for part in parts for inner in (part if name == "*" else [part[name]])]
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


_WIDEST: Final = 512
"""Weights of a head whose posterior is computed within seconds."""
_ROUNDED: Final = 0.01
"""How far shares that an author has rounded may sum from 1."""
_LISTED: Final = 3
"""Most broken bounds that a refusal names."""
