import json
from dataclasses import asdict

from policies.documents.policy import Policy
from silo_agent.data.errors import Faults
from silo_agent.data.table import Table, Written, identity_of
from support.small_cohort import policy_document


def test_a_row_without_an_identity_is_left_out_and_counted():
    """Also where it stands among others of a folder."""
    cells = ["a", float(2**60) * 1j, "c"]
    table = Table("ward", {"id": cells}, [2, 3, 4], broken=1, files=["1.csv", "1.csv", "2.csv"])
    faults = Faults()
    left = table.identified(["id"], faults)
    assert (left.columns, list(left.rows), left.files) == ({"id": ["a", "c"]}, [2, 4], ["1.csv", "2.csv"])
    assert (left.identities, left.broken) == ((identity_of(["a"]), identity_of(["c"])), 2)
    assert [(one.file, one.row, one.found) for one in faults.first()] == [("1.csv", 3, "TypeError")]


def test_people_are_taken_out_by_their_column_or_else_by_what_identifies_a_row():
    table = Table("ward", {"patient": ["7", "8", "7"]}, [2, 3, 4], ("x", "y", "z"))
    assert table.without((), "patient") is table
    assert list(table.without({"7"}, "patient").rows) == [3]
    assert list(table.without({"7"}, None).rows) == [2, 3, 4]
    assert list(table.without({"x", "z"}, None).rows) == [3]


def test_how_a_hospital_writes_its_file_comes_back_as_plain_data():
    for written in (Written(";", ("a", "b"), ("?",), {"ill": {"yes": 1, "9": None}}), Written(",", ())):
        assert Written.parse(json.loads(json.dumps(asdict(written)))) == written
    assert Written.of(Policy.model_validate(policy_document("ward"))) == Written(",", ())
