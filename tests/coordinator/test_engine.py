"""The shell around the state machines, without network: what is stored first, what survives, what never hangs."""

from __future__ import annotations

import errno
import json
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from coordinator import engine as engines
from coordinator.core.events import Persist
from coordinator.core.missed import LISTED_SECONDS
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import Phase
from coordinator.core.study import Life
from coordinator.engine import Engine, script_of
from coordinator.metrics import CoordinatorMetrics
from coordinator.register.catalogue import UnknownStudyError
from coordinator.relay import intake
from coordinator.storage.spool import SUM_FILE, Spool
from coordinator.sums import adding
from coordinator.sums.room import LittleRoomError, most_bytes
from crypto.secagg.voids import VoidPromise
from policies.documents.bounds import STORED
from policies.documents.study import Study
from policies.refusals import Refused
from protos import changes, codec
from protos.messages import MAX_CHUNK, Answer, Confirm, Part, Place, Tensor, UploadHeader
from protos.steps import SUM, Note, Task
from support.clocks import Clock
from support.contents import digest_of, listed
from support.databases import EPOCH, store_in
from support.failing import failing_writes
from support.people import desk_of, ops, status_of
from support.rounds import confirm, member
from support.silos import NOTES, announced, sealed
from support.studies import tiny_document, tiny_study

STUDY = tiny_study()
PLACE = Place(STUDY.digest, 0, 1)
SIGNED = {"content": "c" * 64, "vouch": b"signed"}
"""What a silo says of the model that it holds; `service` verifies it."""
DATABASE_FULL = OperationalError("UPDATE", {}, OSError("disk full"))
STRIDE = 3
"""Of the writes that fail, one in so many is taken: all of them take a minute."""


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make_engine(tmp_path, clock):
    """An engine on the test's data folder; each further one is the process started again."""
    made = []

    def make(begin=True):
        engine = Engine(
            store_in(tmp_path), Spool(tmp_path / "spool", EPOCH), CoordinatorMetrics(), clock, summed=lambda *_: None
        )
        made.append(engine)
        if begin:
            engine.start()
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine):
    made = make_engine()
    desk_of(made).create(STUDY.canonical(), ops("create"))
    desk_of(made).act("tiny", ops("start"))
    return made


def answer_all(engine, place=PLACE):
    for silo in STUDY.silos:
        engine.answer(silo, Answer(place, "one", member=member(silo)))


def head(silo, what, content, place=PLACE, *, tensor=None, study=STUDY):
    digest = digest_of(content)
    if isinstance(what, Note):
        return UploadHeader(place, what, tensor, silo, 0, len(content), digest)
    kind, values = announced(study, place.round, what)
    return UploadHeader(place, kind, what, silo, values, len(content), digest)


def begin_to_send(engine, header, content):
    """An upload as the service makes it, without the wire, of which all bytes are there."""
    engine.expect(header)
    chunks = listed(content)
    begin = engine.begin_upload(header, chunks)
    for offset in range(begin, len(content), MAX_CHUNK):
        engine.take(header, chunks, offset, content[offset : offset + MAX_CHUNK])
    return header


def send(engine, silo, what, content, place=PLACE, *, tensor=None):
    header = begin_to_send(engine, head(silo, what, content, place, tensor=tensor), content)
    engine.finish_upload(header, b"signature")
    return header


def to_gather(engine, place=PLACE):
    answer_all(engine, place)
    send_all(engine, Note.GREETING, place)
    (dealer,) = status_of(engine, "tiny").waiting_for
    send(engine, dealer, Note.KEYS, b"keys", place)
    for silo in STUDY.silos:
        engine.confirm(silo, confirm(place, silo, Task.TAKE).confirm)
    send_all(engine, Note.SHARES, place)
    for silo in STUDY.silos:
        engine.confirm(silo, confirm(place, silo, Task.CHECK).confirm)


def send_all(engine, note, place=PLACE):
    for silo in STUDY.silos:
        send(engine, silo, note, f"{silo}'s {note}".encode(), place)


COUNT_BYTES = len(sealed("ckks", announced(STUDY, 0, Tensor.COUNTS)[1]))


def counts(seed=0):
    return sealed("ckks", announced(STUDY, 0, Tensor.COUNTS)[1], seed)


def until(condition, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.01)


def until_ticks(engine, number):
    """Wait until the clock had so many more turns."""
    end = gauge(engine, "clock_turns_total") + number
    until(lambda: gauge(engine, "clock_turns_total") >= end)


OLDER = {
    "a constant": Study.model_validate(tiny_document(name="older", encoder={"learning_rate": 1e39}), context=STORED),
    "too few silos": tiny_study(name="older", min_silos=2),
    "a noise below its grid": tiny_study(
        name="older", privacy={"max_patients": 10_000_000, "count_noise": 1e-3, "mode": "distributed"}
    ),
}
"""Studies as an earlier version took them, by what they break now."""
WHY = {
    "a constant": "study.encoder.learning_rate: 1e+39",
    "too few silos": "study.min_silos is 2; more than half of the 3 study.silos and 1 privacy.colluders together",
    "a noise below its grid": "study.privacy.count_noise is 0.001; on the grid of 0.03125",
}
broken = pytest.mark.parametrize("broken", OLDER)


@pytest.fixture
def earlier(monkeypatch):
    """Within it, an engine takes what an earlier version took."""

    @contextmanager
    def version():
        with monkeypatch.context() as bent:
            bent.setattr(engines, "_require_bounds", lambda _: None)
            yield

    return version


@broken
def test_a_study_that_breaks_a_bound_is_refused_by_name_and_not_kept(engine, broken):
    with pytest.raises(Refused) as refused:
        desk_of(engine).create(OLDER[broken].canonical(), ops("create"))
    assert WHY[broken] in refused.value.text
    assert [status.name for status in engine.statuses()] == ["tiny"]


@broken
@pytest.mark.parametrize("life", [Life.CREATED, Life.RUNNING, Life.PAUSED])
def test_an_unfinished_study_of_an_earlier_version_that_breaks_a_bound_ends_by_name(make_engine, earlier, life, broken):
    older = OLDER[broken]
    with earlier():
        before = make_engine()
        for study in (older, STUDY):
            desk_of(before).create(study.canonical(), ops("create"))
            desk_of(before).act(study.name, ops("start")) if life is not Life.CREATED else None
        if life is Life.PAUSED:
            desk_of(before).act("older", ops("pause", "lunch"))
    after = make_engine()
    ended = status_of(after, "older")
    assert ended.state == "aborted"
    assert f"breaks a bound of this one: {WHY[broken]}" in ended.why
    assert status_of(after, "tiny").state == ("created" if life is Life.CREATED else "running")
    assert {status.name for status in make_engine().statuses()} == {"older", "tiny"}
    assert after.text(older.digest, "north").canonical == older.canonical()
    if life is not Life.CREATED:
        assert after.poll("north", "one").task in (Task.FINISH, Task.DECIDE)


def stored_by_an_older_version(tmp_path):
    """The database as a version up to 0.6 leaves it: whole states, without the mark of this version."""
    store = store_in(tmp_path)
    with store.engine.begin() as connection:
        (text,) = connection.exec_driver_sql("SELECT progress FROM studies").scalars()
        state = changes_applied(
            text, connection.exec_driver_sql("SELECT change FROM changes ORDER BY number").scalars()
        )
        connection.exec_driver_sql("DELETE FROM changes")
        connection.exec_driver_sql("UPDATE studies SET progress = ?", (json.dumps(state),))
    store.engine.dispose()


def changes_applied(text, following):
    state = json.loads(text)
    state.pop("changed_since")
    for change in following:
        state = changes.applied(state, json.loads(change))
    return state


@pytest.mark.parametrize("phase", ["offer", "greet", "take", "gather"])
@pytest.mark.parametrize("older", [True, False])
def test_an_attempt_that_an_older_version_began_ends_and_nobody_is_named(make_engine, tmp_path, phase, older):
    """Nobody reads its notes any more, and each was right when it was sent."""
    before = make_engine()
    desk_of(before).create(STUDY.canonical(), ops("create"))
    desk_of(before).act("tiny", ops("start"))
    if phase == "gather":
        to_gather(before)
    elif phase != "offer":
        answer_all(before)
        send(before, STUDY.silos[0], Note.GREETING, b"in an older form")
        if phase == "take":
            for silo in STUDY.silos[1:]:
                send(before, silo, Note.GREETING, b"in an older form")
            send(before, status_of(before, "tiny").waiting_for[0], Note.KEYS, b"keys")
    assert status_of(before, "tiny").phase == phase
    desk_of(before).act("tiny", ops("pause", "lunch"))
    before.close()
    if older:
        stored_by_an_older_version(tmp_path)
    for _ in range(2):
        after = make_engine()
        status, ends = status_of(after, "tiny"), older and phase != "offer"
        assert (status.state, status.attempt, status.phase) == ("paused", 1 + ends, "offer" if ends else phase)
        assert {one.state for one in status.members if one.why} == set(), "nobody has left"
        progress = after.catalogue.progress[STUDY.digest]
        assert progress.round.blamed == ()
        after.close()


@broken
def test_a_finished_study_that_breaks_a_bound_is_still_listed(make_engine, earlier, broken):
    with earlier():
        before = make_engine()
        desk_of(before).create(OLDER[broken].canonical(), ops("create"))
        desk_of(before).act("older", ops("abort", "enough"))
    assert [(status.state, status.why) for status in make_engine().statuses()] == [
        ("aborted", "stopped by operator ops: enough")
    ]


@pytest.mark.parametrize("number", [None, 0, 2])
def test_a_study_whose_last_round_also_summed_the_metrics_goes_on_unless_it_is_in_it(make_engine, monkeypatch, number):
    tensors = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
    with monkeypatch.context() as bent:
        bent.setattr(engines, "script_of", lambda study: replace(script_of(study), tensors=tensors))
        before = make_engine()
        desk_of(before).create(STUDY.canonical(), ops("create"))
        if number is not None:
            desk_of(before).act("tiny", ops("start"))
            progress = before.catalogue.progress[STUDY.digest]
            place = Place(STUDY.digest, number, 1)
            moved = replace(progress, round=replace(progress.round, place=place, tensors=tensors[number]))
            with before._lock:
                before._commit(progress, moved, [Persist()])
        assert status_of(before, "tiny").rounds == 2
    with capture_logs() as log:
        status = status_of(make_engine(), "tiny")
    ended = [(line["study"], line["why"]) for line in log if line["event"] == "study ended"]
    assert ended == ([(STUDY.digest[:12], status.why)] if number == 2 else [])
    if number == 2:
        assert (status.state, status.rounds) == ("aborted", 2)
        assert "earlier version and cannot go on: its round 2 sums heads, metrics, but this version" in status.why
    else:
        assert (status.state, status.rounds) == ("created" if number is None else "running", 3)


def test_the_script_says_what_the_study_says():
    script = script_of(STUDY)
    assert (script.study, script.silos, script.min_silos) == (STUDY.digest, STUDY.silos, 3)
    assert (script.colluders, script.recovers) == (1, True)
    assert not script_of(tiny_study(privacy={"mode": "distributed"})).recovers
    assert script.tensors == (
        (Tensor.COUNTS,),
        (Tensor.HEADS, Tensor.ENCODER),
        (Tensor.HEADS,),
        (Tensor.METRICS,),
    )
    assert script.limits.of(Phase.GATHER) == STUDY.deadlines.train


def test_work_follows_the_phases(engine):
    silo = STUDY.silos[0]
    assert engine.poll(silo, "one").task is Task.DECIDE
    answer_all(engine)
    assert [engine.poll(name, "one").task for name in STUDY.silos] == [Task.GREET] * 3
    send_all(engine, Note.GREETING)
    (dealer,) = status_of(engine, "tiny").waiting_for
    other = next(s for s in STUDY.silos if s != dealer)
    assert engine.poll(dealer, "one").task is Task.DEAL
    assert engine.poll(other, "one").task is Task.WAIT
    send(engine, dealer, Note.KEYS, b"keys")
    work = engine.poll(other, "one")
    assert (work.task, work.actor, [m.silo for m in work.roster]) == (Task.TAKE, dealer, sorted(STUDY.silos))
    assert work.parts == (Part("keys", dealer, 4, digest_of(b"keys")),)
    assert engine.poll("elsewhere", "one").task is Task.WAIT


def test_nothing_is_said_that_is_not_stored(engine, monkeypatch):
    def fail(*_):
        raise DATABASE_FULL

    with monkeypatch.context() as patch:
        patch.setattr(engine._store, "save", fail)
        with pytest.raises(OperationalError):
            engine.answer(STUDY.silos[0], Answer(PLACE, "one", refusal="budget_spent"))
    assert status_of(engine, "tiny").waiting_for == STUDY.silos, "what could not be stored has not happened"
    engine.answer(STUDY.silos[0], Answer(PLACE, "one", refusal="budget_spent"))
    assert status_of(engine, "tiny").waiting_for == STUDY.silos[1:]


def test_a_second_silo_of_an_institution_leaves_the_study(engine, monkeypatch):
    monkeypatch.setattr(
        "coordinator.core.institutions._institution", lambda one: None if one.silo == "south" else "charite"
    )
    answer_all(engine)
    state = status_of(engine, "tiny")
    assert state.state == "ended"
    assert STUDY.silos == ("north", "south", "west")
    assert "west left (institution: north is of the institution charite too" in state.why


@pytest.mark.parametrize(("fault", "told"), [(DATABASE_FULL, False), (KeyError("tiny"), True)])
def test_the_clock_goes_on_after_a_fault_and_tells_those_that_are_not_the_machine_s(
    engine, clock, monkeypatch, fault, told
):
    failed = []

    def fail(*_):
        failed.append(True)
        raise fault

    with capture_logs() as log, monkeypatch.context() as patch:
        patch.setattr(engine._store, "save", fail)
        clock.now += STUDY.deadlines.offer
        until(lambda: failed)
        until_ticks(engine, 2)
    until(lambda: status_of(engine, "tiny").state == "waiting")
    assert any(line["event"] == "time could not pass" for line in log) is told
    assert engine._ticker.daemon, "it keeps no process alive that ends"


def test_a_deadline_ends_the_attempt(engine, clock):
    to_gather(engine)
    clock.now += STUDY.deadlines.train - 1
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").attempt == 1
    clock.now += 1
    until(lambda: status_of(engine, "tiny").attempt == 2)
    assert status_of(engine, "tiny").phase == "offer"


def test_the_operator_is_told_once_of_each_attempt_that_ends_and_of_who_falls_silent(engine, clock):
    def ended():
        found = engine._metrics.attempts.collect()[0].samples
        return {one.labels["outcome"]: one.value for one in found if one.name.endswith("_total")}

    with capture_logs() as log:
        to_gather(engine)
        assert ended() == {"committed": 0.0, "aborted": 0.0}
        clock.now += STUDY.deadlines.train
        until(lambda: status_of(engine, "tiny").attempt == 2)
        until_ticks(engine, 2)
    assert ended() == {"committed": 0.0, "aborted": 1.0}
    assert [line["outcome"] for line in log if line["event"] == "attempt over"] == ["aborted"]
    assert [line["silos"] for line in log if line["event"] == "silos away"] == [STUDY.silos]


def test_who_lacks_data_and_calls_is_not_away_for_the_log(engine):
    with capture_logs() as log:
        for _ in range(3):
            for silo in STUDY.silos:
                engine.poll(silo, "s")
                engine.answer(silo, Answer(PLACE, "s", "no_data", "nobody has approved it"))
    assert {line["refusal"] for line in log if line["event"] == "answered"} == {"no_data"}
    assert [line for line in log if line["event"] == "silos away"] == []


def test_silos_of_a_list_that_stay_away_for_thirty_days_have_left(engine, clock):
    to_gather(engine)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: status_of(engine, "tiny").phase == "sign")
    clock.now += STUDY.deadlines.open
    until(lambda: status_of(engine, "tiny").attempt == 2)
    clock.now += STUDY.deadlines.offer
    until(lambda: status_of(engine, "tiny").state == "waiting")
    clock.now += LISTED_SECONDS - STUDY.deadlines.offer - 1
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").state == "waiting"
    with engine._lock:
        engine._notice(STUDY.silos[0], "one")
        assert status_of(engine, "tiny").phase == "offer", "who only calls is asked again"
        clock.now += STUDY.deadlines.offer
        engine._pass(STUDY.digest)
        assert status_of(engine, "tiny").state == "ended", "and has no time to call once more"
    assert "north, south, west did not come back within 30 days" in status_of(engine, "tiny").why
    assert not engine._spool._folder(replace(PLACE, attempt=2)).exists()


def test_a_promise_to_void_is_about_all_attempts_before_this_one(engine, clock):
    to_gather(engine)
    assert engine.void(PLACE, Tensor.COUNTS) == VoidPromise(PLACE.study, 0, Tensor.COUNTS, 0, 0)
    with pytest.raises(WrongPhaseError):
        engine.void(replace(PLACE, attempt=2), Tensor.COUNTS)
    clock.now += STUDY.deadlines.train
    until(lambda: status_of(engine, "tiny").attempt == 2)
    second = engine.void(replace(PLACE, attempt=2), Tensor.COUNTS)
    assert second == VoidPromise(PLACE.study, 0, Tensor.COUNTS, 1, 0)


def test_a_sum_that_cannot_be_made_ends_the_attempt_by_name(engine, monkeypatch):
    def fail(*_):
        raise FileNotFoundError(errno.ENOENT, "No such file", "/var/lib/fedward/spool")

    to_gather(engine)
    with monkeypatch.context() as patch:
        patch.setattr(adding, "add_contents", fail)
        for silo in STUDY.silos:
            send(engine, silo, Tensor.COUNTS, counts())
        until(lambda: status_of(engine, "tiny").attempt == 2)
    engine.answer(STUDY.silos[0], Answer(Place(STUDY.digest, 0, 2), "one", refusal="too_many_attempts"))
    assert status_of(engine, "tiny").state == "running"
    assert not engine._spool._folder(PLACE).exists()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files", "/spool/a"),
        pytest.param(MemoryError(), marks=pytest.mark.slow),
        pytest.param(DATABASE_FULL, marks=pytest.mark.slow),
    ],
)
def test_a_sum_that_the_machine_cannot_make_now_is_made_later_and_uses_up_nothing(engine, clock, monkeypatch, error):
    """The deadline passes meanwhile: it is the coordinator's own time, so nobody pays for it."""
    real, failed = adding.add_contents, []

    def fail(*arguments):
        if len(failed) < 2:
            failed.append(clock.now)
            raise error
        real(*arguments)

    to_gather(engine)
    monkeypatch.setattr(adding, "add_contents", fail)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: failed)
    until(lambda: STUDY.digest in engine._held)
    status = status_of(engine, "tiny")
    assert (status.state, status.phase) == ("running", "add")
    assert "no time passes while the coordinator's machine is short" in status.why
    assert ("/spool/a" in status.why) is isinstance(error, OSError)
    assert gauge(engine, "short") == 1.0
    clock.now += 100 * STUDY.deadlines.train
    until(lambda: status_of(engine, "tiny").phase == "sign")
    until(lambda: STUDY.digest not in engine._held)
    status = status_of(engine, "tiny")
    assert (len(failed), status.attempt, status.why) == (2, 1, "")
    assert gauge(engine, "short") == 0.0
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").attempt == 1


def test_no_time_passes_while_the_database_is_full(engine, clock, monkeypatch):
    def fail(*_):
        raise DATABASE_FULL

    to_gather(engine)
    since = engine.catalogue.progress[STUDY.digest].round.since
    clock.now += 7
    with monkeypatch.context() as patch:
        for name in ("save", "probe"):
            patch.setattr(engine._store, name, fail)
        engine.shortages.note(DATABASE_FULL)  # as the door does for a call that failed
        until(lambda: STUDY.digest in engine._held)
        assert "disk full" in status_of(engine, "tiny").why
        clock.now += 10 * STUDY.deadlines.train
        until_ticks(engine, 4)
    until(lambda: not engine._held)
    round_ = engine.catalogue.progress[STUDY.digest].round
    assert (round_.place.attempt, round_.since) == (1, since + 10 * STUDY.deadlines.train)
    clock.now += STUDY.deadlines.train - 8
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").attempt == 1
    clock.now += 1
    until(lambda: status_of(engine, "tiny").attempt == 2)


def test_a_sum_of_a_study_that_was_stopped_meanwhile_is_not_tried_for_ever(engine, monkeypatch):
    def fail(*_):
        raise OSError(errno.EIO, "I/O error", "/spool/a")

    to_gather(engine)
    monkeypatch.setattr(adding, "add_contents", fail)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: engine.shortages.standing(STUDY.digest))
    desk_of(engine).act("tiny", ops("abort", "enough"))
    until(lambda: not engine.shortages.standing(STUDY.digest))
    assert status_of(engine, "tiny").why == "stopped by operator ops: enough"


class Patient:
    """Silos that do again whatever the machine could not do, as agents do."""

    def __init__(self, engine, study):
        self.engine, self.study, self.place = engine, study, Place(study.digest, 0, 1)

    def again(self, call, *arguments):
        while True:
            try:
                return call(*arguments)
            except Exception as error:
                if self.engine.shortages.note(error) is None:
                    raise

    def status(self):
        return self.again(self.engine.status, self.study.digest)

    def confirm(self, silo, said):
        self.again(self.engine.confirm, silo, said)

    def send(self, silo, what, content):
        header = head(silo, what, content, self.place, study=self.study)

        def send():
            if not self.engine.stored(header):
                begin_to_send(self.engine, header, content)
            self.engine.finish_upload(header, b"signature")

        self.again(send)

    def play(self):
        """Up to the first reveal."""
        for silo in self.study.silos:
            self.again(self.engine.answer, silo, Answer(self.place, "one", member=member(silo)))
        for silo in self.study.silos:
            self.send(silo, Note.GREETING, b"greeting")
        self.send(self.status().waiting_for[0], Note.KEYS, b"keys")
        for silo in self.study.silos:
            self.confirm(silo, confirm(self.place, silo, Task.TAKE).confirm)
        for silo in self.study.silos:
            self.send(silo, Note.SHARES, b"shares")
        for silo in self.study.silos:
            self.confirm(silo, confirm(self.place, silo, Task.CHECK).confirm)
        for silo in self.study.silos:
            self.send(silo, Tensor.COUNTS, counts())
        until(lambda: self.status().phase == "sign")
        for silo in self.study.silos:
            self.confirm(silo, Confirm(self.place, Task.SIGN, Tensor.COUNTS, signature=b"signed"))
        return self.status()


@pytest.mark.slow
def test_whatever_write_fails_for_a_while_nothing_is_lost_and_no_attempt_used_up(tmp_path, clock, monkeypatch):
    """Writes of a study's first sum, in turn: the n-th and the next one fail, as the system fails them."""
    monkeypatch.setattr("coordinator.shortages.WAITS", (0.02,))
    monkeypatch.setattr(engines, "TICK_SECONDS", 0.01)

    def life(number):
        folder = tmp_path / str(number)
        engine = Engine(
            store_in(folder), Spool(folder / "spool", EPOCH), CoordinatorMetrics(), clock, summed=lambda *_: None
        )
        try:
            desk_of(engine).create(STUDY.canonical(), ops("create"))
            desk_of(engine).act("tiny", ops("start"))
            engine.start()
            with failing_writes(number, times=2) as writes:
                status = Patient(engine, STUDY).play()
            assert (status.round, status.attempt, status.phase, status.state) == (0, 1, "reveal", "running"), number
            return writes
        finally:
            engine.close()

    undisturbed = life(0).passed
    assert undisturbed > 60
    assert all(life(number).failed == 2 for number in range(1, undisturbed - 1, STRIDE))


def test_no_path_of_ours_reaches_a_silo(make_engine, monkeypatch):
    study = tiny_study(max_attempts=1)
    engine = make_engine()
    desk_of(engine).create(study.canonical(), ops("create"))
    desk_of(engine).act(study.name, ops("start"))
    monkeypatch.setattr(
        adding,
        "add_contents",
        lambda *_: (_ for _ in ()).throw(FileNotFoundError(errno.ENOENT, "It is gone", "/var/lib")),
    )
    place = Place(study.digest, 0, 1)
    to_gather(engine, place)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts(), place)
    until(lambda: status_of(engine, "tiny").state == "ended")
    assert status_of(engine, "tiny").why == "attempt 1 of round 0: adding counts failed: It is gone"


def test_what_the_disk_has_altered_is_never_added(make_engine):
    """Well-formed, as ciphertexts go: the attempt ends and says whose it was."""
    study = tiny_study(max_attempts=1)
    engine = make_engine()
    desk_of(engine).create(study.canonical(), ops("create"))
    desk_of(engine).act(study.name, ops("start"))
    place = Place(study.digest, 0, 1)
    to_gather(engine, place)
    one, *others, last = STUDY.silos
    for silo in (one, *others):
        send(engine, silo, Tensor.COUNTS, counts(), place)
    altered = bytearray(counts())
    altered[0] ^= 1
    engine._spool.complete(place, "counts", one).write_bytes(altered)
    send(engine, last, Tensor.COUNTS, counts(), place)
    until(lambda: status_of(engine, "tiny").state == "ended")
    told = f"adding counts failed: the contribution of {one} was altered on the coordinator's disk"
    assert told in status_of(engine, "tiny").why


def test_a_sum_lies_with_its_list(many):
    many.until(lambda s: s.phase == "open")
    work = many.engine.poll("west", "one")
    (total,) = (part for part in work.parts if part.kind == SUM)
    spool = many.engine._spool
    content = spool.complete(work.place, "counts", SUM_FILE).read_bytes()
    kept = spool.chunk_list(spool.chunks(work.place, "counts", SUM_FILE))
    assert (kept, kept.digest, kept.size) == (listed(content), total.sha256, total.size)


def test_a_sum_that_fails_too_late_ends_nothing(engine, monkeypatch):
    """The attempt is over and its files are cleared while they are added: the next attempt must not pay for it."""
    to_gather(engine)

    def fail(*_):
        engine.poll(STUDY.silos[0], "two")
        raise FileNotFoundError(errno.ENOENT, "cleared")

    monkeypatch.setattr(adding, "add_contents", fail)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: status_of(engine, "tiny").attempt == 2)
    engine._worker.submit(lambda: None).result(5)
    assert (status_of(engine, "tiny").attempt, status_of(engine, "tiny").phase) == (2, "offer")


def test_an_upload_whose_attempt_ends_while_it_is_checked(engine, monkeypatch):
    to_gather(engine)
    real = intake.check_content

    def late(path, kind):
        engine.poll(STUDY.silos[1], "two")
        return real(path, kind)

    monkeypatch.setattr(intake, "check_content", late)
    with pytest.raises(WrongPhaseError, match="round 0, attempt 1 is not the current one"):
        send(engine, STUDY.silos[0], Tensor.COUNTS, counts())
    assert not engine._spool._folder(PLACE).exists()


def test_a_file_that_is_lost_is_our_fault(engine, monkeypatch):
    to_gather(engine)
    header = replace(head(STUDY.silos[0], Tensor.COUNTS, counts()), sha256="a" * 64)
    with pytest.raises(FileNotFoundError):
        engine.finish_upload(header, b"signature")


def test_a_sum_that_comes_too_late_is_forgotten(engine, monkeypatch):
    to_gather(engine)
    real = adding.add_contents

    def slow(paths, digests, kind, target):
        engine.poll(STUDY.silos[0], "two")
        assert status_of(engine, "tiny").attempt == 2
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_bytes(counts())
        real(paths, digests, kind, target)

    monkeypatch.setattr(adding, "add_contents", slow)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: status_of(engine, "tiny").attempt == 2)
    until(lambda: not engine._spool._folder(PLACE).exists())
    assert status_of(engine, "tiny").phase == "offer"


def test_a_crash_between_the_bytes_and_the_count_loses_neither(engine, monkeypatch):
    """The slot is filled, the process dies, the silo repeats its upload: counted then, and once."""
    to_gather(engine)
    silo = STUDY.silos[0]
    header = begin_to_send(engine, head(silo, Tensor.COUNTS, counts()), counts())
    with monkeypatch.context() as patch:
        patch.setattr(engine, "keep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.finish_upload(header, b"signature")
    assert silo in status_of(engine, "tiny").waiting_for
    assert engine.stored(header)
    engine.finish_upload(header, b"signature")
    engine.finish_upload(header, b"signature")
    assert silo not in status_of(engine, "tiny").waiting_for


def test_a_crash_between_the_file_and_its_record_asks_for_no_byte_again(engine, make_engine, monkeypatch):
    to_gather(engine)
    silo, content = STUDY.silos[0], counts()
    header = head(silo, Tensor.COUNTS, content)
    with monkeypatch.context() as patch:
        patch.setattr(engine._store, "add_content", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            send(engine, silo, Tensor.COUNTS, content)
    engine.close()
    again = make_engine()
    assert (again.stored(header), again.offset(header)) == (False, len(content))
    again.finish_upload(header, b"signature")
    assert again.stored(header)
    assert silo not in status_of(again, "tiny").waiting_for
    assert [u.silo for u in status_of(again, "tiny").uploads if u.tensor] == [silo]


def test_a_restart_forgets_what_a_crash_left(engine, make_engine):
    to_gather(engine)
    spool = engine._spool
    old = spool.partial(Place(STUDY.digest, 0, 7), "counts", "north")
    spool.append(old, 0, b"left over")
    spool.append(spool.partial(PLACE, "counts", "north"), 0, b"under way")
    engine.close()
    make_engine()
    assert (old.exists(), spool.length(spool.partial(PLACE, "counts", "north"))) == (False, 9)


def test_a_restart_knows_everything_that_was_answered(engine, make_engine):
    to_gather(engine)
    send(engine, STUDY.silos[0], Tensor.COUNTS, counts())
    before = status_of(engine, "tiny")
    engine.close()
    after = status_of(make_engine(), "tiny")
    assert (after.phase, after.waiting_for, after.times, after.uploads) == (
        before.phase,
        before.waiting_for,
        before.times,
        before.uploads,
    )


def test_who_was_told_of_the_end_stays_told(engine, make_engine):
    desk_of(engine).act("tiny", ops("abort", "enough"))
    silo = STUDY.silos[0]
    work = engine.poll(silo, "one")
    assert (work.task, work.outcome) == (Task.FINISH, "aborted")
    engine.confirm(silo, confirm(PLACE, silo, Task.FINISH).confirm)
    engine.close()
    again = make_engine()
    assert again.poll(silo, "one").task is Task.WAIT
    assert again.poll(STUDY.silos[1], "one").task is Task.FINISH


def test_a_word_about_another_place_is_out_of_turn(engine):
    with pytest.raises(WrongPhaseError, match="round 0, attempt 2 is not the current one"):
        answer_all(engine, Place(STUDY.digest, 0, 2))
    with pytest.raises(UnknownStudyError):
        answer_all(engine, Place("f" * 64, 0, 1))


def test_a_study_that_has_not_begun_has_no_round_to_speak_of(make_engine):
    made = make_engine()
    desk_of(made).create(STUDY.canonical(), ops("create"))
    with pytest.raises(WrongPhaseError, match="round 0, attempt 1 is not the current one"):
        answer_all(made)


def test_the_phases_times_are_kept_and_measured(engine, clock):
    clock.now += 3
    answer_all(engine)
    clock.now += 1
    send_all(engine, Note.GREETING)
    clock.now += 2
    (dealer,) = status_of(engine, "tiny").waiting_for
    send(engine, dealer, Note.KEYS, b"keys")
    assert [(t.phase, t.seconds) for t in status_of(engine, "tiny").times] == [
        ("offer", 3.0),
        ("greet", 1.0),
        ("deal", 2.0),
    ]
    value = engine._metrics.registry.get_sample_value
    assert value("fedward_coordinator_phase_seconds_sum", {"phase": "offer"}) == 3.0
    assert value("fedward_coordinator_phase_seconds_count", {"phase": "deal"}) == 1.0
    assert value("fedward_coordinator_received_bytes_total", {"kind": "keys"}) == 4.0
    assert value("fedward_coordinator_studies", {"state": Life.RUNNING}) == 1.0
    assert value("fedward_coordinator_waiting_silos", {"study": STUDY.digest[:12]}) == 3.0


# --- away, waiting, paused ------------------------------------------------------------------------------------------
@pytest.fixture
def pair(make_engine, clock):
    """A study of three that goes on with two; round 0 is over, west was silent in it."""
    study = tiny_study(name="pair", min_silos=2, privacy={"colluders": 0})
    engine = make_engine()
    desk_of(engine).create(study.canonical(), ops("create"))
    desk_of(engine).act("pair", ops("start"))
    play = Play(engine, study)
    play.until(lambda s: not set(study.silos[:2]) & set(s.waiting_for), silent=("west",))
    clock.now += study.deadlines.offer
    until(lambda: status_of(engine, "pair").phase == "greet")
    play.until(lambda s: s.round == 1, silent=("west",))
    return play


class Play:
    """Silos of plain bytes on an engine, without the wire; a silo's model is what it last adopted."""

    def __init__(self, engine, study):
        self.engine, self.study, self.models = engine, study, dict.fromkeys(study.silos, "")

    @property
    def status(self):
        return status_of(self.engine, self.study.name)

    def until(self, condition, silent=()):
        end = time.monotonic() + 300
        while not condition(self.status):
            assert time.monotonic() < end, self.status
            for silo in self.study.silos:
                if silo not in silent and not condition(self.status):
                    self.perform(silo)
        return self.status

    def perform(self, silo):
        work = self.engine.poll(silo, "one")
        place = work.place
        if work.task is Task.DECIDE:
            self.engine.answer(silo, Answer(place, "one", member=member(silo), model=self.models[silo]))
        elif work.task is Task.CONTRIBUTE:
            self.give(silo, work.tensor, place)
        elif work.task in NOTES:
            tensor = work.tensor if work.task is Task.REVEAL else None
            send(self.engine, silo, NOTES[work.task], b"note", place, tensor=tensor)
        elif work.task is Task.SIGN:
            self.engine.confirm(silo, confirm(place, silo, Task.SIGN, work.tensor).confirm)
        elif work.task is Task.CATCH_UP:
            self.models[silo] = self.models[work.actor]
            self.engine.confirm(silo, Confirm(place, work.task, model=self.models[silo], **SIGNED), b"certificate")
        elif work.task is not Task.WAIT:
            holds = work.task in (Task.OPEN, Task.ADOPT)
            if holds:
                self.models[silo] = f"{place.round} {place.attempt} {work.tensor} {work.task}"
            signed = SIGNED if holds else {}
            said = Confirm(place, work.task, work.tensor, self.models[silo], **signed)
            self.engine.confirm(silo, said, b"certificate")

    def give(self, silo, tensor, place):
        content = sealed(*announced(self.study, place.round, tensor))
        header = head(silo, tensor, content, place, study=self.study)
        self.engine.finish_upload(begin_to_send(self.engine, header, content), b"signature")


def states(status):
    return {member.silo: member.state for member in status.members}


def gauge(engine, name, **labels):
    return engine._metrics.registry.get_sample_value(f"fedward_coordinator_{name}", labels)


def test_who_was_silent_is_away_and_waits_for_nobody(pair):
    status = pair.status
    assert states(status)["west"] == "away"
    assert status.waiting_for == ("north", "south")
    assert gauge(pair.engine, "silos_away", study=pair.study.digest[:12]) == 1.0
    pair.until(lambda s: s.phase == "gather", silent=("west",))
    assert pair.status.attempt == 1


def test_who_polls_again_is_offered_a_seat_and_catches_up(pair):
    assert pair.engine.poll("west", "one").task is Task.DECIDE
    assert (states(pair.status)["west"], gauge(pair.engine, "silos_away", study=pair.study.digest[:12])) == (
        "invited",
        0.0,
    )
    status = pair.until(lambda s: s.phase == "share")
    (sharer,) = status.waiting_for
    assert sharer in ("north", "south")
    assert pair.engine.poll("west", "one").task is Task.WAIT
    status = pair.until(lambda s: s.phase == "catch_up")
    work = pair.engine.poll("west", "one")
    model = Part("model", sharer, 4, digest_of(b"note"))
    assert (work.task, work.actor, work.parts) == (Task.CATCH_UP, sharer, (model,))
    assert pair.engine.download("west", work.place, None, "model", [sharer]) == {sharer: ("note-model", sharer)}
    assert [pair.engine.poll(silo, "one").task for silo in ("north", "south")] == [Task.WAIT, Task.WAIT]
    pair.until(lambda s: s.state == "finished")
    assert len(set(pair.models.values())) == 1


def test_too_few_present_wait_without_using_up_an_attempt(engine, clock):
    engine.answer("north", Answer(PLACE, "one", member=member("north")))
    clock.now += STUDY.deadlines.offer
    until(lambda: status_of(engine, "tiny").state == "waiting")
    status = status_of(engine, "tiny")
    assert (status.attempt, status.phase, status.waiting_for) == (1, "wait", ("south", "west"))
    assert status.why == "1 silos take part, the study needs 3; the round waits for south, west"
    assert gauge(engine, "studies", state="waiting") == 1.0
    assert engine.poll("north", "one").task is Task.WAIT, "who has a seat is asked for nothing"
    clock.now += 1e6
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").state == "waiting"
    assert engine.poll("south", "one").task is Task.DECIDE
    assert (status_of(engine, "tiny").state, status_of(engine, "tiny").attempt) == ("running", 1)


def test_nobody_is_given_work_in_a_pause_and_what_comes_counts(engine, clock):
    to_gather(engine)
    desk_of(engine).act("tiny", ops("pause"))
    assert (status_of(engine, "tiny").state, status_of(engine, "tiny").why) == ("paused", "paused by operator ops")
    assert [engine.poll(silo, "one").task for silo in STUDY.silos] == [Task.WAIT] * 3
    clock.now += 1e6
    until_ticks(engine, 2)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: status_of(engine, "tiny").phase == "sign")
    assert (status_of(engine, "tiny").state, status_of(engine, "tiny").attempt) == ("paused", 1)
    clock.now += 5
    desk_of(engine).act("tiny", ops("resume"))
    assert (status_of(engine, "tiny").state, status_of(engine, "tiny").why) == ("running", "")
    assert engine.poll(STUDY.silos[0], "one").task is Task.SIGN
    assert max(t.seconds for t in status_of(engine, "tiny").times) < 1e6, "a pause is no part of a phase"


def test_a_resumed_study_has_the_time_that_was_left(engine, clock):
    to_gather(engine)
    clock.now += STUDY.deadlines.train - 1
    desk_of(engine).act("tiny", ops("pause"))
    clock.now += 1e6
    desk_of(engine).act("tiny", ops("resume"))
    until_ticks(engine, 2)
    assert status_of(engine, "tiny").attempt == 1
    clock.now += 1
    until(lambda: status_of(engine, "tiny").attempt == 2)


def test_a_study_for_whose_rounds_the_disk_is_too_small_is_not_created(make_engine, monkeypatch):
    engine = make_engine()
    monkeypatch.setattr(Spool, "free", most_bytes(STUDY) - 1)
    with pytest.raises(LittleRoomError, match="make room there"):
        desk_of(engine).create(STUDY.canonical(), ops("create"))
    assert engine.statuses() == []
    monkeypatch.setattr(Spool, "free", most_bytes(STUDY))
    assert desk_of(engine).create(STUDY.canonical(), ops("create")) == STUDY.digest


def test_a_poll_that_waits_through_a_pause_gets_its_work_when_it_ends(engine):
    desk_of(engine).act("tiny", ops("pause"))
    assert engine.poll("north", "one").task is Task.WAIT
    rung = []
    engine.bells.listen("north", lambda: rung.append(engine.work("north").task))
    desk_of(engine).act("tiny", ops("resume"))
    assert rung == [Task.DECIDE]


def test_time_without_coordinator_does_not_count(engine, make_engine, clock):
    to_gather(engine)
    engine.close()
    clock.now += 1e6
    again = make_engine()
    until_ticks(again, 2)
    assert (status_of(again, "tiny").phase, status_of(again, "tiny").attempt) == ("gather", 1)
    clock.now += STUDY.deadlines.train
    until(lambda: status_of(again, "tiny").attempt == 2)


@pytest.mark.parametrize("phase", ["gather", "add"])
def test_a_restart_in_a_pause_keeps_files_and_goes_on_adding(engine, make_engine, monkeypatch, phase):
    to_gather(engine)
    desk_of(engine).act("tiny", ops("pause"))
    givers = STUDY.silos if phase == "add" else STUDY.silos[:1]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_add", lambda _: None)
        for silo in givers:
            send(engine, silo, Tensor.COUNTS, counts())
    engine.close()
    again = make_engine()
    assert status_of(again, "tiny").state == "paused"
    for silo in STUDY.silos[len(givers) :]:
        send(again, silo, Tensor.COUNTS, counts())
    until(lambda: status_of(again, "tiny").phase == "sign")
    desk_of(again).act("tiny", ops("resume"))
    assert again.poll("north", "one").task is Task.SIGN


def test_a_restart_while_waiting_waits_on(engine, make_engine, clock):
    engine.answer("north", Answer(PLACE, "one", member=member("north")))
    clock.now += STUDY.deadlines.offer
    until(lambda: status_of(engine, "tiny").state == "waiting")
    before = status_of(engine, "tiny")
    engine.close()
    again = make_engine()
    assert status_of(again, "tiny").waiting_for == before.waiting_for
    assert gauge(again, "silos_away", study=STUDY.digest[:12]) == 2.0
    assert again.poll("west", "one").task is Task.DECIDE


@pytest.mark.parametrize("phase", ["share", "catch_up"])
def test_a_restart_while_somebody_catches_up_goes_on(pair, make_engine, phase):
    pair.engine.poll("west", "one")
    before = pair.until(lambda s: s.phase == phase)
    pair.engine.close()
    pair.engine = make_engine()
    assert (pair.status.phase, pair.status.waiting_for) == (phase, before.waiting_for)
    pair.until(lambda s: s.state == "finished")
    assert pair.status.attempt == 1


def test_a_model_that_is_not_the_expected_one_ends_the_attempt_by_name(pair):
    pair.engine.poll("west", "one")
    status = pair.until(lambda s: s.phase == "catch_up")
    place = Place(pair.study.digest, status.round, status.attempt)
    pair.engine.confirm("west", Confirm(place, Task.CATCH_UP, model="something else"))
    assert (pair.status.attempt, pair.status.phase) == (1, "judge"), "nobody is blamed on one silo's word"
    judges = pair.status.waiting_for
    assert len(judges) == 1
    pair.perform(judges[0])
    assert (pair.status.attempt, pair.status.phase) == (2, "offer"), "who was to judge holds what was shared"
    assert states(pair.status)["west"] == "invited", "it is still part of the study, and present"


# --- lost -----------------------------------------------------------------------------------------------------------
@pytest.fixture
def many(make_engine):
    """A study of five of which four must stay, in the middle of its first sum."""
    study = tiny_study(name="many", silos=["east", "north", "polar", "south", "west"], min_silos=4)
    engine = make_engine()
    desk_of(engine).create(study.canonical(), ops("create"))
    desk_of(engine).act("many", ops("start"))
    play = Play(engine, study)
    play.until(lambda s: s.phase == "gather")
    return play


def test_the_others_go_on_without_who_is_late(many, clock):
    many.until(lambda s: s.waiting_for == ("south",), silent=("south",))
    clock.now += many.study.deadlines.train
    until(lambda: many.status.phase != "gather")
    assert (states(many.status)["south"], many.status.members[3].why) == ("lost", "no gather from south within 600 s")
    assert gauge(many.engine, "lost_total", phase="gather") == 1.0
    many.until(lambda s: s.round == 1, silent=("south",))
    assert (many.status.attempt, states(many.status)["south"]) == (1, "away")
    status = many.until(lambda s: s.state == "finished")
    assert status.times[-1].attempt == 1, "no attempt was lost"
    assert "catch_up" in {time.phase for time in status.times}
    assert len(set(many.models.values())) == 1


def test_an_upload_that_is_complete_too_late_is_refused_and_not_added(many, clock, monkeypatch):
    place = Place(many.study.digest, 0, 1)
    content = sealed(*announced(many.study, 0, Tensor.COUNTS), seed=9)
    header = begin_to_send(many.engine, head("south", Tensor.COUNTS, content, place, study=many.study), content)
    added = []
    real = adding.add_contents
    monkeypatch.setattr(adding, "add_contents", lambda paths, *rest: (added.extend(paths), real(paths, *rest)))
    many.until(lambda s: s.waiting_for == ("south",), silent=("south",))
    clock.now += many.study.deadlines.train
    until(lambda: many.status.phase == "sign")
    with pytest.raises(WrongPhaseError, match="south was set aside in this attempt"):
        many.engine.finish_upload(header, b"signature")
    with pytest.raises(WrongPhaseError, match="south was set aside in this attempt"):
        many.engine.finish_upload(header, b"signature")
    with pytest.raises(WrongPhaseError, match="south was set aside in this attempt"):
        many.engine.expect(header)
    assert [path.name for path in added] == [f"{silo}.sealed" for silo in ("east", "north", "polar", "west")]
    assert many.engine.poll("south", "one").task is Task.WAIT
    assert many.status.phase == "sign"


def test_a_confirmation_of_who_was_lost_is_refused(many, clock):
    many.until(lambda s: s.phase == "open")
    many.engine.poll("south", "two")
    place = Place(many.study.digest, 0, 1)
    for said in ({"model": "m"}, {"dispute": "data"}):
        with pytest.raises(WrongPhaseError, match="south is not in the roster, or was set aside"):
            many.engine.confirm("south", Confirm(place, Task.OPEN, Tensor.COUNTS, **said))
    many.until(lambda s: s.round == 1, silent=("south",))
    assert many.models["south"] != many.models["west"]


@pytest.mark.parametrize("phase", ["exchange", "gather", "add", "sign", "reveal", "open"])
def test_a_restart_of_the_coordinator_remembers_the_lost(make_engine, clock, monkeypatch, phase):
    study = tiny_study(name="many", silos=["east", "north", "polar", "south", "west"], min_silos=4)
    engine = make_engine()
    desk_of(engine).create(study.canonical(), ops("create"))
    desk_of(engine).act("many", ops("start"))
    play = Play(engine, study)
    with monkeypatch.context() as patch:
        if phase == "add":
            patch.setattr(engine, "_add", lambda _: None)
        play.until(lambda s: s.phase == phase)
        engine.poll("south", "two")
        before = play.status
        assert (before.phase, states(before)["south"]) == (phase, "lost")
    engine.close()
    play.engine = make_engine()
    if phase != "add":
        assert replace(play.status, members=()) == replace(before, members=())
    assert play.status.members[3].why == "south was restarted and has lost its keys"
    play.until(lambda s: s.round == 1, silent=("south",))
    assert play.status.attempt == 1


def test_the_sum_s_parts_are_what_everybody_revealed(many):
    many.until(lambda s: s.phase == "open")
    work = many.engine.poll("west", "one")
    assert [(part.kind, part.silo) for part in work.parts] == [
        *(("reveal", silo) for silo in many.study.silos),
        (SUM, ""),
    ]
    place = Place(many.study.digest, 0, 1)
    slots = [
        many.engine.download("west", place, Tensor.COUNTS, part.kind, [part.silo])[part.silo] for part in work.parts
    ]
    assert slots[0] == ("note-reveal-counts", "east")
    assert slots[-1] == ("counts", "_sum")
    for part, slot in zip(work.parts, slots, strict=True):
        content = many.engine._spool.complete(place, *slot).read_bytes()
        assert (len(content), digest_of(content)) == (part.size, part.sha256)
    sizes = {(u.kind, u.tensor) for u in many.status.uploads}
    assert sizes == {("greeting", None), ("keys", None), ("shares", None), ("ckks", "counts"), ("reveal", None)}


def test_what_an_older_version_stored_at_any_length_is_cut_when_it_is_read(make_engine, tmp_path):
    """A silo's explanation of four megabytes made every answer of the coordinator too large, after a restart too."""
    desk_of(make_engine(begin=False)).create(STUDY.canonical(), ops("create"))
    store = store_in(tmp_path)
    (before,) = store.load()
    silos = tuple(replace(silo, why="[/red]\x1b" + "x" * (4 << 20)) for silo in before.silos)
    store.save(replace(before, silos=silos, why="y" * (4 << 20), life=Life.ENDED), [])
    store.engine.dispose()
    engine = make_engine()
    assert {len(member.why) for member in status_of(engine, "tiny").members} == {1000}
    assert len(status_of(engine, "tiny").why) == 1000
    assert codec.to_wire(engine.statuses()[0]).ByteSize() < 10_000


def test_what_is_stored_of_an_end_is_a_sentence_too(engine, tmp_path):
    desk_of(engine).act("tiny", ops("abort", "y" * 4000))
    (stored,) = store_in(tmp_path).load()
    assert len(stored.why) == 1000


def test_an_engine_whose_clock_gets_no_turn_counts_as_stuck(engine, monkeypatch):
    monkeypatch.setattr(engines, "STUCK_SECONDS", 1.0)
    until(engine.passes)
    with engine._lock:
        until(lambda: not engine.passes())
    until(engine.passes)


@pytest.mark.parametrize(("evidence", "there"), [(bytes(64), True), (bytes(64), False), (b"", True)])
def test_who_lied_is_asked_of_the_note_and_the_key_alone(make_engine, tmp_path, monkeypatch, evidence, there):
    engine, note, asked = make_engine(), tmp_path / "note", []
    if there:
        note.write_bytes(b"the note")
    monkeypatch.setattr(engine.catalogue, "round", lambda place: place)
    monkeypatch.setattr(
        engine._spool, "complete", lambda *where: note if where[1:] == ("note-shares", "south") else None
    )
    monkeypatch.setattr("coordinator.engine.liar_of", lambda *given: asked.append(given) or "south")
    shown = {"evidence": evidence, "signature": b"signed"} if evidence else {}
    said = Confirm(PLACE, Task.CHECK, dispute="recovery", explanation="x", culprit="south", **shown)
    both = bool(evidence and there)
    assert engine._liar("north", said) == ("south" if both else "")
    assert asked == ([(PLACE, "north", said, b"the note")] if both else [])


def test_a_restart_forgets_no_silence(make_engine, clock, monkeypatch):
    """As after a kill: nothing is stored at the end."""
    monkeypatch.setattr("coordinator.engine.TICK_SECONDS", 0.01)
    monkeypatch.setattr("coordinator.register.presence.STORED_SECONDS", 0.02)
    before = make_engine()
    before.presence.called("north")
    heard = dict(before.presence.heard)
    end = time.monotonic() + 60
    while before._store.seen() != heard:
        assert time.monotonic() < end
        time.sleep(0.01)
    clock.now += 100 if hasattr(clock, "now") else 0
    assert make_engine(begin=False).presence.heard == heard
