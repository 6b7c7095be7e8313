"""Answers an author's poll: would this silo take part? In one word, and no word follows from a patient or a charge.

Guarantees: the answer follows from the study's text, its author, the policy and people's decisions. The ledger is not
read: neither what is spent nor a fault shows. Nothing is charged, or stored but how often each author has asked today,
and each author learns at most `policy.polls` words a day; the same study gives the same word. So an author who searches
for a limit of the policy learns a few bits of it a day, and none of the budget that is left.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Final, Protocol

import structlog

from common.durable import write_whole
from crypto.authorship import SignatureBeside, author_of
from crypto.errors import CryptoError
from crypto.pki.certificates import Trust
from policies.decision import decide
from policies.documents.policy import Policy
from policies.documents.study import Study, read_stored, require_bounds
from policies.refusals import Refused
from protos.messages import ALLOWED, PERSON, REFUSED, SILENT, StudyText
from silo_agent.storage.approvals import approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
PACE_SECONDS: Final = 10.0
AT_ONCE: Final = 8
"""Polls that are answered one after the other before the next pause."""
MOST_AUTHORS: Final = 64
"""Authors who get an answer in one day."""


class Answering:
    """Decides what one silo answers."""

    def __init__(self, folder: StateFolder, trust: Trust, silo: str, today: Callable[[], date] | None = None) -> None:
        """`today` defaults to the machine's day in UTC."""
        self._folder, self._trust, self._silo = folder, trust, silo
        self._today = today or (lambda: datetime.now(UTC).date())

    def answer(self, study: Study, text: StudyText, policy: Policy) -> str:
        """Return the word. Raises OSError if it cannot be stored that the author has asked; then there is no answer."""
        if policy.polls == 0 or text.author is None:
            return SILENT
        try:
            given = SignatureBeside(text.author.certificate_pem, text.author.signature)
            author = author_of(self._trust, study.digest, study.purpose, given).uri
        except CryptoError:
            return SILENT
        if not self._counted(author, study.digest, policy.polls):
            return SILENT
        try:
            require_bounds(study)
            decide(
                policy,
                study,
                silo=self._silo,
                roster_size=None,
                spent_costs=(),
                round=0,
                attempt=1,
                charged_attempts=0,
                today=self._today(),
            )
        except Refused:
            return REFUSED
        return ALLOWED if self._has_data(study, author, policy) else PERSON

    def _has_data(self, study: Study, author: str, policy: Policy) -> bool:
        """Whether people, or a rule of the policy, give the study data. What lies there is not looked at."""
        try:
            decided = approvals(self._folder).bound.get(study.digest)
        except StateError:
            return False
        if decided is not None:
            return decided.data is not None
        return len(policy.data_for(study.name, study.purpose, author)) == 1

    def _counted(self, author: str, digest: str, most: int) -> bool:
        """Whether this author may have a word about this study today. It is stored before the word is said."""
        day, asked = self._today().isoformat(), self._asked()
        mine = asked.get(author, [])
        if digest in mine:
            return True
        if len(mine) >= most or (author not in asked and len(asked) >= MOST_AUTHORS):
            return False
        asked[author] = [*mine, digest]
        write_whole(self._folder.polls, json.dumps({"day": day, "asked": asked}).encode())
        return True

    def _asked(self) -> dict[str, list[str]]:
        """Who has asked about which studies today. With a file that cannot be read nobody may ask any more."""
        try:
            content = json.loads(self._folder.polls.read_bytes())
            asked = {str(author): [str(one) for one in digests] for author, digests in content["asked"].items()}
            return asked if content["day"] == self._today().isoformat() else {}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            log.warning(
                "who has polled today cannot be read; delete the file, and polls are answered",
                file=self._folder.polls.name,
            )
            return {f"unreadable-{number}": [] for number in range(MOST_AUTHORS)}


class PollCalls(Protocol):
    """The calls to the coordinator that polls take (`protocol.calls.client`)."""

    def next_poll(self) -> StudyText | None:
        """Return a study about which an author asks; None if there is none."""

    def answer_poll(self, study: str, verdict: str) -> None:
        """Answer a poll."""


class Polling:
    """Asks the coordinator for polls now and then, in a thread of its own, and answers them."""

    def __init__(
        self, client: PollCalls, answering: Answering, policy: Callable[[], Policy], stop: threading.Event
    ) -> None:
        """`policy` gives the one in force."""
        self._client, self._answering, self._policy, self._stop = client, answering, policy, stop
        self._thread = threading.Thread(target=self._run, name="polling", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> int:
        """Answer what is asked now; returns how many polls. Raises what the calls raise."""
        for number in range(AT_ONCE):
            text = self._client.next_poll()
            if text is None:
                return number
            study = read_stored(text.canonical)
            self._client.answer_poll(study.digest, self._answering.answer(study, text, self._policy()))
        return AT_ONCE

    def _run(self) -> None:
        while not self._stop.wait(PACE_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001  # a poll that fails has no answer, and ends nothing
                log.debug("no poll was answered", fault=type(error).__name__)
