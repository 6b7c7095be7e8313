from pathlib import Path

import pytest

from policies.documents.document import DocumentError
from silo_agent.config import AgentConfig, named_data
from support.small_cohort import policy_document, write_yaml

FILES = ("certificate.pem", "key.pem", "authority.pem", "policy.yaml", "north.csv")


def document(**changes):
    fields = {
        "coordinator": "hub.example:8443",
        "certificate": "certificate.pem",
        "key": "key.pem",
        "authority": "authority.pem",
        "policy": "policy.yaml",
        "state": "state",
        "data": {"heart": "north.csv"},
    }
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


@pytest.fixture
def write(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("here")
    return lambda **changes: write_yaml(tmp_path / "agent.yaml", document(**changes))


def test_paths_are_relative_to_the_file_and_nothing_else_is_assumed(write, tmp_path, monkeypatch):
    path = write()
    monkeypatch.chdir("/")
    config = AgentConfig.load(path)
    assert config.certificate == tmp_path / "certificate.pem"
    assert config.state == tmp_path / "state"
    assert config.data == {"heart": tmp_path / "north.csv"}
    assert (config.metrics_host, config.metrics_port, config.device, config.threads) == ("127.0.0.1", 0, "auto", None)


def test_absolute_paths_stay(write, tmp_path):
    assert AgentConfig.load(write(key=str(tmp_path / "key.pem"))).key == tmp_path / "key.pem"


def test_a_folder_for_state_may_be_new(write, tmp_path):
    assert not (tmp_path / "state").exists()
    AgentConfig.load(write())


def test_an_unknown_field_is_named(write):
    with pytest.raises(DocumentError, match=r"agent\.yaml: field no_dp: unknown field; remove it"):
        AgentConfig.load(write(no_dp=True))


@pytest.mark.parametrize("field", ["coordinator", "certificate", "key", "authority", "policy", "state", "data"])
def test_a_missing_field_is_named(write, field):
    with pytest.raises(DocumentError, match=f"field {field}: this field is missing; add it"):
        AgentConfig.load(write(**{field: None}))


@pytest.mark.parametrize("field", ["certificate", "key", "authority", "policy"])
def test_a_file_that_is_not_there_is_named_with_its_field(write, field, tmp_path):
    with pytest.raises(DocumentError, match=f"field {field}: there is no file {tmp_path}/gone"):
        AgentConfig.load(write(**{field: "gone"}))


def test_a_passphrase_that_is_there_only_while_the_service_runs_keeps_no_command_from_starting(write, tmp_path):
    assert AgentConfig.load(write(key_passphrase="gone")).files.passphrase == tmp_path / "gone"


def test_data_that_are_not_there_concern_their_study_alone(write, tmp_path):
    config = AgentConfig.load(write(data={"heart": "north.csv", "lung": "gone.csv", "liver": "."}))
    assert config.source("heart") == tmp_path / "north.csv"
    assert config.source("lung") == tmp_path / "gone.csv"
    assert config.source("liver") == tmp_path
    assert config.source("kidney") is None


def test_a_database_is_a_source_with_paths_beside_the_configuration(write, tmp_path):
    source = {"url": "sqlite:///ward.sqlite3", "statement": "SELECT * FROM ill"}
    served = {"url": "postgresql://reader@db/ward", "statement": "SELECT 1", "credentials": "secret"}
    path = write(data=None, databases={"heart": source, "lung": served})
    config = AgentConfig.load(path)
    assert config.source("heart").file == tmp_path / "ward.sqlite3"
    assert config.source("lung").credentials == tmp_path / "secret"
    named = named_data(path)
    assert (named.paths, list(named.databases)) == ((), ["heart", "lung"])
    assert named.databases["heart"].file == tmp_path / "ward.sqlite3"
    assert "lung" in named_data(write(data=None, databases={"lung": {**served, "field_of_tomorrow": 1}})).databases


def test_a_name_stands_for_one_source(write):
    source = {"url": "sqlite:///ward.sqlite3", "statement": "SELECT * FROM ill"}
    with pytest.raises(DocumentError, match=r"field databases\.heart: data has this name too"):
        AgentConfig.load(write(databases={"heart": source}))


def test_a_password_in_the_configuration_is_refused_and_never_shown(write):
    wrong = {"url": "oracle://reader:geheim@db/ward", "statement": "SELECT 1; DELETE FROM ill"}
    with pytest.raises(DocumentError) as caught:
        AgentConfig.load(write(databases={"lung": wrong}))
    said = str(caught.value)
    assert "remove the password" in said
    assert "exactly one statement" in said
    assert "geheim" not in said


def test_a_database_that_cannot_keep_the_agent_from_writing_needs_the_hospitals_word(write):
    source = {"url": "mssql+pyodbc://reader@db/ward", "statement": "SELECT 1"}
    with pytest.raises(DocumentError, match=r"agent\.yaml: field databases\.lung\.url: .*writing on mssql"):
        AgentConfig.load(write(databases={"lung": source}))
    AgentConfig.load(write(databases={"lung": {**source, "user_may_only_read": True}}))


@pytest.mark.parametrize(
    "changes",
    [
        {"coordinator": "hub.example"},
        {"coordinator": "https://hub.example:8443"},
        {"authority_url": "http://authority.example:8443"},
        {"data": {"No Name": "north.csv"}},
        {"metrics_port": 70000},
        {"device": "tpu"},
        {"threads": 0},
    ],
)
def test_values_that_cannot_be_meant_are_refused_with_their_field(write, changes):
    (field,) = changes
    with pytest.raises(DocumentError, match=f"field {field}|field \\(document\\): .*{field}"):
        AgentConfig.load(write(**changes))


def test_an_absent_configuration_is_a_sentence(tmp_path):
    with pytest.raises(DocumentError, match=r"none\.yaml: there is no such file"):
        AgentConfig.load(tmp_path / "none.yaml")


def test_a_policy_is_no_configuration(tmp_path):
    with pytest.raises(DocumentError, match="this is a policy; give the path of an agent's configuration"):
        AgentConfig.load(write_yaml(tmp_path / "policy.yaml", policy_document("north-ward")))


def test_the_named_data_are_told_whatever_else_a_configuration_says(write, tmp_path):
    assert named_data(write(field_of_tomorrow=1, certificate=None)).paths == (tmp_path / "north.csv",)
    assert named_data(write(data={"a": "/far/a.csv", "b": "gone.csv"})).paths == (
        Path("/far/a.csv"),
        tmp_path / "gone.csv",
    )


def test_what_is_no_configuration_names_no_data(write, tmp_path):
    for nothing in (write(coordinator=None), write(data="north.csv"), tmp_path / "absent.yaml"):
        assert not named_data(nothing)
