"""A silo goes on under a new key: what the former key sealed opens, and a command that was cut off is finished."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crypto.entropy import SystemEntropy
from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.reading import parse_certificate
from policies.errors import LedgerBusyError
from policies.ledger.ledger import Ledger
from policies.ledger.lock import WriterLock
from silo_agent.cli import main
from silo_agent.config import AgentConfig
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import Withdrawals, rows_of
from support.ledgers import NORTH
from support.online import Online
from support.small_cohort import policy_document, write_yaml

ENTROPY = SystemEntropy()
STUDIES = ("5" * 64, "6" * 64)


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return Online(tmp_path_factory.mktemp("online"))


@pytest.fixture
def agent(online, tmp_path):
    """An agent's configuration, with rows of two studies and a withdrawal sealed under its key."""
    home = online.enrol("silo", "north", home=tmp_path / "silo", data_set="north-ward")
    write_yaml(home / "policy.yaml", policy_document("north-ward"))
    (home / "state").mkdir()
    Ledger.create(home / "state" / "ledger.sqlite3", NORTH)
    pems = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
    config = {"coordinator": "localhost:1", **pems, "policy": "policy.yaml", "state": "state", "data": {}}
    path = write_yaml(home / "agent.yaml", config)
    settings = AgentConfig.load(path)
    files, credential = StateFolder(settings.state), settings.credential()
    for study in STUDIES:
        rows_of(files.study(study), credential, ENTROPY).keep([study[:4].encode()])
    Withdrawals(files, credential, ENTROPY).add("p7")
    return path


@pytest.fixture
def anew(online, tmp_path):
    return online.enrol("silo", "north", home=tmp_path / "anew", data_set="north-ward")


def rekey(folder, agent):
    return CliRunner().invoke(main.app, ["rekey", str(folder), "-c", str(agent)])


def opened(agent):
    """What the agent's own key opens now."""
    settings = AgentConfig.load(agent)
    files, credential = StateFolder(settings.state), settings.credential()
    names = Withdrawals(files, credential, ENTROPY).names()  # as the agent does at its start
    return [b"".join(rows_of(files.study(study), credential, ENTROPY).recall()) for study in STUDIES], names


WHOLE = ([study[:4].encode() for study in STUDIES], {"p7"})


def test_what_the_former_key_sealed_opens_with_the_new_one(agent, anew):
    key, certificate = (anew / "key.pem").read_bytes(), (anew / "certificate.pem").read_bytes()
    done = rekey(anew, agent)
    assert done.exit_code == 0, done.exception
    assert "north has the key and the certificate of" in done.output
    assert opened(agent) == WHOLE
    assert (agent.parent / "key.pem").read_bytes() == key
    assert (agent.parent / "certificate.pem").read_bytes() == certificate
    assert (agent.parent / "key.pem").stat().st_mode & 0o777 == 0o600
    assert not (anew / "key.pem").exists(), "one copy of a key is enough"


class CutOff(BaseException):
    """The power is gone."""


@pytest.mark.parametrize("withdrawn", [{"p7"}, set()])
@pytest.mark.parametrize("place", range(5))
def test_a_command_that_was_cut_off_starts_no_agent_and_is_finished_by_itself(
    agent, anew, monkeypatch, place, withdrawn
):
    """Cut off before one of the five files gets its name: withdrawals, two studies' keys, key, certificate.

    Where nobody has withdrawn, a list is made all the same: without one, the former key would start an agent.
    """
    replace, done, whole = Path.replace, [], (WHOLE[0], withdrawn)
    if not withdrawn:
        StateFolder(AgentConfig.load(agent).state).withdrawn.unlink()

    def cut(path, target):
        if len(done) == place:
            raise CutOff
        done.append(target)
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        with pytest.raises(CutOff):
            rekey(anew, agent)
    if place:
        with pytest.raises((StateError, CertificateError)):
            Withdrawals(
                StateFolder(AgentConfig.load(agent).state), AgentConfig.load(agent).credential(), ENTROPY
            ).names()
    else:
        assert opened(agent) == whole
    assert rekey(anew, agent).exit_code == 0
    assert opened(agent) == whole
    names = {"withdrawn.sealed", "rows.key", "key.pem", "certificate.pem"}
    assert {path.name for path in done} <= names


def test_a_silo_without_withdrawals_takes_a_new_key_too(agent, anew):
    settings = AgentConfig.load(agent)
    StateFolder(settings.state).withdrawn.unlink()
    assert rekey(anew, agent).exit_code == 0
    assert opened(agent) == (WHOLE[0], set())


def test_a_former_certificate_need_not_count_any_more(online, agent, anew):
    former = parse_certificate((agent.parent / "certificate.pem").read_bytes())
    online.authority.revoke(None, former.serial_number, datetime.now(UTC), "key_compromise")
    online.bring_lists(agent.parent)
    with pytest.raises(CertificateError, match="revoked"):
        AgentConfig.load(agent).credential()
    assert rekey(anew, agent).exit_code == 0
    assert opened(agent) == WHOLE


def test_another_party_and_a_running_agent_are_refused_and_nothing_changes(online, agent, anew, tmp_path):
    before = {path: path.read_bytes() for path in agent.parent.rglob("*") if path.is_file()}
    other = online.enrol("silo", "south", home=tmp_path / "south", data_set="south-ward")
    refused = rekey(other, agent)
    assert isinstance(refused.exception, EnrolmentError)
    assert "was enrolled for another party than" in str(refused.exception)
    lock = WriterLock(AgentConfig.load(agent).state / "ledger.sqlite3.lock")
    try:
        assert isinstance(rekey(anew, agent).exception, LedgerBusyError)
    finally:
        lock.leave()
    assert before == {path: path.read_bytes() for path in before}
    assert (anew / "key.pem").exists()
