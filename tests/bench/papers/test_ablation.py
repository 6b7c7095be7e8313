import numpy as np
import pytest

from bench.papers import ablation
from policies.plan.release import plan


@pytest.mark.parametrize("row", ablation.ROWS, ids=lambda row: row.name)
def test_every_row_is_a_study_with_the_parts_that_its_name_says(row):
    study = ablation.study_of(row)
    assert study.rounds == ablation.ROUNDS
    assert (study.encoder.weight_clip > 1) == ("re-weighting" in row.name)
    assert (study.heads.domain_rounds > 0) == ("heads" in row.name)
    assert (study.model.representation == ablation.PROJECTED) == ("projection" in row.name)
    assert (study.data.features[-1].column == ablation.GROUP) == ("domain as input" in row.name)
    assert ("heads" in plan(study).tensors(ablation.ROUNDS)) == ("alternation" in row.name or "SA" in row.name)
    assert ("encoder" in plan(study).tensors(ablation.ROUNDS)) == ("alternation" not in row.name)


def test_the_order_is_judged_by_the_means_of_whole_tables_only():
    found = {row.name: np.full((3, 4), row.paper[0]) + np.arange(3)[:, None] / 1e4 for row in ablation.ROWS}
    assert all(figure.met for figure in ablation._order(found))
    found[ablation.WORST.name] += 1.0
    assert not any(figure.met for figure in ablation._order(found))
    del found[ablation.WORST.name]
    assert ablation._order(found) == []


def test_a_wide_representation_may_lose_little_and_nothing_may_be_infinite():
    good = np.full((2, 4), 0.85)
    assert all(figure.met for figure in ablation._stable({16: good, 64: good - 0.01, 128: good + 0.1}))
    broken = good.copy()
    broken[0, 3] = np.inf
    met = [figure.met for figure in ablation._stable({16: good, 64: good - 0.05, 128: broken})]
    assert met == [True, False, False]
