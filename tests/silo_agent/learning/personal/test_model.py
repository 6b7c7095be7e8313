import dataclasses

import numpy as np
import pytest
import torch

from policies.documents.sections.personal import PERSONAL_MOMENTUM
from policies.documents.study import DomainColumn, EnvironmentColumn, Personal
from silo_agent.learning.encoder.encoder import features, flatten
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.terms.losses.deep_kernel import Trained, discrepancy
from silo_agent.learning.terms.losses.mk_mmd import compare, kernel_weights
from silo_agent.models.attacker import attacker_auc
from support.entropy import SeededEntropy
from support.studies import tiny_study

PLAN = Personal(epochs=3, learning_rate=0.05, batch_size=32, ditto=0.0, mmd=0.0)


@pytest.fixture
def shared(make_study):
    study = make_study(gain=2.0)
    return SharedModel.start(study).with_heads(np.random.default_rng(0).normal(size=(3, 5)), 1)


def weights(model):
    return np.concatenate([flatten(model.network.encoder), model.network.heads.detach().numpy().ravel()])


def fit(shared, records, seed=0, **changes):
    plan = PLAN.model_copy(update=changes)
    return PersonalModel.start(shared).train(shared, records, plan, entropy=SeededEntropy(seed))


def loss(model, records):
    p = model.predict(records.inputs, records.domains, records.images)
    return -np.log(p[np.arange(len(p)), records.labels]).mean()


def test_it_starts_as_the_shared_model_and_fits_the_silos_own_records(shared, make_records):
    records = make_records(300)
    start = PersonalModel.start(shared)
    np.testing.assert_allclose(
        start.predict(records.inputs, records.domains), shared.predict(records.inputs, records.domains), atol=1e-6
    )
    assert loss(fit(shared, records, epochs=20), records) < loss(start, records) - 0.05


@pytest.mark.parametrize("image", [None, 8])
def test_it_fits_many_classes_and_images(make_study, make_records, image):
    network = {} if image is None else {"encoder": "cnn", "channels": (4,)}
    study = make_study(inputs=5 if image is None else 0, gain=2.0, classes=3, image=image, **network)
    shared = SharedModel.start(study).with_heads(np.random.default_rng(0).normal(size=(3, 15)), 1)
    records = make_records(200, classes=3, image=image)
    if image is not None:
        records = dataclasses.replace(records, inputs=records.inputs[:, :0])
    start = PersonalModel.start(shared)
    np.testing.assert_allclose(
        start.predict(records.inputs, records.domains, records.images),
        shared.predict(records.inputs, records.domains, records.images),
        atol=1e-6,
    )
    trained = fit(shared, records, epochs=20, mmd=0.1, ditto=0.01)
    assert loss(trained, records) < 0.85 < loss(start, records), "of three classes, chance is log 3 = 1.1"
    again = PersonalModel.from_bytes(trained.to_bytes())
    np.testing.assert_array_equal(
        again.predict(records.inputs, records.domains, records.images),
        trained.predict(records.inputs, records.domains, records.images),
    )


def test_without_an_encoder_the_heads_alone_are_trained(make_records):
    raw = {"encoder": "raw", "hidden": [], "representation": 2}
    shared = SharedModel.start(tiny_study(model=raw, encoder={"rounds": 0}, personal={"mmd": 0.0}))
    records = make_records(200, inputs=2, domains=2)
    model = fit(shared, records, ditto=0.01, learning_rate=0.5, epochs=10)
    assert flatten(model.network.encoder).size == 0
    assert loss(model, records) < loss(PersonalModel.start(shared), records) - 0.05
    assert PersonalModel.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def test_the_shared_model_and_the_model_before_stay_as_they_were(shared, make_records):
    digest, start = shared.digest, PersonalModel.start(shared)
    before = weights(start)
    plan = PLAN.model_copy(update={"ditto": 0.5, "mmd": 1.0})
    after = start.train(shared, make_records(100), plan, entropy=SeededEntropy(0))
    assert shared.digest == digest
    np.testing.assert_array_equal(weights(start), before)
    assert not np.array_equal(weights(after), before)
    assert all(p.grad is None for p in start.network.parameters())


def test_ditto_pulls_to_the_shared_model(shared, make_records):
    records = make_records(200)
    anchor = weights(PersonalModel.start(shared))
    distances = [np.linalg.norm(weights(fit(shared, records, ditto=d, epochs=10)) - anchor) for d in (0, 0.5, 5.0)]
    assert distances[0] > 1.3 * distances[1] > 1.3 * 1.3 * distances[2]


def test_a_personal_model_that_strayed_is_pulled_back(shared, make_records):
    strayed = fit(shared, make_records(200), epochs=30)
    anchor = weights(PersonalModel.start(shared))
    plan = PLAN.model_copy(update={"ditto": 8.0, "epochs": 10})
    back = strayed.train(shared, make_records(200, seed=1), plan, entropy=SeededEntropy(1))
    assert np.linalg.norm(weights(back) - anchor) < 0.5 * np.linalg.norm(weights(strayed) - anchor)


def test_beyond_the_largest_pull_that_a_study_may_have_each_step_leads_away(shared, make_records):
    strayed = fit(shared, make_records(200), epochs=30)
    anchor, least = weights(PersonalModel.start(shared)), 2.0 * (1.0 + PERSONAL_MOMENTUM)

    def distance(product):
        plan = PLAN.model_copy(update={"ditto": 10.0, "learning_rate": product / 10.0, "epochs": 10})
        back = strayed.train(shared, make_records(200, seed=1), plan, entropy=SeededEntropy(1))
        return np.linalg.norm(weights(back) - anchor)

    before = np.linalg.norm(weights(strayed) - anchor)
    assert distance(0.8 * least) < before < 10.0 * before < distance(1.05 * least)


def test_mmd_keeps_the_features_near_the_shared_ones(shared, make_records):
    records = make_records(200)
    x = torch.tensor(records.inputs)

    def discrepancy(model):
        with torch.no_grad():
            compared = compare(model.network.encoder(x), shared.build_encoder()(x))
            return compared.mmd(kernel_weights(compared.statistics())).item()

    free, held = (fit(shared, records, epochs=15, mmd=mmd) for mmd in (0.0, 10.0))
    assert discrepancy(held) < 0.5 * discrepancy(free)


def test_mmd_d_trains_a_kernel_that_stays_with_the_model(shared, make_records, tmp_path):
    records = make_records(120)
    study = shared.study
    free, held = (fit(shared, records, epochs=6, mmd_d=weight) for weight in (0.0, 3.0))
    x, anchor = torch.tensor(records.inputs), shared.build_encoder()
    kernel = Trained.from_array(study.model.representation, held.state["kernel"]).kernel
    with torch.no_grad():
        apart = [discrepancy(kernel.statistics(m.network.encoder(x), anchor(x))).item() for m in (free, held)]
    assert apart[1] < 0.5 * apart[0]
    assert "kernel" not in free.state
    assert fit(shared, records, epochs=1, mmd_d=3.0, kernel_steps=3).state["kernel"][-1] == 3 * 4, "for each batch"
    held.save(tmp_path / "own")
    again, plan = PersonalModel.load(tmp_path / "own"), PLAN.model_copy(update={"mmd_d": 3.0})
    onwards = [model.train(shared, records, plan, entropy=SeededEntropy(2)) for model in (held, again)]
    np.testing.assert_array_equal(onwards[0].state["kernel"], onwards[1].state["kernel"])
    np.testing.assert_array_equal(weights(onwards[0]), weights(onwards[1]))
    assert onwards[0].state["kernel"][-1] > held.state["kernel"][-1], "the optimiser's steps go on"
    broken = dataclasses.replace(held, state={"kernel": held.state["kernel"][:-1]})
    with pytest.raises(ModelFileError, match="deep kernel"):
        PersonalModel.from_bytes(broken.to_bytes())


@pytest.fixture
def compared(make_study, make_records):
    """A shared model of a study with two environments, and records in which one input changes its sign with them."""
    study = make_study(gain=2.0)
    data = study.data.model_copy(update={"environment": EnvironmentColumn(column="ward", values=("a", "b"))})
    shared = SharedModel.start(study.model_copy(update={"data": data}))
    records, where = make_records(300, domains=1), np.arange(300) % 2
    inputs = records.inputs.copy()
    inputs[:, 1] = np.where(np.random.default_rng(1).random(300) < np.where(where, 0.95, 0.7), 1, -1) * (
        2 * records.labels - 1
    )
    return shared, dataclasses.replace(records, inputs=inputs, environments=where)


def test_irm_and_group_dro_make_environments_alike(compared):
    shared, records = compared

    def gap(**changes):
        model = fit(shared, records, epochs=30, batch_size=150, **changes)
        p = model.predict(records.inputs, records.domains)[np.arange(300), records.labels]
        return abs(np.log(p[records.environments == 0]).mean() - np.log(p[records.environments == 1]).mean())

    assert gap(irm=30.0, learning_rate=1.0) < 0.5 * gap()
    assert gap(group_dro=1.0, group_rate=1.0) < 0.7 * gap()


def test_the_environments_weights_stay_with_the_model_and_go_on_after_a_restart(compared, tmp_path):
    shared, records = compared
    plan = {"irm": 10.0, "irm_after": 40, "group_dro": 0.5, "group_rate": 0.3}
    held = fit(shared, records, **plan)
    kept = held.state["environments"]
    assert kept[0] == 30, "3 epochs of 10 batches"
    assert kept[1] != kept[2]
    held.save(tmp_path / "own")
    again = PersonalModel.load(tmp_path / "own")
    onwards = [
        model.train(shared, records, PLAN.model_copy(update=plan), entropy=SeededEntropy(2)) for model in (held, again)
    ]
    np.testing.assert_array_equal(*(model.state["environments"] for model in onwards))
    np.testing.assert_array_equal(weights(onwards[0]), weights(onwards[1]))
    assert onwards[1].state["environments"][0] == 60
    broken = dataclasses.replace(held, state={"environments": kept[:-1]})
    with pytest.raises(ModelFileError, match="environments\\), is not its study's"):
        PersonalModel.from_bytes(broken.to_bytes())


def test_without_these_terms_records_with_environments_train_as_before(compared):
    shared, records = compared
    bare = dataclasses.replace(records, environments=None)
    np.testing.assert_array_equal(weights(fit(shared, records)), weights(fit(shared, bare)))
    assert "environments" not in fit(shared, records).state


@pytest.mark.parametrize("label", [0, 1])
def test_no_records_one_record_and_one_class_are_normal(shared, make_records, label):
    records = make_records(33)
    nobody = records.of_patients(np.zeros(33, bool))
    np.testing.assert_array_equal(weights(fit(shared, nobody, mmd=1.0)), weights(PersonalModel.start(shared)))
    # 33 records in batches of 32 leave a batch of one, for which no MMD exists.
    one_class = dataclasses.replace(records, labels=np.full(33, label))
    assert np.isfinite(weights(fit(shared, one_class, mmd=1.0, ditto=0.1, cosine=0.5, mmd_d=0.5))).all()


def test_a_stochastic_shared_encoder_is_read_at_its_mean(make_study, make_records):
    shared = SharedModel.start(make_study(cmi=0.1))
    model = fit(shared, make_records(50), mmd=1.0, ditto=0.1)
    assert np.isfinite(weights(model)).all()
    assert PersonalModel.from_bytes(model.to_bytes()).study.encoder.cmi == 0.1


def test_the_same_entropy_gives_the_same_model(shared, make_records):
    records = make_records(100)
    np.testing.assert_array_equal(weights(fit(shared, records)), weights(fit(shared, records)))
    assert not np.array_equal(weights(fit(shared, records)), weights(fit(shared, records, seed=1)))


def test_a_saved_model_comes_back_and_a_shared_file_is_not_taken_for_it(shared, make_records, tmp_path):
    model = fit(shared, make_records(50))
    model.save(tmp_path / "own")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o600
    again = PersonalModel.load(tmp_path / "own")
    np.testing.assert_array_equal(weights(again), weights(model))
    assert (again.study, again.round) == (shared.study, 1)
    with pytest.raises(ModelFileError, match="not a personal one"):
        PersonalModel.from_bytes(shared.to_bytes())
    with pytest.raises(ModelFileError, match="not a shared one"):
        SharedModel.from_bytes(model.to_bytes())
    assert repr(model) == "PersonalModel(<private>)"


def test_a_file_with_other_tensors_is_refused(shared):
    from silo_agent.learning.model import files  # noqa: PLC0415

    encoder, heads = shared.encoder, shared.heads.astype(np.float32)
    for tensors in ({"encoder": encoder}, {"encoder": encoder[1:], "heads": heads},
                    {"encoder": encoder, "heads": heads[1:]}):  # fmt: skip
        with pytest.raises(ModelFileError, match="train the personal model again"):
            PersonalModel.from_bytes(files.encode("personal", shared.study, 1, tensors))


def test_the_weights_of_the_kernels_stay_with_the_model(shared, make_records, tmp_path):
    records, plan = make_records(120), PLAN.model_copy(update={"mmd": 1.0, "mmd_every": 3})
    held = fit(shared, records, mmd=1.0, mmd_every=3)
    assert held.state["mixtures"].shape == (1, 19)
    assert "mixtures" not in fit(shared, records, mmd=1.0).state
    held.save(tmp_path / "own")
    again = PersonalModel.load(tmp_path / "own")
    onwards = [model.train(shared, records, plan, entropy=SeededEntropy(2)) for model in (held, again)]
    np.testing.assert_array_equal(weights(onwards[0]), weights(onwards[1]))
    assert not np.array_equal(onwards[0].state["mixtures"], held.state["mixtures"])
    broken = dataclasses.replace(held, state={"mixtures": -held.state["mixtures"]})
    with pytest.raises(ModelFileError, match="kernels' weights"):
        PersonalModel.from_bytes(broken.to_bytes())


@pytest.mark.parametrize("term", ["mmd", "cosine", "mmd_d"])
def test_deeper_layers_are_held_too_if_the_study_says_so(make_study, make_records, term):
    study = make_study(gain=2.0, hidden=(8, 6))
    study = study.model_copy(update={"personal": study.personal.model_copy(update={"depth": 3})})
    shared = SharedModel.start(study).with_heads(np.random.default_rng(0).normal(size=(3, 5)), 1)
    records = make_records(96)
    x = torch.tensor(records.inputs)

    def moved(model):
        """Distance of the layer next to the inputs from the shared one, at length 1."""
        with torch.no_grad():
            own, other = (e.layered(x)[1][-1] for e in (model.network.encoder, shared.build_encoder()))
            return (torch.nn.functional.normalize(own) - torch.nn.functional.normalize(other)).norm().item()

    flat, deep = (fit(shared, records, epochs=10, learning_rate=0.02, depth=depth, **{term: 3.0}) for depth in (1, 3))
    if term == "mmd_d":  # its kernels hold what tells the models apart, which need not be a distance
        assert len(deep.state["kernel"]) > 2 * len(flat.state["kernel"])
    else:
        assert moved(deep) < moved(flat)
    assert np.isfinite(weights(PersonalModel.from_bytes(deep.to_bytes()))).all()


@pytest.mark.slow
def test_an_adversary_takes_the_protected_attribute_out_and_stays_with_the_model(make_study, make_records, tmp_path):
    study = make_study(inputs=3, gain=2.0, domains=1, representation=2)
    sex = DomainColumn(column="x0", edges=(0.0,), names=("f", "m"))
    study = study.model_copy(update={"data": study.data.model_copy(update={"protected": (sex,)})})
    shared = SharedModel.start(study).with_heads(np.array([[1.0, -1.0, 0.0]]), 1)
    records = make_records(300, inputs=3, domains=1)
    x = records.inputs
    protected = (x[:, :1] > 0).astype(np.int64)
    records = dataclasses.replace(records, protected=protected, labels=(2 * x[:, 0] + 4 * x[:, 1] > 0).astype(np.int64))
    wanted = {"epochs": 20, "batch_size": 50, "adversary": 1.0}
    seen, hidden = fit(shared, records, **wanted | {"adversary": 0.0}), fit(shared, records, **wanted)
    found = [attacker_auc(features(m.network.encoder, x).numpy()[:, :2], protected[:, 0]) for m in (seen, hidden)]
    assert found[0] > 0.9
    assert found[1] < found[0] - 0.15
    hidden.save(tmp_path / "own")
    again = PersonalModel.load(tmp_path / "own")
    plan = PLAN.model_copy(update=wanted | {"epochs": 1})
    onwards = [model.train(shared, records, plan, entropy=SeededEntropy(2)) for model in (hidden, again)]
    np.testing.assert_array_equal(onwards[0].state["adversary"], onwards[1].state["adversary"])
    np.testing.assert_array_equal(weights(onwards[0]), weights(onwards[1]))
    assert onwards[0].state["adversary"][-1] > hidden.state["adversary"][-1], "the optimiser's steps go on"
