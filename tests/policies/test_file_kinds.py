"""A file of another kind is named, and no line says to change it."""

import pytest
import yaml

from coordinator.config import CoordinatorConfig, OperatorConfig
from policies.documents.document import DocumentError, parse_document
from policies.documents.draft import Draft
from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.file_kinds import AGENT, COORDINATOR, MARKS, OPERATOR, POLICY, STUDY, kind_of
from silo_agent.config import AgentConfig
from support.small_cohort import policy_document
from support.studies import tiny_document

CREDENTIAL = {"certificate": "c.pem", "key": "k.pem", "authority": "a.pem"}
FILES = {
    STUDY: tiny_document(),
    POLICY: policy_document("north-ward"),
    AGENT: {"coordinator": "localhost:1", **CREDENTIAL, "policy": "policy.yaml", "state": "state"},
    COORDINATOR: {"port": 1, "metrics_port": 2, **CREDENTIAL, "data": "data"},
    OPERATOR: {"coordinator": "localhost:1", **CREDENTIAL},
}
SCHEMAS = {
    STUDY: (Study, Draft),
    POLICY: (Policy,),
    AGENT: (AgentConfig,),
    COORDINATOR: (CoordinatorConfig,),
    OPERATOR: (OperatorConfig,),
}


@pytest.mark.parametrize("kind", FILES)
def test_each_file_is_told_by_its_fields(kind):
    assert kind_of(FILES[kind]) == kind
    assert all(kind == schema.KIND for schema in SCHEMAS[kind])
    marks = dict(MARKS)[kind]
    assert all(marks <= set(schema.model_fields) for schema in SCHEMAS[kind] if schema is not Draft)


@pytest.mark.parametrize("given", FILES)
@pytest.mark.parametrize("wanted", SCHEMAS)
def test_a_file_of_another_kind_is_named_in_one_line(given, wanted):
    for schema in SCHEMAS[wanted] if given != wanted else ():
        with pytest.raises(DocumentError) as caught:
            parse_document(yaml.safe_dump(FILES[given]), schema, "x.yaml")
        told = str(caught.value)
        assert told == f"x.yaml: this is {given}; give the path of {wanted} in its place, and leave this file as it is"
        assert "remove" not in told


def test_what_is_of_no_kind_is_judged_by_its_fields():
    assert kind_of({"version": 1, "name": "x", "data": {}}) is None
    with pytest.raises(DocumentError, match="field contact: this field is missing"):
        parse_document("version: 4\nfoo: 1\n", Policy, "x.yaml")


def test_a_study_with_a_field_of_a_policy_stays_a_study():
    assert kind_of({**tiny_document(), "budget": 1}) == STUDY
