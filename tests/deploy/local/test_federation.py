"""What a local federation starts, writes and names; whole runs are tests/integration's."""

import pytest
import yaml

from deploy.local import federation as module
from deploy.local.federation import Federation
from deploy.local.parties import AUTHOR, COORDINATOR
from deploy.local.processes import FederationError, Parties
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml


class Recorded(Parties):
    """Starts nothing; says what would be started."""

    def __init__(self):
        super().__init__()
        self.started, self.stopped, self.fails = [], 0, None

    def start(self, name, log, program, *arguments, threads):
        if name == self.fails:
            raise FederationError(name)
        self.started.append((name, program, *(str(a) for a in arguments), threads))

    def await_event(self, name, log, event):
        return {"event": event, "port": 4711, "metrics_port": 9090}

    def stop(self):
        self.stopped += 1


@pytest.fixture
def ran(monkeypatch):
    found = []
    monkeypatch.setattr(module, "run", lambda *arguments: found.append(tuple(map(str, arguments))))
    return found


@pytest.fixture
def federation(tmp_path):
    study = write_yaml(tmp_path / "study.yaml", study_document())
    policy = yaml.safe_dump(policy_document())
    made = Federation(tmp_path / "out", study, write_sites(tmp_path / "data"), policy, parties=Recorded())
    for name in (COORDINATOR, AUTHOR, *SILOS):
        made.place.party(name).mkdir(parents=True)
    return made


def test_a_coordinator_and_an_agent_for_each_silo_are_started(federation, ran):
    with federation:
        assert [name for name, *_ in federation.parties.started] == [COORDINATOR, *SILOS]
        config = str(federation.config("north"))
        assert federation.parties.started[1] == ("north", "fedward-silo", "run", "--until-finished", "-c", config, 1)
        assert yaml.safe_load(federation.config("north").read_text())["coordinator"] == "127.0.0.1:4711"
        assert federation.metrics_port(COORDINATOR) == 9090
    assert federation.parties.stopped == 1
    assert {command[:3] for command in ran} == {("fedward-silo", "ledger", "create")}


def test_a_ledger_that_exists_is_not_created_again(federation, ran):
    federation.port = 1
    ledger = federation.place.state("north") / "ledger.sqlite3"
    ledger.parent.mkdir()
    ledger.touch()
    federation.configure()
    assert {command[-1] for command in ran} == {str(federation.config(silo)) for silo in ("south", "west")}


def test_if_one_party_does_not_start_the_others_are_stopped(federation, ran):
    federation.parties.fails = "south"
    with pytest.raises(FederationError, match="south"):
        federation.start()
    assert federation.parties.stopped == 1


def test_the_study_is_begun_by_its_authors_own_commands(federation, ran):
    federation.begin()
    author = ("-o", str(federation.place.author_file))
    assert ran == [
        ("fedward-coordinator", "study", "create", str(federation.study_file), *author),
        ("fedward-coordinator", "study", "start", federation.study.digest, *author),
    ]


def test_a_silos_models_lie_in_its_state_of_the_study(federation):
    assert federation.state("west") == federation.folder / "west" / "state" / "studies" / federation.study.digest
    assert federation.policy_of("west").data_set.id == "west"
