import numpy as np
import pytest

from bench.accuracy import clip
from bench.accuracy.clip import ClippedRun
from deploy.local.simulate.outcome import Exact


def runs(area, ratio):
    one = Exact(area, None, None, 100, 50)
    study = clip.study_of(4.0, number=False)
    return [ClippedRun(study, seed, (one,), one, ratio) for seed in range(3)]


def judged(worst, own, ratio):
    found = {(1.0, "own"): runs(own, 0.7), (1.0, "worst"): runs(worst, ratio)}
    return [one.met for one in clip.judged("law", found)]


@pytest.mark.parametrize(("worst", "met"), [(0.8, True), (0.7985, True), (0.7975, False), (0.9, True)])
def test_the_outcome_blind_clip_may_cost_next_to_nothing(worst, met):
    assert judged(worst, 0.8, 1.0) == [met, True]


@pytest.mark.parametrize(("ratio", "met"), [(0.975, True), (0.965, False), (1.035, False)])
def test_risks_of_the_rare_patients_are_right(ratio, met):
    assert judged(0.8, 0.8, ratio) == [True, met]


def test_of_a_number_the_figure_alone_is_judged():
    assert judged(0.8, 0.8, np.nan) == [True]


def test_the_law_has_its_prevalence_and_a_rare_column_without_effect():
    people = clip.Columns(number=False).draw(None, 1).measured[0]
    assert people.labels.mean() == pytest.approx(clip.PREVALENCE, abs=0.01)
    assert (people.inputs[:][:, -1] > 0).mean() == pytest.approx(0.1, abs=0.01)
    assert clip.EFFECTS[-1] == 0.0


def test_studies_differ_in_their_clip_alone():
    own, worst = (clip.study_of(2.0, number=False, clip=1.0, clip_by=by) for by in ("own", "worst"))
    assert (own.heads.clip_by, worst.heads.clip_by) == ("own", "worst")
    assert own.model_copy(update={"heads": worst.heads}) == worst
    assert own.heads.domain_noise == worst.heads.domain_noise
