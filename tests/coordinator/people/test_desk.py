"""The desk: rights, quotas, and an entry for each action and each refusal."""

from __future__ import annotations

import pytest

from coordinator.core.filtering import StudyFilter
from coordinator.core.quotas import QuotaError
from coordinator.core.revisions import StudyExistsError
from coordinator.core.rights import RightsError
from coordinator.core.study import StudyStateError
from coordinator.engine import Engine
from coordinator.metrics import CoordinatorMetrics
from coordinator.people import desk as desks
from coordinator.register.catalogue import UnknownStudyError
from coordinator.storage.spool import Spool
from coordinator.sums.room import most_bytes
from crypto.pki.identity import Identity, Role
from policies.documents import bounds
from policies.documents.study import Study
from policies.refusals import Refused
from protos import codec
from protos.messages import MAX_MESSAGE
from protos.v1 import operator_pb2
from support.databases import EPOCH, store_in
from support.people import OPS, audit_entry, desk_of, ops
from support.studies import tiny_document, tiny_study

ADA, GRACE = Identity(Role.AUTHOR, "ada"), Identity(Role.AUTHOR, "grace")
VIEWER = Identity(Role.VIEWER, "vera")
MINE, OTHERS = tiny_study(name="mine"), tiny_study(name="others")


@pytest.fixture
def engine(tmp_path):
    made = Engine(
        store_in(tmp_path), Spool(tmp_path / "spool", EPOCH), CoordinatorMetrics(), lambda: 1e9, summed=lambda *_: None
    )
    yield made
    made.close()


@pytest.fixture
def reopen(tmp_path):
    """The desk of a coordinator that begins again on the same database."""
    opened = []

    def again():
        store, spool = store_in(tmp_path), Spool(tmp_path / "spool-again", EPOCH)
        opened.append(Engine(store, spool, CoordinatorMetrics(), lambda: 1e9, summed=lambda *_: None))
        return desk_of(opened[-1])

    yield again
    for one in opened:
        one.close()


@pytest.fixture
def desk(engine):
    made = desk_of(engine)
    made.create(MINE.canonical(), ops("create", who=ADA))
    made.create(OTHERS.canonical(), ops("create", who=GRACE))
    return made


def log_of(desk):
    return [entry for page in desk.audit(1, OPS) for entry in page]


def test_a_study_belongs_to_who_created_it_also_after_a_restart(desk, engine):
    for each in (desk, desk_of(engine)):
        assert [one.name for one in each.statuses(ADA)[0]] == ["mine"]
        assert (
            [one.name for one in each.statuses(OPS)[0]]
            == [one.name for one in each.statuses(VIEWER)[0]]
            == ["mine", "others"]
        )
        for call in (each.status, each.results):
            with pytest.raises(UnknownStudyError, match="0 studies match 'others'"):
                call("others", ADA)
        with pytest.raises(UnknownStudyError, match="0 studies match"):
            each.act(OTHERS.digest, ops("abort", "spite", who=ADA))
    assert desk.status("others", VIEWER).state == "created"


def test_an_action_is_noted_with_all_that_is_known_of_it(desk):
    desk.act("mine", ops("start", who=ADA))
    desk.act(MINE.digest[:12], ops("forgive", "its disk was full", "north"))
    entries = log_of(desk)
    assert [(one.number, one.who, one.action, one.study, one.name) for one in entries] == [
        (1, ADA.uri, "create", MINE.digest, "mine"),
        (2, GRACE.uri, "create", OTHERS.digest, "others"),
        (3, ADA.uri, "start", MINE.digest, "mine"),
        (4, OPS.uri, "forgive", MINE.digest, "mine"),
    ]
    last = entries[-1]
    assert (last.silo, last.reason, last.outcome, last.why) == ("north", "its disk was full", "done", "")
    assert last.at == "2001-09-09T01:46:40.000000+00:00"


def test_a_reason_of_any_length_is_a_sentence(desk):
    desk.act("mine", ops("abort", "y" * 4000, who=ADA))
    assert len(log_of(desk)[-1].reason) == len(desk.status("mine", ADA).why) == 1000


@pytest.mark.parametrize(
    ("wanted", "deed", "error", "known"),
    [
        ("mine", ops("pause"), RightsError, (MINE.digest, "mine")),
        ("mine", ops("pause", "because"), StudyStateError, (MINE.digest, "mine")),
        ("mine", ops("forgive", "because", "north", who=ADA), RightsError, ("", "mine")),
        ("mine", ops("start", who=VIEWER), RightsError, ("", "mine")),
        ("mine", ops("start", who=Identity(Role.APPROVER, "ann")), RightsError, ("", "mine")),
        ("others", ops("abort", "spite", who=ADA), UnknownStudyError, ("", "others")),
        ("x" * 100, ops("start"), UnknownStudyError, ("", f"{'x' * 58} [...]")),
    ],
)
def test_a_refused_action_changes_nothing_and_is_noted(desk, wanted, deed, error, known):
    before = desk.statuses(OPS)[0]
    with pytest.raises(error) as refused:
        desk.act(wanted, deed)
    assert desk.statuses(OPS)[0] == before
    last = log_of(desk)[-1]
    assert (last.who, last.action, last.outcome, last.why) == (deed.who.uri, deed.action, "refused", str(refused.value))
    assert (last.study, last.name) == known


def test_a_study_that_is_not_taken_is_noted_too(desk):
    for canonical, error in ((b"{}", ValueError), (MINE.canonical(), StudyExistsError)):
        with pytest.raises(error):
            desk.create(canonical, ops("create"))
    first, second = log_of(desk)[-2:]
    assert (first.name, second.name, second.study) == ("", "mine", MINE.digest)
    assert {first.outcome, second.outcome} == {"refused"}
    assert desk.status("mine", ADA).name == "mine", "it still belongs to whom it belonged"
    with pytest.raises(UnknownStudyError):
        desk.status("mine", GRACE)


@pytest.mark.parametrize("who", [VIEWER, Identity(Role.APPROVER, "ann"), Identity(Role.SILO, "north")])
def test_who_may_not_create_is_refused_before_the_study_is_read(engine, who, monkeypatch):
    monkeypatch.setattr(desks, "read_stored", lambda _: pytest.fail("it was read"))
    with pytest.raises(RightsError, match="may not create a study; an operator or an author may"):
        desk_of(engine).create(b"{}", ops("create", who=who))


def test_nothing_is_planned_of_a_study_that_breaks_a_bound(engine, monkeypatch):
    """A plan of ever so many rounds would take the coordinator's memory."""
    monkeypatch.setattr(desks, "most_bytes", lambda _: pytest.fail("it was planned"))
    document = tiny_document(encoder={"learning_rate": 1e39})
    canonical = Study.model_validate(document, context=bounds.STORED).canonical()
    with pytest.raises(Refused, match=r"^bounds: study\.encoder\.learning_rate"):
        desk_of(engine).create(canonical, ops("create", who=ADA))


def test_a_certificate_has_so_many_open_studies_and_others_have_theirs(engine):
    desk = desk_of(engine, open_studies=1)
    desk.create(MINE.canonical(), ops("create", who=ADA))
    with pytest.raises(QuotaError, match=r"^1 studies of this certificate are open"):
        desk.create(OTHERS.canonical(), ops("create", who=ADA))
    desk.create(OTHERS.canonical(), ops("create", who=GRACE))
    desk.act("mine", ops("abort", "over", who=ADA))
    desk.create(tiny_study(name="next").canonical(), ops("create", who=ADA))


def test_a_certificate_creates_so_many_studies_a_day_also_if_none_stays_open(engine):
    for number in range(3):
        desk = desk_of(engine, created_a_day=3)  # a restart forgets nothing
        desk.create(tiny_study(name=f"study-{number}").canonical(), ops("create", who=ADA))
        desk.act(f"study-{number}", ops("abort", "over", who=ADA))
    with pytest.raises(QuotaError, match=r"^this certificate created 3 studies within 24 hours"):
        desk.create(MINE.canonical(), ops("create", who=ADA))
    engine._clock = lambda: 1e9 + 24 * 3600 + 1
    desk.create(MINE.canonical(), ops("create", who=ADA))


def test_a_certificate_does_so_many_actions_a_day_and_may_always_abort(engine):
    desk = desk_of(engine, actions_a_day=10)
    desk.create(MINE.canonical(), ops("create", who=ADA))
    desk.act("mine", ops("start", who=ADA))
    for number in range(8):
        desk.act("mine", ops("pause" if number % 2 == 0 else "resume", who=ADA))
    with pytest.raises(
        QuotaError, match=r"^this certificate did 10 actions within 24 hours, and quotas\.actions_a_day"
    ):
        desk.act("mine", ops("pause", who=ADA))
    desk.act("mine", ops("pause", "others have theirs"))
    desk.act("mine", ops("abort", "over", who=ADA))
    assert desk.status("mine", ADA).state == "aborted"


def test_rounds_of_open_studies_take_so_much_of_the_spool(engine):
    size = most_bytes(MINE)
    desk = desk_of(engine, gigabytes=1.5 * size / 1e9)
    desk.create(MINE.canonical(), ops("create", who=ADA))
    with pytest.raises(QuotaError, match=r"^rounds of this certificate's open studies and of this one take"):
        desk.create(OTHERS.canonical(), ops("create", who=ADA))


def test_creations_without_end_leave_a_bounded_log(engine, monkeypatch):
    monkeypatch.setattr("coordinator.storage.audit_log.MOST_REFUSALS", 10)
    desk = desk_of(engine, created_a_day=5)
    for number in range(40):
        try:
            desk.create(tiny_study(name=f"study-{number}").canonical(), ops("create", who=ADA))
        except QuotaError:
            continue
    assert len(log_of(desk)) == 5 + 10
    assert len(desk.statuses(ADA)[0]) == 5
    assert set(desk._sizes) <= {one.study for one in desk.statuses(ADA)[0]}, "nothing is remembered of what was refused"


@pytest.mark.parametrize("who", [ADA, Identity(Role.APPROVER, "ann"), Identity(Role.SILO, "north")])
def test_the_log_is_read_by_operators_and_viewers_alone(desk, who):
    for read in (lambda: next(desk.audit(0, who)), lambda: desk.cosigned_audit(who)):
        with pytest.raises(RightsError, match="may not read the audit log; operators and viewers may"):
            read()
    assert desk.cosigned_audit(VIEWER) == []


def test_the_log_comes_in_pages(desk, monkeypatch):
    monkeypatch.setattr(desks, "PAGE", 2)
    assert [[entry.number for entry in page] for page in desk.audit(0, VIEWER)] == [[0, 1], [2]]


def test_a_page_of_the_longest_entries_fits_a_message():
    """Else one author could write entries after which nobody reads the log any more."""
    longest = "\U0001f512" * 1000
    entry = audit_entry(study="a" * 64, name="\U0001f512" * 64, reason=longest, why=longest)
    page = operator_pb2.AuditPart(entries=[codec.to_wire(entry)] * desks.PAGE)
    assert page.ByteSize() < MAX_MESSAGE


def test_a_fault_of_the_machine_is_no_refusal(desk, monkeypatch):
    monkeypatch.setattr(desk._engine, "command", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        desk.act("mine", ops("start", who=ADA))
    assert log_of(desk)[-1].action == "create"


def test_every_action_moves_a_study_and_says_who_did_it(desk):
    moves = [("start", "running", ""), ("pause", "paused", "paused by author ada: lunch"), ("resume", "running", "")]
    for action, state, why in [*moves, ("abort", "aborted", "stopped by author ada: lunch")]:
        desk.act("mine", ops(action, "lunch", who=ADA))
        status = desk.status("mine", ADA)
        assert (status.state, status.why) == (state, why)
    with pytest.raises(ValueError, match="create is not done to a study that exists"):
        desk.act("mine", ops("create", "again"))


# --- the life of a study ----------------------------------------------------------------------------------------------
def next_of(study, revision, **changes):
    return tiny_study(name=study.name, revision=revision, **changes)


def test_a_study_that_is_over_is_created_again_as_the_next_revision(desk, reopen):
    with pytest.raises(StudyExistsError, match="and is created; delete it"):
        desk.create(next_of(MINE, 2).canonical(), ops("create", who=ADA))
    desk.act("mine", ops("abort", "refused", who=ADA))
    with pytest.raises(StudyExistsError, match="another name"):
        desk.create(next_of(MINE, 2).canonical(), ops("create", who=GRACE))
    with pytest.raises(StudyExistsError, match="state revision: 2"):
        desk.create(next_of(MINE, 1, purpose="Changed.").canonical(), ops("create", who=ADA))
    second = next_of(MINE, 2)
    assert desk.create(second.canonical(), ops("create", who=ADA)) == second.digest
    again = reopen()
    assert again.status("mine", ADA).study == second.digest, "a name means the newest"
    assert (again.status("mine", ADA).revision, again.status(MINE.digest[:12], ADA).state) == (2, "aborted")
    again.act("mine", ops("abort", "again", who=ADA))
    third = next_of(MINE, 3)
    again.create(third.canonical(), ops("create", who=ADA))
    assert [one.revision for one in again.statuses(ADA)[0] if one.name == "mine"] == [1, 2, 3]


def test_a_study_that_never_started_is_deleted_without_a_trace_but_in_the_log(desk, reopen):
    with pytest.raises(UnknownStudyError):
        desk.act("mine", ops("delete", "tidy", who=GRACE))
    desk.act("mine", ops("delete", who=ADA))
    again = reopen()
    with pytest.raises(UnknownStudyError):
        again.status("mine", ADA)
    last = list(again.audit(0, OPS))[-1][-1]
    assert (last.action, last.study, last.who) == ("delete", MINE.digest, ADA.uri)
    again.create(MINE.canonical(), ops("create", who=GRACE))
    again.act("mine", ops("start", who=GRACE))
    with pytest.raises(StudyStateError, match="only one that was never started can be deleted"):
        again.act("mine", ops("delete", who=GRACE))


def test_what_is_over_is_archived_and_listed_if_it_is_asked_for(desk, reopen):
    with pytest.raises(StudyStateError, match="only one that is over can be archived"):
        desk.act("mine", ops("archive", who=ADA))
    desk.act("mine", ops("abort", "over", who=ADA))
    for _ in range(2):
        desk.act("mine", ops("archive", who=ADA))
    for made in (desk, reopen()):
        assert [one.name for one in made.statuses(OPS)[0]] == ["others"]
        found, more = made.statuses(OPS, StudyFilter(archived=True, owner=ADA.uri, most=1))
        assert ([(one.name, one.owner, one.archived) for one in found], more) == ([("mine", ADA.uri, True)], 0)
        assert made.status("mine", ADA).archived
