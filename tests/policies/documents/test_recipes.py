"""The table of recipes: what each row is made of, the pages that list them, and the page on recipes of one's own.

That page is followed: its row is written into the table, named by a study, and simulated.
"""

import json
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from deploy.local.simulate.engine import simulate
from policies.documents import recipes
from policies.documents.recipes import RECIPES, Composition
from policies.documents.schema import study_schema
from policies.documents.study import load_study
from silo_agent.learning.model.shared import SharedModel
from support.made_up import MadeUp
from support.studies import tiny_document, tiny_study

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"heads": "solved"}, "are not trained together"),
        ({"heads": "kept", "order": "alternating"}, "are not trained alternating"),
        ({"heads": "averaged", "order": "heads-first"}, "only if they are kept"),
        ({"heads": "kept", "encoder": "kept", "order": "heads-first"}, "the encoder is averaged"),
        ({"heads": "solved", "encoder": "kept", "order": "alternating"}, "trained in its own step"),
        ({"heads": "hessians", "order": "alternating"}, "say that it is public"),
        ({"heads": "solved", "order": "alternating", "linear": True}, "say that it is public"),
    ],
)
def test_a_composition_that_makes_no_sense_is_refused_with_the_reason(given, why):
    with pytest.raises(ValueError, match=why):
        Composition("new", "nowhere", **given)


def test_a_public_recipe_is_refused_for_private_data_whatever_it_is_made_of(monkeypatch):
    """Also one that the other rules would let pass, as it clips and noises like FedAvg."""
    monkeypatch.setattr(recipes, "RECIPES", {"new": Composition("new", "nowhere", "averaged", public=True)})
    with pytest.raises(ValueError, match=r"recipe new .* is only for data declared public"):
        tiny_study(recipe="new")
    tiny_study(
        recipe="new",
        heads={"pooled_noise": 0.0, "domain_noise": 0.0},
        encoder={"noise": 0.0},
        evaluation={"noise": 0.0},
        privacy={"mode": "none", "count_noise": 0.0},
    )


@pytest.mark.parametrize(
    ("heads", "encoder", "kept", "shares"),
    [
        ("averaged", "averaged", set(), True),
        ("kept", "averaged", {"heads"}, True),
        ("averaged", "kept", {"encoder"}, True),
        ("kept", "kept", {"heads", "encoder"}, False),
    ],
)
def test_what_is_kept_and_whether_anything_is_shared_follow_from_the_parts(heads, encoder, kept, shares):
    made = Composition("new", "nowhere", heads, encoder)
    assert (made.kept, made.keeps, made.shares) == (kept, bool(kept), shares)


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
    ("study-fields.md", "| `recipe` |", "\n"),
])  # fmt: skip
def test_both_pages_list_every_recipe(page, before, after):
    """The table of recipes, and the field's row."""
    listed = (DOCS / page).read_text().partition(before)[2].partition(after)[0]
    assert [name for name in RECIPES if f"`{name}`" not in listed] == []


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """The recipe of the page, written into the file that its first line names, where the page says."""
    page = (DOCS / "recipes-of-your-own.md").read_text()
    (written,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    path, row = re.fullmatch(r"# (\S+)\n(.*)", written, re.DOTALL).groups()
    table = re.search(r"row of `(\w+)`", page)[1]
    file = Path(recipes.__file__)
    assert file == ROOT / path
    before, at, after = file.read_text().partition(f"\n{table}: Final = (\n")
    added = tmp_path / file.name
    added.write_text(before + at + row + after)
    spec = spec_from_file_location("with_one_more", added)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    (name,) = set(module.RECIPES) - set(RECIPES)
    assert f"recipe: {name}" in page
    monkeypatch.setattr(recipes, "RECIPES", module.RECIPES)
    return module.RECIPES[name]


def test_the_pages_recipe_runs_like_any_other(registered, tmp_path):
    document = tiny_document(recipe=registered.name, encoder={"head_steps": 2, "l2r": 0.1})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(document))
    study = load_study(tmp_path / "study.yaml")
    assert study.composition is registered
    found = simulate(study, MadeUp(patients=60, test=100).draw(study, 1), seed=1)
    assert not np.array_equal(found.model.encoder, SharedModel.start(study).encoder)
    assert not found.model.heads.any()
    for without, field in (({"head_steps": 2}, "encoder.l2r"), ({"l2r": 0.1}, "encoder.head_steps")):
        with pytest.raises(ValueError, match=f"steady-rep lives by {field}"):
            tiny_study(recipe=registered.name, encoder=without)
