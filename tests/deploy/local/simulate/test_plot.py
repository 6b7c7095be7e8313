"""What a drawing of a simulation shows, and where."""

import pytest

from deploy.local.drawing import plain_axes
from deploy.local.simulate import plot
from deploy.local.simulate.engine import simulate
from deploy.local.simulate.summary import Simulated
from support.made_up import MadeUp
from support.studies import tiny_study


@pytest.mark.parametrize(("public", "records"), [(None, "made-up"), ("made for a test", "public")])
def test_a_row_for_each_domain_and_the_mean_and_the_worst_set_apart(monkeypatch, tmp_path, public, records):
    study, drawn = tiny_study(), []
    monkeypatch.setattr(plot, "plain_axes", lambda height: drawn.append(plain_axes(height)) or drawn[0])
    runs = [simulate(study, MadeUp(60, 0.3, test=200).draw(study, seed), seed=seed) for seed in (1, 2)]
    plot.draw(Simulated(study, runs, public, {"north": 60}, {}, {"alone": runs}), tmp_path / "out.svg")
    ((_, axes),) = drawn
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "Mean", "Worst domain"]
    assert axes.get_yticks().tolist() == pytest.approx([0, 1, 2.35, 3.35])
    assert axes.get_ylim() == pytest.approx((3.95, -0.6)), "the first row stands at the top, and all are seen"
    (wash,) = axes.patches
    ends = wash.get_extents().transformed(axes.transData.inverted()).intervaly
    assert sorted(ends) == pytest.approx([1.85, 3.85])
    assert axes.get_xlabel() == f"AUC on {records} test records"
    (first, second, means), *_ = [axes.collections[n : n + 3] for n in (0, 3)]
    for dots, run in ((first, runs[0]), (second, runs[1])):
        wanted = [*(own.auc for own in run.exact), run.mean, run.worst()]
        assert dots.get_offsets()[:, 0].tolist() == pytest.approx(wanted)
    both = (first.get_offsets()[:, 0] + second.get_offsets()[:, 0]) / 2
    assert means.get_offsets()[:, 0].tolist() == pytest.approx(both.tolist())
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["study", "alone"]
