"""Configuration is closed and typed; every fault names file, field and mend."""

from __future__ import annotations

import pytest
import yaml

from coordinator.config import CoordinatorConfig, OperatorConfig
from crypto.pki.known_keys import MEMORY_FILE
from policies.documents.document import DocumentError

FILES = {"certificate": "certificate.pem", "key": "key.pem", "authority": "/etc/authority.pem"}
COORDINATOR = {"port": 8443, "metrics_port": 9100, "data": "data", **FILES}
OPERATOR = {"coordinator": "hub.example:8443", **FILES}


def write(tmp_path, content):
    path = tmp_path / "some.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def test_paths_are_relative_to_the_file(tmp_path):
    config = CoordinatorConfig.load(write(tmp_path, COORDINATOR))
    assert config.certificate == tmp_path / "certificate.pem"
    assert config.data == tmp_path / "data"
    assert str(config.authority) == "/etc/authority.pem"
    operator = OperatorConfig.load(write(tmp_path, OPERATOR))
    assert (operator.coordinator, operator.key) == (("hub.example:8443",), tmp_path / "key.pem")


def test_the_memory_of_keys_lies_with_the_data_and_an_operator_s_beside_the_authority(tmp_path):
    files = CoordinatorConfig.load(write(tmp_path, COORDINATOR)).files
    assert (files.certificate, files.memory) == (tmp_path / "certificate.pem", tmp_path / "data" / MEMORY_FILE)
    operator = OperatorConfig.load(write(tmp_path, OPERATOR))
    assert operator.files.memory == operator.authority.parent / MEMORY_FILE


def test_only_this_machine_is_served_unless_said_otherwise(tmp_path):
    config = CoordinatorConfig.load(write(tmp_path, COORDINATOR))
    assert (config.host, config.metrics_host, config.database) == ("127.0.0.1", "127.0.0.1", None)


def test_a_database_s_password_is_never_printed(tmp_path):
    url = "postgresql://fedward:hunter2@db/fedward"
    config = CoordinatorConfig.load(write(tmp_path, {**COORDINATOR, "database": url}))
    assert config.database == url
    assert "hunter2" not in repr(config) + str(config)


@pytest.mark.parametrize(
    ("load", "content", "fault"),
    [
        (CoordinatorConfig, {**COORDINATOR, "insecure": True}, "field insecure: unknown field; remove it or fix"),
        (CoordinatorConfig, {"port": 1}, "field certificate: this field is missing; add it"),
        (CoordinatorConfig, {**COORDINATOR, "port": 65536}, "field port: "),
        (CoordinatorConfig, {**COORDINATOR, "port": -1}, "field port: "),
        (CoordinatorConfig, {**COORDINATOR, "port": True}, "port: true is not a number"),
        (CoordinatorConfig, {**COORDINATOR, "threads": 3}, "field threads: "),
        (CoordinatorConfig, "port: [1", "line "),
        (CoordinatorConfig, "port: 1\nport: 2\n", "the field 'port' stands twice; keep one"),
        (CoordinatorConfig, "- port\n", "the document must be a mapping of fields to values"),
        (OperatorConfig, {**OPERATOR, "coordinator": "https://hub:1"}, "field coordinator: "),
        (OperatorConfig, {**OPERATOR, "coordinator": "hub"}, "field coordinator: "),
        (OperatorConfig, {**OPERATOR, "token": "x"}, "field token: unknown field"),
    ],
)
def test_a_fault_names_file_field_and_mend(tmp_path, load, content, fault):
    path = write(tmp_path, content)
    with pytest.raises(DocumentError) as caught:
        load.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert fault in str(caught.value)


@pytest.mark.parametrize("load", [CoordinatorConfig, OperatorConfig])
def test_a_file_that_is_missing(tmp_path, load):
    with pytest.raises(DocumentError, match=r"absent.yaml: there is no such file; create it or give its path"):
        load.load(tmp_path / "absent.yaml")
