"""Every call has a caller, a seat and deadlines; what is refused is counted under the caller's name."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2
from structlog.testing import capture_logs

from bench.attacks.hostile.wire import Wire
from coordinator.bells import Bells
from coordinator.door import guard as guards
from coordinator.door.connections import Connections
from coordinator.door.later import Later
from coordinator.door.seats import CALLS, LONG_CALLS
from coordinator.metrics import CoordinatorMetrics
from crypto.pki.certificates import Trust
from protos import codec
from protos.messages import Place
from protos.v1 import operator_pb2, silo_pb2
from support.silos import Caller, refused

Code = grpc.StatusCode
CALLER = "silo/north"
numbers = itertools.count(1)
BEAT = silo_pb2.HeartbeatRequest()


def wait_for(condition, seconds=60.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "not reached in time"
        time.sleep(0.01)


@pytest.fixture
def member(server, authority):
    """A silo that no other test knows."""
    caller = Caller(server.port, authority.credential("silo", f"member-{next(numbers)}"))
    yield caller
    caller.close()


@pytest.fixture
def count(server, member):
    """How many calls of this member were refused with a code."""

    def count(code, caller=None):
        labels = {"code": code.name, "caller": caller or f"silo/{member.name}"}
        return server.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", labels) or 0

    return count


def taken(server, member):
    return server._guard._seats.taken(f"silo/{member.name}")


def held(member, number=1):
    """Calls that wait for a checkpoint to cosign."""
    return [member.silo.Witness.future(silo_pb2.WitnessRequest(hold_seconds=20), timeout=60) for _ in range(number)]


def test_calls_above_the_limit_are_refused_later_and_counted(server, member, count):
    calls = held(member, LONG_CALLS)
    wait_for(lambda: taken(server, member) == LONG_CALLS)
    with (
        capture_logs() as told,
        refused(Code.RESOURCE_EXHAUSTED, "too many calls of this certificate are in flight"),
    ):
        member.silo.Witness(silo_pb2.WitnessRequest(hold_seconds=20), timeout=60)
    assert [(line["call"], line["why"]) for line in told if line["event"] == "refused"] == [("Witness", guards.CROWDED)]
    member.silo.Heartbeat(BEAT, timeout=60)
    assert count(Code.RESOURCE_EXHAUSTED) == 1
    for call in calls:
        call.cancel()
    wait_for(lambda: taken(server, member) == 0)


def test_most_refusals_wait_and_the_rest_comes_at_once(server, member, count, monkeypatch):
    monkeypatch.setattr(guards, "LATE_SECONDS", 3600.0)
    monkeypatch.setattr(guards, "MAX_LATE", 3)
    calls = held(member, LONG_CALLS)
    wait_for(lambda: taken(server, member) == LONG_CALLS)
    more = held(member, 5)
    wait_for(lambda: sum(call.done() for call in more) == 2)
    assert count(Code.RESOURCE_EXHAUSTED) == 5
    late = server._guard._late
    monkeypatch.setattr(server._guard, "_clock", lambda: time.monotonic() + 7200)
    wait_for(lambda: all(call.done() for call in more))
    assert {call.code() for call in more} == {Code.RESOURCE_EXHAUSTED}
    assert not late or server._guard._late == []
    for call in calls:
        call.cancel()


def test_a_hold_ends_with_its_caller(server, member):
    """Not only the call: its thread goes home too."""
    for request, method in (
        (silo_pb2.PollRequest(session="s", hold_seconds=20), member.silo.Poll),
        (silo_pb2.WitnessRequest(hold_seconds=20), member.silo.Witness),
    ):
        call = method.future(request, timeout=60)
        wait_for(lambda: taken(server, member) == 1)
        call.cancel()
        wait_for(lambda: taken(server, member) == 0)


def test_a_call_without_a_message_is_ended(server, member, count, authority, monkeypatch):
    monkeypatch.setattr(guards, "MESSAGE_SECONDS", 0.2)
    folder = authority._folder / f"silo-{member.name}"
    with Wire(server.port, folder, source="127.0.0.1") as wire:
        wire.begin()
        for _ in range(CALLS):
            wire.call("Heartbeat")
        wait_for(lambda: count(Code.DEADLINE_EXCEEDED) == CALLS)
    wait_for(lambda: taken(server, member) == 0)
    assert count(Code.CANCELLED) == 0, "each is counted once"


def test_an_upload_that_stops_is_ended(server, member, count, monkeypatch):
    go_on = threading.Event()

    def silent():
        go_on.wait(60)
        yield silo_pb2.UploadChunk()

    monkeypatch.setattr(guards, "MESSAGE_SECONDS", 0.2)
    with pytest.raises(grpc.RpcError) as caught:
        member.silo.Upload(silent(), timeout=60)
    go_on.set()
    assert caught.value.code() is Code.CANCELLED
    assert count(Code.DEADLINE_EXCEEDED) == 1
    wait_for(lambda: taken(server, member) == 0)


def test_an_upload_that_stops_between_chunks_is_ended(scene, server, monkeypatch):
    place = scene.gathering()
    silo = next(iter(scene.silos.values()))
    tensor = silo.poll().tensor
    content = silo.contribution(place, tensor)
    go_on = threading.Event()

    def messages():
        yield next(silo.messages(silo.header(place, content, tensor), content))
        go_on.wait(60)

    monkeypatch.setattr(guards, "NEXT_SECONDS", 0.2)
    with pytest.raises(grpc.RpcError) as caught:
        silo.silo.Upload(messages(), timeout=60)
    go_on.set()
    assert caught.value.code() is Code.CANCELLED
    monkeypatch.undo()
    wait_for(lambda: taken(server, silo) == 0)
    silo.upload(silo.header(place, content, tensor), content)


def test_an_answer_that_nobody_reads_is_given_up(scene, server, authority, monkeypatch):
    """The window of the connection is zero, so that not one byte of the answer may be sent."""
    monkeypatch.setattr(guards, "ANSWER_SECONDS", 0.3)
    silo = next(iter(scene.silos.values()))
    request = silo_pb2.GetStudyRequest(study=scene.study.digest).SerializeToString()
    with Wire(server.port, scene.folders[silo.name], source="127.0.0.1") as wire:
        wire.begin(settings=b"\x00\x04\x00\x00\x00\x00")
        wire.call("GetStudy", request)
        labels = {"code": "DEADLINE_EXCEEDED", "caller": f"silo/{silo.name}"}
        name = "fedward_coordinator_refused_calls_total"
        wait_for(lambda: server.metrics.registry.get_sample_value(name, labels) == 1)
    wait_for(lambda: taken(server, silo) == 0)


def test_calls_that_no_service_takes_are_counted(member, count):
    for path in ("/fedward.v1.SiloService/Drop", "/nobody/Knows"):
        with refused(Code.UNIMPLEMENTED, "no such method"):
            member.channel.unary_unary(path)(b"", timeout=60)
    assert count(Code.UNIMPLEMENTED) == 2


def test_much_metadata_is_refused_and_counted(member, count):
    metadata = tuple((f"x-{number}", "y" * 1000) for number in range(9))
    with refused(Code.INVALID_ARGUMENT, "bytes of metadata, above 8192"):
        member.silo.Heartbeat(BEAT, metadata=metadata, timeout=60)
    assert count(Code.INVALID_ARGUMENT) == 1


@pytest.mark.parametrize(
    ("payload", "codes"),
    [
        (b"\xff" * 50, [Code.INVALID_ARGUMENT]),
        # gRPC ends such a call, and tells of the end and of the missing message in either order.
        (b"x" * ((4 << 20) + 1), [Code.CANCELLED, Code.INVALID_ARGUMENT]),
    ],
    ids=["malformed", "too large"],
)
def test_a_message_that_is_none_is_refused_and_counted(server, member, count, payload, codes):
    call = member.channel.unary_unary("/fedward.v1.SiloService/Confirm")
    with pytest.raises(grpc.RpcError) as caught:
        call(payload, timeout=60)
    assert caught.value.code() in (Code.INTERNAL, Code.RESOURCE_EXHAUSTED)
    wait_for(lambda: sum(map(count, codes)) == 1)
    wait_for(lambda: taken(server, member) == 0)


def test_a_call_that_ended_before_its_handler_ran_is_counted(server, member, count, monkeypatch):
    """As when gRPC finds the message too large before a thread is free."""
    began, go_on = threading.Event(), threading.Event()
    serve = guards.Guard._serve

    def later(self, method, requests, context, send):
        began.set()
        go_on.wait(60)
        wait_for(lambda: not context.is_active())
        serve(self, method, requests, context, send)

    monkeypatch.setattr(guards.Guard, "_serve", later)
    call = member.silo.Heartbeat.future(BEAT, timeout=60)
    assert began.wait(60)
    call.cancel()
    go_on.set()
    wait_for(lambda: count(Code.CANCELLED) == 1)
    assert taken(server, member) == 0


def test_a_refusal_of_a_service_is_counted_under_its_caller(member, count):
    with refused(Code.PERMISSION_DENIED, "an operator, an author or a viewer is needed"):
        member.operator.ListStudies(operator_pb2.ListStudiesRequest(), timeout=60)
    with refused(Code.INVALID_ARGUMENT, "has 70 characters, above 64"):
        member.silo.Poll(silo_pb2.PollRequest(session="s" * 70), timeout=60)
    with refused(Code.NOT_FOUND, ""):
        place = codec.to_wire(Place("a" * 64, 0, 1))
        member.silo.Answer(silo_pb2.AnswerRequest(place=place, session="s", refusal="no"), timeout=60)
    assert [count(code) for code in (Code.PERMISSION_DENIED, Code.INVALID_ARGUMENT, Code.NOT_FOUND)] == [1, 1, 1]


def test_a_certificate_that_is_not_valid_is_counted_as_unknown(server, authority, count):
    from datetime import timedelta  # noqa: PLC0415

    day = timedelta(days=1)
    folder = authority.credential("silo", f"late-{next(numbers)}", period=(-2 * day, -day))
    before = count(Code.PERMISSION_DENIED, "unknown")
    try:
        with Wire(server.port, folder, source="127.0.0.1") as wire:
            wire.begin()
            wire.call("Heartbeat", b"")
            wait_for(lambda: count(Code.PERMISSION_DENIED, "unknown") == before + 1 or not wire.receive(), 10)
    except OSError:
        pass  # the handshake has refused it


def test_health_is_told_in_one_answer_only(operator):
    watch = operator.channel.unary_stream("/grpc.health.v1.Health/Watch")
    with refused(Code.UNIMPLEMENTED, "no such method"):
        next(watch(health_pb2.HealthCheckRequest().SerializeToString(), timeout=60))


def test_a_look_that_fails_is_told_of_and_the_next_one_is_made(server, monkeypatch):
    looks = []

    def fail(_queued):
        looks.append(1)
        raise OSError

    with capture_logs() as told, monkeypatch.context() as patch:
        patch.setattr(server._guard._connections, "look", fail)
        wait_for(lambda: len(looks) >= 3)
    assert "the door cannot be watched" in [line["event"] for line in told]


# --- the guard alone, with calls and a clock that a test moves --------------------------------------------------------
class Context:
    """A call as gRPC shows it to its handler."""

    def __init__(self):
        self.active, self.ended, self.said, self.details, self.given = True, [], None, "", None

    def send_initial_metadata(self, metadata):
        assert metadata == (("fedward-epoch", "3"),)

    def peer(self):
        return "ipv4:127.0.0.1:5"

    def is_active(self):
        return self.active

    def add_callback(self, callback):
        self.ended.append(callback)
        return True

    def end(self):
        self.active, callbacks, self.ended = False, self.ended, []
        for callback in callbacks:
            callback()

    def cancel(self):
        self.end()

    def code(self):
        return self.given or self.said

    def set_code(self, code):
        self.said = code

    def set_details(self, details):
        self.details = details

    def abort(self, code, details):
        self.said, self.details = code, details
        raise grpc.RpcError


class Busy:
    """A pool of which no thread is free before the test says so."""

    def __init__(self):
        self.queue = []

    def submit(self, call, *given):
        self.queue.append((call, given))

    def free(self):
        queue, self.queue = self.queue, []
        for call, given in queue:
            call(*given)


class AtOnce:
    """A pool that has a thread for everything."""

    def submit(self, call, *given):
        call(*given)


class Alone:
    """A guard without network."""

    def __init__(self, monkeypatch):
        self.now, self.metrics = 0.0, CoordinatorMetrics()
        self.passed = []
        self.guard = guards.Guard(
            None,
            Connections(1, self.metrics),
            self.metrics,
            clock=lambda: self.now,
            pool=AtOnce(),
            epoch=3,
            passing=lambda: self.passed.append(self.now),
        )
        monkeypatch.setattr(self.guard, "_identified", lambda *_: CALLER)
        monkeypatch.setattr(self.guard._connections, "look", lambda _: None)

    @property
    def taken(self):
        return self.guard._seats.taken(CALLER)

    def serve(
        self, perform, requests=(), *, context=None, name="Heartbeat", takes_stream=False, gives_stream=False, sent=None
    ):
        method = guards._Method(name, takes_stream, gives_stream, perform)
        send = (lambda _: None) if sent is None else sent.append
        self.guard._serve(method, iter(requests), context or Context(), send)


@pytest.fixture
def alone(monkeypatch):
    return Alone(monkeypatch)


def test_the_door_knows_how_long_a_call_waits_for_a_thread_and_tells_it_to_the_connections(alone, monkeypatch):
    pool, told = Busy(), []
    monkeypatch.setattr(alone.guard._connections, "look", told.append)
    monkeypatch.setattr(alone.guard, "_pool", pool)

    def look(now):
        alone.now = now
        alone.guard.look()
        return told[-1]

    assert [look(1.0), look(4.0)] == [0.0, 3.0]
    assert len(pool.queue) == 1, "one request queues, however often the door looks"
    alone.now = 6.0
    pool.free()
    assert look(6.0) == 5.0, "and the next one may wait as long"
    alone.now = 6.5
    pool.free()
    assert [look(7.0), look(9.0)] == [0.5, 2.0]
    pool.free()
    alone.guard.release()
    look(10.0)
    assert not pool.queue, "when the coordinator stops no thread is asked for any more"


def test_a_seat_is_free_when_both_the_call_and_its_thread_are_over(alone):
    """A caller that gives calls up would else have as many threads as it likes."""
    context, taken = Context(), []

    def perform(*_):
        context.end()  # for gRPC the call is over, and its thread goes on
        taken.append(alone.taken)

    alone.serve(perform, ["request"], context=context)
    assert (taken, alone.taken) == ([1], 0)


def test_a_seat_is_kept_until_grpc_is_done_with_a_call_whose_thread_is_over(alone):
    context = Context()
    alone.serve(lambda *_: "answer", ["request"], context=context)
    assert alone.taken == 1
    context.end()
    assert alone.taken == 0


def test_refusals_that_were_given_make_room_for_others(alone, monkeypatch):
    """Else a certificate that was ever crowded would be refused at once for good, at the pace of its calls."""
    monkeypatch.setattr(guards, "MAX_LATE", 2)
    for _ in range(LONG_CALLS):
        alone.serve(lambda *_: "answer", ["request"], name="Witness")  # gRPC is not done with them
    for _ in range(3):
        late = [Context() for _ in range(2)]
        for context in late:
            alone.serve(None, name="Witness", context=context)
        assert [context.said for context in late] == [None, None], "they wait"
        with pytest.raises(grpc.RpcError):
            alone.serve(None, name="Witness")
        alone.now += guards.LATE_SECONDS
        alone.guard.look()
        assert [context.said for context in late] == [Code.RESOURCE_EXHAUSTED] * 2
        assert {context.details for context in late} == {guards.CROWDED}
    assert alone.guard._waiting == {}


def test_every_message_of_a_call_has_its_own_time(alone):
    context, given = Context(), []
    call = guards._Call(CALLER, "Upload", context)

    def requests():
        for number in range(3):
            given.append((call.deadline, call.waits_for))
            alone.now += 5
            yield number

    messages = guards._InTime(requests(), call, lambda: alone.now)
    for number in range(3):
        assert next(messages) == number
        assert call.deadline == float("inf"), "while the message is worked on, nobody waits for the caller"
        alone.now += 1000
    assert given == [
        (guards.MESSAGE_SECONDS, "a message"),
        (1005 + guards.NEXT_SECONDS, "a message"),
        (2010 + guards.NEXT_SECONDS, "a message"),
    ]
    with pytest.raises(StopIteration):
        next(messages)
    assert call.deadline == float("inf")


def test_a_call_whose_next_message_does_not_come_in_time_is_ended_and_counted(alone):
    context, said = Context(), []

    def requests():
        yield "first"
        alone.now += guards.NEXT_SECONDS - 0.1
        alone.guard.look()
        said.append(context.active)
        alone.now += 0.1
        alone.guard.look()
        said.append(context.active)

    alone.serve(lambda given, _: list(given) and "answer", requests(), context=context, takes_stream=True)
    assert said == [True, False]
    labels = {"code": "DEADLINE_EXCEEDED", "caller": CALLER}
    assert alone.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", labels) == 1


def test_an_answer_has_its_time_only_while_it_is_sent(alone):
    context, deadlines = Context(), []

    class Sent(list):
        def append(self, message):
            (call,) = alone.guard._calls
            deadlines.append((message, call.deadline))

    alone.now = 100.0
    alone.serve(lambda *_: "answer", ["request"], context=context, sent=Sent())
    assert deadlines == [("answer", 100.0 + guards.ANSWER_SECONDS), (None, float("inf"))]


def test_an_answer_of_many_messages_is_sent_until_its_caller_has_gone(alone):
    context, sent = Context(), []
    alone.serve(lambda *_: iter("abc"), ["request"], gives_stream=True, sent=sent)
    assert sent == ["a", "b", "c", None]

    def messages(*_):
        yield "a"
        context.end()
        yield "b"
        pytest.fail("nobody takes another one")

    sent.clear()
    alone.serve(messages, ["request"], gives_stream=True, context=context, sent=sent)
    assert sent == ["a", "b"]


def refusals(alone, code):
    labels = {"code": code.name, "caller": CALLER}
    return alone.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", labels) or 0


@pytest.mark.parametrize(("given", "counted"), [(None, 0), (Code.OK, 0), (Code.NOT_FOUND, 1)])
def test_a_code_that_a_service_sets_is_counted_if_it_refuses(alone, given, counted):
    context, sent = Context(), []
    context.given = given
    with capture_logs() as told:
        alone.serve(lambda *_: "answer", ["request"], context=context, sent=sent)
    assert sent == ["answer", None]
    assert refusals(alone, Code.NOT_FOUND) == len(told) == counted
    if told:
        line = {"event": "refused", "call": "Heartbeat", "caller": CALLER, "code": "NOT_FOUND", "why": "by its code"}
        assert told[0].items() >= line.items()


def test_a_call_without_a_message_is_refused_while_it_lives(alone):
    context = Context()
    with pytest.raises(grpc.RpcError):
        alone.serve(lambda *_: pytest.fail("there is nothing to perform"), context=context)
    assert (context.said, context.details) == (Code.INVALID_ARGUMENT, "the message is missing or malformed")
    assert refusals(alone, Code.INVALID_ARGUMENT) == 1
    context.end()
    assert alone.taken == 0


def test_a_call_that_ends_while_it_is_taken_up_keeps_no_seat(alone):
    """gRPC takes no callback for a call that is over."""
    context = Context()
    context.add_callback = lambda _: False
    alone.serve(lambda *_: "answer", ["request"], context=context)
    assert (alone.taken, alone.guard._calls) == (0, set())


def counted(alone, code, caller=CALLER):
    labels = {"code": code.name, "caller": caller}
    return alone.metrics.registry.get_sample_value("fedward_coordinator_refused_calls_total", labels) or 0


def test_an_answer_that_fails_to_be_sent_leaves_no_deadline(alone):
    context = Context()
    method = guards._Method("Heartbeat", False, False, lambda *_: "answer")
    with pytest.raises(OSError, match="broken"):
        alone.guard._serve(method, iter(["request"]), context, Broken())
    alone.now += 100
    alone.guard.look()
    assert context.active


class Broken:
    def __call__(self, _):
        msg = "broken"
        raise OSError(msg)


def test_a_call_that_has_ended_before_a_thread_was_free_is_counted_and_not_performed(alone, monkeypatch):
    monkeypatch.setattr(guards, "label_of", lambda *_: CALLER)
    context = Context()
    context.active = False
    alone.serve(lambda *_: pytest.fail("it is over"), ["request"], context=context)
    assert (counted(alone, Code.CANCELLED), alone.taken) == (1, 0)


def test_a_caller_that_goes_without_a_message_is_counted(alone):
    def requests():
        raise grpc.RpcError
        yield

    with pytest.raises(grpc.RpcError):
        alone.guard._serve(
            guards._Method("Heartbeat", False, False, lambda *_: pytest.fail("no message")),
            requests(),
            Context(),
            lambda _: None,
        )
    assert counted(alone, Code.CANCELLED) == 1


def test_who_has_no_valid_certificate_is_refused_by_its_fault(authority):
    metrics, context = CoordinatorMetrics(), Context()
    trust = Trust(authority.pem)
    guard = guards.Guard(trust, Connections(1, metrics), metrics, clock=lambda: 0.0, pool=AtOnce(), epoch=3)
    context.auth_context = dict
    with pytest.raises(grpc.RpcError):
        guard._identified("Heartbeat", context, context.peer())
    assert context.said is Code.PERMISSION_DENIED
    assert context.details == "no client certificate was presented; enrol this machine and give its certificate"


# --- calls that wait --------------------------------------------------------------------------------------------------
class Waiting:
    """A call that waits up to ten seconds for news of north."""

    def __init__(self, alone, fault=None):
        self.bells, self.context, self.sent, self.asked, self.answer = Bells(), Context(), [], [], None
        self.fault = fault
        later = Later(self.bells, "north", 10.0, self.ask)
        alone.serve(lambda *_: later, ["request"], context=self.context, name="Poll", sent=self.sent)

    def ask(self, last):
        self.asked.append(last)
        if self.fault is not None and len(self.asked) > 1:
            raise self.fault
        return self.answer or ("nothing" if last else None)

    def ring(self, answer=None):
        self.answer = answer
        self.bells.ring(["north"])


def over(alone, waiting):
    """Nothing of the call is left, and it is asked no more."""
    waiting.context.end()
    asked = len(waiting.asked)
    waiting.ring("late")
    alone.now += 100
    alone.guard.look()
    return (alone.taken, alone.guard._held, alone.guard._calls, waiting.bells._listening) == (0, set(), set(), {}) and (
        len(waiting.asked) == asked
    )


def test_a_call_that_waits_is_answered_when_there_is_news(alone):
    waiting = Waiting(alone)
    assert (waiting.asked, waiting.sent, alone.taken) == ([False], [], 1), "the bell may have rung before"
    waiting.ring()
    assert (waiting.asked, waiting.sent) == ([False, False], [])
    waiting.ring("news")
    assert waiting.sent == ["news", None]
    alone.guard.look()
    assert alone.taken == 1, "the seat is taken for as long as the call is not over"
    assert over(alone, waiting)


def test_a_call_has_waited_long_enough_at_its_time_and_not_before(alone):
    waiting = Waiting(alone)
    alone.now = 9.9
    alone.guard.look()
    assert waiting.asked == [False]
    alone.now = 10.0
    alone.guard.look()
    assert (waiting.asked, waiting.sent) == ([False, True], ["nothing", None])
    assert over(alone, waiting)


def test_when_the_coordinator_stops_nobody_waits_any_more(alone):
    waiting = Waiting(alone)
    alone.guard.release()
    assert waiting.sent == ["nothing", None]
    late = Waiting(alone)
    assert (late.asked, late.sent) == ([True], ["nothing", None])
    waiting.context.end()
    assert over(alone, late)


def test_a_caller_that_has_gone_waits_no_more_and_is_handed_nothing(alone):
    waiting = Waiting(alone)
    waiting.answer = "news"
    waiting.context.end()
    assert (waiting.asked, waiting.sent) == ([False], [])
    assert over(alone, waiting)


def test_who_has_gone_before_it_waits_is_not_waited_for(alone):
    gone = Context()
    later = Later(Bells(), "north", 10.0, lambda _: pytest.fail("nobody reads it"))

    def perform(_, context):
        context.end()
        context.add_callback = lambda _: False
        return later

    alone.serve(perform, ["request"], context=gone, name="Poll")
    assert (alone.taken, alone.guard._held) == (0, set())


def test_a_refusal_of_a_call_that_waited_is_sent(alone):
    waiting = Waiting(alone, grpc.RpcError())
    waiting.context.said = Code.PERMISSION_DENIED
    waiting.ring()
    assert (waiting.context.said, waiting.sent) == (Code.PERMISSION_DENIED, [None])
    assert over(alone, waiting)


def test_a_fault_of_a_call_that_waited_does_not_look_like_an_empty_answer(alone):
    waiting = Waiting(alone, OSError("full"))
    with capture_logs() as told:
        waiting.ring()
    assert (waiting.context.said, waiting.sent) == (Code.INTERNAL, [None])
    assert [line["event"] for line in told] == ["a call that waited failed"]
    assert over(alone, waiting)


def test_of_many_rings_at_once_one_thread_asks(monkeypatch):
    alone = Alone(monkeypatch)
    waiting, queue = Waiting(alone), []
    monkeypatch.setattr(alone.guard, "_pool", type("Busy", (), {"submit": lambda _, *call: queue.append(call)})())
    for _ in range(5):
        waiting.ring()
    assert len(queue) == 1
    waiting.answer = "news"
    for call, *given in queue * 2:
        call(*given)
    assert waiting.sent == ["news", None]
    assert over(alone, waiting)


class Eager(Bells):
    """Rings as soon as somebody listens, and has the one who hears answer before the listening is done."""

    def listen(self, name, hear):
        leave = super().listen(name, hear)
        hear()
        time.sleep(0.05)
        return leave


def test_nothing_is_left_of_a_call_whose_news_come_while_it_begins_to_wait(alone):
    context, sent, pool = Context(), [], ThreadPoolExecutor(1)
    alone.guard._pool = pool
    bells = Eager()
    alone.serve(lambda *_: Later(bells, "north", 10.0, lambda _: "news"), ["request"], context=context, sent=sent)
    pool.shutdown()
    context.end()
    assert sent == ["news", None]
    assert (alone.guard._held, bells._listening, alone.taken) == (set(), {}, 0)


@pytest.fixture
def uncollected():
    """Nothing goes that only a search for cycles finds."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("end", ["answered", "gone"])
def test_nothing_holds_a_call_that_has_waited_when_it_is_over(alone, end):
    waiting = Waiting(alone)
    kept = weakref.ref(waiting.context)
    if end == "answered":
        waiting.ring("news")
    waiting.context.end()
    del waiting
    assert kept() is None


@pytest.mark.usefixtures("uncollected")
def test_a_connection_waits_again_and_again(server, member):
    """gRPC keeps the stream of a call for as long as anybody holds the call, and a connection has 32 of them."""
    for _ in range(40):
        work = member.silo.Poll(silo_pb2.PollRequest(session="s", hold_seconds=0.01), timeout=60)
        assert work.task == silo_pb2.TASK_WAIT


def test_time_passes_at_every_look(alone):
    alone.guard.look()
    assert alone.passed == [0.0]


def test_metadata_may_fill_its_limit(monkeypatch):
    metrics, context = CoordinatorMetrics(), Context()
    alone = guards.Guard(None, Connections(1, metrics), metrics, clock=lambda: 0.0, pool=AtOnce(), epoch=3)
    monkeypatch.setattr(guards, "certificate_of", lambda _: b"")
    monkeypatch.setattr(guards, "label", lambda _: CALLER)
    alone._trust = type("Trust", (), {"identify": staticmethod(lambda _: None)})
    context.invocation_metadata = lambda: [("key", "v" * (guards.MAX_METADATA - 3))]
    assert alone._identified("Heartbeat", context, context.peer()) == CALLER
    assert alone._connections._proven[("127.0.0.1", 5)][0] == CALLER
    context.invocation_metadata = lambda: None
    assert alone._identified("Heartbeat", context, context.peer()) == CALLER
    context.invocation_metadata = lambda: [("key", "v" * (guards.MAX_METADATA - 2))]
    with pytest.raises(grpc.RpcError):
        alone._identified("Heartbeat", context, context.peer())
    assert context.details == "the call carries 8193 bytes of metadata, above 8192"


def test_the_times_and_sizes_are_those_of_the_handbook():
    """docs/operating.md."""
    assert (guards.MESSAGE_SECONDS, guards.NEXT_SECONDS, guards.ANSWER_SECONDS) == (10.0, 30.0, 30.0)
    assert (guards.LATE_SECONDS, guards.LOOK_SECONDS, guards.MAX_LATE, guards.MAX_METADATA) == (1.0, 0.1, 64, 8192)
