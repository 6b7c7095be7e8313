from __future__ import annotations

import pytest

from policies.plan.families import form_of


def test_two_classes_share_a_logit_and_a_bin_has_one_cell() -> None:
    form = form_of(2)
    assert (form.name, form.classes, form.logits, form.cells_per_bin) == ("bernoulli", 2, 1, 1)


@pytest.mark.parametrize("classes", [3, 64])
def test_more_classes_have_a_logit_each_and_two_cells_to_a_bin(classes: int) -> None:
    form = form_of(classes)
    assert (form.name, form.classes, form.logits, form.cells_per_bin) == ("categorical", classes, classes, 2)
