"""The shell around the state machines, without network: what is stored first, what survives, what never hangs."""

from __future__ import annotations

import errno
import hashlib
import threading
import time

import pytest
from sqlalchemy.exc import OperationalError

from coordinator import engine as engines
from coordinator import intake
from coordinator.core.round import OutOfTurnError, Phase
from coordinator.core.study import Life
from coordinator.engine import Engine, UnknownStudyError, script_of
from coordinator.metrics import Metrics
from coordinator.spool import Spool
from coordinator.store import Store
from policies import shapes
from protos.messages import Answer, Confirm, Note, Place, Task, Tensor, UploadHeader
from support.rounds import confirm, member
from support.silos import sealed
from support.studies import tiny_study

STUDY = tiny_study()
PLACE = Place(STUDY.digest, 0, 1)
DATABASE_FULL = OperationalError("UPDATE", {}, OSError("disk full"))


class Clock:
    """Time that passes when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make_engine(tmp_path, clock):
    """An engine on the test's data folder; each further one is the process started again."""
    made = []

    def make(begin=True):
        engine = Engine(Store.in_folder(tmp_path), Spool(tmp_path / "spool"), Metrics(), clock)
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
    made.create(STUDY.canonical())
    made.start_study("tiny")
    return made


def answer_all(engine, place=PLACE):
    for silo in STUDY.silos:
        engine.answer(silo, Answer(place, "one", member=member(silo)))


def send(engine, silo, what, content, place=PLACE):
    """An upload as the service makes it, without the wire."""
    tensor = what if isinstance(what, Tensor) else None
    digest = hashlib.sha256(content).hexdigest()
    kind = tensor.ring if tensor else str(what)
    header = UploadHeader(place, kind, tensor, silo, 2 if tensor else 0, len(content), digest)
    engine.expect(header)
    engine._spool.append(engine._spool.partial(place, header.slot, silo), 0, content)
    engine.finish_upload(header, b"signature")
    return header


def to_gather(engine):
    answer_all(engine)
    (dealer,) = engine.status("tiny").waiting_for
    send(engine, dealer, Note.KEYS, b"keys")
    for silo in STUDY.silos:
        engine.confirm(silo, confirm(PLACE, silo, Task.TAKE).confirm)


def counts(seed=0):
    return sealed(Tensor.COUNTS, 2, seed)


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not reached in time"
        time.sleep(0.01)


def test_the_script_says_what_the_study_says():
    script = script_of(STUDY)
    assert (script.study, script.silos, script.min_silos) == (STUDY.digest, STUDY.silos, 3)
    assert script.tensors == (
        (Tensor.COUNTS,),
        (Tensor.HEADS, Tensor.ENCODER),
        (Tensor.HEADS, Tensor.METRICS),
    )
    assert script.limits.of(Phase.GATHER) == STUDY.deadlines.train


def test_work_follows_the_phases(engine):
    silo = STUDY.silos[0]
    assert engine.poll(silo, "one", 0).task is Task.DECIDE
    answer_all(engine)
    (dealer,) = engine.status("tiny").waiting_for
    other = next(s for s in STUDY.silos if s != dealer)
    assert engine.poll(dealer, "one", 0).task is Task.DEAL
    assert engine.poll(other, "one", 0).task is Task.WAIT
    send(engine, dealer, Note.KEYS, b"keys")
    work = engine.poll(other, "one", 0)
    assert (work.task, work.actor, work.size, [m.silo for m in work.roster]) == (
        Task.TAKE,
        dealer,
        4,
        sorted(STUDY.silos),
    )
    assert engine.poll("elsewhere", "one", 0).task is Task.WAIT


def test_nothing_is_said_that_is_not_stored(engine, monkeypatch):
    def fail(*_):
        raise DATABASE_FULL

    with monkeypatch.context() as patch:
        patch.setattr(engine._store, "save", fail)
        with pytest.raises(OperationalError):
            engine.answer(STUDY.silos[0], Answer(PLACE, "one", refusal="budget_spent"))
    assert engine.status("tiny").waiting_for == STUDY.silos, "what could not be stored has not happened"
    engine.answer(STUDY.silos[0], Answer(PLACE, "one", refusal="budget_spent"))
    assert engine.status("tiny").waiting_for == STUDY.silos[1:]


def test_the_clock_goes_on_after_a_fault_of_the_database(engine, clock, monkeypatch):
    failed = []

    def fail(*_):
        failed.append(True)
        raise DATABASE_FULL

    with monkeypatch.context() as patch:
        patch.setattr(engine._store, "save", fail)
        clock.now += STUDY.deadlines.offer
        until(lambda: failed)
    until(lambda: engine.status("tiny").state == "waiting")


def test_a_deadline_ends_the_attempt(engine, clock):
    to_gather(engine)
    clock.now += STUDY.deadlines.train - 1
    time.sleep(2 * engines.TICK_SECONDS)
    assert engine.status("tiny").attempt == 1
    clock.now += 1
    until(lambda: engine.status("tiny").attempt == 2)
    assert engine.status("tiny").phase == "offer"


def test_a_sum_that_cannot_be_made_ends_the_attempt_by_name(engine, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/fedward/spool")

    to_gather(engine)
    with monkeypatch.context() as patch:
        patch.setattr(engines, "add_contents", fail)
        for silo in STUDY.silos:
            send(engine, silo, Tensor.COUNTS, counts())
        until(lambda: engine.status("tiny").attempt == 2)
    engine.answer(STUDY.silos[0], Answer(Place(STUDY.digest, 0, 2), "one", refusal="too_many_attempts"))
    assert engine.status("tiny").state == "running"
    assert not engine._spool._folder(PLACE).exists()


def test_no_path_of_ours_reaches_a_silo(make_engine, monkeypatch):
    study = tiny_study(max_attempts=1)
    engine = make_engine()
    engine.create(study.canonical())
    engine.start_study(study.name)
    monkeypatch.setattr(
        engines, "add_contents", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left", "/var/lib"))
    )
    place = Place(study.digest, 0, 1)
    answer_all(engine, place)
    (dealer,) = engine.status("tiny").waiting_for
    send(engine, dealer, Note.KEYS, b"keys", place)
    for silo in STUDY.silos:
        engine.confirm(silo, confirm(place, silo, Task.TAKE).confirm)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts(), place)
    until(lambda: engine.status("tiny").state == "ended")
    assert engine.status("tiny").why == "attempt 1 of round 0: adding counts failed: No space left"


def test_a_sum_that_fails_too_late_ends_nothing(engine, monkeypatch):
    """The attempt is over and its files are cleared while they are added: the next attempt must not pay for it."""
    to_gather(engine)

    def fail(*_):
        engine.poll(STUDY.silos[0], "two", 0)
        raise FileNotFoundError(errno.ENOENT, "cleared")

    monkeypatch.setattr(engines, "add_contents", fail)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: engine.status("tiny").attempt == 2)
    engine._worker.submit(lambda: None).result(5)
    assert (engine.status("tiny").attempt, engine.status("tiny").phase) == (2, "offer")


def test_an_upload_whose_attempt_ends_while_it_is_checked(engine, monkeypatch):
    to_gather(engine)
    real = intake.digest

    def late(path):
        engine.poll(STUDY.silos[1], "two", 0)
        return real(path)

    monkeypatch.setattr(intake, "digest", late)
    with pytest.raises(OutOfTurnError, match="round 0, attempt 1 is not the current one"):
        send(engine, STUDY.silos[0], Tensor.COUNTS, counts())
    assert not engine._spool._folder(PLACE).exists()


def test_a_file_that_is_lost_is_our_fault(engine, monkeypatch):
    to_gather(engine)
    header = UploadHeader(PLACE, "ckks", Tensor.COUNTS, STUDY.silos[0], 2, 65536, "a" * 64)
    with pytest.raises(FileNotFoundError):
        engine.finish_upload(header, b"signature")


def test_a_sum_that_comes_too_late_is_forgotten(engine, monkeypatch):
    to_gather(engine)
    real = engines.add_contents

    def slow(paths, tensor, target):
        engine.poll(STUDY.silos[0], "two", 0)
        assert engine.status("tiny").attempt == 2
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_bytes(counts())
        real(paths, tensor, target)

    monkeypatch.setattr(engines, "add_contents", slow)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: engine.status("tiny").attempt == 2)
    until(lambda: not engine._spool._folder(PLACE).exists())
    assert engine.status("tiny").phase == "offer"


def test_a_crash_between_the_bytes_and_the_count_loses_neither(engine, monkeypatch):
    """The slot is filled, the process dies, the silo repeats its upload: counted then, and once."""
    to_gather(engine)
    silo = STUDY.silos[0]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "keep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            send(engine, silo, Tensor.COUNTS, counts())
    assert silo in engine.status("tiny").waiting_for
    content = counts()
    digest = hashlib.sha256(content).hexdigest()
    header = UploadHeader(PLACE, "ckks", Tensor.COUNTS, silo, 2, len(content), digest)
    assert engine.stored(header)
    engine.finish_upload(header, b"signature")
    engine.finish_upload(header, b"signature")
    assert silo not in engine.status("tiny").waiting_for


def test_a_crash_between_the_file_and_its_record_asks_for_no_byte_again(engine, make_engine, monkeypatch):
    to_gather(engine)
    silo, content = STUDY.silos[0], counts()
    header = UploadHeader(PLACE, "ckks", Tensor.COUNTS, silo, 2, len(content), hashlib.sha256(content).hexdigest())
    with monkeypatch.context() as patch:
        patch.setattr(engine._store, "add_content", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            send(engine, silo, Tensor.COUNTS, content)
    engine.close()
    again = make_engine()
    assert (again.stored(header), again.offset(header)) == (False, len(content))
    again.finish_upload(header, b"signature")
    assert again.stored(header)
    assert silo not in again.status("tiny").waiting_for
    assert [u.silo for u in again.status("tiny").uploads if u.tensor] == [silo]


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
    before = engine.status("tiny")
    engine.close()
    after = make_engine().status("tiny")
    assert (after.phase, after.waiting_for, after.times, after.uploads) == (
        before.phase,
        before.waiting_for,
        before.times,
        before.uploads,
    )


def test_who_was_told_of_the_end_stays_told(engine, make_engine):
    engine.abort_study("tiny", "enough")
    silo = STUDY.silos[0]
    work = engine.poll(silo, "one", 0)
    assert (work.task, work.outcome) == (Task.FINISH, "aborted")
    engine.confirm(silo, confirm(PLACE, silo, Task.FINISH).confirm)
    engine.close()
    again = make_engine()
    assert again.poll(silo, "one", 0).task is Task.WAIT
    assert again.poll(STUDY.silos[1], "one", 0).task is Task.FINISH


def test_a_word_about_another_place_is_out_of_turn(engine):
    with pytest.raises(OutOfTurnError, match="round 0, attempt 2 is not the current one"):
        answer_all(engine, Place(STUDY.digest, 0, 2))
    with pytest.raises(UnknownStudyError):
        answer_all(engine, Place("f" * 64, 0, 1))


def test_the_phases_times_are_kept_and_measured(engine, clock):
    clock.now += 3
    answer_all(engine)
    clock.now += 2
    (dealer,) = engine.status("tiny").waiting_for
    send(engine, dealer, Note.KEYS, b"keys")
    assert [(t.phase, t.seconds) for t in engine.status("tiny").times] == [("offer", 3.0), ("deal", 2.0)]
    value = engine._metrics.registry.get_sample_value
    assert value("fedward_coordinator_phase_seconds_sum", {"phase": "offer"}) == 3.0
    assert value("fedward_coordinator_phase_seconds_count", {"phase": "deal"}) == 1.0
    assert value("fedward_coordinator_received_bytes_total", {"kind": "keys"}) == 4.0
    assert value("fedward_coordinator_studies", {"state": Life.RUNNING}) == 1.0
    assert value("fedward_coordinator_waiting_silos", {"study": "tiny"}) == 3.0


def test_a_poll_that_waits_ends_when_the_coordinator_does(make_engine):
    engine = make_engine()
    found = []
    waiting = threading.Thread(target=lambda: found.append(engine.poll("north", "one", 60)))
    waiting.start()
    engine.close()
    waiting.join(5)
    assert found[0].task is Task.WAIT


# --- away, waiting, paused ------------------------------------------------------------------------------------------
@pytest.fixture
def pair(make_engine, clock):
    """A study of three that goes on with two; round 0 is over, west was silent in it."""
    study = tiny_study(name="pair", min_silos=2)
    engine = make_engine()
    engine.create(study.canonical())
    engine.start_study("pair")
    play = Play(engine, study)
    play.until(lambda s: not set(study.silos[:2]) & set(s.waiting_for), silent=("west",))
    clock.now += study.deadlines.offer
    until(lambda: engine.status("pair").phase == "deal")
    play.until(lambda s: s.round == 1, silent=("west",))
    return play


class Play:
    """Silos of plain bytes on an engine, without the wire; a silo's model is what it last adopted."""

    def __init__(self, engine, study):
        self.engine, self.study, self.models = engine, study, dict.fromkeys(study.silos, "")

    @property
    def status(self):
        return self.engine.status(self.study.name)

    def until(self, condition, silent=()):
        end = time.monotonic() + 10
        while not condition(self.status):
            assert time.monotonic() < end, self.status
            for silo in self.study.silos:
                if silo not in silent and not condition(self.status):
                    self.act(silo)
        return self.status

    def act(self, silo):
        work = self.engine.poll(silo, "one", 0)
        place = work.place
        if work.task is Task.DECIDE:
            self.engine.answer(silo, Answer(place, "one", member=member(silo), model=self.models[silo]))
        elif work.task is Task.CONTRIBUTE:
            self.give(silo, work.tensor, place)
        elif work.task in (Task.DEAL, Task.SHARE, Task.SOLVE):
            note = {Task.DEAL: Note.KEYS, Task.SHARE: Note.MODEL, Task.SOLVE: Note.HEADS}[work.task]
            send(self.engine, silo, note, b"note", place)
        elif work.task is Task.CATCH_UP:
            self.models[silo] = self.models[work.actor]
            self.engine.confirm(silo, Confirm(place, work.task, model=self.models[silo]))
        elif work.task is not Task.WAIT:
            if work.task is not Task.TAKE:
                self.models[silo] = f"{place.round} {place.attempt} {work.tensor} {work.task}"
            self.engine.confirm(silo, Confirm(place, work.task, work.tensor, self.models[silo]))

    def give(self, silo, tensor, place):
        values = shapes.values(self.study, place.round, tensor)
        content = sealed(tensor, values)
        digest = hashlib.sha256(content).hexdigest()
        header = UploadHeader(place, tensor.ring, tensor, silo, values, len(content), digest)
        self.engine.expect(header)
        self.engine._spool.append(self.engine._spool.partial(place, header.slot, silo), 0, content)
        self.engine.finish_upload(header, b"signature")


def states(status):
    return {member.silo: member.state for member in status.members}


def gauge(engine, name, **labels):
    return engine._metrics.registry.get_sample_value(f"fedward_coordinator_{name}", labels)


def test_who_was_silent_is_away_and_waits_for_nobody(pair):
    status = pair.status
    assert states(status)["west"] == "away"
    assert status.waiting_for == ("north", "south")
    assert gauge(pair.engine, "silos_away", study="pair") == 1.0
    pair.until(lambda s: s.phase == "gather", silent=("west",))
    assert pair.status.attempt == 1


def test_who_polls_again_is_offered_a_seat_and_catches_up(pair):
    assert pair.engine.poll("west", "one", 0).task is Task.DECIDE
    assert (states(pair.status)["west"], gauge(pair.engine, "silos_away", study="pair")) == ("invited", 0.0)
    status = pair.until(lambda s: s.phase == "share")
    (sharer,) = status.waiting_for
    assert sharer in ("north", "south")
    assert pair.engine.poll("west", "one", 0).task is Task.WAIT
    status = pair.until(lambda s: s.phase == "catch_up")
    work = pair.engine.poll("west", "one", 0)
    assert (work.task, work.actor, work.size, work.sha256) == (
        Task.CATCH_UP,
        sharer,
        4,
        hashlib.sha256(b"note").hexdigest(),
    )
    assert pair.engine.download("west", work.place, None, "model") == ("note-model", sharer)
    assert [pair.engine.poll(silo, "one", 0).task for silo in ("north", "south")] == [Task.WAIT, Task.WAIT]
    pair.until(lambda s: s.state == "finished")
    assert len(set(pair.models.values())) == 1


def test_too_few_present_wait_without_using_up_an_attempt(engine, clock):
    engine.answer("north", Answer(PLACE, "one", member=member("north")))
    clock.now += STUDY.deadlines.offer
    until(lambda: engine.status("tiny").state == "waiting")
    status = engine.status("tiny")
    assert (status.attempt, status.phase, status.waiting_for) == (1, "wait", ("south", "west"))
    assert status.why == "1 silos take part, the study needs 3; waits for south, west"
    assert gauge(engine, "studies", state="waiting") == 1.0
    assert engine.poll("north", "one", 0).task is Task.WAIT, "who has a seat is asked for nothing"
    clock.now += 1e6
    time.sleep(2 * engines.TICK_SECONDS)
    assert engine.status("tiny").state == "waiting"
    assert engine.poll("south", "one", 0).task is Task.DECIDE
    assert (engine.status("tiny").state, engine.status("tiny").attempt) == ("running", 1)


def test_nobody_is_given_work_in_a_pause_and_what_comes_counts(engine, clock):
    to_gather(engine)
    engine.pause_study("tiny", "paused by ops")
    assert (engine.status("tiny").state, engine.status("tiny").why) == ("paused", "paused by ops")
    assert [engine.poll(silo, "one", 0).task for silo in STUDY.silos] == [Task.WAIT] * 3
    clock.now += 1e6
    time.sleep(2 * engines.TICK_SECONDS)
    for silo in STUDY.silos:
        send(engine, silo, Tensor.COUNTS, counts())
    until(lambda: engine.status("tiny").phase == "open")
    assert (engine.status("tiny").state, engine.status("tiny").attempt) == ("paused", 1)
    clock.now += 5
    engine.resume_study("tiny")
    assert (engine.status("tiny").state, engine.status("tiny").why) == ("running", "")
    assert engine.poll(STUDY.silos[0], "one", 0).task is Task.OPEN
    assert max(t.seconds for t in engine.status("tiny").times) < 1e6, "a pause is no part of a phase"


def test_a_resumed_study_has_the_time_that_was_left(engine, clock):
    to_gather(engine)
    clock.now += STUDY.deadlines.train - 1
    engine.pause_study("tiny", "paused by ops")
    clock.now += 1e6
    engine.resume_study("tiny")
    time.sleep(2 * engines.TICK_SECONDS)
    assert engine.status("tiny").attempt == 1
    clock.now += 1
    until(lambda: engine.status("tiny").attempt == 2)


def test_a_poll_that_waits_through_a_pause_gets_its_work_when_it_ends(engine):
    engine.pause_study("tiny", "paused by ops")
    found = []
    waiting = threading.Thread(target=lambda: found.append(engine.poll("north", "one", 10)))
    waiting.start()
    engine.resume_study("tiny")
    waiting.join(5)
    assert found[0].task is Task.DECIDE


def test_time_without_coordinator_does_not_count(engine, make_engine, clock):
    to_gather(engine)
    engine.close()
    clock.now += 1e6
    again = make_engine()
    time.sleep(2 * engines.TICK_SECONDS)
    assert (again.status("tiny").phase, again.status("tiny").attempt) == ("gather", 1)
    clock.now += STUDY.deadlines.train
    until(lambda: again.status("tiny").attempt == 2)


@pytest.mark.parametrize("phase", ["gather", "add"])
def test_a_restart_in_a_pause_keeps_files_and_goes_on_adding(engine, make_engine, monkeypatch, phase):
    to_gather(engine)
    engine.pause_study("tiny", "paused by ops")
    givers = STUDY.silos if phase == "add" else STUDY.silos[:1]
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_add", lambda _: None)
        for silo in givers:
            send(engine, silo, Tensor.COUNTS, counts())
    engine.close()
    again = make_engine()
    assert again.status("tiny").state == "paused"
    for silo in STUDY.silos[len(givers) :]:
        send(again, silo, Tensor.COUNTS, counts())
    until(lambda: again.status("tiny").phase == "open")
    again.resume_study("tiny")
    assert again.poll("north", "one", 0).task is Task.OPEN


def test_a_restart_while_waiting_waits_on(engine, make_engine, clock):
    engine.answer("north", Answer(PLACE, "one", member=member("north")))
    clock.now += STUDY.deadlines.offer
    until(lambda: engine.status("tiny").state == "waiting")
    before = engine.status("tiny")
    engine.close()
    again = make_engine()
    assert again.status("tiny").waiting_for == before.waiting_for
    assert gauge(again, "silos_away", study="tiny") == 2.0
    assert again.poll("west", "one", 0).task is Task.DECIDE


@pytest.mark.parametrize("phase", ["share", "catch_up"])
def test_a_restart_while_somebody_catches_up_goes_on(pair, make_engine, phase):
    pair.engine.poll("west", "one", 0)
    before = pair.until(lambda s: s.phase == phase)
    pair.engine.close()
    pair.engine = make_engine()
    assert (pair.status.phase, pair.status.waiting_for) == (phase, before.waiting_for)
    pair.until(lambda s: s.state == "finished")
    assert pair.status.attempt == 1


def test_a_model_that_is_not_the_expected_one_ends_the_attempt_by_name(pair):
    pair.engine.poll("west", "one", 0)
    status = pair.until(lambda s: s.phase == "catch_up")
    place = Place(pair.study.digest, status.round, status.attempt)
    pair.engine.confirm("west", Confirm(place, Task.CATCH_UP, model="something else"))
    assert (pair.status.attempt, pair.status.phase) == (2, "offer")
    assert states(pair.status)["west"] == "invited", "it is still part of the study, and present"
