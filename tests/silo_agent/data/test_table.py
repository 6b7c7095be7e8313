import hashlib
import json

import numpy as np

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
        assert Written.parse(json.loads(json.dumps(written.fields()))) == written
    assert Written.of(Policy.model_validate(policy_document("ward"))) == Written(",", ())


def test_a_record_is_called_as_ever():
    """Cohorts follow from it: another name would move people who are held out into training."""
    raw = (2).to_bytes(8, "big") + b"7" + (1).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"true"
    expected = hashlib.sha256(raw).hexdigest()
    assert expected == "aab125e55254712ed2e9046336cb573d1039069a104e5fd5eb4008423df9c516"
    assert identity_of([7.0, None, True]) == expected
    left = Table("ward", {"a": ["7"], "b": [""], "c": ["TRUE"]}, [2]).identified(["a", "b", "c"], Faults())
    assert left.identities == (expected,)


def test_a_cell_that_is_nobodys_name_hides_nobody_and_is_told_with_a_plain_number():
    table = Table("ward", {"patient": ["7", 2.0**53, None]}, [2, 3, 4])
    assert list(table.without({"7"}, "patient").rows) == [3, 4]
    faults = Faults()
    Table("ward", {"id": [1j]}, np.array([5])).identified(["id"], faults)
    (one,) = faults.first()
    assert type(one.row) is int
