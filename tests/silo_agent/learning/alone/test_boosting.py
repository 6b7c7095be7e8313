import dataclasses

import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.alone import boosting
from silo_agent.learning.alone.boosting import ROUNDS, Trees, boost, boosted, staged
from silo_agent.learning.outcomes.links import losses


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
def test_the_arrays_predict_what_scikit_learn_does(designed, classes):
    design, fresh = designed(classes), designed(classes, seed=1)
    trees, model = boosted(design, 4, 20), boost(design, 4, 20)
    wanted = model.decision_function(fresh.x) if classes != NUMBER else model.predict(fresh.x)
    np.testing.assert_allclose(trees.logits(fresh.x), np.reshape(wanted, (300, -1)), atol=1e-9)
    assert trees.roots.shape == (20, 3 if classes == 3 else 1)
    chance = np.zeros_like(trees.logits(fresh.x))
    fitted = losses(trees.logits(fresh.x), fresh.labels, fresh.family).mean()
    assert fitted < 0.9 * losses(chance, fresh.labels, fresh.family).mean()


def test_stages_are_the_fits_with_fewer_trees(designed):
    design, fresh = designed(2), designed(2, seed=1)
    found = staged(boost(design, 4, max(ROUNDS)), fresh.x, design)
    assert len(found) == len(ROUNDS)
    for trees, logits in zip(ROUNDS[:2], found, strict=False):
        np.testing.assert_allclose(logits, boosted(design, 4, trees).logits(fresh.x), atol=1e-9)


def test_a_value_at_an_edge_goes_left_as_in_scikit_learn(designed):
    design = designed(2)
    model = boost(design, 4, 5)
    trees = boosted(design, 4, 5)
    x = np.tile(design.x[:1], (len(trees.edge), 1))
    inner = trees.left != np.arange(len(trees.left))
    x[np.arange(len(x)), trees.column] = trees.edge
    np.testing.assert_allclose(trees.logits(x[inner])[:, 0], model.decision_function(x[inner]), atol=1e-9)


def test_a_patient_who_counts_more_moves_more(designed):
    design = designed(2)
    heavy = dataclasses.replace(design, counted=np.where(design.labels == 1, 1.0, 0.01))
    assert boosted(heavy, 4, 10).logits(design.x).mean() > boosted(design, 4, 10).logits(design.x).mean() + 0.5


def test_another_form_of_scikit_learns_trees_is_told(designed, monkeypatch):
    arrays = boosting._arrays

    def other(model, rows):
        found = arrays(model, rows)
        return dataclasses.replace(found, value=found.value * 1.001)

    monkeypatch.setattr(boosting, "_arrays", other)
    with pytest.raises(RuntimeError, match="constraints file"):
        boosted(designed(2), 4, 5)


def test_they_come_back_from_their_tensors_and_nothing_that_could_hang_or_fail_does(designed):
    found = boosted(designed(3), 4, 3)
    tensors, x = found.tensors(), designed(3, seed=1).x
    np.testing.assert_array_equal(Trees.parse(tensors, 3, 3).logits(x), found.logits(x))
    inner = int(np.flatnonzero(found.left != np.arange(len(found.left)))[0])

    def with_(name, value, place=inner):
        changed = tensors[name].copy()
        changed[place] = value
        return tensors | {name: changed}

    for spoilt in (
        {},
        tensors | {"more": tensors["edge"]},
        tensors | {"edge": tensors["edge"][1:]},
        tensors | {"start": tensors["start"][:1]},
        tensors | {"roots": tensors["roots"][:, :2]},
        tensors | {"roots": tensors["roots"].ravel()},
        with_("left", inner),
        with_("right", 0, inner + 1),
        with_("left", len(found.left)),
        with_("right", -1),
        with_("column", 3),
        with_("column", -1),
        with_("roots", len(found.left), (0, 0)),
        with_("roots", -1, (0, 0)),
        with_("edge", np.nan),
        with_("value", np.inf),
        with_("start", np.nan, 0),
    ):
        with pytest.raises(ValueError, match="it"):
            Trees.parse(spoilt, 3, 3)
    with pytest.raises(ValueError, match="fit each other"):
        Trees.parse(tensors, 1, 3)
