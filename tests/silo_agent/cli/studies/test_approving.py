import json
from dataclasses import replace

import pytest
import yaml
from typer.testing import CliRunner

from crypto.authorship import SignatureBeside, sign_study
from policies.accounting import accountant
from policies.documents.bounds import STORED
from policies.documents.policy import load_policy
from policies.documents.study import Study, parse_study
from policies.ledger.events import Debit
from policies.ledger.ledger import Ledger, read_history
from policies.plan.cost import Cost
from policies.plan.release import plan as plan_of
from silo_agent.cli import main
from silo_agent.config import AgentConfig
from silo_agent.storage import offered
from silo_agent.storage.approvals import approvals, source_of, upgrade
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder
from support.asked import NOW, asked_hospital, begin
from support.ledgers import NORTH
from support.people import author_in
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

STUDY = tiny_study()
TWIN = tiny_study(purpose="Another study under the same name.")


@pytest.fixture
def hospital(quick_path, homes):
    """A hospital that was offered a study; returns its configuration's path."""
    return asked_hospital(quick_path, homes["north"], STUDY)


@pytest.fixture
def folder(hospital):
    return StateFolder(hospital.parent / "state")


def invoke(hospital, *arguments):
    return CliRunner().invoke(main.app, ["study", *map(str, arguments), "-c", str(hospital)])


def told(hospital, *arguments):
    """The sentence with which a command fails."""
    done = invoke(hospital, *arguments)
    assert isinstance(done.exception, StateError), done.output
    return str(done.exception)


def test_a_study_is_shown_with_its_text_price_verdict_and_what_to_do(hospital, folder):
    before = {path: path.read_bytes() for path in hospital.parent.rglob("*") if path.is_file()}
    done = invoke(hospital, "show", "tiny")
    assert done.exit_code == 0, done.output
    text = done.output.partition("\n\n")[0]
    assert yaml.safe_load(text)["purpose"] == STUDY.purpose
    total = accountant.epsilon(plan_of(STUDY).costs(), 1e-5)
    assert f"Spent before 0.0000, after {total:.4f} of 4.0000" in " ".join(done.output.split())
    assert "The policy would take it." in done.output
    assert f"Not approved. To approve it: fedward-silo study approve {STUDY.digest[:12]} --data NAME" in done.output
    found = json.loads(invoke(hospital, "show", STUDY.digest[:12], "--format", "json").output)
    assert (found["digest"], found["hospital"]["taken"], found["reasons"]) == (STUDY.digest, True, [])
    assert parse_study(json.dumps(found["text"]).encode(), STUDY.digest) == STUDY
    assert {path: path.read_bytes() for path in hospital.parent.rglob("*") if path.is_file()} == before


def test_it_is_priced_against_what_the_ledger_has_left(hospital, folder):
    with Ledger.open(folder.ledger, NORTH, budget_epsilon=8.0) as ledger:
        ledger.charge(Debit("another", "policy", 0, 1, {"heads": Cost("training", 1.0, 10.0, 1)}))
    before = accountant.epsilon(ledger_costs(folder), NORTH.delta)
    assert f"Spent before {before:.4f}, after" in " ".join(invoke(hospital, "show", "tiny").output.split())


def ledger_costs(folder):
    return [cost for entry in read_history(folder.ledger)[1] for cost in entry.debit.costs.values()]


def test_all_that_the_policy_has_against_it_is_said_with_exit_code_3(hospital):
    write_yaml(hospital.parent / "policy.yaml", policy_document("north-ward", min_silos=5, colluders=3))
    done = invoke(hospital, "show", "tiny")
    assert done.exit_code == 3
    assert "too_few_silos" in done.output
    assert "colluders" in done.output
    reasons = json.loads(invoke(hospital, "show", "tiny", "--format", "json").output)["reasons"]
    assert {"too_few_silos", "colluders"} <= {one["reason"] for one in reasons}


def test_a_study_without_bounds_is_refused_before_it_is_priced(hospital, folder, monkeypatch):
    broken = Study.model_validate(tiny_document(encoder={"learning_rate": 2e3}), context=STORED)
    offered.keep(folder, broken, NOW)
    monkeypatch.setattr("policies.accounting.planning.price", lambda *_: pytest.fail("it was priced"))
    done = invoke(hospital, "show", broken.digest)
    assert (done.exit_code, "bounds" in done.output) == (3, True), done.output


def test_an_approval_stores_the_whole_digest_of_a_text_that_is_kept(hospital, folder):
    settings = AgentConfig.load(hospital)
    policy = load_policy(settings.policy)
    assert "no study that this silo knows matches 'other'" in told(hospital, "approve", "other", "--data", "lab")
    assert "no study that this silo knows" in told(hospital, "approve", TWIN.digest, "--data", "lab")
    assert approvals(folder).bound == {}
    done = invoke(hospital, "approve", "tiny", "--data", "lab")
    assert STUDY.digest in done.output
    assert list(approvals(folder).bound) == [STUDY.digest]
    assert source_of(settings, STUDY, policy) == hospital.parent / "lab.csv"
    assert "for lab. To take that back" in invoke(hospital, "show", "tiny").output
    assert "names no data 'liver'" in str(invoke(hospital, "approve", "tiny", "--data", "liver").exception)


def test_a_word_that_means_two_studies_is_refused_with_both(hospital, folder):
    offered.keep(folder, TWIN, NOW)
    said = told(hospital, "approve", "tiny", "--data", "lab")
    assert f"tiny {STUDY.digest}" in said
    assert f"tiny {TWIN.digest}" in said
    impostor = tiny_study(name=TWIN.digest[:12])
    offered.keep(folder, impostor, NOW)
    assert impostor.digest in told(hospital, "approve", TWIN.digest[:12], "--data", "lab")
    assert approvals(folder).bound == {}
    invoke(hospital, "approve", TWIN.digest, "--data", "lab")
    assert list(approvals(folder).bound) == [TWIN.digest]


def test_a_study_is_approved_by_its_file_too_and_its_text_is_kept(hospital, folder):
    file = write_yaml(hospital.parent / "study.yaml", tiny_document(name="mailed"))
    assert invoke(hospital, "show", file).exit_code == 0
    assert [one.name for one in offered.offered(folder)] == ["tiny"], "who reads keeps nothing"
    assert invoke(hospital, "approve", file, "--data", "lab").exit_code == 0
    mailed = tiny_study(name="mailed")
    assert offered.text(folder, mailed.digest) == mailed
    assert list(approvals(folder).bound) == [mailed.digest]


def test_a_study_that_has_begun_is_shown_and_stopped(hospital, folder):
    begin(folder, TWIN)
    assert "Another study under the same name" in invoke(hospital, "show", TWIN.digest[:12]).output
    assert invoke(hospital, "withdraw-approval", TWIN.digest[:12]).exit_code == 0
    assert approvals(folder).bound[TWIN.digest].data is None
    assert "Its approval was taken back on" in invoke(hospital, "show", TWIN.digest).output


def test_approvals_are_listed_and_taken_back(hospital, folder):
    assert "has approved no study" in invoke(hospital, "approvals").output
    invoke(hospital, "approve", "tiny", "--data", "lab")
    listed = json.loads(invoke(hospital, "approvals", "--format", "json").output)["approvals"]
    assert [(one["digest"], one["data"]) for one in listed] == [(STUDY.digest, "lab")]
    assert "lab" in invoke(hospital, "approvals").output
    assert "charged nothing from now on" in invoke(hospital, "withdraw-approval", "tiny").output
    assert "taken back" in invoke(hospital, "approvals").output
    assert approvals(folder).approved == set()


def test_what_version_06_approved_by_a_name_is_listed_and_taken_off(hospital, folder):
    folder.approvals.write_text('{"mailed": "lab"}')
    assert "nothing: version 0.6" in " ".join(invoke(hospital, "approvals").output.split())
    assert "taken off the list" in invoke(hospital, "withdraw-approval", "mailed").output
    assert dict(approvals(folder).unbound) == {}


def test_all_is_taken_back_at_once_even_if_the_list_is_damaged(hospital, folder):
    begin(folder, TWIN)
    folder.approvals.write_text("{")
    assert "cannot be read" in told(hospital, "approvals")
    assert invoke(hospital, "withdraw-approval").exit_code == 2
    assert invoke(hospital, "withdraw-approval", "tiny", "--all").exit_code == 2
    assert invoke(hospital, "withdraw-approval", "--all").exit_code == 0
    assert {digest: one.data for digest, one in approvals(folder).bound.items()} == {TWIN.digest: None}


def test_an_approval_binds_what_runs_under_version_06_first(hospital, folder):
    running = tiny_study(name="lab")
    begin(folder, running)
    folder.approvals.unlink()
    folder.offer(STUDY.digest).unlink()
    file = write_yaml(hospital.parent / "study.yaml", tiny_document(name="mailed"))
    assert invoke(hospital, "approve", file, "--data", "tiny").exit_code == 0
    assert approvals(folder).bound[running.digest].data == "lab"


# --- who asks, and who decides ----------------------------------------------------------------------------------------
def test_a_study_says_who_asks_and_what_is_new(hospital, folder, authority):
    signed = offered.Signed("fedward://author/ann", SignatureBeside(b"pem", b"s"))
    later = tiny_study(revision=2, purpose="The same, better.", silos=["north", "south", "west", "east"])
    hers = tiny_study(purpose="Somebody else's under this name.")
    for study, author in ((STUDY, "ann"), (later, "ann"), (hers, "eve")):
        offered.keep(folder, study, NOW, signed=replace(signed, author=f"fedward://author/{author}"))
    shown = invoke(hospital, "show", later.digest).output
    assert "Author: fedward://author/ann\nPurpose: The same, better.\n" in shown
    assert f"It differs from tiny {STUDY.digest[:12]}, which asked before:" in shown
    assert "  revision: null before, 2 now\n" in shown
    assert '  silos: ["north", "south", "west"] before, ["north", "south", "west", "east"] now' in shown
    found = json.loads(invoke(hospital, "show", later.digest, "--format", "json").output)
    assert (found["author"], found["purpose"], found["earlier"]["digest"]) == (
        "fedward://author/ann",
        "The same, better.",
        STUDY.digest,
    )
    assert len(found["earlier"]["changes"]) == 3
    assert json.loads(invoke(hospital, "show", hers.digest, "--format", "json").output)["earlier"] is None


def test_the_author_of_a_file_is_who_signed_it_beside(hospital, authority):
    file = write_yaml(hospital.parent / "study.yaml", tiny_document(name="mailed"))
    assert "Author: nobody: no author's signature came with it" in invoke(hospital, "show", file).output
    mailed, beside = tiny_study(name="mailed"), file.with_name("study.yaml.ann.sig")
    beside.write_text(sign_study(author_in(authority), STUDY.digest, STUDY.purpose).text)
    assert "Author: nobody: study.yaml.ann.sig: " in invoke(hospital, "show", file).output
    beside.write_text(sign_study(author_in(authority), mailed.digest, mailed.purpose).text)
    assert "Author: fedward://author/ann" in invoke(hospital, "show", file).output


def test_where_the_policy_names_approvers_one_signs_and_another_hands_it_in(hospital, folder, authority):
    people = ["fedward://approver/carl", "fedward://approver/bo"]
    write_yaml(hospital.parent / "policy.yaml", policy_document("north-ward", approvers=people))
    plain = invoke(hospital, "approve", "tiny", "--data", "lab")
    assert "the policy names approvers (fedward://approver/carl, fedward://approver/bo), and one" in str(
        plain.exception
    )
    key, out = authority.credential("approver", "carl") / "key.pem", hospital.parent / "tiny.approval"
    signed = invoke(hospital, "sign", "tiny", "--data", "lab", "--key", key, "--reason", "the board", "--out", out)
    assert f"fedward://approver/carl approves tiny {STUDY.digest} for lab" in signed.output
    assert approvals(folder).bound == {}, "who signs hands nothing in"
    assert invoke(hospital, "approve", "tiny", "--signature", out).exit_code == 0
    one = approvals(folder).bound[STUDY.digest]
    assert (one.data, one.reason, one.signed.certificate) == (
        "lab",
        "the board",
        key.with_name("certificate.pem").read_bytes(),
    )
    assert "approves other" not in told(hospital, "approve", "tiny", "--signature", hospital)
    both = invoke(hospital, "approve", "tiny", "--signature", out, "--data", "lab")
    assert both.exit_code == 2
    stranger = authority.credential("operator", "carl") / "key.pem"
    wrong = invoke(hospital, "sign", "tiny", "--data", "lab", "--key", stranger)
    assert "approves nothing; sign with a certificate of the role approver" in str(wrong.exception)


def test_a_study_is_declined_with_a_reason(hospital, folder):
    assert "is declined; it gets no data here" in invoke(hospital, "decline", "tiny", "--reason", "not ours").output
    one = approvals(folder).bound[STUDY.digest]
    assert (one.verdict, one.reason) == ("refused", "not ours")
    assert "It was declined on" in invoke(hospital, "show", "tiny").output
    assert "nothing: declined" in invoke(hospital, "approvals").output
    listed = json.loads(invoke(hospital, "approvals", "--format", "json").output)["approvals"]
    assert [(found["verdict"], found["signed"]) for found in listed] == [("refused", False)]


def test_the_list_says_what_becomes_of_every_study(hospital, folder):
    reasons = {"waits": ((offered.WAITS, "no data"),), "fits": (), "refused": (("delta", "1e-4"), ("clip", "2"))}
    upgrade(folder, {}, [], NOW)
    for name, said in reasons.items():
        study = tiny_study(name=name)
        offered.keep(folder, study, NOW)
        offered.judged(folder, study.digest, said)
    invoke(hospital, "decline", "tiny")
    began = tiny_study(name="began")
    begin(folder, began)
    offered.begin(folder, began.digest, None)
    offered.judged(folder, began.digest, (("budget_spent", "4 of 4"),))
    done = CliRunner().invoke(main.app, ["studies", "-c", str(hospital)]).output
    assert "refused: delta, clip" in done
    assert f"refused {tiny_study(name='refused').digest[:12]}: clip: 2\n" in done
    assert "refused: budget_spent" in done
    listed = json.loads(CliRunner().invoke(main.app, ["studies", "--format", "json", "-c", str(hospital)]).output)
    assert {one["name"]: one.get("verdict") for one in listed} == {
        "began": None,
        "waits": "waits for your decision",
        "fits": "not decided yet",
        "refused": "refused: delta, clip",
        "tiny": "declined",
    }
    assert listed[0]["reasons"] == [{"reason": "budget_spent", "text": "4 of 4"}]
