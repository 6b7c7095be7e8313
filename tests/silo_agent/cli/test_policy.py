import json
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import policies
from policies.documents.policy import load_policy
from policies.documents.schema import policy_schema
from policies.documents.sections.spelling import FileFormat, Spelling
from policies.ledger.ledger import Ledger, read_history
from silo_agent.cli import main
from support.ledgers import NORTH
from support.online import Online, serving
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document

SAMPLES = Path(policies.__file__).parent / "samples"


def invoke(*arguments):
    return CliRunner().invoke(main.app, [str(a) for a in arguments])


@pytest.fixture
def policy(quick_path):
    return write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))


@pytest.fixture
def study(quick_path):
    return write_yaml(quick_path / "study.yaml", tiny_document())


@pytest.fixture
def hospital(quick_path, homes, policy):
    """Everything that `agent.yaml` names, and a ledger; returns the configuration's path."""
    (quick_path / "north.csv").write_text("patient\n")
    (quick_path / "state").mkdir()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", NORTH)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    document = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    return write_yaml(quick_path / "agent.yaml", {**document, "data": {"tiny": "north.csv"}})


@pytest.fixture
def sentence(monkeypatch, capsys):
    """Runs a command that must fail; returns its one sentence."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedward-silo", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (1, "")
        assert "Traceback" not in err
        return err

    return run


# --- check ------------------------------------------------------------------------------------------------------------
def test_a_complete_policy_is_confirmed_with_its_digest(policy):
    done = invoke("policy", "check", policy)
    assert (done.exit_code, done.output) == (0, f"{policy}: a complete policy, digest {load_policy(policy).digest}\n")


def test_an_incomplete_policy_is_a_named_error(policy, sentence):
    document = policy_document("north-ward")
    del document["split"]
    write_yaml(policy, document)
    assert "field split: this field is missing" in sentence("policy", "check", policy)


def test_an_expired_policy_says_so(policy):
    document = policy_document("north-ward")
    write_yaml(policy, {**document, "budget": {**document["budget"], "expires": "2020-12-31"}})
    assert "expired on 2020-12-31: nothing will be charged" in invoke("policy", "check", policy).output


def test_a_study_that_fits_would_be_taken(policy, study):
    done = invoke("policy", "check", policy, "--study", study)
    assert done.exit_code == 0
    assert "tiny: would be taken" in done.output


def test_a_study_that_asks_too_much_is_refused_with_exit_code_3(policy, study):
    write_yaml(policy, policy_document("north-ward", min_silos=4))
    done = invoke("policy", "check", policy, "--study", study)
    assert done.exit_code == 3
    assert "tiny: refused: too_few_silos: study.min_silos is 3" in done.output
    done = invoke("policy", "check", policy, "--study", study, "--format", "json")
    assert done.exit_code == 3
    assert json.loads(done.output)["refused"]["reason"] == "too_few_silos"


def test_every_reason_has_a_line_and_a_place_in_the_document(policy, study):
    document = policy_document("north-ward", min_silos=4)
    document["limits"]["rounds"] = 1
    write_yaml(policy, document)
    lines = invoke("policy", "check", policy, "--study", study).output.splitlines()
    assert lines[1] == "tiny: refused"
    assert [line.partition(":")[0] for line in lines[2:]] == ["- too_few_silos", "- too_many_rounds"]
    told = json.loads(invoke("policy", "check", policy, "--study", study, "--format", "json").output)
    assert [one["reason"] for one in told["reasons"]] == ["too_few_silos", "too_many_rounds"]
    assert told["refused"]["reason"] == "too_few_silos"


def test_a_study_that_cannot_be_accounted_for_is_refused_by_name(policy, study):
    write_yaml(study, tiny_document(encoder={"mmd": 0.1}))
    done = invoke("policy", "check", policy, "--study", study)
    assert done.exit_code == 3
    assert f"{study}: refused: batch_statistics: study.encoder.mmd: such a loss couples" in done.output
    done = invoke("policy", "check", policy, "--study", study, "--format", "json")
    assert done.exit_code == 3
    document = json.loads(done.output)
    assert (document["study"], document["refused"]["reason"]) == (None, "batch_statistics")


def test_the_silos_name_is_asked_for_where_it_matters(policy, study):
    done = invoke("policy", "check", policy, "--study", study, "--silo", "elsewhere")
    assert done.exit_code == 3
    assert "not_invited" in done.output


# --- explain, diff, schema --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.yaml")))
def test_every_sample_is_explained_on_one_page(name):
    """A4, upright, in a letter of 9 points: 62 lines of 100."""
    done = invoke("policy", "explain", SAMPLES / f"{name}.yaml")
    assert done.exit_code == 0
    assert "\nWHAT EPSILON MEANS HERE. " in done.output
    lines = done.output.splitlines()
    assert (max(map(len, lines)) <= 100, len(lines) <= 62) == (True, True)
    assert done.output.rstrip().endswith(load_policy(SAMPLES / f"{name}.yaml").digest)


def test_what_means_the_same_differs_in_nothing(policy, quick_path):
    other = quick_path / "other.yaml"
    other.write_text("# the same\n" + policy.read_text())
    done = invoke("policy", "diff", policy, other)
    assert (done.exit_code, done.output) == (0, "The policies mean the same.\n")


def test_a_stricter_policy_passes_and_a_looser_one_asks_for_a_second_look(policy, quick_path):
    other = write_yaml(quick_path / "other.yaml", policy_document("north-ward", smallest_domain=20))
    done = invoke("policy", "diff", policy, other)
    assert done.exit_code == 0
    assert done.output.startswith("stricter      smallest_domain: groups below 20 patients")
    done = invoke("policy", "diff", other, policy)
    assert done.exit_code == 3
    assert done.output.startswith("LOOSER        smallest_domain")
    assert json.loads(invoke("policy", "diff", other, policy, "--format", "json").output) == [
        {
            "field": "smallest_domain",
            "change": "looser",
            "text": "groups below 0 patients get nothing of their own, before below 20",
        }
    ]


def test_what_the_ledger_forbids_asks_for_a_second_look_too(policy, quick_path):
    other = write_yaml(quick_path / "other.yaml", policy_document("theatre"))
    done = invoke("policy", "diff", policy, other)
    assert done.exit_code == 3
    assert done.output.startswith("NOT POSSIBLE  data_set.id")


def test_the_schema_is_printed_as_it_is_in_the_package():
    assert invoke("policy", "schema").output == policy_schema()


# --- sign and reload --------------------------------------------------------------------------------------------------
def test_a_policy_is_put_into_force_once_and_the_ledger_says_so(hospital, policy):
    done = invoke("policy", "reload", "-c", hospital)
    digest = load_policy(policy).digest
    assert done.exit_code == 0
    assert f"Policy {digest} is in force, ledger entry 1." in done.output
    assert "is in force already" in invoke("policy", "reload", "-c", hospital).output
    _, entries = read_history(hospital.parent / "state" / "ledger.sqlite3")
    assert [entry.event.policy for entry in entries] == [digest]


def test_a_change_is_shown_when_it_comes_into_force(hospital, policy):
    invoke("policy", "reload", "-c", hospital)
    write_yaml(policy, policy_document("north-ward", smallest_domain=20))
    done = invoke("policy", "reload", "-c", hospital)
    assert "stricter      smallest_domain" in done.output
    assert "ledger entry 2" in done.output


def test_two_people_sign_before_a_policy_comes_into_force(hospital, policy, authority, sentence):
    keys = [authority.credential("approver", name) / "key.pem" for name in ("alice", "barbara")]
    document = policy_document("north-ward", approvers=["fedward://approver/alice", "fedward://approver/barbara"])
    write_yaml(policy, document)
    assert "asks for 2 signatures" in sentence("policy", "reload", "-c", hospital)
    for key in keys:
        done = invoke("policy", "sign", policy, "--key", key)
        assert done.exit_code == 0
        assert f"signed policy {load_policy(policy).digest}" in done.output
    assert invoke("policy", "reload", "-c", hospital).exit_code == 0
    write_yaml(policy, policy_document("north-ward"))
    assert "the policy in force asks for 2 signatures" in sentence("policy", "reload", "-c", hospital)


def test_an_approver_enrols_at_the_hospital_and_signs(policy, tmp_path):
    online, home = Online(tmp_path / "online"), tmp_path / "ada"
    with serving(online) as url:
        done = invoke("enrol", home, "--token", online.admit("approver", "ada").text(), "--authority", url)
    assert done.exit_code == 0, done.output
    assert "certified as fedward://approver/ada" in done.output
    assert done.output.endswith(
        f"next, to sign a policy: fedward-silo policy sign POLICY.yaml --key {home / 'key.pem'}\n"
    )
    assert not (home / "agent.yaml").exists()
    assert "fedward://approver/ada signed policy" in invoke("policy", "sign", policy, "--key", home / "key.pem").output


@pytest.mark.parametrize("role", ["operator", "author", "viewer"])
def test_nobody_else_enrols_as_a_person_at_a_hospital(sentence, tmp_path, role):
    online = Online(tmp_path / "online")
    said = sentence("enrol", tmp_path / "home", "--token", online.admit(role, "ada").text())
    assert f"the token is for fedward://{role}/ada; enrol that party with `fedward-coordinator enrol`" in said
    assert not (tmp_path / "home").exists()


def test_who_is_not_named_is_told(policy, authority):
    home = authority.credential("approver", "trudy")
    write_yaml(policy, policy_document("north-ward", approvers=["fedward://approver/ada", "fedward://approver/grace"]))
    assert "does not name you" in invoke("policy", "sign", policy, "--key", home / "key.pem").output


def test_a_check_says_that_operators_approve_nothing(policy):
    people = ["fedward://operator/ada", "fedward://approver/grace"]
    write_yaml(policy, policy_document("north-ward", approvers=people))
    said = invoke("policy", "check", policy).output
    assert "cannot come into force: the policy's approvers name fedward://operator/ada: an operator runs" in said


def test_a_policy_for_another_data_set_does_not_come_into_force(hospital, policy, sentence):
    write_yaml(policy, policy_document("theatre"))
    assert "data_set" in sentence("policy", "reload", "-c", hospital)
    assert read_history(hospital.parent / "state" / "ledger.sqlite3")[1] == ()


def test_a_running_agent_has_to_be_stopped_first(hospital, sentence):
    path = hospital.parent / "state" / "ledger.sqlite3"
    with Ledger.open(path, NORTH, budget_epsilon=4.0):
        assert "stop the other agent" in sentence("policy", "reload", "-c", hospital)


def test_the_samples_are_yaml_that_other_readers_understand():
    for path in SAMPLES.glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["version"] == 4


def test_a_new_policy_has_the_five_answers_and_comments_and_an_existing_file_is_kept(quick_path, sentence):
    out = quick_path / "new.yaml"
    answers = "north-ward\nDPO: Weber # 1\npatient number\n5\n6\n"
    done = CliRunner().invoke(main.app, ["policy", "new", "--out", str(out)], input=answers)
    assert done.exit_code == 0, done.output
    policy = load_policy(out)
    assert (policy.data_set.id, policy.contact, policy.data_set.identified_by) == (
        "north-ward",
        "DPO: Weber # 1",
        ("patient number",),
    )
    assert (policy.min_silos, policy.budget.epsilon, policy.limits.study_epsilon) == (4, 6.0, 3.0)
    written = out.read_text()
    assert written.count(" # ") > 15
    given = ("--data-set", "a", "--contact", "b", "--patient", "c", "--hospitals", 3, "--epsilon", 2, "--out")
    assert "new.yaml" in sentence("policy", "new", *given, out)
    assert out.read_text() == written
    bad = quick_path / "bad.yaml"
    assert "budget.epsilon" in sentence("policy", "new", *given[:-2], -1, "--out", bad)
    assert not bad.exists()


GIVEN = ["policy", "new", "--data-set", "a", "--contact", "b", "--patient", "id", "--hospitals", "3", "--epsilon", "2"]


@pytest.mark.parametrize("answers", [None, "y\nn\ny\n"])
def test_a_new_policy_says_what_a_person_confirms_of_the_file(quick_path, monkeypatch, answers):
    data, out = quick_path / "ward.csv", quick_path / "new.yaml"
    rows = [f"p{i};{'k.A.' if i % 2 else '1,5'};{'f' if i % 3 else 'm'}" for i in range(100)]
    data.write_text("\n".join(["id;crp;sex", *rows]) + "\n")
    monkeypatch.setattr("silo_agent.cli.policy.on_terminal", lambda: answers is not None)
    asked = [*GIVEN, "--file", str(data), "--out", str(out)]
    done = CliRunner().invoke(main.app, [*asked, *([] if answers else ["--yes"])], input=answers)
    assert done.exit_code == 0, done.output
    policy = load_policy(out)
    assert policy.data_set.file == FileFormat(delimiter=";", columns=())
    assert policy.spelling == Spelling(decimal=",", missing=None if answers else ("", "k.A."))
    assert "# column sex: codes (" in out.read_text()
    assert "100 rows" in done.output
    assert "100" not in out.read_text().partition("approvers: null")[2]


def test_nothing_is_confirmed_where_nobody_is(quick_path, sentence):
    data, out = quick_path / "ward.csv", quick_path / "new.yaml"
    data.write_text("id;crp\np1;1\n")
    said = sentence(*GIVEN, "--file", data, "--out", out)
    assert 'data_set.file.delimiter: ";"' in said
    assert "give --yes" in said
    assert not out.exists()
