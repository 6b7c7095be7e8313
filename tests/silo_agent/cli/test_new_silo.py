import csv
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from policies.documents.policy import load_policy
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger
from silo_agent.cli import main
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.storage.state import State
from support.local_federation import write_patients
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

STUDY = tiny_study(recipe="lg-fedavg", model={"hidden": [], "representation": 2}, personal={"learning_rate": 0.2})


@pytest.fixture
def hospital(quick_path, homes):
    """A hospital that took part in nothing, and a model that was handed over to it; returns the configuration."""
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    slopes = np.array([[0.0, 6.0], [6.0, 0.0]])
    write_patients(quick_path / "north.csv", np.random.default_rng(1), slopes, patients=200)
    heads = np.array([[8.0, 0.0, 0.0], [0.0, 8.0, 0.0]])
    SharedModel.start(STUDY).with_heads(heads, 2).save(quick_path / "handed.safetensors")
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    return write_yaml(quick_path / "agent.yaml", {**document, "device": "cpu", "data": {"tiny": "north.csv"}})


def invoke(*arguments):
    return CliRunner().invoke(main.app, [str(a) for a in arguments])


def test_a_new_hospital_adapts_a_model_and_predicts_with_it(hospital, told):
    home, out = hospital.parent, hospital.parent / "own.safetensors"
    done = invoke("adapt", home / "handed.safetensors", "--epochs", 8, "--out", out, "-c", hospital)
    assert done.exit_code == 0, done.output
    assert told == ["training, and choosing by cross-validation"]
    first, why, figures = done.stdout.splitlines()
    assert first == f"{out}: the model of tiny, round 2: adapted encoder."
    assert why.startswith("Why: in 5-fold cross-validation over ")
    assert "adapted less shared: AUC +" in figures
    assert out.stat().st_mode & 0o777 == 0o600
    assert not (home / "state").exists()

    (home / "new.csv").write_text("patient,group,age,lactate\nann,a,60,9\nbob,a,60,1\n")
    said = invoke("predict", STUDY.digest[:12], home / "new.csv", "--model", out, "--personal", "-c", hospital)
    assert said.exit_code == 0, said.output
    high, low = (float(row["probability_1"]) for row in csv.DictReader(said.stdout.splitlines()))
    assert high > 0.7
    assert low < 0.3


def test_the_same_for_programs(hospital):
    home, out = hospital.parent, hospital.parent / "own.safetensors"
    done = invoke("adapt", home / "handed.safetensors", "--epochs", 2, "--out", out, "--format", "json", "-c", hospital)
    found = json.loads(done.stdout)
    assert (found["study"], found["round"], found["part"]) == (STUDY.digest, 2, "encoder")
    assert [one["candidate"] for one in found["compared"]] == ["1 epoch", "2 epochs"]
    assert found["held_out"]["auc"]["low"] < found["held_out"]["auc"]["value"]
    assert PersonalModel.load(out).study.digest == STUDY.digest


def test_what_cannot_be_adapted_is_a_sentence_and_leaves_no_file(hospital, monkeypatch, capsys):
    home, out = hospital.parent, hospital.parent / "own.safetensors"
    arguments = ["adapt", home / "handed.safetensors", "--part", "heads", "--out", out, "-c", hospital]
    monkeypatch.setattr(sys, "argv", ["fedward-silo", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert "recipe lg-fedavg keeps the encoder" in capsys.readouterr().err
    assert not out.exists()


def test_only_the_policy_in_force_lets_a_model_out_and_not_the_file_that_somebody_edits(hospital, monkeypatch, capsys):
    home, out = hospital.parent, hospital.parent / "given"
    policy, state = load_policy(home / "policy.yaml"), State(home / "state")
    state.add_study(STUDY.digest, STUDY.canonical())
    replace(SharedModel.start(STUDY), round=STUDY.rounds).save(state.files.study(STUDY.digest).model(STUDY.rounds))
    state.commit(STUDY.digest, STUDY.rounds)
    Ledger.create(state.files.ledger, Genesis.of(policy))

    def refusal():
        monkeypatch.setattr(
            sys, "argv", ["fedward-silo", "hand-over", STUDY.digest, "--out", str(out), "-c", str(hospital)]
        )
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert (ended.value.code, out.exists()) == (1, False)
        return capsys.readouterr().err

    def put_into_force():
        with Ledger.open(state.files.ledger, Genesis.of(policy), budget_epsilon=policy.budget.epsilon) as ledger:
            ledger.put_into_force(load_policy(home / "policy.yaml").digest, policy.budget.epsilon)

    put_into_force()
    assert "policy.hand_over is false" in refusal()
    write_yaml(home / "policy.yaml", policy_document("north-ward", hand_over=True))
    assert "policy.yaml is not the policy in force" in refusal()
    put_into_force()
    done = invoke("hand-over", STUDY.digest, "--out", out, "-c", hospital)
    assert done.exit_code == 0, done.output
    assert f"continues: {SharedModel.load(out / 'model.safetensors').digest}" in done.stdout
    assert sorted(path.name for path in out.iterdir()) == ["model.safetensors", "north.sig"]
