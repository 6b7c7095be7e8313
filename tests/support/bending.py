"""JSON documents bent at one place: what a reader must refuse by name, whatever stands there."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

FOREIGN = (
    None,
    True,
    0,
    1,
    -1,
    0.5,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "a" * 64,
    [],
    [[]],
    {},
    {"a": 1},
)


def places(document: Any) -> list[tuple[Any, ...]]:
    """The way to every value below the document."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [way for key, value in pairs for way in ((key,), *((key, *rest) for rest in places(value)))]


@st.composite
def bent(draw: st.DrawFn, document: Any) -> Any:
    """The document with one value removed, put twice, exchanged for another of its own, or for a foreign one."""
    whole = deepcopy(document)
    *above, key = draw(st.sampled_from(places(whole)))
    holder = whole
    for step in above:
        holder = holder[step]
    match draw(st.sampled_from(["foreign", "own", "removed", "twice"])):
        case "foreign":
            holder[key] = deepcopy(draw(st.sampled_from(FOREIGN)))
        case "own":
            other: Any = document
            for step in draw(st.sampled_from(places(document))):
                other = other[step]
            holder[key] = deepcopy(other)
        case "removed":
            del holder[key]
        case _:
            holder[key] = [deepcopy(holder[key]), deepcopy(holder[key])]
    return whole


def as_json(document: Any) -> str:
    """As another program may write it, with what JSON has no word for."""
    return json.dumps(document, allow_nan=True)
