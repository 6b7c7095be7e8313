"""The page on recipes of one's own, followed: its file is written, registered, named by a study, and simulated."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import yaml

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.made_up_records import MadeUp
from policies.documents import recipes
from policies.documents.recipes import registry
from policies.documents.study import load_study
from silo_agent.learning.model import SharedModel
from support.studies import tiny_document, tiny_study

PAGE = Path(__file__).parents[4] / "docs" / "recipes-of-your-own.md"


@pytest.fixture
def registered(monkeypatch, tmp_path):
    """The recipe of the page, written where its first line says and registered as the page says."""
    page = PAGE.read_text()
    (written,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    folder, file = re.match(r"# (.*)/(\w+\.py)\n", written).groups()
    assert folder == recipes.__name__.replace(".", "/")
    (tmp_path / file).write_text(written)
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(tmp_path)])
    module = f"{recipes.__name__}.{Path(file).stem}"
    name = re.search(r"Add `(\w+)` to `RECIPES`", page)[1]
    made = getattr(import_module(module), name)
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.delattr(recipes, Path(file).stem)
    monkeypatch.setattr(registry, "RECIPES", MappingProxyType({**registry.RECIPES, made.name: made}))
    assert f"recipe: {made.name}" in page
    return made


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
