"""Every study that asked a silo or has begun there, with what the silo says of it, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from silo_agent.config import AgentConfig
from silo_agent.oversight.asking_figures import StudyVerdict, verdict
from silo_agent.review.known import OfferedStudy, known_studies
from silo_agent.storage.approvals import Approval, approvals
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.model_warnings import kept
from silo_agent.storage.offered import Offered, Said, author_uri, offered, verdict_of
from silo_agent.storage.opening import read_state


@dataclass(frozen=True)
class AskingStudy:
    """One study as a list shows it."""

    study: OfferedStudy
    author: str
    """A URI; empty if nobody is known."""
    said: Said
    """What the silo had against it, as label and text."""
    stands: str
    """How it stands, in words."""
    asked: str = ""
    """When it was offered last; empty of one that has begun."""
    warnings: tuple[str, ...] = ()
    verdict: StudyVerdict = "allowed"

    @property
    def begun(self) -> bool:
        """Whether it has begun here."""
        return not self.asked


def asking(settings: AgentConfig) -> list[AskingStudy]:
    """Return every study: first those that have begun here, then those that only asked."""
    folder = StateFolder(settings.state)
    decided = approvals(folder).bound
    begun = _begun(folder)
    digests = {one.digest for one in begun}
    found = [_running(folder, one, decided.get(one.digest)) for one in begun]
    for ask in offered(folder):
        if ask.digest not in digests:
            approval = decided.get(ask.digest)
            stands = _words(ask, approval)
            found.append(
                AskingStudy(
                    OfferedStudy(ask.name, ask.digest, -1, ""),
                    ask.author,
                    ask.said or (),
                    stands,
                    ask.asked,
                    verdict=verdict(ask, approval),
                )
            )
    return found


def _begun(folder: StateFolder) -> list[OfferedStudy]:
    if not folder.database.is_file():
        return []
    state = read_state(folder.path)
    try:
        return known_studies(state)
    finally:
        state.close()


def _running(folder: StateFolder, one: OfferedStudy, decided: Approval | None) -> AskingStudy:
    said = () if one.why else verdict_of(folder, one.digest) or ()
    stands = f"over: {one.why}" if one.why else f"refused: {labels(said)}" if said else "runs"
    warnings = tuple(each.text for each in kept(folder.study(one.digest).warnings))
    found = verdict(Offered(one.name, one.digest, "", said=said), decided)
    return AskingStudy(one, author_uri(folder, one.digest), said, stands, warnings=warnings, verdict=found)


def _words(one: Offered, decided: Approval | None) -> str:
    """What becomes of a study that asked."""
    found = verdict(one, decided)
    if found == "declined":
        return "declined" if decided is not None and decided.declined else "its approval was taken back"
    if found == "waiting":
        return "waits for your decision"
    if found in ("refused", "no_data"):
        return f"refused: {labels(one.said or ())}"
    return "not decided yet" if decided is None else f"may use {decided.data}"


def labels(said: Iterable[tuple[str, str]]) -> str:
    """The reasons' labels, each once."""
    return ", ".join(dict.fromkeys(label for label, _ in said))
