"""How a study reads a silo's file: the columns, what their cells may say, and how they become a model's inputs.

Guarantees: an accepted schema encodes every cell that fits as a finite number in [-1, 1], within 2^-23 of the exact
one. `silo_agent.data.reader` does it. The arithmetic: docs/design/noise.md, "Public constants".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed

MOST: Final = 1e15
"""Largest magnitude of a bound, a fill value, an edge or a pixel's range."""
LEAST: Final = 1e-12
"""Smallest difference of two bounds, and smallest bound on a logarithmic scale."""
FINEST: Final = 1e-6
"""Smallest difference of two bounds, relative to the larger of their magnitudes. With `MOST` and `LEAST` it keeps every
scaled value within 2^-23 of the exact one, the spacing of float32 at 1."""
MOST_DOMAINS: Final = 8192
MOST_INPUTS: Final = 16_384

ColumnName = Annotated[str, Field(min_length=1, max_length=128), bounds.text(128)]
LONGEST_UNIT: Final = 32
Unit = Annotated[str, Field(min_length=1, max_length=LONGEST_UNIT), bounds.text(LONGEST_UNIT)]
"""What a column's numbers count, such as `mg/dl`. Units are compared as texts, and mean nothing else here."""
Quantity = Annotated[float, Field(allow_inf_nan=False), bounds.within(-MOST, MOST, fix="choose another unit")]
"""A value of a column, in the column's own unit."""
Outcome = Annotated[float, Field(allow_inf_nan=False), bounds.within(-1e11, 1e11, fix="choose another unit")]
"""A bound of a label that is a number. Errors and their intervals are published in its unit (`protos.messages`)."""
Scale = Literal["linear", "log", "log1p"]
"""The scale of a label that is a number. log1p: the logarithm of 1 + x, for counts, among which is 0."""
Code = Annotated[str | int | float | bool, bounds.code(200, 2**53)]
Codes = Annotated[tuple[Code, ...], bounds.items(1024)]
BINARY: Final = 2
NUMBER: Final = 1
"""What `Label.count` says of a number: it has one expected value, where an outcome of C classes has C probabilities."""


def _span_fault(minimum: float, maximum: float) -> str | None:
    """Return why a range is too narrow for its values to be told apart, or None."""
    least = max(LEAST, FINEST * max(abs(minimum), abs(maximum)))
    if maximum - minimum >= least:
        return None
    return (
        f"minimum {minimum!r} and maximum {maximum!r} are closer than {least:g}, so rounding would blur what lies"
        " between; widen the range"
    )


_SCALES: Final[dict[str, Callable[[float], float]]] = {"linear": float, "log": math.log, "log1p": math.log1p}


NumberUnit = Annotated[
    Unit | None,
    About(
        (
            "of numbers: what they count. A hospital whose file has another unit converts it by its policy, or is"
            " refused"
        ),
        unit="a text such as `mg/dl`",
        change="hospitals may measure in several units",
        since="0.7",
    ),
]


class NumericFeature(Closed):
    """A number with a public range. It enters the model as its place in the range, in [-1, 1]."""

    column: Annotated[ColumnName, About("where it stands", unit="column")]
    kind: Annotated[Literal["number"], About("the cell is a number")]
    minimum: Annotated[
        Quantity,
        About(
            "lower end of the public range, becomes -1",
            unit="column's unit",
            change="known from the literature, never from the hospitals' records",
        ),
    ]
    maximum: Annotated[
        Quantity,
        About(
            "upper end, becomes 1",
            unit="column's unit",
            change="known from the literature, never from the hospitals' records",
        ),
    ]
    scale: Annotated[
        Literal["linear", "log", "log1p"],
        About(
            "where between -1 and 1 a value lies: even, by its logarithm, by the logarithm of 1 + x",
            change="most values crowd near 0: `log`, or `log1p` for counts",
        ),
    ] = "linear"
    """log: the place is that of the logarithm. log1p: of the logarithm of 1 + x, for counts, among which is 0."""
    outside: Annotated[
        Literal["drop", "clip"],
        About(
            "a value outside the range leaves out its record, or counts as the nearer end",
            change="extreme values are real patients: `clip`",
            since="0.6",
        ),
    ] = "drop"
    missing: Annotated[
        Codes,
        About(
            'cells of this column alone that mean "not recorded"',
            unit="list of codes",
            change="it has a code such as -9 for that",
        ),
    ] = ()
    fill: Annotated[
        Quantity | None,
        About(
            (
                "public value for an absent cell, beside which one more input says that it was absent;"
                " `null`: an absent cell leaves out its record"
            ),
            unit="column's unit",
            change="cells are absent",
        ),
    ] = None
    unit: NumberUnit = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.minimum >= self.maximum:
            msg = f"minimum {self.minimum} must lie below maximum {self.maximum}"
            raise ValueError(msg)
        if self.scale == "log" and self.minimum <= 0:
            msg = "scale log needs a minimum above 0; for counts, among which is 0, write scale: log1p"
            raise ValueError(msg)
        if self.scale == "log1p" and self.minimum < 0:
            msg = "scale log1p needs a minimum of at least 0"
            raise ValueError(msg)
        if self.fill is not None and not self.minimum <= self.fill <= self.maximum:
            msg = f"fill {self.fill} must lie in [{self.minimum}, {self.maximum}]"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_bounds(self, info: ValidationInfo) -> Self:
        fault = _span_fault(self.minimum, self.maximum)
        if fault is None and self.scale == "log" and self.minimum < LEAST:
            fault = f"minimum {self.minimum!r} is below {LEAST:g}, the least for scale log; choose another unit"
        if fault is not None and not bounds.lifted(info):
            raise bounds.broken(fault)
        return self

    def along(self, value: float) -> float:
        """Where a value lies on the feature's scale; ends and values are compared there. Raises ValueError."""
        return _SCALES[self.scale](value)

    @property
    def width(self) -> int:
        """Number of model inputs: the value, and an indicator of absence if a public fill value is given."""
        return 1 if self.fill is None else 2

    @property
    def is_yes_or_no(self) -> bool:
        """Whether the number is taken for a yes or no: its range is 0 to 1."""
        return (self.minimum, self.maximum, self.scale) == (0.0, 1.0, "linear")


class CategoryFeature(Closed):
    """One of the listed codes. It enters the model one-hot. With `optional`, absence is one more category."""

    column: Annotated[ColumnName, About("where it stands", unit="column")]
    kind: Annotated[Literal["category"], About("the cell is a code; one input for each")]
    values: Annotated[
        tuple[Code, ...],
        Field(min_length=2, max_length=64),
        About("the codes; others leave out their record", unit="codes"),
    ]
    missing: Annotated[
        Codes,
        About(
            'cells of this column alone that mean "not recorded"', unit="list of codes", change="it has a code for that"
        ),
    ] = ()
    optional: Annotated[
        bool, About("an absent cell is one more category; if not, it leaves out its record", change="cells are absent")
    ] = False

    @property
    def width(self) -> int:
        """Number of model inputs: one for each listed value, and one more for absence if that is allowed."""
        return len(self.values) + int(self.optional)


Feature = Annotated[NumericFeature | CategoryFeature, Field(discriminator="kind")]


_FLOORS: Final[dict[Scale, float]] = {"log": LEAST, "log1p": 0.0}
"""The least minimum of a label by its scale."""


class Label(Closed):
    """The outcome: codes that mean yes and codes that mean no, the codes of each class, or a number in a public range.

    Other cells are errors. A number enters the model on its scale, as a value in [-1, 1].
    """

    column: Annotated[ColumnName, About("where it stands; never a feature", unit="column")]
    positive: Annotated[Codes, About("codes that mean yes", unit="list of codes", change="there are two classes")] = ()
    negative: Annotated[Codes, About("codes that mean no", unit="list of codes", change="there are two classes")] = ()
    classes: Annotated[
        tuple[Annotated[Codes, Field(min_length=1)], ...],
        Field(max_length=64),
        About(
            "codes of each class, instead of the two above",
            unit="list of lists of codes",
            change="there are three classes or more",
            since="0.2",
        ),
    ] = ()
    minimum: Annotated[
        Outcome | None,
        About(
            "lower end of the range of an outcome that is a number, instead of codes",
            unit="column's unit",
            change="the outcome is a number",
            since="0.6",
        ),
    ] = None
    maximum: Annotated[
        Outcome | None, About("upper end", unit="column's unit", change="the outcome is a number", since="0.6")
    ] = None
    scale: Annotated[
        Scale,
        About(
            "the scale on which the number is learned and its errors are measured",
            change="most outcomes crowd near 0",
            since="0.6",
        ),
    ] = "linear"
    unit: NumberUnit = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        ends = [self.minimum is not None, self.maximum is not None]
        binary = bool(self.positive) and bool(self.negative)
        halves = bool(self.positive) != bool(self.negative) or any(ends) != all(ends)
        if halves or [binary, bool(self.classes), all(ends)].count(True) != 1:
            msg = "give positive and negative, or classes, or minimum and maximum, and only one of them"
            raise ValueError(msg)
        if self.classes and len(self.classes) <= BINARY:
            msg = "classes must be three or more; write two classes as positive and negative"
            raise ValueError(msg)
        if self.number is None and self.scale != "linear":
            msg = f"scale {self.scale} is for a number; leave it out, or give minimum and maximum"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_bounds(self, info: ValidationInfo) -> Self:
        if self.number is None or bounds.lifted(info):
            return self
        minimum, maximum, scale = self.number
        fault = _span_fault(minimum, maximum)
        if minimum >= maximum:
            fault = f"minimum {minimum} must lie below maximum {maximum}"
        if fault is None and minimum < _FLOORS.get(scale, minimum):
            fault = (
                f"scale {scale} needs a minimum of at least {_FLOORS[scale]:g}; for counts with 0 write scale: log1p"
            )
        if fault is not None:
            raise bounds.broken(fault)
        return self

    @property
    def codes(self) -> tuple[tuple[Code, ...], ...]:
        """Codes of each class in order. For a binary outcome these are no, then yes; a number has none."""
        return () if self.number is not None else self.classes or (self.negative, self.positive)

    @property
    def count(self) -> int:
        """C: number of classes; `NUMBER` of a number."""
        return len(self.codes) or NUMBER

    @property
    def number(self) -> tuple[float, float, Scale] | None:
        """Minimum, maximum and scale if the outcome is a number, else None."""
        if self.minimum is None or self.maximum is None:
            return None
        return self.minimum, self.maximum, self.scale


class Image(Closed):
    """A column with the path of each record's image, relative to the data file: PNG, JPEG, 16-bit PNG or DICOM.

    A pixel enters the model as a value in [-1, 1], scaled from the public range `minimum` to `maximum`. Pixels outside
    the range are clipped to it. An image of another size is resized to `height` x `width`.
    """

    column: Annotated[ColumnName, About("the path of the image, relative to the data file", unit="column")]
    channels: Annotated[Literal[1, 3], About("gray or colour")] = 1
    height: Annotated[
        int,
        Field(ge=8, le=1024),
        About(
            "images of another size are resized",
            unit="pixels",
            change="details need more; memory and time grow with it",
        ),
    ]
    width: Annotated[int, Field(ge=8, le=1024), About("images of another size are resized", unit="pixels")]
    minimum: Annotated[
        Quantity,
        About(
            "becomes -1; what lies below is clipped",
            unit="pixel value, or Hounsfield units",
            change="the images are not 8 bit",
        ),
    ] = 0.0
    maximum: Annotated[
        Quantity,
        About(
            "becomes 1; what lies above is clipped",
            unit="pixel value, or Hounsfield units",
            change="the images are not 8 bit",
        ),
    ] = 255.0

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        if self.minimum >= self.maximum:
            msg = f"minimum {self.minimum} must lie below maximum {self.maximum}"
            raise ValueError(msg)
        fault = _span_fault(self.minimum, self.maximum)
        if fault is not None and not bounds.lifted(info):
            raise bounds.broken(fault)
        return self


class DomainColumn(Closed):
    """One factor of the domain: a category column, or a number cut at public edges (left-closed bands)."""

    column: Annotated[ColumnName, About("where the factor stands; it may be a feature too", unit="column")]
    values: Annotated[
        tuple[Code, ...],
        bounds.items(32),
        About("the codes of a category, one for each name", unit="list of codes", change="the column has codes"),
    ] = ()
    edges: Annotated[
        tuple[Quantity, ...],
        bounds.items(31),
        About(
            "cuts of a number; a value at an edge lies above it",
            unit="list of numbers, column's unit",
            change="the column has numbers",
        ),
    ] = ()
    names: Annotated[
        tuple[Annotated[str, bounds.text(64)], ...],
        Field(min_length=1, max_length=32),
        About("what results call the groups", unit="list of texts"),
    ]
    unit: NumberUnit = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.values) == bool(self.edges):
            msg = "give either values or edges"
            raise ValueError(msg)
        wanted = len(self.values) or len(self.edges) + 1
        if len(self.names) != wanted:
            msg = f"{wanted} names are needed, but {len(self.names)} are given"
            raise ValueError(msg)
        if list(self.edges) != sorted(set(self.edges)):
            msg = "edges must increase"
            raise ValueError(msg)
        return self


class EnvironmentColumn(Closed):
    """In which environment a record was made (a scanner, a ward, a year): a category, or a number cut at public edges.

    Invariant training reads it (docs/design/terms.md, "IRM and GroupDRO"). It never leaves, is no input of a model,
    and no results are parted by it.
    """

    column: Annotated[
        ColumnName, About("where it stands; nothing else reads it. A prediction does not need it", unit="column")
    ]
    values: Annotated[
        tuple[Code, ...],
        bounds.items(32),
        About(
            "the codes of the environments, two or more; another cell leaves its record out",
            unit="list of codes",
            change="the column has codes",
        ),
    ] = ()
    edges: Annotated[
        tuple[Quantity, ...],
        bounds.items(31),
        About(
            "cuts of a number, as of a domain", unit="list of numbers, column's unit", change="the column has numbers"
        ),
    ] = ()
    unit: NumberUnit = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.values) == bool(self.edges):
            msg = "give either values or edges"
            raise ValueError(msg)
        if self.count < BINARY:
            msg = "one value makes one environment, and nothing to compare; list at least two values"
            raise ValueError(msg)
        if list(self.edges) != sorted(set(self.edges)):
            msg = "edges must increase"
            raise ValueError(msg)
        return self

    @property
    def count(self) -> int:
        """E: number of environments."""
        return len(self.values) or len(self.edges) + 1


class DataSchema(Closed):
    """How a silo's own file is read. Values outside the schema are errors that name file, row and column."""

    columns: Annotated[
        tuple[ColumnName, ...],
        bounds.items(8192),
        About(
            (
                "names of the columns of a file in the study's own form; empty: a header line has them. A"
                " hospital's policy takes precedence"
            ),
            unit="list of names",
            change="the files have no header line",
        ),
    ] = ()
    """The names that the study expects for the columns of a file without a header line; empty if it expects one. A
    silo's policy says what holds, and refuses a study that expects something else."""
    delimiter: Annotated[
        str,
        Field(min_length=1, max_length=1),
        About(
            "what stands between the cells of a file in the study's own form. A hospital's policy takes precedence",
            unit="one character",
            change="the files have another one",
        ),
    ] = ","
    missing: Annotated[
        tuple[Annotated[str, bounds.text(64)], ...],
        bounds.items(64),
        About(
            'cells that mean "not recorded" in every column; a hospital\'s policy may say otherwise for its file',
            unit="list of texts",
            change="files write `NA` or `?`",
        ),
    ] = ("",)
    patient: Annotated[
        ColumnName | None,
        About(
            "whose records belong together: the unit of privacy is then the patient; `null`: the record",
            unit="column",
            change="it must be the policies' `identified_by`",
            question="Column that says which records are one patient's (empty: each record is its own)",
        ),
    ] = None
    label: Annotated[Label, About("the outcome", unit="fields below", question="Outcome")]
    domain: Annotated[
        tuple[DomainColumn, ...],
        Field(min_length=1, max_length=3),
        About(
            "the groups that get a head of their own: all combinations",
            unit="factors",
            change="fewer are better where some have few patients: each shares its noise among its patients alone",
            question="Groups with a head of their own",
        ),
    ]
    features: Annotated[
        tuple[Feature, ...],
        Field(max_length=4096),
        About(
            "the inputs from columns; may be empty beside an image",
            unit="list",
            question="Column, with its public range or codes",
        ),
    ] = ()
    image: Annotated[
        Image | None,
        About(
            "one image for each record",
            unit="fields below",
            change="`model.encoder` is `cnn` or `resnet18`",
            since="0.2",
        ),
    ] = None
    environment: Annotated[
        EnvironmentColumn | None,
        About(
            (
                "in which environment (scanner, ward, year) each record was made; no input, no group of"
                " results, and it never leaves"
            ),
            unit="fields below",
            change="`irm` or `group_dro` compare environments",
            since="0.6",
        ),
    ] = None
    protected: Annotated[
        tuple[DomainColumn, ...],
        Field(max_length=4),
        About(
            (
                "attributes that `personal.adversary` hides and that `fedward-silo fairness` divides by;"
                " they never leave, and a record without a listed value is left out"
            ),
            unit="list of columns, written like `data.domain`",
            change="groups are to be compared, or an attribute hidden",
            since="0.6",
        ),
    ] = ()
    """Attributes that a personal model is to hide and that a fairness report is divided by, written like domains. Each
    record has a value of each."""

    @model_validator(mode="after")
    def _check_units(self) -> Self:
        for column, named in self._units().items():
            if len(set(named)) > 1:
                msg = f"column {column!r} is read in {' and in '.join(dict.fromkeys(named))}; name one unit"
                raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.features and self.image is None:
            msg = "give features, an image, or both"
            raise ValueError(msg)
        seen = [f.column for f in self.features] + ([] if self.image is None else [self.image.column])
        if len(set(seen)) != len(seen):
            msg = "a column is listed twice among the features"
            raise ValueError(msg)
        if self.label.column in seen:
            msg = f"the label {self.label.column!r} must not be a feature"
            raise ValueError(msg)
        known = {self.label.column: "the label"} | ({} if self.patient is None else {self.patient: "the patient"})
        known |= dict.fromkeys(seen, "a feature") | {factor.column: "a domain's factor" for factor in self.domain}
        if self.environment is not None and self.environment.column in known:
            column = self.environment.column
            msg = f"the environment {column!r} must not be {known[column]} too; name a column that nothing else reads"
            raise ValueError(msg)
        guarded = [factor.column for factor in self.protected]
        if len(set(guarded)) != len(guarded) or self.label.column in guarded:
            msg = "protected lists a column twice, or the label's; list each column once, and not the label's"
            raise ValueError(msg)
        if any(len(factor.names) < BINARY for factor in self.protected):
            msg = "protected lists a column with one value; give it two or more"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _check_bounds(self, info: ValidationInfo) -> Self:
        if bounds.lifted(info):
            return self
        domains = math.prod(len(factor.names) for factor in self.domain)
        for count, most, what, fix in (
            (domains, MOST_DOMAINS, "domains, the product of the factors' names", "name fewer"),
            (self.inputs, MOST_INPUTS, "inputs, the sum of the features' widths", "list fewer features or categories"),
        ):
            if count > most:
                fault = f"this makes {count} {what}; at most {most} are allowed: {fix}"
                raise bounds.broken(fault)
        return self

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the M domains: all combinations of the factors, in order."""
        names: tuple[str, ...] = ("",)
        for factor in self.domain:
            names = tuple(f"{a} {b}".strip() for a in names for b in factor.names)
        return names

    def _read(self) -> Iterator[NumericFeature | DomainColumn | EnvironmentColumn | Label]:
        """Everything that reads a number of a column."""
        yield from (one for one in self.features if isinstance(one, NumericFeature))
        yield from (one for one in (*self.domain, *self.protected) if one.edges)
        yield from [self.environment] if self.environment is not None and self.environment.edges else []
        yield from [self.label] if self.label.number is not None else []

    def _units(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in self._read():
            if one.unit is not None:
                found.setdefault(one.column, []).append(one.unit)
        return found

    @property
    def numbers(self) -> frozenset[str]:
        """The columns that are read as numbers."""
        return frozenset(one.column for one in self._read())

    @property
    def units(self) -> dict[str, str]:
        """The unit of each column of numbers for which one is named."""
        return {column: named[0] for column, named in self._units().items()}

    @property
    def inputs(self) -> int:
        """Width of the model's input from the features. An image is a separate input."""
        return sum(f.width for f in self.features)
