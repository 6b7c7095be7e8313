"""The client of a person or a program: one method for each call of the coordinator. Errors are sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from coordinator.audit_copy import AuditCopy
from coordinator.client.signing import signed_by
from coordinator.config import OperatorConfig
from coordinator.core.filtering import EVERYTHING, StudyFilter
from coordinator.errors import OperatorError
from crypto.authorship import SignatureBeside
from crypto.pki.certificates import Credential
from crypto.pki.joining import renewal
from crypto.pki.joining.renewal import Renewal
from crypto.pki.tls import channel_credentials, handshake_fault
from protos import codec
from protos.audit import AuditEntry, CosignedAudit
from protos.bounds import sentence
from protos.messages import MAX_MESSAGE, AuthorSignature, MessageError, StudyResults
from protos.status import StudyStatus
from protos.v1 import operator_pb2, operator_pb2_grpc

DEADLINE_SECONDS = 30.0
LOOK_SECONDS = 1.0
"""How often `follow` looks at a study."""
_REACH_SECONDS = 3.0
"""How long one of several machines may take to make a connection."""


class CoordinatorClient:
    """Calls one coordinator. Every method raises `OperatorError` with a sentence if the call fails or is refused."""

    @classmethod
    def of(cls, config: Path | str) -> Self:
        """Connect with a person's configuration file (operator.yaml). Raises `DocumentError`, `CryptoError`."""
        return cls(OperatorConfig.load(Path(config)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __init__(self, config: OperatorConfig, tell: Callable[[str, str], object] = lambda _level, _text: None) -> None:
        """As `credential_of`."""
        credential = credential_of(config, tell)
        self._credential = credential
        self._address, self._channel = _channel(config.coordinator, credential)
        self._calls = operator_pb2_grpc.OperatorServiceStub(self._channel)

    @property
    def credential(self) -> Credential:
        """Whose calls these are."""
        return self._credential

    def submit(self, study: Path | str) -> str:
        """Hand in a study's file, and return its digest.

        An author's certificate signs it by that; for anybody else the author's signature lies beside the file. Raises
        `DocumentError`, `AmbiguousSignatureError`, `OperatorError`.
        """
        from policies.documents.study import load_study

        file = Path(study)
        text = load_study(file)
        return self.create(text.canonical(), signed_by(self._credential, file, text))

    def create(self, canonical: bytes, author: SignatureBeside | None) -> str:
        """Hand in a study that its author has signed, and return its digest."""
        with self._errors():
            request = operator_pb2.CreateStudyRequest(canonical=canonical, author=_signed(author))
            return str(self._calls.CreateStudy(request, timeout=DEADLINE_SECONDS).study)

    def poll(self, canonical: bytes, author: SignatureBeside | None) -> dict[str, str]:
        """Ask the silos of a study that is not created; return the answers so far by silo, empty for none yet."""
        with self._errors():
            request = operator_pb2.CreateStudyRequest(canonical=canonical, author=_signed(author))
            reply = self._calls.PollStudy(request, timeout=DEADLINE_SECONDS)
            return {sentence(one.silo): sentence(one.verdict) for one in reply.answers}

    def start(self, study: str, reason: str = "") -> None:
        """Begin a study. `reason` is needed for a study that is not the caller's own, here and below."""
        with self._errors():
            self._calls.StartStudy(_request(study, reason), timeout=DEADLINE_SECONDS)

    def pause(self, study: str, reason: str = "") -> None:
        """Stop handing out work of a study until it is resumed."""
        with self._errors():
            self._calls.PauseStudy(_request(study, reason), timeout=DEADLINE_SECONDS)

    def resume(self, study: str, reason: str = "") -> None:
        """Go on with a study that is paused or waits for silos."""
        with self._errors():
            self._calls.ResumeStudy(_request(study, reason), timeout=DEADLINE_SECONDS)

    def forgive(self, study: str, silo: str, reason: str = "") -> None:
        """Forget what waiting for a silo has cost a study."""
        with self._errors():
            request = operator_pb2.ForgiveSiloRequest(study=study, silo=silo, reason=reason)
            self._calls.ForgiveSilo(request, timeout=DEADLINE_SECONDS)

    def abort(self, study: str, reason: str) -> None:
        """Stop a study for good."""
        with self._errors():
            request = operator_pb2.AbortStudyRequest(study=study, reason=reason)
            self._calls.AbortStudy(request, timeout=DEADLINE_SECONDS)

    def status(self, study: str) -> StudyStatus:
        """Return the status of one study with its history."""
        with self._errors():
            request = operator_pb2.StudyRequest(study=study)
            return codec.from_wire(StudyStatus, self._calls.GetStudyStatus(request, timeout=DEADLINE_SECONDS))

    def follow(self, study: str, seconds: float = LOOK_SECONDS) -> Iterator[StudyStatus]:
        """Give a study's status now and at every change, until the study is over. It looks every `seconds`."""
        from coordinator.core.study import OVER

        is_change = self.changes()
        while True:
            status = self.status(study)
            if is_change(status):
                yield status
            if status.state in OVER:
                return
            time.sleep(seconds)

    @staticmethod
    def changes() -> Callable[[StudyStatus], bool]:
        """Return what says of each status whether it differs from the one before, by more than who was heard when."""
        last: list[StudyStatus] = []

        def is_change(status: StudyStatus) -> bool:
            now = [replace(status, members=tuple(replace(one, last_seen=0.0) for one in status.members))]
            before, last[:] = last[:], now
            return before != now

        return is_change

    def delete(self, study: str, reason: str = "") -> None:
        """Forget a study that was never started."""
        with self._errors():
            self._calls.DeleteStudy(_request(study, reason), timeout=DEADLINE_SECONDS)

    def archive(self, study: str, reason: str = "") -> None:
        """Leave a study that is over out of lists."""
        with self._errors():
            self._calls.ArchiveStudy(_request(study, reason), timeout=DEADLINE_SECONDS)

    def drain(self, reason: str = "", *, undo: bool = False) -> tuple[str, ...]:
        """Begin no further round of any study, or rounds again. Return the digests of those within a round."""
        with self._errors():
            request = operator_pb2.DrainRequest(undo=undo, reason=reason)
            return tuple(self._calls.Drain(request, timeout=DEADLINE_SECONDS).within)

    def statuses(self, wanted: StudyFilter = EVERYTHING) -> list[StudyStatus]:
        """Return the status of the studies of a page in brief."""
        return self.page(wanted)[0]

    def page(self, wanted: StudyFilter) -> tuple[list[StudyStatus], int]:
        """Return the studies of a page in brief, and how many come after it."""
        request = operator_pb2.ListStudiesRequest(**{**asdict(wanted), "states": sorted(wanted.states)})
        with self._errors():
            reply = self._calls.ListStudies(request, timeout=DEADLINE_SECONDS)
            return [codec.from_wire(StudyStatus, status) for status in reply.studies], int(reply.more)

    def results(self, study: str) -> StudyResults:
        """Return what a finished study has published."""
        with self._errors():
            request = operator_pb2.StudyRequest(study=study)
            return codec.results_from_wire(self._calls.GetResults(request, timeout=DEADLINE_SECONDS))

    def audit(self, first: int = 0) -> AuditCopy:
        """Return the audit log from the entry with this number on, and what silos signed of it."""
        with self._errors():
            request = operator_pb2.GetAuditLogRequest(first=first)
            parts = list(self._calls.GetAuditLog(request, timeout=DEADLINE_SECONDS))
            entries = tuple(codec.from_wire(AuditEntry, one) for part in parts for one in part.entries)
            cosigned = tuple(codec.from_wire(CosignedAudit, one) for part in parts for one in part.cosignatures)
            return AuditCopy(entries, cosigned)

    def link_console(self) -> str:
        """Return a link that signs the caller in at the coordinator's console, once and within five minutes."""
        with self._errors():
            return str(self._calls.LinkConsole(operator_pb2.LinkConsoleRequest(), timeout=DEADLINE_SECONDS).url)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            code, details = error.code(), sentence(error.details() or "")
            if code is grpc.StatusCode.UNAVAILABLE:
                fix = handshake_fault(details) or "check that it is running, and the address in operator.yaml"
                msg = f"no coordinator answers at {self._address}: {details}; {fix}"
                raise OperatorError(msg) from None
            msg = details or f"the coordinator refuses the call ({code.value[1]}) and says no reason"
            raise OperatorError(msg) from None
        except MessageError as error:
            msg = f"the coordinator's answer is malformed: {error}; update the older of the two"
            raise OperatorError(msg) from None


def _channel(addresses: Sequence[str], credential: Credential) -> tuple[str, grpc.Channel]:
    """Return the first of a coordinator's machines that is there, or else the last one, and the way to it.

    One that stands by does not listen, and one that is frozen makes no connection.
    """
    for number, address in enumerate(addresses, 1):
        channel = grpc.secure_channel(
            address, channel_credentials(credential), options=[("grpc.max_receive_message_length", MAX_MESSAGE)]
        )
        if number == len(addresses):
            return address, channel
        try:
            grpc.channel_ready_future(channel).result(timeout=_REACH_SECONDS)
        except grpc.FutureTimeoutError:
            channel.close()
        else:
            return address, channel
    msg = "a configuration names at least one address"
    raise AssertionError(msg)


def credential_of(
    config: OperatorConfig, tell: Callable[[str, str], object] = lambda _level, _text: None
) -> Credential:
    """Return a person's credential, which is renewed first if it is time. `tell` hears how that went."""
    credential = renewal.load(config.files, config.authority_url, keeps=True)
    link = renewal.link_for(credential, config.authority_url)
    Renewal(credential, config.files, link, tell=tell, on_times=lambda _: None).look()
    return credential


def _signed(author: SignatureBeside | None) -> Any:
    return None if author is None else codec.to_wire(AuthorSignature(author.certificate, author.signature))


def _request(study: str, reason: str) -> operator_pb2.StudyRequest:
    return operator_pb2.StudyRequest(study=study, reason=reason)
