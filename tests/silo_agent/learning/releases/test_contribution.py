"""What every contribution keeps, asked of each: `contribute` reads records, `open` reads sums, nothing else differs."""

import inspect
import json
from dataclasses import replace

import numpy as np
import pytest

from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.learning.device import choose_device
from silo_agent.learning.each_record import sum_records
from silo_agent.learning.errors import NoiseParametersError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Setting
from silo_agent.learning.releases.counts import Counts, noised_counts
from silo_agent.learning.releases.encoder import UPDATE_STEPS, EncoderUpdates
from silo_agent.learning.releases.heads import Heads
from silo_agent.learning.releases.metrics import MetricSums
from silo_agent.learning.releases.noising import SumGrid, draw, summed
from silo_agent.logs import TrainingLog
from silo_agent.storage.errors import LocalFileError
from support.entropy import SeededEntropy

KINDS = {Tensor.COUNTS: Counts, Tensor.HEADS: Heads, Tensor.ENCODER: EncoderUpdates, Tensor.METRICS: MetricSums}
EVERY = pytest.mark.parametrize("tensor", KINDS)


def setting_of(study, folder, seed=1):
    folder.mkdir(exist_ok=True)
    log = TrainingLog(folder / "training.jsonl")
    return Setting(study, folder, SeededEntropy(seed), choose_device("cpu"), log)


def due(study, tensor):
    number = {Tensor.COUNTS: 0, Tensor.METRICS: plan(study).last}.get(tensor, 1)
    return plan(study).release(number, tensor), Place(study.digest, number, 1)


@pytest.fixture(params=[2, 4])
def study(request, make_study):
    return make_study(classes=request.param, cmi=0.1)


@pytest.fixture
def records(study, make_records):
    return make_records(50, classes=study.data.label.count)


@EVERY
def test_a_contribution_lies_within_its_limit_and_its_sum_means_something(study, records, tmp_path, tensor):
    setting, model = setting_of(study, tmp_path / "silo"), SharedModel.start(study)
    (setting.folder / "counts.json").write_text(json.dumps([20.0, 20.0, 20.0]))
    contribution = KINDS[tensor](setting)
    release, place = due(study, tensor)
    integers = contribution.contribute(release, records, place, model, 3)
    assert np.abs(integers).max() <= contribution.limit
    opened = contribution.open(release, 3 * integers, place, model, 3)
    assert (opened.model is model) == (tensor is not Tensor.ENCODER)
    assert (opened.unsolved is not None) == (tensor is Tensor.HEADS)
    assert (opened.results is not None) == (tensor is Tensor.METRICS)


@EVERY
def test_opening_reads_no_randomness_so_every_silo_gets_the_same(study, tmp_path, tensor):
    model, (release, place) = SharedModel.start(study), due(study, tensor)
    size = {Tensor.COUNTS: 3, Tensor.ENCODER: len(model.encoder) + len(model.prior)}.get(tensor, 3 * 4 * 20)
    if tensor is Tensor.METRICS:
        size = 3 * study.data.label.count * study.evaluation.bins * (1 if study.data.label.count == 2 else 2)
    total = np.arange(size, dtype=np.int64) << 12
    opened = [KINDS[tensor](setting_of(study, tmp_path / str(seed), seed)).open(release, total, place, model, 3)
              for seed in (1, 2)]  # fmt: skip
    assert opened[0].model.digest == opened[1].model.digest
    assert opened[0].results == opened[1].results


def test_each_takes_what_was_charged_and_cannot_be_called_without():
    for kind in KINDS.values():
        for method in (kind.contribute, kind.open):
            first = list(inspect.signature(method).parameters.values())[1]
            assert first.annotation == "Release"
            assert first.default is inspect.Parameter.empty


@pytest.mark.parametrize("tensor", [Tensor.COUNTS, Tensor.HEADS, Tensor.METRICS])
def test_a_record_whose_term_fails_is_left_out_alone_and_stops_a_rehearsal(
    study, records, tmp_path, monkeypatch, tensor
):
    model, (release, place) = SharedModel.start(study), due(study, tensor)

    def sent(name, cohort):
        return KINDS[tensor](setting_of(study, tmp_path / name)).contribute(release, cohort, place, model, 3)

    whole, others = sent("whole", records), sent("others", records.of_patients(np.arange(50) != 7))

    def spoilt(count, values, term, **named):
        def failing(rows):
            if 7 in rows:
                raise MemoryError
            return term(rows)

        return sum_records(count, values, failing, **named)

    monkeypatch.setattr(inspect.getmodule(KINDS[tensor]), "sum_records", spoilt)
    found = sent("without one", records)
    assert np.abs(found - others).max() <= 1, "how sums are rounded"
    assert np.abs(found - whole).max() > 1000
    with pytest.raises(MemoryError):
        KINDS[tensor](setting_of(study, tmp_path / "rehearsed")).rehearse(release, records, place, model)


def test_counts_are_remembered_as_they_were_opened(make_study, tmp_path):
    study = make_study()
    setting, (release, place) = setting_of(study, tmp_path / "silo"), due(study, Tensor.COUNTS)
    with pytest.raises(LocalFileError):
        noised_counts(setting.folder)
    total = np.array([5, -3, 7], np.int64)
    Counts(setting).open(release, total, place, SharedModel.start(study), 3)
    np.testing.assert_array_equal(noised_counts(setting.folder), total * SumGrid.of(study).step)


def test_one_draw_is_one_line_of_the_log_with_the_noise_that_was_drawn(make_study, tmp_path):
    study = make_study()
    setting, (release, place) = setting_of(study, tmp_path / "silo"), due(study, Tensor.HEADS)
    release = replace(release, values=40_000)
    integers = draw(setting, np.zeros(40_000), release, place, silos=3)
    values, sd = summed(study, integers, release, 1)
    assert values.std() == pytest.approx(sd, rel=0.02)
    (line,) = map(json.loads, (setting.folder / "training.jsonl").read_text().splitlines())
    assert (line["tensor"], line["noise_multiplier"], line["cohort"]) == ("heads", release.noise, release.cohort)


def test_without_noise_nothing_is_drawn_and_nothing_logged(make_study, tmp_path):
    study = make_study()
    setting, (release, place) = setting_of(study, tmp_path / "silo"), due(study, Tensor.HEADS)
    nothing = replace(release, noise=0.0, values=4)
    with pytest.raises(NoiseParametersError, match="noise"):
        draw(setting, np.zeros(4), nothing, place, silos=3)
    assert not (setting.folder / "training.jsonl").exists()


def test_an_update_of_the_largest_study_fits_each_ring(make_study, tmp_path):
    study = make_study()
    for ring, steps in UPDATE_STEPS.items():
        sealed = study.model_copy(update={"encoder": study.encoder.model_copy(update={"sealing": ring})})
        assert EncoderUpdates(setting_of(sealed, tmp_path / ring)).limit == steps
