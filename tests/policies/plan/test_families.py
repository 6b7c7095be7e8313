from __future__ import annotations

import pytest

from policies.documents.study import NUMBER
from policies.plan.families import MOMENT_CELLS, TARGET_STEPS, form_of


def test_two_classes_share_a_logit_and_a_bin_has_one_cell() -> None:
    form = form_of(2)
    assert (form.name, form.classes, form.logits, form.cells_per_bin) == ("bernoulli", 2, 1, 1)


@pytest.mark.parametrize("classes", [3, 64])
def test_more_classes_have_a_logit_each_and_two_cells_to_a_bin(classes: int) -> None:
    form = form_of(classes)
    assert (form.name, form.classes, form.logits, form.cells_per_bin) == ("categorical", classes, classes, 2)


def test_a_number_has_one_row_and_cells_of_moments_instead_of_bins() -> None:
    form = form_of(NUMBER)
    assert (form.name, form.classes, form.logits, form.cells_per_bin) == ("squared", 1, 1, 0)
    sizes = outcomes = len(("how many", "sum", "squares", "cubes", "fourth powers"))
    assert (form.cells(10), form.labels) == (MOMENT_CELLS, TARGET_STEPS + 1) == (sizes + outcomes + 1, 2**20 + 1)
    assert (form_of(2).cells(10), form_of(3).cells(10), form_of(3).labels) == (10, 20, 3)
