"""What a field says of itself is whole, is true of the rules, and reaches everything that is told of fields."""

import re

import pytest

from policies.documents.about import FIRST, described
from policies.documents.consistency import faults
from policies.documents.fields import StudyFields
from policies.documents.recipes import RECIPES, Composition
from policies.documents.writing import write_study
from support.studies import tiny_document, tiny_study

FIELDS = {one.path: one for one in described(StudyFields)}
SAID = {path: one.about for path, one in FIELDS.items()}
READ_BY_SOME = [path for path, about in SAID.items() if about is not None and about.read_by]
OTHER = {
    "heads.solver": "hierarchical",
    "heads.pooled_share": 0.5,
    "heads.domain_rounds": 3,
    "heads.pooled_noise": 7.0,
    "heads.domain_noise": 7.0,
    "heads.calibration": "pooled",
    "heads.calibration_noise": 3.0,
    "heads.repair": 2.0,
    "heads.max_step": 3.0,
    "heads.steps": 3,
    "heads.learning_rate": 0.5,
    "heads.ridge": 0.5,
    "encoder.warm_up": 1,
    "encoder.every": 2,
    "encoder.together": True,
    "encoder.rounds": 1,
    "encoder.head_steps": 1,
    "encoder.proximal": 0.1,
    "encoder.sealed_steps": True,
}
"""Another value than the default, or than that of the tiny study."""
IGNORED = {
    "heads.pooled_share",
    "heads.pooled_noise",
    "heads.domain_noise",
    "heads.repair",
    "heads.max_step",
    "heads.steps",
    "heads.learning_rate",
    "heads.ridge",
}
"""Recipes that do not read these take any value: they have one in every study, or did before a rule could say no."""


def test_every_field_says_what_it_does_and_when_it_came():
    for path, about in SAID.items():
        assert about is not None, path
        assert about.effect, path
        assert about.since in {FIRST, "0.2", "0.3", "0.6", "0.7"}, path
        assert not re.search(r"[\n|]", about.effect + about.change + about.unit), path
        assert not re.search(r"[\n`]", about.comment), path
        assert about.since == FIRST or not FIELDS[path].field.is_required(), f"{path}: an older study cannot be read"


def test_a_study_with_all_sections_keeps_its_name():
    """A field that came later, and does not say so, would change it: ledgers, labels and models carry the name."""
    age = {"kind": "number", "column": "age", "minimum": 0, "maximum": 9}
    ward = {"column": "ward", "values": ["a", "b"]}
    study = tiny_study(
        personal={},
        expected={"patients": [100]},
        model={"encoder": "cnn"},
        data={
            "image": {"column": "scan", "height": 32, "width": 32},
            "environment": ward,
            "protected": [{"column": "sex", "values": ["f", "m"], "names": ["f", "m"]}],
            "features": [age, {"kind": "category", "column": "sort", "values": ["a", "b"]}],
        },
    )
    assert study.digest == "af75a925e11f1dc1cf75463d681232dffc62ab6f55177b58996321e02d6a0b1b"


def test_every_entry_of_a_list_has_its_fields_whatever_its_kind():
    assert {"data.features[number].minimum", "data.features[category].values"} <= FIELDS.keys()
    assert {"data.domain[].names", "data.protected[].names", "data.label.scale", "personal.ditto"} <= FIELDS.keys()
    sections = {path for path, one in FIELDS.items() if one.is_section and "." not in path}
    parts = {"data", "model", "heads", "encoder", "evaluation", "privacy", "deadlines"}
    assert sections == parts | {"personal", "expected"}


def said_by(recipe, **changes):
    one_head = {"heads": {"domain_rounds": 0}} if RECIPES[recipe].one_head else {}
    document = tiny_document(recipe=recipe, **one_head)
    for part, values in changes.items():
        document[part] |= values
    return {fault.text for fault in faults(StudyFields.model_validate(document))}


@pytest.mark.parametrize("path", READ_BY_SOME)
def test_a_recipe_refuses_a_field_that_it_does_not_read_or_ignores_it(path):
    part, _, name = path.partition(".")
    read_by = SAID[path].read_by
    assert isinstance(getattr(Composition, read_by), property)
    others = [recipe for recipe, row in RECIPES.items() if not getattr(row, read_by)]
    assert others
    refused = [path in " ".join(said_by(one, **{part: {name: OTHER[path]}}) - said_by(one)) for one in others]
    assert any(refused) is all(refused) is (path not in IGNORED)
    readers = set(RECIPES) - set(others)
    assert readers
    assert not any(
        re.search(rf"has no {path}|{path}[^;]*leave it out", " ".join(said_by(one, **{part: {name: OTHER[path]}})))
        for one in readers & {"second-order", "fedavg", "fedprox", "fedrep"}
    )


def test_a_written_study_has_the_comment_of_every_field():
    text = write_study(tiny_study(personal={}, expected={"patients": [100]}))
    assert "  # each combination gets a head of its own" in text
    for path, about in SAID.items():
        if about.comment:
            line = rf"^ *{path.rpartition('.')[2]}:.*  # {re.escape(about.comment)}$"
            assert re.search(line, text, re.MULTILINE), path
