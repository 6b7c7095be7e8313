import dataclasses

import numpy as np
import pytest

from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.errors import AdaptError
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal import adapt as module
from silo_agent.learning.personal.adapt import adapt, part_of
from silo_agent.learning.personal.choice import ERRORS, FEWEST, CandidateGain
from silo_agent.learning.personal.cross_validation import losses_of
from silo_agent.learning.personal.model import PersonalModel
from support.studies import tiny_study

WIDE = {"hidden": [], "representation": 2}


def shared_of(recipe, heads=((8.0, 0.0, 0.0), (0.0, 8.0, 0.0)), **changes):
    """A shared model whose heads read phi's first value in domain a, and its second in b; the encoder as it starts."""
    study = tiny_study(recipe=recipe, model=WIDE, personal={"learning_rate": 0.2, "batch_size": 32}, **changes)
    return SharedModel.start(study).with_heads(np.array(heads), 2)


def patients(make_records, n, *, turned=1, seed=0, slope=6.0):
    """Illness follows x[turned] in domain a, and the other value in domain b."""
    records = make_records(n, seed=seed, inputs=2, domains=2)
    decides = np.where(records.domains == 0, records.inputs[:, turned], records.inputs[:, 1 - turned])
    risk = 1 / (1 + np.exp(-slope * decides))
    labels = (np.random.default_rng(seed + 1).random(n) < risk).astype(np.int64)
    return dataclasses.replace(records, labels=labels)


def area(model, records):
    found = auc(model.predict(records.inputs, records.domains)[:, 1], records.labels)
    assert found is not None
    return found


def heads_of(model):
    return model.network.heads.detach().numpy()


def test_a_new_silo_whose_inputs_are_turned_learns_its_encoder_under_frozen_heads(make_records):
    shared = shared_of("lg-fedavg")
    found = adapt(shared, patients(make_records, 300), most=16)
    fresh = patients(make_records, 1000, seed=5)
    assert (found.part, found.model.round) == ("encoder", 2)
    assert found.epochs in {1, 2, 4, 8, 16}
    assert area(found.model, fresh) > 0.85
    assert area(found.model, fresh) > area(shared, fresh) + 0.05
    assert heads_of(found.model).tobytes() == shared.heads.astype(np.float32).tobytes()
    assert not np.array_equal(flatten(found.model.network.encoder), shared.encoder)


def test_a_new_silo_learns_its_heads_on_the_frozen_encoder(make_records):
    shared = shared_of("fedper", np.zeros((2, 3)))
    found = adapt(shared, patients(make_records, 300), most=16)
    assert found.part == "heads"
    assert area(found.model, patients(make_records, 1000, seed=5)) > 0.85
    assert flatten(found.model.network.encoder).tobytes() == shared.encoder.tobytes()
    assert not np.allclose(*heads_of(found.model), atol=0.5), "the domains' laws differ"


def test_a_domain_without_records_moves_with_the_others(make_records):
    records = patients(make_records, 300)
    found = adapt(
        shared_of("fedper", np.zeros((2, 3))), dataclasses.replace(records, domains=np.zeros(300, np.int64)), most=4
    )
    a, b = heads_of(found.model)
    np.testing.assert_allclose(a, 2 * b, rtol=1e-4)
    assert np.abs(b).max() > 0.01


@pytest.mark.parametrize("part", ["heads", "encoder"])
def test_of_a_recipe_that_keeps_nothing_the_caller_chooses_what_moves(make_records, part):
    shared = shared_of("second-order")
    found = adapt(shared, patients(make_records, 200), part=part, most=8)
    moved = {
        "heads": not np.array_equal(heads_of(found.model), shared.heads.astype(np.float32)),
        "encoder": not np.array_equal(flatten(found.model.network.encoder), shared.encoder),
    }
    assert moved == {"heads": part == "heads", "encoder": part == "encoder"}
    assert found.why.startswith("in 5-fold cross-validation over 200 training patients ")


def test_where_nothing_is_gained_or_patients_are_few_the_shared_model_stays(make_records):
    shared = shared_of("second-order")
    noise = patients(make_records, 200, slope=0.0)
    level = shared.with_heads(np.zeros((2, 3)), 2)
    found = adapt(level, noise, most=4)
    best = max(found.compared, key=lambda one: one.gain)
    assert (found.epochs > 0) == (best.gain > ERRORS * best.error)
    assert (found.epochs, len(found.compared)) == (0, 3)
    assert "nothing gained" in found.why
    few = adapt(shared, patients(make_records, FEWEST - 1))
    assert (few.epochs, few.compared) == (0, ())
    assert "too few" in few.why
    for own in (found, few):
        start = PersonalModel.start(level if own is found else shared)
        assert own.model.to_bytes() == start.to_bytes()


def test_a_kept_part_that_nobody_could_train_is_no_model(make_records):
    with pytest.raises(AdaptError, match=r"49 training patients are too few.*keeps the encoder"):
        adapt(shared_of("lg-fedavg"), patients(make_records, FEWEST - 1))


def test_model_and_records_decide_every_bit_and_a_file_keeps_them(make_records):
    shared, records = shared_of("lg-fedavg"), patients(make_records, 100)
    first, second = (adapt(shared, records, most=2).model.to_bytes() for _ in range(2))
    assert first == second
    back = PersonalModel.from_bytes(first)
    said = [model.predict(records.inputs, records.domains) for model in (back, adapt(shared, records, most=2).model)]
    assert np.array_equal(*said)


def test_a_patient_with_many_records_counts_once(make_records):
    shared, records = shared_of("fedper", np.zeros((2, 3))), patients(make_records, 60)
    twice = dataclasses.replace(
        records,
        inputs=np.repeat(records.inputs, 2, axis=0),
        labels=np.repeat(records.labels, 2),
        domains=np.repeat(records.domains, 2),
        patients=np.repeat(records.patients, 2),
    )
    once, both = (adapt(shared, own, most=1).compared[0] for own in (records, twice))
    assert both.gain / once.gain == pytest.approx(2, rel=0.5), "twice as many steps, each as long"


@pytest.mark.parametrize("classes", [3, 0])
def test_other_outcomes_are_learned_too(make_study, make_records, classes):
    study = make_study(classes=3)
    records = make_records(120, classes=3)
    if not classes:
        label = study.data.label.model_copy(update={"classes": (), "minimum": 0.0, "maximum": 1.0})
        study = study.model_copy(update={"data": study.data.model_copy(update={"label": label})})
        records = dataclasses.replace(records, labels=((records.inputs[:, 0] + 1) * 2**19).astype(np.int64))
    found = adapt(SharedModel.start(study), records, most=4)
    assert found.epochs > 0, "the shared model knows nothing"
    assert found.model.predict(records.inputs, records.domains).shape == (120, max(classes, 1))


def test_an_encoder_of_images_is_learned(make_study, make_records):
    study = make_study(image=8, encoder="cnn", channels=(4,))
    shared = SharedModel.start(study).with_heads(np.random.default_rng(0).normal(size=(3, 5)), 1)
    found = adapt(shared, make_records(60, image=8), part="encoder", most=2)
    assert len(found.compared) == 2
    assert np.isfinite([one.gain for one in found.compared]).all()


@pytest.mark.parametrize(
    ("recipe", "asked", "why"),
    [
        ("lg-fedavg", "heads", "keeps the encoder"),
        ("fedper", "encoder", "keeps the heads"),
        ("fedrep", "encoder", "keeps the heads"),
        ("local", None, "shares no part"),
    ],
)
def test_what_a_recipe_shares_stays_as_it_is(recipe, asked, why):
    study = tiny_study(recipe=recipe, encoder={"head_steps": 1} if recipe == "fedrep" else {})
    with pytest.raises(AdaptError, match=why):
        part_of(study, asked)


def test_raw_inputs_have_no_encoder_to_train_and_no_epoch_trains_nothing(make_records):
    raw = tiny_study(model={"encoder": "raw", "hidden": [], "representation": 2}, encoder={"rounds": 0})
    assert part_of(raw) == "heads"
    with pytest.raises(AdaptError, match="no weights"):
        part_of(raw, "encoder")
    with pytest.raises(AdaptError, match="give 1 or more"):
        adapt(shared_of("second-order"), patients(make_records, 60), most=0)


def test_its_text_is_private(make_records):
    assert repr(adapt(shared_of("second-order"), patients(make_records, 10))) == "Adapted(<private>)"


def compared_as(*gains, error=0.01):
    return tuple(CandidateGain(f"{1 << place} epochs", gain, error) for place, gain in enumerate(gains))


@pytest.mark.parametrize(
    ("gains", "error", "epochs"),
    [
        ((0.1, 0.5, 0.2), 0.01, 2),
        ((0.5, 0.2, 0.1), 0.01, 1),
        ((0.1, 0.2, 0.5), 0.01, 4),
        ((0.1, 0.2, 0.15), 0.39, 2),
        ((0.1, 0.2, 0.15), 0.41, 0),
        ((-0.1, -0.2, -0.3), 0.01, 0),
    ],
)
def test_the_number_of_epochs_with_the_best_gain_is_taken_and_only_if_it_gains(
    make_records, monkeypatch, gains, error, epochs
):
    """The best, not the longest, and it must gain more than half a standard error."""
    shared, records = shared_of("second-order"), patients(make_records, FEWEST)
    monkeypatch.setattr(module, "_compare", lambda *_: compared_as(*gains, error=error))
    found = adapt(shared, records, most=4)
    assert found.epochs == epochs
    assert f"{max(gains):+.4f} +- {error:.4f}" in found.why
    lengths = [1 << place for place in range(epochs.bit_length())]
    wanted = PersonalModel.start(shared)
    if epochs:
        *_, wanted = module._trained(shared, records, "heads", lengths, "cpu")
    assert found.model.to_bytes() == wanted.to_bytes()


def test_each_patient_is_held_out_once_from_the_model_that_is_tried_on_it(make_records, monkeypatch):
    shared, records = shared_of("second-order"), patients(make_records, 53)
    seen = []

    def trained(_shared, others, _part, lengths, _device):
        seen.append(set(others.identities))
        return [PersonalModel.start(shared)] * len(lengths)

    monkeypatch.setattr(module, "_trained", trained)
    found = module._compare(shared, records, "heads", [1, 2], "cpu")
    everybody = set(records.identities)
    assert sorted(one for others in seen for one in everybody - others) == sorted(everybody)
    assert [(one.gain, one.error) for one in found] == [(0.0, 0.0)] * 2, "the shared model gains nothing over itself"
    assert [one.candidate for one in found] == ["1 epoch", "2 epochs"]


def test_the_loss_of_a_batch_counts_every_patient_once(make_records):
    shared = shared_of("second-order")
    records = make_records(40, inputs=2, domains=2, patients=9)
    training = module._Training(shared, records, "heads", "cpu")
    wanted = np.average(losses_of(shared, records), weights=records.weights)
    assert training.loss(np.arange(40)).item() == pytest.approx(wanted, rel=1e-4)


def test_without_rounds_by_domain_all_domains_keep_one_head(make_records):
    same = ((3.0, 1.0, 0.0), (3.0, 1.0, 0.0))
    study = tiny_study(model=WIDE, personal={"learning_rate": 0.2}, heads={"domain_rounds": 0, "pooled_rounds": 2})
    shared = SharedModel.start(study).with_heads(np.array(same), 2)
    *_, model = module._trained(shared, patients(make_records, 60), "heads", [1], "cpu")
    assert np.array_equal(*heads_of(model))
    assert not np.allclose(heads_of(model)[0], same[0], atol=1e-3)
