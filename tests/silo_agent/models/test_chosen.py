import hashlib
from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from silo_agent.learning.alone.mixing import Mix, MixedModel
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.personal.choice import CandidateGain, Choice
from silo_agent.models.chosen import by_name, chosen
from silo_agent.models.export import export
from silo_agent.storage.folders import StudyFolder
from support.models import random_alone, random_model, random_personal, study_of

MIX = Mix(np.array([0.25, 1.0]), np.array([0.5]))
X, D = np.array([[0.3, -0.2], [-0.5, 0.9]], np.float32), np.array([0, 1])


@pytest.fixture
def study():
    return study_of("linear mlp", personal={"epochs": 1})


@pytest.fixture
def folder(study, tmp_path):
    home = StudyFolder(tmp_path / "study")
    home.path.mkdir()
    random_model(study).save(home.model(2))
    random_personal(study).save(home.personal)
    return home


def choose(folder, candidate, **changes):
    shared = random_model(study_of("linear mlp", personal={"epochs": 1}))
    heads = shared.heads * 2.0 if "heads" in candidate else shared.heads[:0]
    personal = hashlib.sha256(folder.personal.read_bytes()).hexdigest()
    compared = (CandidateGain("own heads", 0.02, 0.01),)
    own = hashlib.sha256(folder.alone.read_bytes()).hexdigest() if folder.alone.exists() else ""
    changes = {"mix": MIX if candidate == "shared and own records" else None, "alone": own} | changes
    choice = Choice(shared.study, 2, shared.digest, candidate, 99, 5, compared, heads, personal)
    replace(choice, **changes).save(folder.choice)


@pytest.mark.parametrize("candidate", ["shared", "own heads", "personal"])
def test_the_model_that_was_chosen_predicts_and_says_why(folder, study, candidate):
    choose(folder, candidate)
    found = chosen(folder, 2)
    shared = random_model(study)
    wanted = {"shared": shared, "own heads": shared.with_heads(shared.heads * 2, 2), "personal": random_personal(study)}
    np.testing.assert_allclose(found.model.predict(X, D), wanted[candidate].predict(X, D), atol=1e-6)
    assert found.name == candidate
    assert "cross-validation over 99 training patients" in found.why


def test_models_of_ones_own_records_and_mixes_predict_too(folder, study):
    alone, shared = random_alone(study), random_model(study)
    alone.save(folder.alone)
    wanted = {"own records": alone, "shared and own records": MixedModel(shared, alone, MIX)}
    for candidate, model in wanted.items():
        choose(folder, candidate)
        found = chosen(folder, 2)
        assert found.name == candidate
        np.testing.assert_allclose(found.model.predict(X, D), model.predict(X, D), atol=1e-9)
        random_alone(study, seed=4).save(folder.alone)
        with pytest.raises(ModelFileError, match=r"made for another alone\.safetensors"):
            chosen(folder, 2)
        alone.save(folder.alone)
    folder.alone.unlink()
    choose(folder, "own records")
    with pytest.raises(ModelFileError, match=r"alone\.safetensors cannot be read"):
        chosen(folder, 2)


def test_without_a_choice_it_is_the_shared_model_and_says_so(folder, study, tmp_path):
    shared = random_model(study)
    for found, why in (
        (chosen(folder, 2), "has not chosen yet"),
        (chosen(folder, 2, date(2027, 3, 2)), "removed on 2027-03-02"),
    ):
        assert (found.name, found.choice) == ("shared", None)
        assert why in found.why
        np.testing.assert_array_equal(found.model.predict(X, D), shared.predict(X, D))
    random_model(study, round_number=1).save(folder.model(1))
    assert "after the study's last round" in chosen(folder, 1).why
    other = StudyFolder(tmp_path)
    random_model(study_of("linear mlp")).save(other.model(2))
    assert "asks for no personal models" in chosen(other, 2).why


def test_a_choice_for_another_model_is_refused_and_never_replaced_quietly(folder, study):
    choose(folder, "own heads", shared="0" * 64)
    with pytest.raises(ModelFileError, match=r"choice\.safetensors.*another shared model.*--model"):
        chosen(folder, 2)
    choose(folder, "personal", personal="0" * 64)
    with pytest.raises(ModelFileError, match=r"another personal\.safetensors"):
        chosen(folder, 2)
    choose(folder, "personal")
    folder.personal.unlink()
    with pytest.raises(ModelFileError, match=r"personal\.safetensors cannot be read"):
        chosen(folder, 2)
    folder.choice.write_bytes(b"damaged")
    with pytest.raises(ModelFileError, match="cannot be used"):
        chosen(folder, 2)
    assert by_name(folder.model(2), personal=False).name == "shared"


def test_what_may_leave_the_hospital_does_not_depend_on_the_choice(folder, tmp_path):
    written = []
    for candidate in (None, "own heads", "shared"):
        if candidate:
            choose(folder, candidate)
        out = tmp_path / f"out-{candidate}"
        files = export(by_name(folder.model(2), personal=False).model, out, folder=folder.path)
        written.append({path.name: path.read_bytes() for path in files})
    assert written[0] == written[1] == written[2]
