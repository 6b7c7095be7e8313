"""The study: what is learned, from which columns, at which price. Written once, named by its digest.

A study is public among the roster. Everything a silo's training depends on stands here as a public constant:
nothing in it may be derived from private data (design: privacy.md, "Public constants"). The digest is the SHA-256
of the canonical JSON form, so two YAML files that mean the same study have the same digest.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from policies.document import Closed, read_document

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Code = str | int | float | bool


class NumericFeature(Closed):
    """A number with a public range. It enters the model as a value in [-1, 1] (after `scale: log` where asked)."""

    column: ColumnName
    kind: Literal["number"]
    minimum: Finite
    maximum: Finite
    scale: Literal["linear", "log"] = "linear"
    missing: tuple[Code, ...] = ()
    fill: Finite | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.minimum >= self.maximum:
            msg = f"minimum {self.minimum} must lie below maximum {self.maximum}"
            raise ValueError(msg)
        if self.scale == "log" and self.minimum <= 0:
            msg = "scale log needs a minimum above 0"
            raise ValueError(msg)
        if self.fill is not None and not self.minimum <= self.fill <= self.maximum:
            msg = f"fill {self.fill} lies outside [{self.minimum}, {self.maximum}]"
            raise ValueError(msg)
        return self

    @property
    def width(self) -> int:
        """Model inputs: the value, and an indicator of absence where a public fill value is given."""
        return 1 if self.fill is None else 2


class CategoryFeature(Closed):
    """One of the listed codes; enters the model one-hot. With `optional`, absence is one more category."""

    column: ColumnName
    kind: Literal["category"]
    values: Annotated[tuple[Code, ...], Field(min_length=2, max_length=64)]
    missing: tuple[Code, ...] = ()
    optional: bool = False

    @property
    def width(self) -> int:
        """Model inputs: one per listed value, one more for absence where it is allowed."""
        return len(self.values) + int(self.optional)


Feature = Annotated[NumericFeature | CategoryFeature, Field(discriminator="kind")]


class Label(Closed):
    """A binary outcome: the codes that mean yes and the codes that mean no. Any other value is a named error."""

    column: ColumnName
    positive: Annotated[tuple[Code, ...], Field(min_length=1)]
    negative: Annotated[tuple[Code, ...], Field(min_length=1)]


class DomainColumn(Closed):
    """One factor of the domain: a category column, or a number cut at public edges (left-closed bands)."""

    column: ColumnName
    values: tuple[Code, ...] = ()
    edges: tuple[Finite, ...] = ()
    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.values) == bool(self.edges):
            msg = "give either values or edges"
            raise ValueError(msg)
        wanted = len(self.values) or len(self.edges) + 1
        if len(self.names) != wanted:
            msg = f"{wanted} names are needed, {len(self.names)} are given"
            raise ValueError(msg)
        if list(self.edges) != sorted(set(self.edges)):
            msg = "edges must increase"
            raise ValueError(msg)
        return self


class DataSchema(Closed):
    """How a silo's own file is read. Values outside the schema are errors that name file, row, column."""

    columns: tuple[ColumnName, ...] = ()
    """Names of the columns of a file without a header line; empty where the file has one."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    missing: tuple[str, ...] = ("",)
    patient: ColumnName | None = None
    label: Label
    domain: Annotated[tuple[DomainColumn, ...], Field(min_length=1, max_length=3)]
    features: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=4096)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen = [f.column for f in self.features]
        if len(set(seen)) != len(seen):
            msg = "a column is listed twice among the features"
            raise ValueError(msg)
        if self.label.column in seen:
            msg = f"the label {self.label.column!r} must not be a feature"
            raise ValueError(msg)
        return self

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the M domains, the product of the factors in order."""
        names: tuple[str, ...] = ("",)
        for factor in self.domain:
            names = tuple(f"{a} {b}".strip() for a in names for b in factor.names)
        return names

    @property
    def inputs(self) -> int:
        """Width of the model's input."""
        return sum(f.width for f in self.features)


class Model(Closed):
    """An encoder phi: R^inputs -> [-1, 1]^k / sqrt(k), so that ||phi|| <= 1, and one linear head per domain."""

    encoder: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(max_length=8)] = (32,)
    representation: Annotated[int, Field(ge=1, le=256)] = 16
    gain: Positive = 1.0
    """Scale of the last layer's orthogonal start."""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """Public seed of the common start."""


class HeadPlan(Closed):
    """Second-order heads (FedDAR Eq. 8 at the common head): rounds on one pooled head, then on the domain heads."""

    pooled_rounds: Annotated[int, Field(ge=1, le=200)] = 2
    domain_rounds: Annotated[int, Field(ge=0, le=200)] = 4
    pooled_noise: Positive
    domain_noise: Positive
    """Noise multipliers: standard deviation of the sum's noise for an l2 sensitivity of 1."""
    clip: Annotated[float, Field(gt=0, le=1)] = 1.0
    """tau: a record's joint term (curvature, gradient) is scaled down to this norm, and the sums are in units of tau.
    1 clips nothing. Below 1 the noise is small beside what most patients give, and rare, badly predicted ones count
    less, as in DP-SGD: scores keep their order better, and probabilities come out too low for a rare outcome."""
    repair: Positive = 1.0
    """c of privacy.md: eigenvalues below c * sd_H * sqrt(2K) are lifted to it."""
    max_step: Positive = 8.0
    """Trust region: a head moves at most this far (l2) in one round."""


class EncoderPlan(Closed):
    """DP-SGD on the encoder with the heads frozen, every round but the last."""

    steps: Annotated[int, Field(ge=1, le=10_000)]
    sampling_rate: Annotated[float, Field(gt=0, le=1)]
    batch_size: Annotated[int, Field(ge=1, le=1_000_000)]
    """Public denominator of the gradient sum; never derived from a private count."""
    learning_rate: Positive
    clip: Positive = 1.0
    noise: Positive
    l2r: Annotated[float, Field(ge=0, le=100)] = 0.0
    cmi: Annotated[float, Field(ge=0, le=100)] = 0.0
    prior: Literal["averaged", "local"] = "averaged"
    """FedSR's r(z|y): trained in the same DP step; averaged over silos, or kept at the silo."""
    weight_clip: Annotated[float, Field(ge=1, le=100)] = 3.0
    """FedDAR's domain weights u_m are clipped to [1/weight_clip, weight_clip]."""
    max_update: Positive = 2.0
    """Public bound on every coordinate of a silo's update; clamped before it is summed."""


class Evaluation(Closed):
    """Metric sums over the patients whom the silo holds out, released once, after the last round."""

    bins: Annotated[int, Field(ge=2, le=256)] = 10
    noise: Positive


class Personal(Closed):
    """The model that never leaves: Ditto distance and MK-MMD against the frozen shared encoder."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 2
    learning_rate: Positive = 0.05
    batch_size: Annotated[int, Field(ge=2, le=4096)] = 64
    ditto: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    mmd: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1


class Privacy(Closed):
    """What the study asks of every silo's budget, beside the noise of each part."""

    delta: Annotated[float, Field(gt=0, lt=1e-2)]
    mode: Literal["local", "distributed"]
    """Who carries the noise of head, count and metric sums (privacy.md, "Noise"). Encoder noise is always local."""
    colluders: Annotated[int, Field(ge=0, le=1000)] = 1
    """t: with distributed noise, silos that may pool what they know with the coordinator."""
    count_noise: Positive
    max_patients: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Public bound on the patients of one silo: statistics are clamped to what it implies, never refused."""


class Deadlines(Closed):
    """Seconds each phase may last before the attempt is aborted."""

    offer: Positive = 120.0
    keys: Positive = 120.0
    train: Positive = 1800.0
    open: Positive = 300.0
    solve: Positive = 300.0


class Study(Closed):
    """A whole study. `digest` names it on the wire, in mask labels and in every ledger entry."""

    version: Literal[1]
    name: Name
    purpose: Annotated[str, Field(min_length=1, max_length=2000)]
    silos: Annotated[tuple[Name, ...], Field(min_length=2, max_length=256)]
    min_silos: Annotated[int, Field(ge=2)]
    data: DataSchema
    model: Model
    heads: HeadPlan
    encoder: EncoderPlan
    evaluation: Evaluation
    personal: Personal | None = None
    privacy: Privacy
    deadlines: Deadlines = Deadlines()
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Attempts of one round before the study ends."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.silos)) != len(self.silos):
            msg = "a silo is listed twice"
            raise ValueError(msg)
        if self.min_silos > len(self.silos):
            msg = f"min_silos {self.min_silos} exceeds the {len(self.silos)} silos"
            raise ValueError(msg)
        if self.privacy.mode == "distributed" and self.min_silos - 1 - self.privacy.colluders < 1:
            msg = "distributed noise needs min_silos > colluders + 1"
            raise ValueError(msg)
        return self

    @property
    def rounds(self) -> int:
        """Training rounds; round 0, which deals keys and sums the domain counts, comes before them."""
        return self.heads.pooled_rounds + self.heads.domain_rounds

    def canonical(self) -> bytes:
        """The study as canonical JSON (sorted keys, no spaces): what travels and what is hashed."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of `canonical()`, lowercase hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def load_study(path: Path) -> Study:
    """Read a study from YAML. Raises `DocumentError` naming file, field and mend."""
    return read_document(path, Study)


def parse_study(canonical: bytes, digest: str) -> Study:
    """Read a study as it came over the wire. Raises ValueError where it is not the study that `digest` names."""
    study = Study.model_validate_json(canonical, strict=False)
    if study.digest != digest:
        msg = f"the study received is {study.digest[:12]}, not {digest[:12]}"
        raise ValueError(msg)
    return study
