"""A record that fails counts as zero, and alone; whatever fails, and wherever."""

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule

from policies.plan.release import encoder_release
from silo_agent.data.images import Images
from silo_agent.learning.dpsgd import gradients, training
from silo_agent.learning.dpsgd.batches import Batches
from silo_agent.learning.dpsgd.clipping import StepGrid
from silo_agent.learning.dpsgd.step import PrivateStep
from silo_agent.learning.dpsgd.training import Training, train_encoder
from silo_agent.learning.encoder.encoder import build_encoder
from silo_agent.learning.outcomes.registry import family_of
from support.entropy import SeededEntropy

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
FAULTS = [ValueError, MemoryError, ZeroDivisionError, RuntimeError, KeyError]
BAD = 0.987654


def sums(study, records):
    """The integers of two steps that everybody enters, with the noise they were given."""
    plan = study.encoder.model_copy(update={"steps": 2, "sampling_rate": 1.0, "learning_rate": 1e-9})
    found, take = [], PrivateStep.take
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            PrivateStep,
            "take",
            lambda self: found.append(np.concatenate([t.numpy() for t in self.totals])) or take(self),
        )
        train_encoder(
            Training(
                encoder=build_encoder(study.model, study.data, stochastic=False),
                heads=np.linspace(-2, 2, 15).reshape(3, 5),
                records=records,
                plan=plan,
                release=encoder_release(study.model_copy(update={"encoder": plan})),
                family=family_of(2),
                domain_weights=np.ones(3),
            ),
            mode="local",
            entropy=SeededEntropy(0),
        )
    return found


def marked(make_records, n=10, **kinds):
    """Records of which the fourth can be told by its first input."""
    records = make_records(n, **kinds)
    inputs = records.inputs.copy()
    inputs[3, 0] = BAD
    return type(records)(inputs, records.labels, records.domains, records.patients, records.identities, records.images)


def watched(monkeypatch):
    """A list that holds whether the marked record is in the batch that was taken last."""
    take, present = Batches.take, []

    def taken(self, drawn):
        batch = take(self, drawn)
        present[:] = [bool((batch.x == np.float32(BAD)).any())]
        return batch

    monkeypatch.setattr(Batches, "take", taken)
    return present


def test_a_pass_that_is_cut_short_leaves_nothing_of_its_records(make_study, make_records):
    study, records = make_study(), make_records(4)
    hooked = GradSampleModule(training._untrained(study.model, study.data, study.encoder), loss_reduction="sum")

    def cut(batch, _):
        hooked._module.encoder(batch.x)
        raise ValueError

    each = gradients.Gradients(hooked, cut, StepGrid.of(1.0, 0.0), 4)
    batches = Batches(records, np.zeros((3, 5)), np.ones(3), family_of(2), device=torch.device("cpu"), rows=4)
    with pytest.raises(ValueError):  # noqa: PT011  # the one above
        each.by_record(batches.take(np.arange(4)), None)
    assert not any(module.__dict__.get("activations") for module in hooked.modules())


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("where", ["take", "losses", "backward", "integers"])
def test_a_fault_of_one_record_moves_the_sum_by_its_own_term_alone(make_study, make_records, monkeypatch, fault, where):
    study, records = make_study(), marked(make_records)
    without = sums(study, records.of_patients(np.arange(10) != 3))

    present = watched(monkeypatch)
    owner, name = {
        "take": (Batches, "take"),
        "losses": (training, "_losses"),
        "backward": (gradients.torch.autograd, "backward"),
        "integers": (gradients, "to_integers"),
    }[where]
    call = getattr(owner, name)

    def failing(*given, **named):
        result = call(*given, **named)
        if present and present[0]:
            raise fault
        return result

    monkeypatch.setattr(owner, name, failing)
    monkeypatch.setattr(training, "_steady_rows", lambda *_: 64)
    for found, wanted in zip(sums(study, records), without, strict=True):
        assert np.array_equal(found, wanted)


def test_what_a_record_leaves_behind_costs_no_other_record_its_term(make_study, make_records, monkeypatch):
    """Its chunk cannot even be forgotten, as if memory were short at that moment."""
    study, records = make_study(), marked(make_records)
    without = sums(study, records.of_patients(np.arange(10) != 3))
    present, forget, kept = watched(monkeypatch), gradients.Gradients._forget, []

    def forgotten(self, parameters):
        begun = any(getattr(parameter, "grad_sample", None) is not None for parameter in parameters)
        if begun and present == [True]:
            kept.append(True)
            raise MemoryError
        forget(self, parameters)

    monkeypatch.setattr(gradients.Gradients, "_forget", forgotten)
    monkeypatch.setattr(training, "_steady_rows", lambda *_: 64)
    for found, wanted in zip(sums(study, records), without, strict=True):
        assert np.array_equal(found, wanted)
    assert kept


def test_a_fault_of_nobodys_record_is_raised(make_study, make_records, monkeypatch):
    def broken(*_):
        raise RuntimeError

    monkeypatch.setattr(gradients, "to_integers", broken)
    monkeypatch.setattr(training, "_steady_rows", lambda *_: 64)
    for records in (make_records(10), make_records(3).of_patients(np.zeros(3, bool))):
        with pytest.raises(RuntimeError):
            sums(make_study(), records)


def test_an_image_that_cannot_be_read_costs_no_other_record_its_term(make_study, make_records, monkeypatch):
    study, records = make_study(image=8, encoder="cnn", channels=(4, 4)), make_records(10, image=8)
    without = sums(study, records.of_patients(np.arange(10) != 3))
    take = Images.take

    def torn(self, rows):
        if 3 in np.atleast_1d(rows):
            raise OSError
        return take(self, rows)

    monkeypatch.setattr(Images, "take", torn)
    for found, wanted in zip(sums(study, records), without, strict=True):
        assert np.array_equal(found, wanted)


def test_a_patient_moves_the_integers_by_the_patients_own_and_nothing_else(make_study, make_records):
    """Whoever is drawn beside: the integers of a sum are those of each record alone, to the last bit."""
    study, records = make_study(), make_records(70)
    whole = sums(study, records)[0]
    assert np.count_nonzero(whole) > len(whole) // 2
    alone = sum(sums(study, records.of_patients(np.arange(70) == at))[0] for at in range(70))
    assert np.array_equal(whole, alone)
