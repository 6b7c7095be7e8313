from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import policies
from policies.document import DocumentError
from policies.policy import Policy, load_policy

SAMPLES = Path(policies.__file__).parent / "samples"


NAMES = ("strict", "consortium", "research", "evaluation-only", "published")


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_loads(name):
    policy = load_policy(SAMPLES / f"{name}.yaml")
    assert len(policy.digest) == 64
    assert policy.limits.study_epsilon <= policy.budget.epsilon


def test_no_sample_is_untested():
    assert {path.stem for path in SAMPLES.iterdir()} == set(NAMES)


def test_the_samples_say_what_their_names_promise():
    strict, alone = load_policy(SAMPLES / "strict.yaml"), load_policy(SAMPLES / "evaluation-only.yaml")
    assert strict.noise_modes == ("local",)
    assert strict.studies == ()
    assert alone.limits.rounds == 1
    assert [name for name in NAMES if load_policy(SAMPLES / f"{name}.yaml").data_set.public] == ["published"]


def test_data_are_private_unless_the_policy_says_otherwise_and_old_policies_keep_their_names(make_policy):
    policy = make_policy()
    assert not policy.data_set.public
    assert b"public" not in policy.canonical()
    assert b"encoder_sealing" not in policy.canonical()
    assert make_policy({"data_set.public": True}).digest != policy.digest
    assert make_policy({"encoder_sealing": "ckks"}).digest != policy.digest


def test_a_missing_policy_is_an_error(tmp_path):
    with pytest.raises(DocumentError, match="there is no such file"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize("name", ["strict", "consortium"])
def test_every_field_must_be_stated(name, tmp_path):
    whole = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    parts = [((), field) for field in whole]
    parts += [((group,), field) for group in ("data_set", "budget", "limits") for field in whole[group]]
    for way, field in parts:
        cut = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
        (cut[way[0]] if way else cut).pop(field)
        path = tmp_path / "cut.yaml"
        path.write_text(yaml.safe_dump(cut))
        with pytest.raises(DocumentError, match=f"{field}: this field is missing"):
            load_policy(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 2}, "version"),
        ({"data_set.id": "Not A Name"}, "data_set.id"),
        ({"data_set.unit": "household"}, "data_set.unit"),
        ({"data_set.holdout": 0.01}, "data_set.holdout"),
        ({"data_set.holdout": 0.9}, "data_set.holdout"),
        ({"budget.epsilon": 0}, "budget.epsilon"),
        ({"budget.epsilon": 33}, "budget.epsilon"),
        ({"budget.epsilon": float("nan")}, "budget.epsilon"),
        ({"budget.delta": 0.5}, "budget.delta"),
        ({"budget.delta": 1e-13}, "budget.delta"),
        ({"min_silos": 1}, "min_silos"),
        ({"noise_modes": []}, "noise_modes"),
        ({"noise_modes": ["none"]}, "noise_modes"),
        ({"noise_modes": ["local", "local"]}, "twice"),
        ({"colluders": 2}, "min_silos above colluders"),
        ({"limits.study_epsilon": 5}, "exceeds budget.epsilon"),
        ({"limits.rounds": 0}, "limits.rounds"),
        ({"limits.charged_attempts": 0}, "limits.charged_attempts"),
        ({"limits.sampling_rate": 1.5}, "limits.sampling_rate"),
        ({"limits.clip": float("inf")}, "limits.clip"),
        ({"studies": ["abc"]}, "studies"),
        ({"studies": ["0" * 64, "0" * 64]}, "twice"),
    ],
)
def test_an_inconsistent_policy_does_not_load(changes, says, make_policy):
    with pytest.raises(ValidationError) as caught:
        make_policy(changes)
    assert says in str(caught.value)


def test_colluders_do_not_bind_where_noise_is_local_only(make_policy):
    assert make_policy({"colluders": 5, "noise_modes": ["local"]}).colluders == 5


def test_the_digest_names_the_content(make_policy):
    assert make_policy().digest == make_policy().digest
    assert make_policy().digest != make_policy({"limits.rounds": 9}).digest
    assert Policy.model_validate_json(make_policy().canonical()).digest == make_policy().digest
