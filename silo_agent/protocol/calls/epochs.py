"""Refuses what a coordinator says that another one has replaced: each answer carries the epoch of its lease.

Guarantees: once this silo has an answer of one epoch, it takes none of a lower one, also after a restart. The epoch is
on the disk before the answer is used. An answer that is refused counts as none: the call is made again, elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import grpc

from common.durable import write_whole
from protos.messages import EPOCH_KEY
from silo_agent.errors import SiloError
from silo_agent.storage.own_files import own_files

_AHEAD_SECONDS: Final = 86400.0
"""An epoch is the time at which a lease was taken. One that lies further ahead would lock all later ones out."""
_NO_ANSWERS: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""What gRPC says itself if nobody answers."""


class EpochFileError(SiloError):
    """The file of the highest epoch is damaged."""


class StaleAnswerError(grpc.RpcError):
    """The answer is of a coordinator that has been replaced. To whoever retries calls it looks like no answer."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def code(self) -> grpc.StatusCode:
        """As `grpc.Call`."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """As `grpc.Call`."""
        return self._text


class Epochs:
    """The highest epoch that this silo knows, in a file. Safe to share between threads."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Read the file, if there is one. Raises `EpochFileError`, OSError."""
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else "0"
        if not text.isascii() or not text.isdigit():
            msg = f"{path} is damaged; write into it the epoch that the coordinator's log shows (`serving`)"
            raise EpochFileError(msg)
        self.highest = int(text)

    def take(self, metadata: Any) -> None:
        """Judge an answer by its metadata, and remember its epoch.

        Raises `StaleAnswerError`; `ShortageError` or OSError if it cannot be remembered.
        """
        words = [str(value) for key, value in metadata or () if key == EPOCH_KEY]
        epoch = int(words[0]) if len(words) == 1 and words[0].isascii() and words[0].isdigit() else 0
        with self._lock:
            if epoch < self.highest:
                told = f"says epoch {epoch}" if epoch else "says no epoch"
                msg = f"a coordinator answers that another one has replaced: it {told}, and {self.highest} is known"
                raise StaleAnswerError(msg)
            if epoch == self.highest:
                return
            if epoch > self._clock() + _AHEAD_SECONDS:
                msg = f"a coordinator answers with epoch {epoch}, which lies in the future; set its clock, or this one"
                raise StaleAnswerError(msg)
            with own_files():
                write_whole(self._path, str(epoch).encode())
            self.highest = epoch


class CheckedCalls:
    """The calls of a stub, each answer of which is judged by its epoch before anybody sees it."""

    def __init__(self, stub: Any, epochs: Epochs) -> None:
        self._stub, self._epochs = stub, epochs

    def __getattr__(self, name: str) -> CheckedCall:
        return CheckedCall(getattr(self._stub, name), self._epochs)


class CheckedCall:
    """One call of a stub."""

    def __init__(self, call: Any, epochs: Epochs) -> None:
        self._call, self._epochs = call, epochs

    def __call__(self, request: object, timeout: float) -> Any:
        """Make the call and return its answer, or the stream of its answers. Raises `grpc.RpcError`."""
        if not hasattr(self._call, "with_call"):
            return CheckedStream(self._call(request, timeout=timeout), self._epochs)
        try:
            reply, made = self._call.with_call(request, timeout=timeout)
        except grpc.RpcError as error:
            _judge(error, self._epochs)
            raise
        self._epochs.take(made.initial_metadata())
        return reply

    def future(self, request: object, timeout: float) -> CheckedFuture:
        """Begin the call."""
        return CheckedFuture(self._call.future(request, timeout=timeout), self._epochs)


class CheckedFuture:
    """A call that goes on."""

    def __init__(self, future: Any, epochs: Epochs) -> None:
        self._future, self._epochs = future, epochs

    def add_done_callback(self, told: Callable[[Any], object]) -> None:
        """Have somebody told when it is over."""
        self._future.add_done_callback(told)

    def cancel(self) -> None:
        """End it."""
        self._future.cancel()

    def result(self) -> Any:
        """Return the answer of a call that is over. Raises `grpc.RpcError`."""
        try:
            reply = self._future.result()
        except grpc.RpcError as error:
            _judge(error, self._epochs)
            raise
        self._epochs.take(self._future.initial_metadata())
        return reply


class CheckedStream:
    """The answers of a call that streams them. The first one is judged: a stream is of one coordinator."""

    def __init__(self, stream: Any, epochs: Epochs) -> None:
        self._stream, self._epochs = stream, epochs
        self._judged = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            reply = next(self._stream)
        except StopIteration:
            self._judge()
            raise
        except grpc.RpcError as error:
            _judge(error, self._epochs)
            raise
        self._judge()
        return reply

    def cancel(self) -> None:
        """End it."""
        self._stream.cancel()

    def _judge(self) -> None:
        if not self._judged:
            self._epochs.take(self._stream.initial_metadata())
            self._judged = True


def _judge(error: Any, epochs: Epochs) -> None:
    """Judge a refusal, which is an answer too. Raises `StaleAnswerError`."""
    metadata = error.initial_metadata()
    if metadata or error.code() not in _NO_ANSWERS:
        epochs.take(metadata)
