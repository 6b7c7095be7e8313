import json
import math

import pytest
from typer.testing import CliRunner

from policies.accounting.overlap import bound
from policies.ledger.chain import UNBOUNDED, Genesis
from policies.ledger.events import costs_of
from policies.ledger.exports import Export, to_json
from policies.ledger.ledger import Debit, Ledger, read_history
from policies.plan.cost import Cost
from silo_agent.cli import main
from silo_agent.oversight.signing import SUFFIX, sign_file
from support.certificates import data_set_of

AT = "2026-11-02T08:00:00+00:00"
HEADS, ENCODER = Cost("training", 1.0, 20.0, 1), Cost("training", 0.1, 3.0, 20)


@pytest.fixture
def exported(tmp_path, credentials, authority):
    """Writes a silo's signed export of a ledger with these costs."""
    (tmp_path / "authority.pem").write_bytes(authority.pem)

    def export(silo, *costs, delta=1e-5, signer=None, name=None, public=False):
        path = tmp_path / f"{name or silo}.sqlite3"
        Ledger.create(
            path,
            Genesis(
                data_set=data_set_of(silo),
                holdout=0.2,
                delta=delta,
                public=public,
                unit="patient",
                identified_by=("patient",),
                delimiter=",",
                columns=(),
            ),
        )
        with Ledger.open(
            path,
            Genesis(
                data_set=data_set_of(silo),
                holdout=0.2,
                delta=delta,
                public=public,
                unit="patient",
                identified_by=("patient",),
                delimiter=",",
                columns=(),
            ),
            budget_epsilon=9.0,
        ) as ledger:
            ledger.put_into_force("policy", 9.0)
            for number, cost in enumerate(costs):
                ledger.charge(Debit("study", "policy", number, 1, {"heads": cost}))
        genesis, entries = read_history(path)
        content = to_json(Export(f"fedward://silo/{silo}", AT, 9.0, genesis, entries))
        out = tmp_path / f"{name or silo}.json"
        out.write_bytes(content)
        sign_file(credentials[signer or silo], "json", AT, content).write(out.with_name(out.name + SUFFIX))
        return out

    return export


@pytest.fixture
def together(tmp_path):
    def run(*exports, authority=None):
        arguments = ["ledger", "together", *exports, "--authority", authority or tmp_path / "authority.pem"]
        return CliRunner().invoke(main.app, [str(argument) for argument in arguments])

    return run


def test_three_hospitals_are_bounded_from_their_exports_alone(exported, together, tmp_path, told):
    ledgers = {"north": (HEADS, ENCODER), "south": (HEADS,), "west": (HEADS, HEADS)}
    files = [exported(silo, *costs) for silo, costs in ledgers.items()]
    costs = [
        [cost for entry in read_history(tmp_path / f"{silo}.sqlite3")[1] for cost in costs_of(entry.event)]
        for silo in ledgers
    ]
    expected = bound(costs, 1e-5)
    said = " ".join(together(*files).output.split())
    for epsilon in (*expected.alone, expected.two, expected.all):
        assert f"{epsilon:.4f}" in said
    assert "all 3 of them" in said
    checked = [f"checking {path.name}" for path in files]
    assert told == ["checking the exports", *checked, "adding the losses up"]
    found = json.loads(together(*files, "--format", "json").output)
    assert [hospital["epsilon"] for hospital in found["hospitals"]] == list(expected.alone)
    assert (found["two"], found["all"], found["delta"]) == (expected.two, expected.all, 1e-5)


def test_the_smallest_delta_is_right_for_all(exported, together):
    files = [exported("north", HEADS, delta=1e-5), exported("south", HEADS, delta=1e-7)]
    assert json.loads(together(*files, "--format", "json").output)["delta"] == 1e-7


def test_public_data_have_no_bound(exported, together):
    files = [exported("north", HEADS), exported("south", Cost("training", 1.0, 0.0, 1), public=True)]
    found = json.loads(together(*files, "--format", "json").output)
    assert found["all"] == UNBOUNDED
    assert math.isfinite(found["hospitals"][0]["epsilon"])


def test_each_export_has_to_hold_and_is_named(exported, together, tmp_path):
    north, south = exported("north", HEADS), exported("south", HEADS)
    south.write_bytes(south.read_bytes().replace(b'"budget": 9.0', b'"budget": 8.0'))
    assert "south.json: the signature of fedward://silo/south does not fit" in str(together(north, south).exception)
    west = exported("west", HEADS, signer="south")
    assert "west.json: the export says that it is of fedward://silo/west" in str(together(north, west).exception)
    twice = exported("north", HEADS, name="again")
    assert "two exports are of fedward://silo/north; give one export of each hospital" in str(
        together(north, twice).exception
    )
    assert "give those of 2 to 256 hospitals" in str(together(north).exception)
    assert "absent.json cannot be read" in str(together(north, tmp_path / "absent.json").exception)
    assert "absent.pem cannot be read" in str(together(north, authority=tmp_path / "absent.pem").exception)
