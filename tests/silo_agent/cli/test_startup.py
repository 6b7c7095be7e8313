"""What a command loads before it answers: nothing that trains or counts, if it does neither."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from policies.ledger.ledger import Debit, Ledger
from policies.plan.release import plan
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "opacus", "dp_accounting", "scipy"}
SERVING = {"grpc", "sqlalchemy", "structlog", "tenseal", "prometheus_client"}
LOADED = """
import atexit, json, sys
from {module} import main
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A hospital whose ledger has releases that only dp-accounting can add up."""
    made = tmp_path_factory.mktemp("hospital")
    write_yaml(made / "policy.yaml", policy_document("north-ward"))
    for name in ("certificate", "key", "authority", "data"):
        (made / f"{name}.pem").touch()
    credential = {name: f"{name}.pem" for name in ("certificate", "key", "authority")}
    settings = {"coordinator": "localhost:1", **credential, "policy": "policy.yaml", "state": "state"}
    write_yaml(made / "agent.yaml", {**settings, "data": {"tiny": "data.pem"}})
    (made / "state").mkdir()
    ledger, study = made / "state" / "ledger.sqlite3", tiny_study()
    Ledger.create(ledger, NORTH)
    with Ledger.open(ledger, NORTH, budget_epsilon=4.0) as held:
        assert plan(study).round_costs(1)["encoder"].sampling_rate < 1
        held.charge(Debit(study.digest, "p" * 64, 1, 1, plan(study).round_costs(1)))
    return made


def loaded(folder, module, *arguments):
    """Packages that a command has loaded when it ends."""
    code = LOADED.format(module=module)
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.parametrize("command", ["--help", "ledger show", "ledger verify", "policy check policy.yaml"])
def test_a_silos_command_that_neither_trains_nor_counts_loads_nothing_that_does(folder, command):
    assert not loaded(folder, "silo_agent.cli.main", *command.split()) & (HEAVY | SERVING)


def test_a_silos_enrolment_loads_keys_and_nothing_else(folder, tmp_path):
    enrol = ["enrol", str(tmp_path / "silo"), "--name", "north", "--data-set", "north-ward"]
    assert not loaded(folder, "silo_agent.cli.main", *enrol) & (HEAVY | SERVING)


def test_the_coordinators_help_loads_no_server(folder):
    assert not loaded(folder, "coordinator.cli.main", "--help") & (HEAVY | SERVING)


def test_what_a_dry_round_starts_needs_no_package_of_a_coordinator_alone(folder):
    """A silo's requirements have neither; `fedward dry-round` makes an authority with them."""
    assert not loaded(folder, "crypto.pki.authority.cli", "--help") & {"asn1crypto", "cheroot"}


def test_a_price_still_loads_what_counts_it(folder):
    assert "dp_accounting" in loaded(folder, "silo_agent.cli.main", "ledger", "show", "--format", "json")
