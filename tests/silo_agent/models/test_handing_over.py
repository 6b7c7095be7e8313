import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from policies.documents.policy import load_policy
from policies.refusals import Reason, Refused
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.models.handing_over import MODEL, HandOverError, hand_over, take
from silo_agent.oversight.signing import sign_file
from silo_agent.storage.folders import StateFolder
from support.certificates import load, make_authority
from support.models import random_model
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="module")
def silos(authority):
    return {name: load(authority.credential("silo", name)) for name in ("north", "south", "west", "east")}


@pytest.fixture
def policy(tmp_path):
    return load_policy(write_yaml(tmp_path / "policy.yaml", policy_document("ward", hand_over=True)))


@pytest.fixture
def model(tmp_path):
    """The model of a finished study, which begins where its study does."""
    model = replace(SharedModel.start(tiny_study()), round=tiny_study().rounds)
    model.save(tmp_path / "own.safetensors")
    return model


@pytest.fixture
def pem(authority, tmp_path):
    (tmp_path / "authority.pem").write_bytes(authority.pem)
    return tmp_path / "authority.pem"


def given(silos, policy, tmp_path, *names, now=None):
    for name in names:
        hand_over(tmp_path / "own.safetensors", policy, silos[name], tmp_path / "out", now=now)
    return tmp_path / "out"


def test_a_model_is_taken_with_the_consent_of_all_who_trained_it(silos, policy, model, pem, tmp_path):
    folder = given(silos, policy, tmp_path, "north", "south", "west")
    assert {path.name for path in folder.iterdir()} == {MODEL, "north.sig", "south.sig", "west.sig"}
    files = StateFolder(tmp_path / "state")
    told = []
    assert take(folder, pem, files, tell=told.append).digest == model.digest
    assert not told
    take(folder, pem, files, tell=told.append, now=datetime.now(UTC) + timedelta(days=40))
    assert len(told) == 3
    assert "Nobody can prove that the signature is that old" in told[0]
    assert SharedModel.load(files.imported(model.digest)).digest == model.digest


@pytest.mark.usefixtures("model")
def test_a_consent_of_a_hospital_that_was_revoked_since_counts_and_is_told(authority, silos, policy, pem, tmp_path):
    told, now = [], datetime.now(UTC)
    for name in ("north", "south", "west"):
        given(silos, policy, tmp_path, name, now=now - timedelta(minutes=1))
    with authority.revoked("fedward://silo/west", tmp_path):
        later = now + timedelta(seconds=5)
        take(tmp_path / "out", pem, StateFolder(tmp_path / "state"), tell=told.append, now=later)
    assert [one.split(":")[0] for one in told] == ["west.sig"]
    assert "was revoked as of" in told[0]


def test_a_model_that_is_not_the_one_that_was_kept_is_not_handed_over(silos, policy, model, tmp_path):
    (tmp_path / "own.digest").write_text(f"2 {'f' * 64}\n")
    with pytest.raises(ModelFileError, match="is not the model that was kept there"):
        given(silos, policy, tmp_path, "north")
    assert not (tmp_path / "out").exists()


def test_every_consent_that_is_missing_or_worth_nothing_is_named_at_once(silos, policy, model, pem, tmp_path):
    folder = given(silos, policy, tmp_path, "north", "east")
    (folder / "south.sig").write_text("{}")
    content = (folder / MODEL).read_bytes()
    sign_file(silos["west"], "json", "2026-11-23T00:00:00+00:00", content).write(folder / "west.sig")
    files = StateFolder(tmp_path / "state")
    with pytest.raises(HandOverError) as caught:
        take(folder, pem, files)
    said = str(caught.value)
    assert "south.sig: the file is no signature" in said
    assert "west.sig is a signature of another kind" in said
    assert "south, west of study tiny did not consent" in said
    assert not files.imported(model.digest).exists()


def test_a_consent_fits_one_model_and_one_authority(silos, policy, model, pem, tmp_path):
    folder = given(silos, policy, tmp_path, "north", "south", "west")
    other = replace(model, heads=model.heads + 1.0)
    (folder / MODEL).write_bytes(other.to_bytes())
    with pytest.raises(HandOverError, match="north, south, west of study tiny did not consent"):
        take(folder, pem, StateFolder(tmp_path / "state"))
    (folder / MODEL).write_bytes(model.to_bytes())
    pem.write_bytes(make_authority(tmp_path / "others").pem)
    with pytest.raises(HandOverError, match=r"north\.sig: "):
        take(folder, pem, StateFolder(tmp_path / "state"))


def test_a_policy_that_says_nothing_allows_nothing(silos, model, tmp_path):
    silent = load_policy(write_yaml(tmp_path / "silent.yaml", policy_document("ward")))
    with pytest.raises(Refused, match=r"policy\.hand_over is false") as caught:
        hand_over(tmp_path / "own.safetensors", silent, silos["north"], tmp_path / "out")
    assert caught.value.reason is Reason.HAND_OVER
    assert not (tmp_path / "out").exists()
    assert "hand_over" not in json.loads(silent.canonical())


def test_only_a_finished_study_is_handed_over_and_never_into_another_models_folder(silos, policy, model, tmp_path):
    folder = given(silos, policy, tmp_path, "north")
    replace(model, heads=model.heads + 1.0).save(tmp_path / "own.safetensors")
    with pytest.raises(HandOverError, match="another model"):
        given(silos, policy, tmp_path, "south")
    assert not (folder / "south.sig").exists()
    replace(model, round=1).save(tmp_path / "own.safetensors")
    with pytest.raises(HandOverError, match="round 1 of 2"):
        hand_over(tmp_path / "own.safetensors", policy, silos["south"], tmp_path / "new")


def test_a_model_that_no_rounds_give_is_refused_whoever_signs_it(silos, policy, pem, tmp_path):
    """Members who collude sign what they like; the newcomer's own bounds hold."""
    grown = random_model(tiny_study())
    for number, (moved, why) in enumerate([(2000.0, "beyond 1024"), (900.0, "rounds of its study cannot give")]):
        encoder = grown.encoder.copy()
        encoder[0] = np.float32(moved)
        replace(grown, encoder=encoder).save(tmp_path / "own.safetensors")
        for name in ("north", "south", "west"):
            hand_over(tmp_path / "own.safetensors", policy, silos[name], tmp_path / f"out-{number}")
        with pytest.raises(ModelFileError, match=why):
            take(tmp_path / f"out-{number}", pem, StateFolder(tmp_path / "state"))
