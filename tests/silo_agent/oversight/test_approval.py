import hashlib
import json

import pytest

from crypto.pki.certificates import Trust
from policies.documents.document import DocumentError
from policies.documents.policy import load_policy
from policies.ledger.chain import Genesis
from policies.ledger.ledger import Ledger
from policies.ledger.store import create_store
from silo_agent.oversight.approval import (
    ApprovalError,
    policy_in_force,
    predecessor_of,
    put_into_force,
    require_approved,
    sign_policy,
    signers,
    start_under,
)
from support.certificates import load
from support.ledgers import NORTH
from support.small_cohort import policy_document, write_yaml

PEOPLE = ("ada", "grace", "hedy")
APPROVERS = [f"fedward://approver/{name}" for name in PEOPLE]


@pytest.fixture(scope="module")
def people(authority):
    return {name: load(authority.credential("approver", name)) for name in PEOPLE}


@pytest.fixture(scope="module")
def operators(authority):
    return {name: load(authority.credential("operator", name)) for name in ("ada", "grace")}


@pytest.fixture
def trust(authority):
    return Trust(authority.pem)


@pytest.fixture
def ledger(quick_path):
    path = quick_path / "ledger.sqlite3"
    Ledger.create(path, NORTH)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as opened:
        yield opened


@pytest.fixture
def written(quick_path):
    def write(name="policy.yaml", **changes):
        return write_yaml(quick_path / name, policy_document("north-ward", **changes))

    return write


def sign(path, *credentials):
    for credential in credentials:
        sign_policy(load_policy(path), path, credential)


def test_without_approvers_a_policy_needs_no_signature(written, ledger, trust, quick_path):
    path = written()
    with pytest.raises(ApprovalError, match="no policy was put into force yet"):
        policy_in_force(quick_path / "ledger.sqlite3", path)
    policy = put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy == policy.digest == load_policy(path).digest
    assert policy_in_force(quick_path / "ledger.sqlite3", path) == policy
    assert len(ledger.history()) == 1
    put_into_force(ledger, path, quick_path, trust)
    assert len(ledger.history()) == 1


def test_two_of_the_approvers_put_a_policy_into_force_and_one_does_not(written, ledger, trust, people, quick_path):
    path = written(approvers=APPROVERS)
    with pytest.raises(ApprovalError, match=r"2 signatures of .*ada, .*grace, .*hedy, but has 0"):
        put_into_force(ledger, path, quick_path, trust)
    sign(path, people["grace"])
    with pytest.raises(ApprovalError, match="but has 1"):
        put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy is None
    assert ledger.history() == ()
    sign(path, people["grace"])
    with pytest.raises(ApprovalError, match="but has 1"):
        put_into_force(ledger, path, quick_path, trust)
    sign(path, people["hedy"])
    put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy == load_policy(path).digest


def test_dropping_the_rule_needs_two_signatures_too(written, ledger, trust, people, quick_path):
    path = written(approvers=APPROVERS[:2])
    sign(path, people["ada"], people["grace"])
    held = put_into_force(ledger, path, quick_path, trust)
    written(budget={**policy_document()["budget"], "epsilon": 30.0})
    with pytest.raises(ApprovalError, match=r"the policy in force asks for 2 signatures of .*ada, .*grace, but has 0"):
        put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy == held.digest
    sign(path, people["ada"], people["hedy"])
    with pytest.raises(ApprovalError, match="but has 1"):
        put_into_force(ledger, path, quick_path, trust)
    sign(path, people["grace"])
    put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy == load_policy(path).digest


def test_a_signature_is_for_one_content(written, trust, people):
    path = written(approvers=APPROVERS)
    sign(path, people["ada"], people["grace"])
    require_approved(load_policy(path), path, trust, None)
    path.write_text("# read aloud at the board\n" + path.read_text())
    require_approved(load_policy(path), path, trust, None)
    written(approvers=APPROVERS, smallest_domain=1)
    with pytest.raises(ApprovalError, match=r"has 0 .*policy\.yaml\.ada\.sig: the signature .* does not fit"):
        require_approved(load_policy(path), path, trust, None)


def test_a_stranger_and_a_foreign_authoritys_person_do_not_count(written, trust, people, foreign_authority, authority):
    path = written(approvers=APPROVERS)
    sign(path, people["ada"], load(foreign_authority.credential("approver", "grace")))
    with pytest.raises(ApprovalError, match=r"has 1 .*policy\.yaml\.grace\.sig: .* not issued by the authority"):
        require_approved(load_policy(path), path, trust, None)
    sign(path, load(authority.credential("approver", "mallory")))
    with pytest.raises(ApprovalError, match="has 1"):
        require_approved(load_policy(path), path, trust, None)


def test_a_copied_signature_is_one_persons(written, trust, people):
    path = written(approvers=APPROVERS)
    sign(path, people["ada"])
    copy = path.with_name("policy.yaml.grace.sig")
    copy.write_bytes(path.with_name("policy.yaml.ada.sig").read_bytes())
    assert signers(load_policy(path), path, trust) == {APPROVERS[0]: ""}
    with pytest.raises(ApprovalError, match="has 1"):
        require_approved(load_policy(path), path, trust, None)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b'{"certificate": 1, "signature": "00"}', b"[" * 9999])
def test_a_signature_that_cannot_be_read_does_not_count_and_is_named(content, written, trust, people):
    path = written(approvers=APPROVERS)
    sign(path, people["ada"])
    path.with_name("policy.yaml.grace.sig").write_bytes(content)
    with pytest.raises(ApprovalError, match=r"has 1 .*policy\.yaml\.grace\.sig: cannot be read; sign again"):
        require_approved(load_policy(path), path, trust, None)


def test_only_people_sign(written, homes):
    path = written(approvers=APPROVERS)
    with pytest.raises(ApprovalError, match="silo/north may sign no policy"):
        sign(path, load(homes["north"]))
    assert list(path.parent.glob("*.sig")) == []


def test_the_policy_in_force_is_found_or_has_to_be_given(written, ledger, trust, quick_path):
    path = written()
    assert predecessor_of(ledger, quick_path, load_policy(path)) is None
    held = put_into_force(ledger, path, quick_path, trust)
    assert predecessor_of(ledger, quick_path, load_policy(path)) == held
    (kept,) = (quick_path / "policies").iterdir()
    kept.unlink()
    other = written(min_silos=4)
    with pytest.raises(ApprovalError, match="give its file with --replaces"):
        put_into_force(ledger, other, quick_path, trust)
    with pytest.raises(ApprovalError, match="give the right file"):
        put_into_force(ledger, other, quick_path, trust, replaces=other)
    old = written("old.yaml")
    put_into_force(ledger, other, quick_path, trust, replaces=old)
    assert ledger.policy == load_policy(other).digest


def test_a_kept_policy_that_was_altered_is_not_taken_for_the_one_in_force(written, ledger, trust, people, quick_path):
    path = written(approvers=APPROVERS)
    sign(path, people["ada"], people["grace"])
    put_into_force(ledger, path, quick_path, trust)
    (kept,) = (quick_path / "policies").iterdir()
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "approvers": None}))
    written(min_silos=4)
    with pytest.raises(ApprovalError, match="but the given file is"):
        put_into_force(ledger, path, quick_path, trust)


def test_a_policy_that_does_not_load_changes_nothing(written, ledger, trust, quick_path):
    path = written()
    held = put_into_force(ledger, path, quick_path, trust)
    path.write_text("version: 3\n")
    with pytest.raises(DocumentError):
        put_into_force(ledger, path, quick_path, trust)
    assert ledger.policy == held.digest


# --- a ledger that is older than what its genesis says of the unit ----------------------------------------------------
@pytest.fixture
def older_ledger(quick_path):
    path = quick_path / "older.sqlite3"
    create_store(path, Genesis("north-ward", 0.2, 1e-5))
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as opened:
        yield opened


def of_data_set(path, **changes):
    """The policy with other fields of its data set."""
    document = policy_document("north-ward")
    return write_yaml(path, document | {"data_set": {**document["data_set"], **changes}})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"unit": "record"}, "data_set.unit is record, but in the policy in force it is patient"),
        ({"identified_by": ["visit"]}, r"data_set.identified_by is \['visit'\], .* it is \['patient'\]"),
        ({"unit": "record", "identified_by": ["visit", "patient"]}, "data_set.unit is record"),
        ({"holdout": 0.3}, "data_set.holdout is 0.3"),
        ({"public": True}, "data_set.public is True"),
        ({"id": "theatre"}, "data_set.id is theatre"),
    ],
)
def test_a_policy_of_another_data_set_than_the_one_in_force_is_refused(changes, says, older_ledger, trust, quick_path):
    path = of_data_set(quick_path / "policy.yaml")
    held = put_into_force(older_ledger, path, quick_path, trust)
    of_data_set(path, **changes)
    with pytest.raises(ApprovalError, match=says):
        put_into_force(older_ledger, path, quick_path, trust)
    assert older_ledger.policy == held.digest
    assert len(older_ledger.history()) == 1


def of_version_4(path, **file):
    """The policy as version 4 states it, with this file."""
    document = policy_document("north-ward") | {"version": 4}
    document["data_set"] |= {"file": {"delimiter": ",", "columns": [], **file}}
    document["limits"] |= {"memory_mib": 4096}
    return write_yaml(path, document)


def test_a_file_is_stated_once_and_for_good(older_ledger, trust, quick_path):
    """A ledger older than the field says nothing of it; a policy of version 3 could not either."""
    path = quick_path / "policy.yaml"
    write_yaml(path, policy_document("north-ward"))
    put_into_force(older_ledger, path, quick_path, trust)
    stated = put_into_force(older_ledger, of_version_4(path, delimiter=";"), quick_path, trust)
    assert older_ledger.policy == stated.digest
    assert put_into_force(older_ledger, path, quick_path, trust) == stated
    for other in (of_version_4(path, delimiter="|"), of_version_4(path, delimiter=";", columns=["patient"])):
        with pytest.raises(ApprovalError, match=r"data_set.file is .* it is fixed for the life"):
            put_into_force(older_ledger, other, quick_path, trust)
    with pytest.raises(ApprovalError, match=r"data_set.file is .*',', 'columns': \[\], 'encoding': 'utf-8'}, but"):
        put_into_force(older_ledger, write_yaml(path, policy_document("north-ward")), quick_path, trust)
    assert older_ledger.policy == stated.digest


def put_version_2_into_force(ledger, state, **changes):
    """As the agent before this version left it: its digest in the ledger, its canonical JSON in the state."""
    document = load_policy(write_yaml(state / "then.yaml", policy_document("north-ward", **changes)))
    stated = json.loads(document.canonical()) | {"version": 2}
    del stated["data_set"]["identified_by"]
    content = json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()
    (state / "policies").mkdir()
    (state / "policies" / f"{digest}.json").write_bytes(content)
    ledger.put_into_force(digest, 4.0)
    return digest


def test_a_policy_of_version_2_that_is_in_force_is_replaced_with_what_it_lacked(
    older_ledger, written, trust, quick_path
):
    put_version_2_into_force(older_ledger, quick_path)
    path = written()
    with pytest.raises(ApprovalError, match="is not the policy in force"):
        start_under(older_ledger, path, quick_path, trust)
    policy = put_into_force(older_ledger, path, quick_path, trust)
    assert older_ledger.policy == policy.digest
    assert start_under(older_ledger, path, quick_path, trust) == policy


def test_a_policy_of_version_2_keeps_its_data_set_and_its_rule_of_two_signatures(
    older_ledger, trust, people, quick_path
):
    digest = put_version_2_into_force(older_ledger, quick_path, approvers=APPROVERS[:2])
    path = of_data_set(quick_path / "policy.yaml", unit="record", identified_by=["ward", "row"])
    sign(path, people["ada"], people["grace"])
    with pytest.raises(ApprovalError, match=r"data_set\.unit is record, but in the policy in force it is patient"):
        put_into_force(older_ledger, path, quick_path, trust)
    of_data_set(path)
    with pytest.raises(ApprovalError, match="the policy in force asks for 2 signatures"):
        put_into_force(older_ledger, path, quick_path, trust)
    kept = quick_path / "policies" / f"{digest}.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "approvers": None}))
    with pytest.raises(ApprovalError, match="but the given file is"):
        put_into_force(older_ledger, path, quick_path, trust)
    assert older_ledger.policy == digest


# --- operators, who approved policies up to version 0.6 ---------------------------------------------------------------
OPERATORS = ["fedward://operator/ada", "fedward://operator/grace"]


def test_a_new_policy_that_names_operators_does_not_come_into_force(written, ledger, trust, operators, quick_path):
    path = written(approvers=OPERATORS)
    sign(path, *operators.values())
    with pytest.raises(ApprovalError, match=r"^the policy's approvers name .*ada, .*grace: an operator runs"):
        put_into_force(ledger, path, quick_path, trust)
    mixed = written(approvers=[*APPROVERS, OPERATORS[0]])
    with pytest.raises(ApprovalError, match=r"^the policy's approvers name fedward://operator/ada: "):
        put_into_force(ledger, mixed, quick_path, trust)
    assert ledger.policy is None


def test_operators_sign_for_the_policy_that_replaces_one_in_force_which_names_them(
    written, ledger, people, operators, quick_path
):
    """As version 0.6 put it into force. It goes on, and the new one needs both: its approvers and those operators."""
    trust = people["ada"].trust
    old = load_policy(written("old.yaml", approvers=OPERATORS))
    (quick_path / "policies").mkdir()
    (quick_path / "policies" / f"{old.digest}.json").write_bytes(old.canonical())
    ledger.put_into_force(old.digest, old.budget.epsilon)
    assert start_under(ledger, quick_path / "old.yaml", quick_path, trust).digest == old.digest
    path = written(approvers=APPROVERS)
    sign(path, people["ada"], people["hedy"])
    with pytest.raises(ApprovalError, match=r"the policy in force asks for 2 signatures of .*operator/ada.*has 0"):
        put_into_force(ledger, path, quick_path, trust)
    for name, operator in operators.items():
        sign_policy(load_policy(path), path, operator).rename(path.with_name(f"{path.name}.operator-{name}.sig"))
    sign(path, people["ada"])
    assert put_into_force(ledger, path, quick_path, trust).digest == ledger.policy


@pytest.mark.parametrize("role", ["author", "viewer"])
def test_authors_and_viewers_sign_no_policy(role, written, trust, authority):
    path = written(approvers=APPROVERS)
    with pytest.raises(ApprovalError, match=f"{role}/ada may sign no policy; sign with a certificate of"):
        sign(path, load(authority.credential(role, "ada")))
