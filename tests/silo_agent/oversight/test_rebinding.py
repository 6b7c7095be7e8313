"""A ledger is bound anew only while nothing was charged, no study has joined, and nobody else remembers more."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from policies.documents.policy import load_policy
from policies.errors import LedgerMismatchError, LedgerRolledBackError
from policies.ledger.chain import Genesis, bound
from policies.ledger.cosign import CosignatureFile, advance
from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger, read_history
from policies.plan.cost import Cost
from silo_agent.cli import main
from silo_agent.config import AgentConfig
from silo_agent.oversight.approval import ApprovalError, put_into_force, start_under
from silo_agent.oversight.rebinding import rebind
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from support.cosigners import cosigned
from support.small_cohort import policy_document, write_yaml


@pytest.fixture
def hospital(quick_path, homes):
    """An agent that has started once, and whose policy then says another delimiter and another encoding."""
    document = {**policy_document("north-ward"), "version": 4}
    document["data_set"] = {**document["data_set"], "file": {"delimiter": ",", "columns": []}}
    document["limits"] = {**document["limits"], "memory_mib": 1024}
    write_yaml(quick_path / "policy.yaml", document)
    credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
    fields = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    config = AgentConfig.load(write_yaml(quick_path / "agent.yaml", {**fields, "data": {"tiny": "north.csv"}}))
    config.state.mkdir()
    policy, path = load_policy(config.policy), StateFolder(config.state).ledger
    Ledger.create(path, Genesis.of(policy))
    with Ledger.open(path, Genesis.of(policy), budget_epsilon=4.0) as ledger:
        start_under(ledger, config.policy, config.state, config.credential().trust)
    document["data_set"]["file"] = {"delimiter": ";", "columns": [], "encoding": "windows-1252"}
    write_yaml(config.policy, document)
    return config


def opened(config):
    path = StateFolder(config.state).ledger
    return Ledger.open(path, bound(*read_history(path)), budget_epsilon=4.0)


def test_the_ledger_is_bound_to_the_policy_which_comes_into_force(hospital):
    policy, path = load_policy(hospital.policy), StateFolder(hospital.state).ledger
    with pytest.raises(LedgerMismatchError, match="ledger rebind"):
        Ledger.open(path, Genesis.of(policy), budget_epsilon=4.0)
    entry = rebind(hospital, "A. Weber", ())
    assert (entry.sequence, entry.event.responsible, entry.epsilon) == (2, "A. Weber", 0.0)
    with Ledger.open(path, Genesis.of(policy), budget_epsilon=4.0) as ledger:
        assert ledger.policy == policy.digest
        start_under(ledger, hospital.policy, hospital.state, hospital.credential().trust)
    assert rebind(hospital, "A. Weber", ()) is None


def test_what_was_cut_off_before_the_policy_came_into_force_is_ended_by_a_reload(hospital):
    policy = load_policy(hospital.policy)
    with opened(hospital) as ledger:
        ledger.rebind(Genesis.of(policy), "A. Weber")
    with opened(hospital) as ledger:
        put_into_force(ledger, hospital.policy, hospital.state, hospital.credential().trust)
        assert ledger.policy == policy.digest


def test_a_ledger_that_has_never_been_used_gets_no_policy_by_it(hospital):
    path = StateFolder(hospital.state).ledger
    path.unlink()
    Ledger.create(path, Genesis.of(load_policy(hospital.policy)))
    document = yaml.safe_load(hospital.policy.read_text())
    write_yaml(hospital.policy, {**document, "data_set": {**document["data_set"], "holdout": 0.3}})
    assert rebind(hospital, "A. Weber", ()).sequence == 1
    with opened(hospital) as ledger:
        assert (ledger.policy, ledger.bound.holdout) == (None, 0.3)


def test_a_study_that_has_joined_or_a_charge_forbids_it(hospital):
    folder = StateFolder(hospital.state).study("1" * 64)
    folder.path.mkdir(parents=True)
    with pytest.raises(StateError, match="a study has joined \\(111111111111\\)"):
        rebind(hospital, "A. Weber", ())
    folder.path.rmdir()
    with opened(hospital) as ledger:
        ledger.charge(Debit("s", ledger.policy, 1, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
    with pytest.raises(LedgerMismatchError, match="something was charged"):
        rebind(hospital, "A. Weber", ())


def test_whoever_remembers_more_forbids_it_and_is_remembered(hospital, coordinator, credentials):
    """A ledger that lost its entries looks unused, too."""
    path = StateFolder(hospital.state).ledger
    older = path.read_bytes()
    with opened(hospital) as ledger:
        known = cosigned(ledger.checkpoint("north"), coordinator, credentials["north"])
        ledger.charge(Debit("s", ledger.policy, 1, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
        more = cosigned(ledger.checkpoint("north"), credentials["south"], credentials["north"])
    path.write_bytes(older)
    before = path.read_bytes()
    with pytest.raises(LedgerRolledBackError, match="an older copy was put in its place"):
        rebind(hospital, "A. Weber", [known, more])
    assert path.read_bytes() == before
    assert len(CosignatureFile(path).latest()) == 2
    CosignatureFile(path)._path.unlink()
    assert rebind(hospital, "A. Weber", [known]).sequence == 2


def test_what_was_signed_before_counts_whatever_the_coordinator_says(hospital, coordinator, credentials):
    path = StateFolder(hospital.state).ledger
    older = path.read_bytes()
    with opened(hospital) as ledger:
        ledger.charge(Debit("s", ledger.policy, 1, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
        more = ledger.checkpoint("north")
    CosignatureFile(path).keep([cosigned(more, coordinator, credentials["north"])])
    path.write_bytes(older)
    with pytest.raises(LedgerRolledBackError):
        rebind(hospital, "A. Weber", ())
    assert path.read_bytes() == older


def test_a_peer_refuses_a_ledger_that_was_put_back_and_bound_anew(hospital):
    """A coordinator that says it remembers nothing is of no use to a hospital that lost its charges."""
    path = StateFolder(hospital.state).ledger
    older = path.read_bytes()
    with opened(hospital) as ledger:
        ledger.charge(Debit("s", ledger.policy, 1, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
        remembered = ledger.checkpoint("north")
    path.write_bytes(older)
    rebind(hospital, "A. Weber", ())
    with opened(hospital) as ledger, pytest.raises(LedgerRolledBackError):
        advance(remembered, ledger.checkpoint("north"))


def test_without_the_approvers_signatures_nothing_is_written(hospital):
    path = StateFolder(hospital.state).ledger
    before = path.read_bytes()
    people = ["fedward://approver/ada", "fedward://approver/grace"]
    document = yaml.safe_load(hospital.policy.read_text())
    write_yaml(hospital.policy, {**document, "approvers": people})
    with pytest.raises(ApprovalError):
        rebind(hospital, "A. Weber", ())
    assert path.read_bytes() == before
    write_yaml(hospital.policy, {**document, "data_set": {**document["data_set"], "public": True}})
    with pytest.raises(ApprovalError, match="public"):
        rebind(hospital, "A. Weber", ())
    assert path.read_bytes() == before


def test_the_command_asks_the_coordinator_first(hospital, monkeypatch):
    agent = str(hospital.policy.parent / "agent.yaml")
    command = ["ledger", "rebind", "--signed-by", "A. Weber", "-c", agent]
    monkeypatch.setattr("silo_agent.cli.ledger._ASK_SECONDS", 0.5)
    done = CliRunner().invoke(main.app, command)
    assert done.exit_code != 0
    with opened(hospital) as ledger:
        assert len(ledger.history()) == 1, "nobody was asked, so nothing is written"
    asked = []
    monkeypatch.setattr("silo_agent.protocol.calls.client.remembered", lambda *_, **__: asked.append(1) or ())
    done = CliRunner().invoke(main.app, command)
    assert "entry 2: the ledger is bound to the policy's data_set; A. Weber answers" in done.output
    assert "nothing was written" in CliRunner().invoke(main.app, command).output
    assert asked == [1, 1]
    shown = CliRunner().invoke(main.app, ["ledger", "show", "-c", agent])
    assert "bound anew" in shown.output
    entries = json.loads(CliRunner().invoke(main.app, ["ledger", "show", "--format", "json", "-c", agent]).output)[
        "entries"
    ]
    assert [entry["kind"] for entry in entries] == ["policy", "rebound", "policy"]
