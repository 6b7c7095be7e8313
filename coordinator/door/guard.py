"""Every call comes through here: it has a caller, a seat and deadlines, and whatever is refused is counted.

Guarantees: nothing of a call is read before its caller is known by a valid certificate and has a seat (`door.seats`). A
call over the limit is refused after a second, without a thread, so that a flood is limited by the streams that a
connection may have. A message that does not come in time, and an answer that is not taken in time, end the call. A seat
is free again when the call is over and its thread is too. A call that waits (`door.later`) keeps its seat and holds no
thread. Operators have threads of their own.

All methods are registered with gRPC as streams, which look the same on the wire: gRPC calls a handler of single
messages only after it has waited, in a thread and without a limit, for the message. `experimental_non_blocking` is how
gRPC's own health service answers later and from another thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from coordinator.door.callers import UNKNOWN, certificate_of, label, label_of
from coordinator.door.connections import Connections
from coordinator.door.later import Later
from coordinator.door.log_limit import LogLimit
from coordinator.door.seats import Seats
from coordinator.metrics import CoordinatorMetrics
from crypto.errors import CertificateError
from crypto.pki.certificates import Trust
from protos.messages import EPOCH_KEY

log = structlog.get_logger()
MESSAGE_SECONDS = 10.0
"""Time for the first message of a call."""
NEXT_SECONDS = 30.0
"""Time for each further message, so for a chunk of 128 KiB."""
ANSWER_SECONDS = 30.0
"""Time in which a caller must take an answer, or each chunk of one."""
LATE_SECONDS = 1.0
"""How much later a call over the limit is refused."""
MAX_LATE = 64
"""Calls of one certificate that wait for their refusal. Further ones are refused at once."""
MAX_METADATA = 8192
"""Bytes of a call's metadata."""
LOOK_SECONDS = 0.1
CROWDED = "too many calls of this certificate are in flight; wait for an answer, then try again"

Send = Callable[[Any], None]


@dataclass(eq=False)
class _Call:
    """A call in flight. It ends twice: when gRPC is done with it, and when its thread is."""

    caller: str
    method: str
    context: grpc.ServicerContext
    deadline: float = float("inf")
    waits_for: str = ""
    ended_here: bool = False
    ends: int = 2


def _nothing() -> None:
    return


@dataclass(eq=False)
class _Held:
    """A call that waits for its answer."""

    call: _Call
    later: Later
    send: Send
    until: float
    leave: Callable[[], None] = _nothing
    heard: bool = False
    """Whether a thread is about to ask."""
    over: bool = False
    turn: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class _Late:
    due: float
    caller: str
    context: grpc.ServicerContext
    send: Send


@dataclass(frozen=True)
class _Method:
    name: str
    takes_stream: bool
    gives_stream: bool
    perform: Callable[[Any, grpc.ServicerContext], Any]


class Guard:
    """Stands between gRPC and the services of one port."""

    def __init__(
        self,
        trust: Trust,
        connections: Connections,
        metrics: CoordinatorMetrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        pool: Executor,
        epoch: int,
        passing: Callable[[], object] = lambda: None,
    ) -> None:
        """`pool`: the threads that answer calls which have waited. `passing` is called at each look, as time passes.

        `epoch` is that of this coordinator's lease. Every answer says it, and silos refuse one below what they know.
        """
        self._trust, self._connections, self._metrics, self._clock = trust, connections, metrics, clock
        self._seats, self._log_limit, self._pool = Seats(), LogLimit(clock), pool
        self._passing, self._metadata = passing, ((EPOCH_KEY, str(epoch)),)
        self._calls: set[_Call] = set()
        self._held: set[_Held] = set()
        self._closing = False
        self._queued = 0.0
        self._asked: float | None = None
        """How long a thread was waited for the last time, and since when one is waited for."""
        self._late: list[_Late] = []
        self._waiting: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._watch = threading.Thread(target=self._keep_watch, name="door", daemon=True)

    # --- life -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to watch deadlines and connections."""
        self._watch.start()

    def release(self) -> None:
        """Have the calls that wait answered now, and let none wait any more."""
        with self._lock:
            self._closing = True
            held = list(self._held)
        for one in held:
            self._hear(one)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._watch.is_alive():
            self._watch.join()

    def handlers(
        self,
        service: ServiceDescriptor,
        servicer: object,
        *,
        pool: ThreadPoolExecutor | None = None,
        only: tuple[str, ...] = (),
    ) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        """Return the handlers of a service's methods (or `only` some), which run in `pool` if one is given."""
        return {
            method.name: self._handler(method, getattr(servicer, method.name), pool)
            for method in service.methods
            if not only or method.name in only
        }

    def unknown(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the handler of all other methods: such a call is refused, and counted."""
        behaviour = _Behaviour(self._refuse_unknown, None)
        return _Rest(grpc.stream_stream_rpc_method_handler(behaviour))

    def _handler(
        self, method: MethodDescriptor, perform: Callable[..., Any], pool: Any
    ) -> grpc.RpcMethodHandler[Any, Any]:
        known = _Method(method.name, method.client_streaming, method.server_streaming, perform)
        return grpc.stream_stream_rpc_method_handler(
            _Behaviour(lambda requests, context, send: self._serve(known, requests, context, send), pool),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )

    # --- a call -----------------------------------------------------------------------------------------------------
    def _serve(self, method: _Method, requests: Iterator[Any], context: grpc.ServicerContext, send: Send) -> None:
        peer = context.peer()
        if not context.is_active():  # ended before a thread was free, by the caller or by gRPC for its message
            code = grpc.StatusCode.CANCELLED
            self._count(code, label_of(self._trust, context), method.name, "ended before it began", peer)
            return
        context.send_initial_metadata(self._metadata)
        caller = self._identified(method.name, context, peer)
        if not self._seats.take(caller, method.name):
            self._refuse_late(method.name, caller, context, send)
            return
        call = _Call(caller, method.name, context)
        with self._lock:
            self._calls.add(call)
        if not context.add_callback(lambda: self._end(call)):
            self._end(call)
        waits = False
        try:
            waits = self._perform(call, method, requests, send)
        finally:
            call.deadline = float("inf")
            if not waits:
                self._end(call)

    def _identified(self, method: str, context: grpc.ServicerContext, peer: str) -> str:
        """Return the caller's label. Abort the call if it has no valid certificate, or much metadata."""
        try:
            caller = label(self._trust.identify(certificate_of(context)))
        except CertificateError as error:
            self._count(grpc.StatusCode.PERMISSION_DENIED, UNKNOWN, method, str(error), peer)
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        self._connections.prove(peer, caller)
        size = sum(len(key) + len(value) for key, value in context.invocation_metadata() or ())
        if size > MAX_METADATA:
            msg = f"the call carries {size} bytes of metadata, above {MAX_METADATA}"
            self._count(grpc.StatusCode.INVALID_ARGUMENT, caller, method, msg, peer)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, msg)
        return caller

    def _perform(self, call: _Call, method: _Method, requests: Iterator[Any], send: Send) -> bool:
        """Answer the call. Return whether it waits for its answer now."""
        context, given = call.context, _InTime(requests, call, self._clock)
        request: Any = given
        if not method.takes_stream:
            try:
                request = next(given, None)
            except grpc.RpcError:
                if not call.ended_here:  # the caller has gone, or gRPC has ended the call for too large a message
                    self._count(grpc.StatusCode.CANCELLED, call.caller, call.method, "no message", context.peer())
                raise
            if request is None:  # there is none, it cannot be parsed, or gRPC has found it too large and says so first
                code, msg = grpc.StatusCode.INVALID_ARGUMENT, "the message is missing or malformed"
                self._count(code, call.caller, call.method, msg, context.peer())
                if context.is_active():
                    context.abort(code, msg)
                return False
        answer = method.perform(request, context)
        if isinstance(answer, Later):
            self._keep(call, answer, send)
            return True
        self._answer(call, answer if method.gives_stream else (answer,), send)
        return False

    def _answer(self, call: _Call, messages: Iterable[Any], send: Send) -> None:
        context = call.context
        for message in messages:
            self._expect(call, "the caller to take the answer", ANSWER_SECONDS)
            send(message)
            call.deadline = float("inf")
            if not context.is_active():
                return
        code = context.code()  # type: ignore[attr-defined]  # the stubs lack it
        if code not in (None, grpc.StatusCode.OK):  # a service that sets a code instead of raising
            self._count(code, call.caller, call.method, "by its code", context.peer())
        send(None)

    def _expect(self, call: _Call, what: str, seconds: float) -> None:
        call.waits_for, call.deadline = what, self._clock() + seconds

    def _end(self, call: _Call) -> None:
        with self._lock:
            call.ends -= 1
            if call.ends:
                return
            self._calls.discard(call)
        self._seats.leave(call.caller, call.method)

    # --- a call that waits ------------------------------------------------------------------------------------------
    def _keep(self, call: _Call, later: Later, send: Send) -> None:
        held = _Held(call, later, send, self._clock() + later.seconds)
        with held.turn:  # nobody asks before all of it is there
            with self._lock:
                self._held.add(held)
            held.leave = later.bells.listen(later.name, lambda: self._hear(held))
        call.context.add_callback(lambda: self._hear(held))
        self._ask(held)  # the bell may have rung before it was listened to, and the caller may have gone

    def _hear(self, held: _Held) -> None:
        """Have a thread ask, unless one is about to."""
        with self._lock:
            if held.heard or held.over:
                return
            held.heard = True
        self._pool.submit(self._ask, held)

    def _ask(self, held: _Held) -> None:
        """Answer the call if there is an answer, or if it has waited long enough."""
        call = held.call
        with held.turn:
            with self._lock:
                held.heard = False
                if held.over:
                    return
            last = self._closing or self._clock() >= held.until
            try:
                if call.context.is_active():
                    answer = held.later.ask(last)
                    if answer is None:
                        return
                    held.over = True
                    self._answer(call, (answer,), held.send)
            except Exception:
                # Services refuse by their code, and say what they refuse. What else failed must not look like success.
                code = call.context.code()  # type: ignore[attr-defined]  # the stubs lack it
                if code in (None, grpc.StatusCode.OK):
                    log.exception("a call that waited failed", call=call.method, caller=call.caller)
                    call.context.set_code(grpc.StatusCode.INTERNAL)
                held.send(None)
            held.over = True
            # Who listens and how it leaves hold each other, and the call: gRPC keeps its stream for as long as anybody
            # does, and a connection has 32.
            leave, held.leave = held.leave, _nothing
        leave()
        with self._lock:
            self._held.discard(held)
        call.deadline = float("inf")
        self._end(call)

    # --- refusals ---------------------------------------------------------------------------------------------------
    def _refuse_late(self, method: str, caller: str, context: grpc.ServicerContext, send: Send) -> None:
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        self._count(code, caller, method, CROWDED, context.peer())
        with self._lock:
            patient = self._waiting[caller] < MAX_LATE
            if patient:
                self._waiting[caller] += 1
                self._late.append(_Late(self._clock() + LATE_SECONDS, caller, context, send))
        if not patient:
            context.abort(code, CROWDED)

    def _refuse_unknown(self, requests: Iterator[Any], context: grpc.ServicerContext, send: Send) -> None:  # noqa: ARG002
        context.send_initial_metadata(self._metadata)
        caller = self._identified("unknown", context, context.peer())
        msg = "this coordinator has no such method; update the older of the two"
        self._count(grpc.StatusCode.UNIMPLEMENTED, caller, "unknown", msg, context.peer())
        context.abort(grpc.StatusCode.UNIMPLEMENTED, msg)

    def _count(self, code: grpc.StatusCode, caller: str, method: str, why: str, peer: str) -> None:
        self._connections.refuse(peer)
        self._metrics.refused.labels(code.name, caller).inc()
        if self._log_limit.allows(caller):
            log.info("refused", call=method, caller=caller, code=code.name, why=why)

    # --- watch ------------------------------------------------------------------------------------------------------
    def _keep_watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:
                # A fault of one look must not leave the door unwatched, nor fill the log.
                if self._log_limit.allows(""):
                    log.exception("the door cannot be watched")

    def look(self) -> None:
        """End the calls whose time is up, refuse those that were to be refused later, look at the connections."""
        now = self._clock()
        with self._lock:
            over = [call for call in self._calls if call.deadline <= now]
            due = [one for one in self._late if one.due <= now]
            asked = [one for one in self._held if one.until <= now]
            self._late = [one for one in self._late if one.due > now]
            self._waiting.subtract(one.caller for one in due)
            self._waiting = +self._waiting
        for call in over:
            call.deadline, call.ended_here = float("inf"), True
            why = f"waited too long for {call.waits_for}"
            self._count(grpc.StatusCode.DEADLINE_EXCEEDED, call.caller, call.method, why, call.context.peer())
            call.context.cancel()  # type: ignore[no-untyped-call]  # the stubs lack it
        for held in asked:
            self._hear(held)
        for one in due:
            one.context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            one.context.set_details(CROWDED)
            one.send(None)
        self._connections.look(self._wait_for_a_thread(now))
        self._passing()

    def _wait_for_a_thread(self, now: float) -> float:
        """How long a call waits for a thread: as long as this look's own request does, which queues like one."""
        with self._lock:
            asks = self._asked is None and not self._closing
            if asks:
                self._asked = now
        if asks:
            self._pool.submit(self._take_thread, now)
        with self._lock:
            return max(self._queued, 0.0 if self._asked is None else now - self._asked)

    def _take_thread(self, asked: float) -> None:
        with self._lock:
            self._queued, self._asked = self._clock() - asked, None


class _InTime:
    """The messages of a call. Each must come within its time, or the call is ended."""

    def __init__(self, requests: Iterator[Any], call: _Call, clock: Callable[[], float]) -> None:
        self._requests, self._call, self._clock = requests, call, clock
        self._seconds = MESSAGE_SECONDS

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._call.waits_for, self._call.deadline = "a message", self._clock() + self._seconds
        try:
            return next(self._requests)
        finally:
            self._call.deadline, self._seconds = float("inf"), NEXT_SECONDS


class _Behaviour:
    """A handler as gRPC takes it: it answers through `send`, in any thread."""

    experimental_non_blocking = True

    def __init__(
        self, serve: Callable[[Iterator[Any], grpc.ServicerContext, Send], None], pool: ThreadPoolExecutor | None
    ) -> None:
        self._serve, self.experimental_thread_pool = serve, pool

    def __call__(self, requests: Iterator[Any], context: grpc.ServicerContext, send: Send) -> None:
        self._serve(requests, context, send)


class _Rest(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Takes whatever no other handler takes."""

    def __init__(self, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self._handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:  # noqa: ARG002
        return self._handler
