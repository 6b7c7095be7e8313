"""A hospital whose agent could start, and a coordinator that serves."""

import pytest
import structlog

from coordinator.config import CoordinatorConfig
from policies.ledger.ledger import Ledger
from support.databases import server_of
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document

ROWS = [f"p{i},{'ab'[i % 2]},{i},{i % 10},{i // 2 % 2}" for i in range(40)]


@pytest.fixture(autouse=True)
def _quiet():
    """The coordinator runs in this process; its log would get between what the command prints."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture(scope="session")
def serving(authority, tmp_path_factory):
    home = authority.credential("coordinator", "serving-hub")
    files = {name: home / f"{name}.pem" for name in ("certificate", "key", "authority")}
    server = server_of(CoordinatorConfig(port=0, metrics_port=0, data=tmp_path_factory.mktemp("hub"), **files))
    server.start()
    yield server
    server.close()


@pytest.fixture
def study_file(quick_path):
    return write_yaml(quick_path / "study.yaml", tiny_document())


@pytest.fixture
def configure(quick_path, homes, serving):
    """Writes agent.yaml with changes; the ledger holds nothing yet."""
    write_yaml(quick_path / "policy.yaml", policy_document("north-ward"))
    (quick_path / "state").mkdir()
    Ledger.create(quick_path / "state" / "ledger.sqlite3", NORTH)
    (quick_path / "north.csv").write_text("\n".join(["patient,group,age,lactate,ill", *ROWS]) + "\n")

    def write(**changes):
        credential = {name: str(homes["north"] / f"{name}.pem") for name in ("certificate", "key", "authority")}
        document = {"coordinator": f"localhost:{serving.port}", **credential, "policy": "policy.yaml", "state": "state"}
        document |= {"device": "cpu", "data": {"tiny": "north.csv"}, **changes}
        return write_yaml(quick_path / "agent.yaml", document)

    return write
