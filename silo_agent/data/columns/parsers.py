"""How each field of a study's schema reads the cells of its column.

Guarantees: a value follows from its cell and from public constants alone. What reads many numbers at once gives for
each the bits that reading it alone gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import (
    BINARY,
    CategoryFeature,
    DataSchema,
    DomainColumn,
    EnvironmentColumn,
    Feature,
    Label,
    NumericFeature,
)
from silo_agent.data.cells import Absence, Cell, CodeTable, identifier
from silo_agent.data.columns.number_forms import Floats, NumberForm
from silo_agent.data.columns.parsing import Make, Parser, of_codes
from silo_agent.data.errors import Unfit
from silo_agent.data.inputs import ABSENT
from silo_agent.data.outcome import place_parser

_FARTHEST: Final = 1.0 + 1e-9
"""Where rounding may put an end of a feature's range."""


def outcome_parser(label: Label) -> Make[int]:
    """Reads a cell's class, or the place of its number. Other cells are `Unfit`."""
    return of_codes(_class(label)) if label.number is None else partial(place_parser, label)


def _class(label: Label) -> Callable[[Cell], int]:
    tables = [CodeTable(codes) for codes in label.codes]
    if label.count == BINARY:
        negative, positive = tables
        expected = f"{positive} (yes) or {negative} (no)"
    else:
        expected = "; ".join(f"{table} (class {place})" for place, table in enumerate(tables))

    def parse(cell: Cell) -> int:
        places = [place for place, table in enumerate(tables) if table.find(cell) is not None]
        if len(places) > 1:
            msg = f"a code of one class, but the study lists it for {len(places)}"
            raise Unfit(msg)
        if not places:
            raise Unfit(expected)
        return places[0]

    return parse


def domain_parser(factor: DomainColumn | EnvironmentColumn, missing: Sequence[str], what: str = "domain") -> Make[int]:
    """Reads a cell's place among a factor's values. Other cells are `Unfit`."""
    absence = Absence(missing)
    codes = CodeTable(factor.values)
    if factor.edges:
        return partial(_band, factor.edges, absence, what)

    def parse_code(cell: Cell) -> int:
        place = codes.find(cell)
        if place is None:
            raise Unfit(str(codes))
        return place

    return of_codes(parse_code)


def _band(edges: Sequence[float], absence: Absence, what: str, form: NumberForm) -> Parser[int]:
    def parse(cell: Cell) -> int:
        value = None if form.covers(absence, cell) else form.number(cell)
        if value is None:
            msg = f"a number such as {form.written}: it decides the {what}"
            raise Unfit(msg)
        return int(np.searchsorted(edges, value, side="right"))

    def along(values: Floats) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return np.searchsorted(edges, values, side="right").astype(np.int64), np.ones(len(values), np.bool_)

    return Parser(parse, along, form.apart(absence), form)


def feature_parser(feature: Feature, schema: DataSchema) -> Make[float]:
    """Reads the number that stands for a cell in memory (`Inputs.cells`). Other cells are `Unfit`."""
    if isinstance(feature, NumericFeature):
        return partial(_number, feature, schema)
    return of_codes(_category(feature, schema))


def scaled_fill(feature: Feature) -> float:
    """The scaled fill; NaN if there is none, or none that can be used."""
    if not isinstance(feature, NumericFeature) or feature.fill is None:
        return math.nan
    try:
        return _scaled(feature, feature.fill)
    except (ArithmeticError, ValueError):
        return math.nan


def _scaled(feature: NumericFeature, value: float) -> float:
    """A number within the feature's range as a finite float32 in [-1, 1], or raise `ArithmeticError` or `ValueError`.

    The document bounds the range so that nothing is raised. This does not rest on it.
    """
    low, high, placed = map(feature.along, (feature.minimum, feature.maximum, value))
    scaled = 2.0 * (placed - low) / (high - low) - 1.0
    if not abs(scaled) <= _FARTHEST:
        msg = "the feature's range cannot be scaled"
        raise FloatingPointError(msg)
    return scaled


def _number(feature: NumericFeature, schema: DataSchema, form: NumberForm) -> Parser[float]:
    absence = Absence(schema.missing, feature.missing)
    fill = scaled_fill(feature)

    def parse(cell: Cell) -> float:
        if form.covers(absence, cell):
            if math.isnan(fill):
                msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]; the study gives no fill for empty cells"
                raise Unfit(msg)
            return float(ABSENT)
        value = form.number(cell)
        if value is None:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}], written like {form.written}"
            raise Unfit(msg)
        if feature.outside == "clip":
            value = min(max(value, feature.minimum), feature.maximum)
        if not feature.minimum <= value <= feature.maximum:
            msg = f"a number in [{feature.minimum:g}, {feature.maximum:g}]"
            raise Unfit(msg)
        return _scaled(feature, value)

    def along(values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        if feature.outside == "clip":
            values = np.clip(values, feature.minimum, feature.maximum)
        fits = (values >= feature.minimum) & (values <= feature.maximum)
        placed = values
        if feature.scale != "linear":
            # NumPy's logarithm may differ from Python's in the last bit.
            placed = np.zeros(len(values))
            placed[fits] = [feature.along(value) for value in values[fits].tolist()]
        low, high = feature.along(feature.minimum), feature.along(feature.maximum)
        scaled = 2.0 * (placed - low) / (high - low) - 1.0
        return scaled, fits & (np.abs(scaled) <= _FARTHEST)

    return Parser(parse, along, form.apart(absence), form)


def _category(feature: CategoryFeature, schema: DataSchema) -> Callable[[Cell], float]:
    absence = Absence(schema.missing, feature.missing)
    codes = CodeTable(feature.values)

    def parse(cell: Cell) -> float:
        """Return the place of the cell's code; absence is the last place."""
        place = codes.find(cell)
        if place is not None:
            return float(place)
        if feature.optional and absence.covers(cell):
            return float(len(feature.values))
        raise Unfit(f"{codes}, or nothing" if feature.optional else str(codes))

    return parse


def patient_parser(missing: Sequence[str]) -> Callable[[Cell], str]:
    """Return a function that reads a patient's identifier, and raises `Unfit` if it is absent."""
    absence = Absence(missing)

    def parse(cell: Cell) -> str:
        # Most identifiers are letters and digits: nothing is trimmed from these, and no fraction is taken away.
        if isinstance(cell, str) and cell.replace("-", "").isalnum() and cell not in absence.marks:
            return cell
        try:
            name = "" if absence.covers(cell) else identifier(cell)
            name.encode()
        except ValueError:
            msg = "an identifier that is text or a whole number; save the column anew as one of these"
            raise Unfit(msg) from None
        if not name:
            msg = "the patient's identifier: it decides whose budget the record uses"
            raise Unfit(msg)
        return name

    return parse
