import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from policies.documents.recipes.registry import RECIPES
from policies.documents.schema import study_schema
from support.studies import tiny_study

DOCS = Path(__file__).parents[4] / "docs"


def test_the_registry_and_the_study_know_the_same_recipes():
    assert tuple(RECIPES) == tuple(json.loads(study_schema())["properties"]["recipe"]["enum"])
    assert all(name == recipe.name for name, recipe in RECIPES.items())


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.needs])
def test_a_recipe_without_what_it_lives_by_is_refused_by_name(name):
    with pytest.raises(ValueError, match=f"recipe {name} lives by {RECIPES[name].needs[0][0]}"):
        tiny_study(recipe=name)


def test_another_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValidationError, match=r"'second-order' or .*'lg-fedavg'"):
        tiny_study(recipe="lg_fedavg")


@pytest.mark.parametrize(("page", "before", "after"), [
    ("design/recipes.md", "| `recipe` | encoder |", "\n\n"),
    ("studies.md", "| `recipe` |", "\n"),
])  # fmt: skip
def test_both_pages_list_every_recipe(page, before, after):
    """The table of recipes, and the field's row."""
    listed = (DOCS / page).read_text().partition(before)[2].partition(after)[0]
    assert [name for name in RECIPES if f"`{name}`" not in listed] == []
