"""Where the parties lie, how they are configured, and which commands enrol them."""

from pathlib import Path

import pytest
import yaml

from coordinator.config import CoordinatorConfig, OperatorConfig
from deploy.local import parties
from deploy.local.parties import (
    Enrolment,
    FederationPaths,
    configure_author,
    configure_coordinator,
    configure_silo,
)
from silo_agent.config import AgentConfig


@pytest.fixture
def place(tmp_path):
    made = FederationPaths(tmp_path)
    for name in ("coordinator", "author", "north", "authority"):
        made.party(name).mkdir()
        for file in ("certificate.pem", "key.pem", "authority.pem"):
            (made.party(name) / file).touch()
    return made


def test_configurations_are_what_each_program_reads(place, tmp_path):
    data = tmp_path / "north.csv"
    data.touch()
    configure_coordinator(place)
    configure_author(place, 4711)
    configure_silo(place, "north", port=4711, policy="the policy", data={"small": data}, threads=2)
    assert CoordinatorConfig.load(place.coordinator_file).port == 0
    assert OperatorConfig.load(place.author_file).coordinator == ("127.0.0.1:4711",)
    config = AgentConfig.load(place.agent_file("north"))
    assert (config.coordinator, config.threads, config.data) == (("127.0.0.1:4711",), 2, {"small": data})
    assert config.policy.read_text() == "the policy"
    assert config.state == place.state("north")


def test_threads_are_left_to_the_libraries_if_none_are_given(place, tmp_path):
    configure_silo(place, "north", port=1, policy="", data={"small": tmp_path / "north.csv"}, threads=None)
    assert "threads" not in yaml.safe_load(place.agent_file("north").read_text())


def test_every_party_is_enrolled_and_signed_for_what_it_is(place, monkeypatch):
    ran = []

    def run(program, *arguments, env=None):
        ran.append((program, *(a if isinstance(a, str) else a.name for a in arguments)))
        if program == "fedward-authority":
            assert env == {"FEDWARD_AUTHORITY_PASSPHRASE": "secret"}

    monkeypatch.setattr(parties, "run", run)
    Path(place.authority / "authority.pem").write_text("root")
    Enrolment(place, "secret").enrol({"north": "north-wards"})
    assert ran[0] == ("fedward-authority", "init", "authority", "--name", "demo")
    host, sign = ("--host", "127.0.0.1"), ("sign", "authority", "request.csr")
    assert sorted(ran[1:]) == sorted(
        [
            ("fedward-coordinator", "enrol", "coordinator", "--role", "coordinator", "--name", "coordinator", *host),
            ("fedward-coordinator", "enrol", "author", "--role", "author", "--name", "author"),
            ("fedward-silo", "enrol", "north", "--name", "north", "--data-set", "north-wards"),
            *(
                ("fedward-authority", *sign, "--role", role, "--name", name, "--out", "certificate.pem", *claims)
                for role, name, claims in (
                    ("coordinator", "coordinator", host),
                    ("author", "author", ()),
                    ("silo", "north", ("--data-set", "north-wards")),
                )
            ),
        ]
    )
    assert (place.party("north") / "authority.pem").read_text() == "root"
