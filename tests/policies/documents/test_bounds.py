"""Bounds of a study: each number, text and list has one, and a study that was stored before stays readable."""

from __future__ import annotations

import math
from typing import Annotated

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from policies.documents import bounds
from policies.documents.document import DocumentError
from policies.documents.study import Study, bounds_broken, load_study, parse_study, read_stored, require_bounds
from policies.refusals import Reason, Refused
from support.studies import tiny_document, tiny_study

FEATURE = {"kind": "number", "column": "age", "minimum": 0, "maximum": 120}
SCAN = {"column": "scan", "height": 8, "width": 8}


def with_feature(**changes):
    document = tiny_document()
    document["data"]["features"][0] |= changes
    return document


def with_data(**changes):
    document = tiny_document()
    document["data"] |= changes
    return document


def with_label(**codes):
    return with_data(label={"column": "ill", **codes})


def with_domain(**factor):
    return with_data(domain=[{"column": "group", **factor}])


def with_image(**changes):
    document = with_data(image={**SCAN, **changes})
    document["model"] |= {"encoder": "cnn", "channels": [4]}
    return document


# --- every constant has a bound ---------------------------------------------------------------------------------------
def unbounded(schema, whole, path):
    """Paths of whatever in a JSON Schema may be arbitrarily large."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return unbounded(whole["$defs"][name], whole, path)
    if either := schema.get("anyOf") or schema.get("oneOf"):
        return [found for one in either for found in unbounded(one, whole, path)]
    if "const" in schema or "enum" in schema or schema.get("type") in ("boolean", "null"):
        return []
    found = [] if bounded(schema) else [path]
    parts = {".*": schema["items"]} if schema.get("type") == "array" else schema.get("properties", {})
    return found + [deeper for name, part in parts.items() for deeper in unbounded(part, whole, f"{path}.{name}")]


def bounded(schema):
    if schema.get("type") == "object":
        return schema.get("additionalProperties") is False
    if schema.get("type") in ("number", "integer"):
        ends = [
            schema.get("minimum", schema.get("exclusiveMinimum")),
            schema.get("maximum", schema.get("exclusiveMaximum")),
        ]
        return all(isinstance(end, int | float) and math.isfinite(end) for end in ends)
    return isinstance(schema.get({"array": "maxItems", "string": "maxLength"}.get(schema.get("type"), "")), int)


def test_every_number_text_and_list_of_a_study_has_a_finite_bound():
    schema = Study.model_json_schema()
    assert unbounded(schema, schema, "study") == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "minimum": 0},
        {"type": "number", "minimum": 0, "maximum": math.inf},
        {"type": "integer", "maximum": 5},
        {"type": "string"},
        {"type": "array", "items": {"type": "boolean"}},
        {"type": "object", "properties": {}},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": "array", "maxItems": 3, "items": {"type": "string"}},
        {},
    ],
)
def test_the_search_finds_what_has_no_bound(schema):
    assert unbounded(schema, schema, "it")


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (with_feature(minimum=-1.7e308, maximum=1.7e308), ("features.0.number.minimum", "-1.7e+308", "another unit")),
        (with_feature(maximum=2e15), ("features.0.number.maximum", "2e+15 is outside -1e+15 to 1e+15")),
        (with_feature(minimum=1.0, maximum=math.nextafter(1.0, 2)), ("features.0.number", "closer than", "widen")),
        (with_feature(minimum=0, maximum=1e-13), ("features.0.number", "closer than 1e-12")),
        (with_feature(minimum=1e-13, maximum=1.0, scale="log"), ("features.0.number", "for scale log")),
        (with_feature(missing=[10**4000]), ("missing.0", "more than 40 digits", "in quotes")),
        (with_feature(missing=[2**53 + 2]), ("missing.0", "9007199254740994 is outside", "in quotes")),
        (with_feature(missing=["x" * 201]), ("missing.0", "201 characters", "at most 200")),
        (with_feature(missing=[7] * 1025), ("missing", "1025 entries", "at most 1024")),
        (with_feature(column="a\x1b[2J"), ("column", "control character")),
        (with_label(positive=[1e300], negative=[0]), ("label.positive.0", "1e+300 is outside")),
        (with_label(positive=list(range(1025)), negative=[-1]), ("label.positive", "1025 entries")),
        (with_domain(values=["a"], names=["n" * 65]), ("domain.0.names.0", "65 characters")),
        (with_domain(values=["a"], names=["n\u202e"]), ("domain.0.names.0", "control character")),
        (with_domain(edges=[1e16], names=["a", "b"]), ("domain.0.edges.0", "1e+16 is outside")),
        (with_data(missing=["x"] * 65), ("data.missing", "65 entries")),
        (with_data(missing=["x" * 65]), ("data.missing.0", "65 characters")),
        (with_data(columns=["c"] * 8193), ("data.columns", "8193 entries")),
        (
            with_data(
                domain=[{"column": c, "values": [*range(21)], "names": list("abcdefghijklmnopqrstu")} for c in "xyz"]
            ),
            ("data", "this makes 9261 domains", "at most 8192", "name fewer"),
        ),
        (
            with_data(
                features=[{"kind": "category", "column": f"c{i}", "values": [*range(64)]} for i in range(257)],
            ),
            ("data", "this makes 16448 inputs", "at most 16384"),
        ),
        (with_image(minimum=0, maximum=1e-300), ("data.image", "closer than")),
        (with_image(minimum=-1e300, maximum=0), ("data.image.minimum", "-1e+300 is outside")),
        (tiny_document(model={"gain": 1e9}), ("model.gain", "outside 1e-06 to 1000")),
        (tiny_document(heads={"repair": 1e300}), ("heads.repair",)),
        (tiny_document(heads={"max_step": 1e300}), ("heads.max_step",)),
        (tiny_document(heads={"clip": 1e-300}), ("heads.clip",)),
        (tiny_document(heads={"clip": 9.9e-4}), ("heads.clip",)),
        (tiny_document(heads={"domain_noise": 1e-300}), ("heads.domain_noise", "outside 0, or 0.001 to 1e+06")),
        (tiny_document(encoder={"learning_rate": 1e39}), ("encoder.learning_rate", "1e+39")),
        (tiny_document(encoder={"clip": 1e39}), ("encoder.clip",)),
        (tiny_document(encoder={"max_update": 1e39}), ("encoder.max_update",)),
        (tiny_document(personal={"learning_rate": 1e39}), ("personal.learning_rate", "1e+39 is outside 1e-09 to 10")),
        (tiny_document(personal={"ditto": 1e39}), ("personal.ditto",)),
        (tiny_document(personal={"mmd": 1e39}), ("personal.mmd",)),
        (tiny_document(privacy={"delta": 1e-300}), ("privacy.delta",)),
        (tiny_document(deadlines={"train": 1e300}), ("deadlines.train", "at most 30 days")),
        (tiny_document(purpose="x\x07"), ("purpose", "control character")),
    ],
)
def test_a_constant_that_no_hospital_needs_is_refused_with_field_value_and_fix(document, says):
    with pytest.raises(ValidationError) as caught:
        Study.model_validate(document)
    for part in says:
        assert part in str(caught.value)
    # Stored before the bound existed, it is still read, as what it was; but nobody may go on with it.
    stored = Study.model_validate(document, context=bounds.STORED)
    read = parse_study(stored.canonical(), stored.digest)
    assert read == stored
    faults = " ".join(bounds_broken(read))
    for part in says:
        assert part in faults
    with pytest.raises(Refused) as refused:
        require_bounds(read)
    assert refused.value.reason is Reason.BOUNDS


def numbers_of(document, *way):
    """Ways to all numbers of a document that may have a fraction."""
    if isinstance(document, dict):
        return [found for name, part in document.items() for found in numbers_of(part, *way, name)]
    if isinstance(document, list | tuple):
        return [found for place, part in enumerate(document) for found in numbers_of(part, *way, place)]
    return [way] if isinstance(document, float) else []


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_refused_in_every_field_and_of_a_stored_study_too(number):
    whole = tiny_document(
        personal={}, expected={"patients": [9] * 3, "shares": [0.5, 0.5], "prevalence": 0.5, "effect": 0.7}
    )
    whole = Study.model_validate(whole).model_dump()
    ways = numbers_of(whole)
    assert {("model", "gain"), ("deadlines", "train"), ("data", "features", 1, "maximum")} < set(ways)
    for way in ways:
        for context in (None, bounds.STORED):
            with pytest.raises((ValidationError, Refused)):
                Study.model_validate(replaced(whole, way, number), context=context)


def replaced(document, way, value):
    """The document with another value at the end of a way."""
    if not way:
        return value
    copy = dict(document) if isinstance(document, dict) else dict(enumerate(document))
    copy[way[0]] = replaced(copy[way[0]], way[1:], value)
    return copy if isinstance(document, dict) else tuple(copy.values())


def test_the_author_of_a_study_is_told_file_field_value_and_fix(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(tiny_document(personal={"learning_rate": 1e39})))
    says = r"study\.yaml: field personal\.learning_rate: 1e\+39 is outside 1e-09 to 10; choose one within"
    with pytest.raises(DocumentError, match=says):
        load_study(path)


def test_an_integer_that_no_program_prints_is_refused_however_it_is_read():
    study = tiny_study()
    huge = study.canonical().replace(b'"positive":[1]', b'"positive":[1' + b"0" * 5000 + b"]")
    for read in (Study.model_validate_json, read_stored):
        with pytest.raises(ValueError, match="number out of range"):
            read(huge)


def test_a_study_within_the_bounds_breaks_none(make_study):
    for study in (tiny_study(), make_study(), tiny_study(purpose="Two\nlines.")):
        assert bounds_broken(study) == ()
        require_bounds(study)


def test_a_refusal_names_the_first_bounds_and_counts_the_rest():
    document = tiny_document(encoder={"learning_rate": 1e39, "clip": 1e39, "max_update": 1e39}, model={"gain": 1e39})
    with pytest.raises(Refused, match=r"; and 1 more$") as refused:
        require_bounds(Study.model_validate(document, context=bounds.STORED))
    assert len(refused.value.text) < 1000


def test_only_the_context_of_a_stored_study_lifts_the_bounds():
    number = TypeAdapter(Annotated[float, bounds.within(0, 1)])
    for context in (None, {}, {"stored": False}, {"other": True}):
        with pytest.raises(ValidationError):
            number.validate_python(2.0, context=context)
    assert number.validate_python(2.0, context=bounds.STORED) == 2.0
    assert number.validate_python(1.0) == 1.0
