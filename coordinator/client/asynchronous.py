"""The same client for programs that are written with asyncio. Each call waits in a thread, and blocks no other task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from coordinator.audit_copy import AuditCopy
from coordinator.client.plain import LOOK_SECONDS, CoordinatorClient
from coordinator.core.filtering import EVERYTHING, StudyFilter
from crypto.authorship import SignatureBeside
from protos.messages import StudyResults
from protos.status import StudyStatus

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncCoordinatorClient:
    """Calls one coordinator. Methods are those of `CoordinatorClient`, and raise what these raise."""

    def __init__(self, client: CoordinatorClient) -> None:
        self._client = client

    @classmethod
    async def of(cls, config: Path | str) -> Self:
        """Connect with a person's configuration file (operator.yaml). Raises `DocumentError`, `CryptoError`."""
        return cls(await asyncio.to_thread(CoordinatorClient.of, config))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _do(self, call: Callable[_P, _R], *given: _P.args, **named: _P.kwargs) -> _R:
        return await asyncio.to_thread(call, *given, **named)

    async def submit(self, study: Path | str) -> str:
        """Hand in a study's file, signed by its author, and return its digest."""
        return await self._do(self._client.submit, study)

    async def create(self, canonical: bytes, author: SignatureBeside | None) -> str:
        """Hand in a study that its author has signed, and return its digest."""
        return await self._do(self._client.create, canonical, author)

    async def poll(self, canonical: bytes, author: SignatureBeside | None) -> dict[str, str]:
        """Ask the silos of a study that is not created; return the answers so far by silo, empty for none yet."""
        return await self._do(self._client.poll, canonical, author)

    async def start(self, study: str, reason: str = "") -> None:
        """Begin a study."""
        await self._do(self._client.start, study, reason)

    async def pause(self, study: str, reason: str = "") -> None:
        """Stop handing out work of a study until it is resumed."""
        await self._do(self._client.pause, study, reason)

    async def resume(self, study: str, reason: str = "") -> None:
        """Go on with a study that is paused or waits for silos."""
        await self._do(self._client.resume, study, reason)

    async def forgive(self, study: str, silo: str, reason: str = "") -> None:
        """Forget what waiting for a silo has cost a study."""
        await self._do(self._client.forgive, study, silo, reason)

    async def abort(self, study: str, reason: str) -> None:
        """Stop a study for good."""
        await self._do(self._client.abort, study, reason)

    async def delete(self, study: str, reason: str = "") -> None:
        """Forget a study that was never started."""
        await self._do(self._client.delete, study, reason)

    async def archive(self, study: str, reason: str = "") -> None:
        """Leave a study that is over out of lists."""
        await self._do(self._client.archive, study, reason)

    async def drain(self, reason: str = "", *, undo: bool = False) -> tuple[str, ...]:
        """Begin no further round of any study, or rounds again. Return the digests of those within a round."""
        return await self._do(self._client.drain, reason, undo=undo)

    async def status(self, study: str) -> StudyStatus:
        """Return the status of one study with its history."""
        return await self._do(self._client.status, study)

    async def statuses(self, wanted: StudyFilter = EVERYTHING) -> list[StudyStatus]:
        """Return the status of the studies of a page in brief."""
        return await self._do(self._client.statuses, wanted)

    async def page(self, wanted: StudyFilter) -> tuple[list[StudyStatus], int]:
        """Return the studies of a page in brief, and how many come after it."""
        return await self._do(self._client.page, wanted)

    async def results(self, study: str) -> StudyResults:
        """Return what a finished study has published."""
        return await self._do(self._client.results, study)

    async def audit(self, first: int = 0) -> AuditCopy:
        """Return the audit log from the entry with this number on, and what silos signed of it."""
        return await self._do(self._client.audit, first)

    async def follow(self, study: str, seconds: float = LOOK_SECONDS) -> AsyncIterator[StudyStatus]:
        """Give a study's status now and at every change, until the study is over."""
        from coordinator.core.study import OVER

        is_change = self._client.changes()
        while True:
            status = await self.status(study)
            if is_change(status):
                yield status
            if status.state in OVER:
                return
            await asyncio.sleep(seconds)

    async def link_console(self) -> str:
        """Return a link that signs the caller in at the coordinator's console, once and within five minutes."""
        return await self._do(self._client.link_console)

    async def close(self) -> None:
        """Close the connection."""
        await self._do(self._client.close)
