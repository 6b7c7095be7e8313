from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

import policies
from policies.documents import policy as policy_module
from policies.documents.document import MAX_BYTES, DocumentError
from policies.documents.policy import Policy, load_policy
from policies.documents.words.compare import value_of
from policies.refusals import Reason

SAMPLES = Path(policies.__file__).parent / "samples"


NAMES = ("strict", "consortium", "three-hospitals", "research", "evaluation-only", "published")


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


def test_data_are_private_unless_the_policy_says_otherwise(make_policy):
    policy = make_policy()
    assert not policy.data_set.public
    assert make_policy({"data_set.public": False}).digest == policy.digest
    assert make_policy({"data_set.public": True}).digest != policy.digest


def test_a_policy_of_version_1_is_refused_with_the_fields_that_it_lacks(tmp_path):
    older = yaml.safe_load((SAMPLES / "consortium.yaml").read_text())
    older["version"] = 1
    new = ("encoder_sealing", "smallest_domain", "split", "publish", "retention_days", "approvers")
    for field in new:
        del older[field]
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(older))
    with pytest.raises(DocumentError) as caught:
        load_policy(path)
    (fault,) = caught.value.faults
    for field in (*new, "version: 4", "budget.relation", "budget.expires", "limits.round_epsilon", "architectures"):
        assert field in fault
    assert "data_set.identified_by" in fault


def test_a_policy_of_version_2_is_refused_with_the_field_that_it_lacks(tmp_path):
    older = yaml.safe_load((SAMPLES / "consortium.yaml").read_text()) | {"version": 2}
    del older["data_set"]["identified_by"]
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(older))
    says = r"version 2 .* write version: 4 .* new fields: data_set\.identified_by, data_set\.file, limits\.memory_mib\."
    with pytest.raises(DocumentError, match=says):
        load_policy(path)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("strict", "cc4b4f2704b132fc59840aa4b942d64f48d4244b66454da18a1a14c941b79e61"),
        ("consortium", "c1ba8d45e18618e93a45d509e9d8e68550ab056ddad3736b64ae97736de6ba51"),
        ("research", "dd4c88394cb761e05ca1ba77dc0f7337dbe67d4ed6815abb7a6400562e1f7c38"),
    ],
)
def test_a_policy_of_version_3_keeps_the_digest_under_which_it_is_in_force(name, digest, tmp_path):
    """The digests are those that version 0.5 computed for its samples."""
    older = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text()) | {"version": 3}
    del older["data_set"]["file"], older["limits"]["memory_mib"]
    new = ("mae", "r2", "mean_error", "expected_observed", "false_negatives")
    older["publish"] = [metric for metric in older["publish"] if metric not in new]
    if name == "consortium":  # room for sealed steps came with 0.6
        older["limits"] |= {"rounds": 30, "sampling_rate": 0.5}
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(older))
    policy = load_policy(path)
    assert policy.digest == digest
    assert Policy.model_validate_json(policy.canonical()) == policy
    # What it means by the fields that it cannot state.
    assert (policy.data_set.file.delimiter, policy.data_set.file.columns) == (",", ())
    assert policy.limits.memory_mib == 16_384


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [("data_set", "file", {"delimiter": ";", "columns": []}), ("limits", "memory_mib", 1_000_000)],
)
def test_a_policy_of_version_3_states_nothing_that_its_version_does_not_have(part, field, value, make_policy):
    stated = json.loads(make_policy().canonical()) | {"version": 3}
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    Policy.model_validate(stated)
    stated[part] = {**stated[part], field: value}
    with pytest.raises(ValidationError, match=f"version 3 has no {part}.{field}; write version: 4"):
        Policy.model_validate(stated)


SPELLING = {"missing": ["."], "codes": {"sex": {1: "m", "2 ": "f", "x": None}, "y": {"yes": True, "no": 0.5}}}


def test_own_codes_are_texts_and_stay_what_they_are_in_the_stored_policy(make_policy, tmp_path):
    policy = make_policy({"spelling": SPELLING})
    assert policy.spelling.codes["sex"] == {"1": "m", "2": "f", "x": None}
    assert policy.spelling.codes["y"] == {"yes": True, "no": 0.5}
    (tmp_path / "policy.json").write_bytes(policy.canonical())
    stored = load_policy(tmp_path / "policy.json")
    assert (stored, stored.digest) == (policy, policy.digest)
    assert policy.digest != make_policy().digest


def test_a_policy_that_spells_nothing_its_own_way_keeps_its_digest(make_policy):
    assert b"spelling" not in make_policy().canonical()
    assert make_policy({"spelling": {"missing": None, "codes": {}}}).digest == make_policy().digest


def test_a_policy_of_version_3_has_no_later_field(make_policy):
    stated = json.loads(make_policy().canonical()) | {"version": 3, "spelling": SPELLING, "approved_data": {}}
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    with pytest.raises(ValidationError, match="version 3 has no spelling and no approved_data; write version: 4"):
        Policy.model_validate(stated)


ANN, BOB = "fedward://author/ann", "fedward://author/bob"


def rule(studies, author=ANN, purpose="*"):
    return {"studies": studies, "author": author, "purpose": purpose}


def test_a_rule_gives_studies_data_by_their_names(make_policy):
    rules = {"ward": [rule("exam-*"), rule("heart")], "lab": [rule("*-lab"), rule("exam-9")]}
    policy = make_policy({"approved_data": rules})
    names = ("exam-1", "heart", "hearts", "x-lab", "exam-9", "exam")
    found = {study: policy.data_for(study, "Any.", ANN) for study in names}
    assert found == {
        "exam-1": ("ward",),
        "heart": ("ward",),
        "hearts": (),
        "x-lab": ("lab",),
        "exam-9": ("lab", "ward"),
        "exam": (),
    }
    assert make_policy({"approved_data": {}}).digest == make_policy().digest != policy.digest
    assert Policy.model_validate(json.loads(policy.canonical())) == policy


@pytest.mark.parametrize(
    ("purpose", "author", "found"),
    [
        ("Say who [1] falls.", ANN, ("ward",)),
        ("Say who [1] falls.\nAnd why.", ANN, ("ward",)),
        ("Say who 1 falls.", ANN, ()),
        ("To say who [1] falls.", ANN, ()),
        ("Say who [1] falls.", BOB, ()),
        ("Say who [1] falls.", "", ()),
    ],
)
def test_a_rule_is_of_one_author_and_one_purpose(make_policy, purpose, author, found):
    """A name is the author's to choose, and anybody's to take."""
    policy = make_policy({"approved_data": {"ward": [rule("exam", purpose="Say who [1]*")]}})
    assert policy.data_for("exam", purpose, author) == found


@pytest.mark.parametrize(
    "rules",
    [
        {"ward": []},
        {"ward": [rule("[a-z]")]},
        {"ward": [rule("Exam")]},
        {"": [rule("*")]},
        [rule("exam")],
        {"ward": ["exam"]},
        {"ward": [{"studies": "exam", "author": ANN}]},
        {"ward": [rule("exam", author="fedward://author/*")]},
        {"ward": [rule("exam", author="fedward://operator/ann")]},
        {"ward": [rule("exam", purpose="")]},
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rules, make_policy):
    with pytest.raises(ValidationError, match="approved_data"):
        make_policy({"approved_data": rules})


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ({"pid": {"1": "2"}}, "spelling.codes names the column of data_set.identified_by"),
        ({"sex": {}}, "codes.sex"),
        ({"sex": {True: "m"}}, "write it in quotes"),
        ({"sex": {1.5: "m"}}, "codes.sex"),
        ({"sex": {"1": "m", 1: "f"}}, "the same text"),
        ({"sex": {"\x07": "m"}}, "control character"),
        ({"sex": {"a": 2**53 + 1}}, "codes.sex"),
        ({"sex": ["m"]}, "codes.sex"),
    ],
)
def test_own_codes_that_make_no_sense_are_refused(codes, says, make_policy):
    with pytest.raises(ValidationError) as refused:
        make_policy({"spelling": {"codes": codes}})
    assert says in str(refused.value)


@pytest.mark.parametrize("part", ["data_set", "limits"])
@pytest.mark.parametrize("instead", [None, [], "file", 3])
def test_a_part_that_is_none_is_refused_in_version_3_too(part, instead, make_policy):
    stated = json.loads(make_policy().canonical()) | {"version": 3}
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    stated[part] = instead
    with pytest.raises(ValidationError, match=part):
        Policy.model_validate(stated)


def test_the_fields_that_older_versions_lacked_are_named_as_they_are(make_policy):
    for fields in policy_module._ADDED.values():
        assert [value_of(make_policy(), field) for field in fields]


def test_a_record_may_be_told_by_several_columns_whose_order_counts(make_policy):
    changes = {"data_set.unit": "record", "data_set.identified_by": ["ward", "row"]}
    policy = make_policy(changes)
    assert policy.data_set.identified_by == ("ward", "row")
    assert make_policy(changes | {"data_set.identified_by": ["row", "ward"]}).digest != policy.digest


def test_a_missing_policy_is_an_error(tmp_path):
    with pytest.raises(DocumentError, match="there is no such file"):
        load_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize("name", ["strict", "consortium"])
def test_every_field_must_be_stated(name, tmp_path):
    whole = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    parts = [((), field) for field in whole]
    parts += [((group,), field) for group in ("data_set", "budget", "limits", "split") for field in whole[group]]
    parts += [(("data_set", "file"), field) for field in whole["data_set"]["file"]]
    for way, field in parts:
        cut = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
        at = cut
        for step in way:
            at = at[step]
        at.pop(field)
        path = tmp_path / "cut.yaml"
        path.write_text(yaml.safe_dump(cut))
        with pytest.raises(DocumentError, match=f"{field}: this field is missing"):
            load_policy(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 5}, "version"),
        ({"version": True}, "version"),
        ({"version": 1}, "write version: 4"),
        ({"version": 2}, "write version: 4"),
        ({"data_set.file": None}, "data_set.file"),
        ({"data_set.file": {"delimiter": ","}}, "data_set.file.columns"),
        ({"data_set.file": {"columns": []}}, "data_set.file.delimiter"),
        ({"data_set.file.delimiter": "."}, "data_set.file.delimiter"),
        ({"data_set.file.delimiter": ""}, "data_set.file.delimiter"),
        ({"data_set.file.columns": ["pid", "pid"]}, "data_set.file.columns lists a value twice"),
        ({"data_set.file.columns": ["y"]}, "data_set.file.columns does not list pid of data_set.identified_by"),
        ({"data_set.file.columns": ["c"] * 8193}, "data_set.file.columns"),
        ({"limits.memory_mib": 63}, "limits.memory_mib"),
        ({"limits.memory_mib": float("inf")}, "limits.memory_mib"),
        ({"limits.memory_mib": True}, "is not a number"),
        ({"data_set.identified_by": []}, "data_set.identified_by"),
        ({"data_set.identified_by": "pid"}, "data_set.identified_by"),
        ({"data_set.identified_by": [""]}, "data_set.identified_by"),
        ({"data_set.identified_by": ["ward", "row"]}, "data_set.identified_by lists several columns"),
        (
            {"data_set.unit": "record", "data_set.identified_by": ["row", "ward", "row"]},
            "data_set.identified_by lists a value twice",
        ),
        ({"data_set.id": "Not A Name"}, "data_set.id"),
        ({"data_set.unit": "household"}, "data_set.unit"),
        ({"data_set.holdout": 0.01}, "data_set.holdout"),
        ({"data_set.holdout": 0.9}, "data_set.holdout"),
        ({"budget.epsilon": 0}, "budget.epsilon"),
        ({"budget.epsilon": 33}, "budget.epsilon"),
        ({"budget.epsilon": float("nan")}, "budget.epsilon"),
        ({"budget.epsilon": -1.0}, "budget.epsilon"),
        ({"budget.epsilon": True}, "is not a number"),
        ({"budget.relation": "replace"}, "budget.relation"),
        ({"budget.expires": "2027-02-30"}, "budget.expires"),
        ({"budget.expires": "soon"}, "YYYY-MM-DD"),
        ({"budget.expires": 1893456000}, "YYYY-MM-DD"),
        ({"budget.expires": "2027-12-31T00:00:00"}, "YYYY-MM-DD"),
        ({"budget.expires": None}, "YYYY-MM-DD"),
        ({"encoder_sealing": "none"}, "encoder_sealing"),
        ({"smallest_domain": -1}, "smallest_domain"),
        ({"limits.round_epsilon": 0}, "limits.round_epsilon"),
        ({"limits.round_epsilon": float("inf")}, "limits.round_epsilon"),
        ({"limits.architectures": []}, "limits.architectures"),
        ({"limits.architectures": ["vit"]}, "limits.architectures"),
        ({"limits.architectures": ["mlp", "mlp"]}, "limits.architectures lists a value twice"),
        ({"split.encoder": 0}, "split.encoder"),
        ({"split.heads": 1.1}, "split.heads"),
        ({"split.counts": float("nan")}, "split.counts"),
        ({"split.metrics": -0.5}, "split.metrics"),
        ({"publish": ["loss"]}, "publish"),
        ({"publish": ["auc", "auc"]}, "publish lists a value twice"),
        ({"retention_days": 0}, "retention_days"),
        ({"retention_days": -1}, "retention_days"),
        ({"retention_days": 36_501}, "retention_days"),
        ({"retention_days": 1.5}, "retention_days"),
        ({"retention_days": float("inf")}, "retention_days"),
        ({"retention_days": True}, "is not a number"),
        ({"retention_days": None}, "retention_days"),
        ({"retention_days": "30 days"}, "retention_days"),
        ({"contact": ""}, "contact"),
        ({"contact": "dpo@hospital.example\x1b[2J"}, "write one line of plain text"),
        ({"contact": "dpo@hospital.example\nepsilon: none was spent"}, "write one line of plain text"),
        ({"approvers": ["fedward://approver/ada"]}, "approvers"),
        ({"approvers": ["fedward://approver/ada", "fedward://silo/north"]}, "approvers"),
        ({"approvers": ["fedward://approver/ada"] * 2}, "approvers lists a value twice"),
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


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("epsilon: 8.0", "epsilon: .nan", "not a finite decimal"),
        ("epsilon: 8.0", "epsilon: nan", "budget.epsilon"),
        ("epsilon: 8.0", "epsilon: .inf", "not a finite decimal"),
        ("epsilon: 8.0", "epsilon: 1.0e+999", "not a finite number"),
        ("epsilon: 8.0", "epsilon: -8.0", "budget.epsilon"),
        ("epsilon: 8.0", "epsilon: 0", "budget.epsilon"),
        ("epsilon: 8.0", "epsilon: &much 8.0", "anchors and aliases"),
        ("study_epsilon: 4.0", "study_epsilon: *much", "anchors and aliases"),
        ("epsilon: 8.0", "epsilon: 8.0\n  epsilon: 9.0", "'epsilon' stands twice"),
        ("epsilon: 8.0", "epsilon: 8.0\n  refills: yearly", "field budget.refills: unknown field"),
        ("publish: [auc,", "publish: [auc, auc,", "publish lists a value twice"),
        ("min_silos: 4", "min_silos: 4\n" + "#" * 10_000_000, f"larger than {MAX_BYTES} bytes"),
    ],
)
def test_a_document_that_could_be_misread_is_a_named_error(old, new, says, tmp_path):
    text = (SAMPLES / "consortium.yaml").read_text()
    assert old in text
    path = tmp_path / "policy.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DocumentError, match=re.escape(says)):
        load_policy(path)


def test_the_canonical_form_is_a_policy_too(make_policy, tmp_path):
    policy = make_policy({"approvers": ["fedward://approver/ada", "fedward://approver/grace"]})
    path = tmp_path / "policy.json"
    path.write_bytes(policy.canonical())
    assert load_policy(path) == policy


def test_colluders_do_not_bind_where_noise_is_local_only(make_policy):
    assert make_policy({"colluders": 5, "noise_modes": ["local"]}).colluders == 5


def test_the_digest_names_the_content(make_policy):
    assert make_policy().digest == make_policy().digest
    assert make_policy().digest != make_policy({"limits.rounds": 9}).digest
    assert Policy.model_validate_json(make_policy().canonical()).digest == make_policy().digest


def test_the_guide_names_every_field_and_every_reason(make_policy):
    guide = (Path(policies.__file__).parents[1] / "docs" / "policy.md").read_text()

    def names(part):
        for name, value in part:
            yield name
            yield from names(value) if hasattr(value, "model_fields") else ()

    for word in (*names(make_policy()), *Reason):
        assert f"`{word}`" in guide, word
