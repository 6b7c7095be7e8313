import json

import numpy as np
import pytest

from silo_agent.learning.alone import model as model_module
from silo_agent.learning.alone.fitting import fit
from silo_agent.learning.alone.model import AloneModel
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files


@pytest.fixture
def fitted(make_study, make_records):
    records = make_records(300)
    return fit(records, np.arange(300) % 5, make_study(), 3).model, records


def test_it_comes_back_as_it_was_and_only_its_owner_reads_it(fitted, tmp_path):
    model, records = fitted
    path = tmp_path / "alone.safetensors"
    model.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    same = AloneModel.load(path)
    assert (same.round, same.kind, same.study.digest) == (3, model.kind, model.study.digest)
    assert same.to_bytes() == model.to_bytes()
    said = model.predict(records.inputs, records.domains)
    np.testing.assert_array_equal(same.predict(records.inputs, records.domains), said)
    np.testing.assert_allclose(said.sum(axis=1), 1.0)
    assert repr(model) == "AloneModel(<private>)"


def test_records_are_predicted_a_few_at_a_time_to_the_same_bits(fitted, monkeypatch):
    model, records = fitted
    whole = model.logits(records.inputs, records.domains)
    monkeypatch.setattr(model_module, "_AT_ONCE", 7)
    np.testing.assert_allclose(model.logits(records.inputs, records.domains), whole, rtol=1e-12)


def test_a_file_that_is_none_is_refused_by_name(fitted, tmp_path):
    model, _ = fitted
    path, tensors = tmp_path / "alone.safetensors", model.part.tensors()
    other = "regression" if model.kind == "boosting" else "boosting"
    own = json.dumps({"kind": model.kind})

    def written(kind="single-hospital", facts=own, tensors=tensors):
        return files.encode(kind, model.study, 3, tensors, facts=facts)

    for spoilt in (
        b"damaged",
        model.to_bytes()[:-8],
        written(kind="personal"),
        written(facts="[]"),
        written(facts="{}"),
        written(facts=json.dumps({"kind": other})),
        written(tensors={}),
    ):
        path.write_bytes(spoilt)
        with pytest.raises(ModelFileError, match=r"alone\.safetensors"):
            AloneModel.load(path)
    path.unlink()
    with pytest.raises(ModelFileError, match=r"alone\.safetensors"):
        AloneModel.load(path)
