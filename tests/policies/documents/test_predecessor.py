import hashlib
import json

import pytest
import yaml

from policies.documents.document import DocumentError
from policies.documents.policy import load_policy
from policies.documents.predecessor import load_predecessor


def written(path, policy, version=2):
    """A policy as version 2 wrote it (or 3), and the digest that it had."""
    stated = json.loads(policy.canonical()) | {"version": version}
    del stated["data_set"]["file"], stated["limits"]["memory_mib"]
    if version < 3:
        del stated["data_set"]["identified_by"]
    path.write_text(yaml.safe_dump(stated))
    return path, hashlib.sha256(json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def as_of_version_3(policy):
    """A policy of version 3 that means what this one says, but for the memory, of which it means the default."""
    limits = policy.limits.model_copy(update={"memory_mib": 16_384})
    return policy.model_copy(update={"version": 3, "limits": limits})


def test_a_policy_of_this_version_is_read_as_it_is(make_policy, tmp_path):
    policy = make_policy()
    path = tmp_path / "policy.yaml"
    path.write_bytes(policy.canonical())
    assert load_predecessor(path, make_policy({"data_set.identified_by": ["visit"]})) == (policy, policy.digest)


def test_a_policy_of_version_2_has_its_own_digest_and_the_columns_of_its_successor(make_policy, tmp_path):
    path, digest = written(tmp_path / "policy.yaml", make_policy({"limits.clip": 0.125, "approvers": None}))
    found, known = load_predecessor(path, make_policy({"data_set.identified_by": ["visit"]}))
    assert known == digest != found.digest
    assert found == as_of_version_3(make_policy({"limits.clip": 0.125, "data_set.identified_by": ["visit"]}))


def test_a_policy_of_version_3_has_its_own_digest_and_the_file_of_its_successor(make_policy, tmp_path):
    """Nothing bound the file before: each study said how it was parted."""
    path, digest = written(tmp_path / "policy.yaml", make_policy({"limits.clip": 0.125}), version=3)
    file = {"delimiter": ";", "columns": ["y", "pid"]}
    found, known = load_predecessor(path, make_policy({"data_set.file": file}))
    assert known == digest == found.digest == load_policy(path).digest
    assert found == as_of_version_3(make_policy({"limits.clip": 0.125, "data_set.file": file}))
    assert load_policy(path) == as_of_version_3(make_policy({"limits.clip": 0.125}))


def test_a_policy_of_version_2_keeps_its_unit_beside_a_successor_of_another(make_policy, tmp_path):
    rows = make_policy({"data_set.unit": "record", "data_set.identified_by": ["ward", "row"]})
    path, digest = written(tmp_path / "policy.yaml", make_policy())
    found, known = load_predecessor(path, rows)
    assert (found.data_set.unit, known) == ("patient", digest)
    path, digest = written(tmp_path / "rows.yaml", rows)
    found, known = load_predecessor(path, rows)
    assert (found, known) == (as_of_version_3(rows), digest)


@pytest.mark.parametrize("version", [1, 3, 4, 5])
def test_no_other_version_is_taken_for_it(version, make_policy, tmp_path):
    path, _ = written(tmp_path / "policy.yaml", make_policy())
    path.write_text(path.read_text().replace("version: 2", f"version: {version}"))
    with pytest.raises(DocumentError):
        load_predecessor(path, make_policy())


@pytest.mark.parametrize(
    "text", ["version: 2", "version: 2\ndata_set: 7", "[]", "version: 2\ndata_set: {unit: patient}"]
)
def test_what_is_no_policy_is_an_error_of_the_document(text, make_policy, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(DocumentError):
        load_predecessor(path, make_policy())
