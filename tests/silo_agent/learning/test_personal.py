import dataclasses

import numpy as np
import pytest
import torch

from policies.documents.study import Personal
from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import SharedModel
from silo_agent.learning.personal import PersonalModel
from silo_agent.learning.terms.deep_kernel import Trained, discrepancy
from silo_agent.learning.terms.mk_mmd import compare, kernel_weights
from support.entropy import SeededEntropy

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
    kernel = Trained.from_array(study.model.representation, held.kernel).kernel
    with torch.no_grad():
        apart = [discrepancy(kernel.statistics(m.network.encoder(x), anchor(x))).item() for m in (free, held)]
    assert apart[1] < 0.5 * apart[0]
    assert len(free.kernel) == 0
    held.save(tmp_path / "own")
    again, plan = PersonalModel.load(tmp_path / "own"), PLAN.model_copy(update={"mmd_d": 3.0})
    onwards = [model.train(shared, records, plan, entropy=SeededEntropy(2)) for model in (held, again)]
    np.testing.assert_array_equal(onwards[0].kernel, onwards[1].kernel)
    np.testing.assert_array_equal(weights(onwards[0]), weights(onwards[1]))
    assert onwards[0].kernel[-1] > held.kernel[-1], "the optimiser's steps go on"
    broken = dataclasses.replace(held, kernel=held.kernel[:-1])
    with pytest.raises(ModelFileError, match="deep kernel"):
        PersonalModel.from_bytes(broken.to_bytes())


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
    from silo_agent.learning import files  # noqa: PLC0415

    encoder, heads = shared.encoder, shared.heads.astype(np.float32)
    for tensors in ({"encoder": encoder}, {"encoder": encoder[1:], "heads": heads},
                    {"encoder": encoder, "heads": heads[1:]}):  # fmt: skip
        with pytest.raises(ModelFileError, match="train the personal model again"):
            PersonalModel.from_bytes(files.encode("personal", shared.study, 1, tensors))
