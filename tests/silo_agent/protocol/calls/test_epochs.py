"""A silo takes no answer of a coordinator that another one has replaced, also after a restart."""

from __future__ import annotations

import grpc
import pytest

from protos.messages import EPOCH_KEY
from silo_agent.protocol.calls.epochs import CheckedCalls, EpochFileError, Epochs, StaleAnswerError

NOW = 1_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "coordinator-epoch"


def epochs(path):
    return Epochs(path, lambda: NOW)


def of(epoch):
    return ((EPOCH_KEY, str(epoch)), ("other", "5"))


def test_the_highest_epoch_outlives_the_process_and_lower_ones_are_refused(path):
    known = epochs(path)
    known.take(of(5))
    known.take(of(5))
    known.take(of(7))
    for again in (known, epochs(path)):
        assert again.highest == 7
        for metadata in (
            of(6),
            (),
            None,
            ((EPOCH_KEY, "x"),),
            ((EPOCH_KEY, "-8"),),
            of(7) + of(9),
            ((EPOCH_KEY, "٨"),),
        ):
            with pytest.raises(StaleAnswerError, match=r"another one has replaced: it says .*, and 7 is known"):
                again.take(metadata)
        again.take(of(7))


def test_an_epoch_is_on_the_disk_before_its_answer_is_used(path, monkeypatch):
    known = epochs(path)
    known.take(of(5))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("silo_agent.protocol.calls.epochs.write_whole", full)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            known.take(of(6))
    assert epochs(path).highest == 5


def test_a_coordinator_cannot_lock_all_later_ones_out(path):
    known = epochs(path)
    known.take(of(int(NOW) + 86_400))
    with pytest.raises(StaleAnswerError, match="lies in the future; set its clock"):
        known.take(of(int(NOW) + 86_401))
    assert epochs(path).highest == int(NOW) + 86_400


def test_one_that_says_no_epoch_is_taken_by_a_silo_that_knows_none(path):
    epochs(path).take(())
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x", b"-1", b"1.5", b"\xff"])
def test_a_damaged_file_is_refused_by_name(path, content):
    path.write_bytes(content)
    with pytest.raises(EpochFileError, match=r"coordinator-epoch is damaged; write into it"):
        epochs(path)


class Answered:
    """An answer of gRPC, or the refusal of a call."""

    def __init__(self, metadata, result=None):
        self.metadata, self._result = metadata, result

    def initial_metadata(self):
        return self.metadata

    def result(self):
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


class No(grpc.RpcError):
    def __init__(self, code, metadata):
        self._code, self._metadata = code, metadata

    def code(self):
        return self._code

    def initial_metadata(self):
        return self._metadata


class Stub:
    """Three kinds of calls; `said` is what each answers."""

    def __init__(self, said):
        self.said = said

    @property
    def Unary(self):
        stub = self

        class Call:
            def with_call(self, request, timeout):
                if isinstance(stub.said, No):
                    raise stub.said
                return "reply", stub.said

            def future(self, request, timeout):
                if isinstance(stub.said, No):
                    return Answered(stub.said.initial_metadata(), stub.said)
                return Answered(stub.said.metadata, "reply")

        return Call()

    def Stream(self, request, timeout):
        said = self.said

        class Replies:
            def __init__(self):
                self.left = ["a", "b"]

            def __next__(self):
                if isinstance(said, No):
                    raise said
                if not self.left:
                    raise StopIteration
                return self.left.pop(0)

            def initial_metadata(self):
                return said.metadata

        return Replies()


CALLS = {
    "unary": lambda calls: calls.Unary("request", timeout=1.0),
    "future": lambda calls: calls.Unary.future("request", timeout=1.0).result(),
    "stream": lambda calls: "".join(calls.Stream("request", timeout=1.0)),
}


@pytest.mark.parametrize("kind", CALLS)
def test_every_kind_of_answer_is_judged_before_anybody_sees_it(path, kind):
    known = epochs(path)
    known.take(of(7))
    call = CALLS[kind]
    assert call(CheckedCalls(Stub(Answered(of(7))), known)) in {"reply", "ab"}
    for said in (Answered(of(6)), No(grpc.StatusCode.NOT_FOUND, of(6)), No(grpc.StatusCode.UNAVAILABLE, of(6)),
                 No(grpc.StatusCode.NOT_FOUND, ())):  # fmt: skip
        with pytest.raises(StaleAnswerError) as caught:
            call(CheckedCalls(Stub(said), known))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, "it is tried again, elsewhere"
    for code, metadata in ((grpc.StatusCode.NOT_FOUND, of(7)), (grpc.StatusCode.UNAVAILABLE, None)):
        with pytest.raises(No):
            call(CheckedCalls(Stub(No(code, metadata)), known))
    call(CheckedCalls(Stub(Answered(of(9))), known))
    assert epochs(path).highest == 9
