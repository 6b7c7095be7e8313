"""Tells the officer that studies wait for a person: by a mail or a command of the hospital's choice.

Guarantees: a message holds public facts alone (name, digest, author and purpose of each study, and what to type),
never what is spent or what the policy has against a study. Each study is told of once, and messages are `PACE_SECONDS`
apart, however many studies a coordinator offers. A message that cannot be sent is logged and tried again; nothing waits
for it.
"""

from __future__ import annotations

import json
import os
import smtplib
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from time import monotonic
from typing import Final

import structlog

from common.durable import write_whole
from common.os_errors import explained
from protos.bounds import sentence
from silo_agent.config import MailNotice, Notify
from silo_agent.storage import offered
from silo_agent.storage.approvals import approvals
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
PACE_SECONDS: Final = 600.0
SEND_SECONDS: Final = 30.0
MOST_TOLD: Final = 1000


@dataclass(frozen=True)
class WaitingStudy:
    """What is told of a study: public facts."""

    name: str
    digest: str
    author: str
    purpose: str


class Telling:
    """Tells of one silo's waiting studies."""

    def __init__(
        self,
        folder: StateFolder,
        notify: Notify | None,
        silo: str,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`notify`: None tells nobody."""
        self._folder, self._notify, self._silo, self._clock = folder, notify, silo, clock
        self._last = -PACE_SECONDS
        self._turn = threading.Lock()

    def look(self) -> threading.Thread | None:
        """Begin to tell of the studies that wait and were not told of. Neither raises nor waits.

        Returns the thread that sends; None if there is nothing to send now.
        """
        if self._notify is None or self._clock() - self._last < PACE_SECONDS:
            return None
        found = self._untold()
        if not found:
            return None
        self._last = self._clock()
        sending = threading.Thread(target=self._send, args=(self._notify, found), name="telling", daemon=True)
        sending.start()
        return sending

    def _untold(self) -> list[WaitingStudy]:
        try:
            decided = approvals(self._folder).bound
        except StateError:
            return []
        told = set(self._told())
        waiting = offered.waiting(offered.offered(self._folder), decided)
        texts = [(one, offered.text(self._folder, one.digest)) for one in waiting if one.digest not in told]
        return [
            WaitingStudy(one.name, one.digest, one.author, study.purpose) for one, study in texts if study is not None
        ]

    def _told(self) -> list[str]:
        try:
            return [str(one) for one in json.loads(self._folder.told.read_bytes())]
        except (OSError, ValueError, TypeError, RecursionError):
            return []

    def _send(self, notify: Notify, found: Sequence[WaitingStudy]) -> None:
        text = message(self._silo, found)
        with self._turn:
            try:
                if notify.command:
                    _run(notify.command, self._silo, found, text)
                if notify.mail is not None:
                    _mail(notify.mail, self._silo, text)
                told = [*self._told(), *(one.digest for one in found)][-MOST_TOLD:]
                write_whole(self._folder.told, json.dumps(told).encode())
            except (OSError, smtplib.SMTPException, subprocess.SubprocessError, ValueError) as fault:
                why = explained(fault) if isinstance(fault, OSError) else f"{type(fault).__name__}: {fault}"
                log.warning("nobody was told that studies wait", why=sentence(why), studies=[one.name for one in found])
            else:
                log.info("told that studies wait", studies=[one.name for one in found])


def message(silo: str, found: Sequence[WaitingStudy]) -> str:
    """Return what is told, one paragraph for each study."""
    parts = [
        f"{one.name}\n  digest: {one.digest}\n  author: {one.author}\n  purpose: {sentence(one.purpose)}\n"
        f"  read it, then approve or decline it: fedward-silo study show {one.digest[:12]}"
        for one in found
    ]
    head = f"{len(found)} {'study waits' if len(found) == 1 else 'studies wait'} for a decision at the silo {silo}."
    return "\n\n".join([head, *parts]) + "\n"


def _run(command: Sequence[str], silo: str, found: Sequence[WaitingStudy], text: str) -> None:
    """Run the hospital's command with the text on its standard input. Raises OSError, `SubprocessError`."""
    facts = {
        "FEDWARD_SILO": silo,
        "FEDWARD_STUDIES": " ".join(one.name for one in found),
        "FEDWARD_DIGESTS": " ".join(one.digest for one in found),
    }
    subprocess.run(  # noqa: S603 - the hospital's own command, without a shell
        list(command),
        input=text,
        text=True,
        check=True,
        timeout=SEND_SECONDS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**_environment(), **facts},
    )


def _environment() -> dict[str, str]:
    """The agent's environment without what may be secret: passphrases stand in variables that begin with FEDWARD_."""
    return {name: value for name, value in os.environ.items() if not name.startswith("FEDWARD_")}


def _mail(mail: MailNotice, silo: str, text: str) -> None:
    """Send the text by SMTP. Raises OSError, `SMTPException`."""
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = f"FedWard: studies wait at {silo}", mail.sender, ", ".join(mail.to)
    made.set_content(text)
    with smtplib.SMTP(mail.server, mail.port, timeout=SEND_SECONDS) as server:
        if mail.tls:
            server.starttls()
        server.send_message(made)
