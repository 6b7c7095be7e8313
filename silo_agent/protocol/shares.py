"""What the participants of an attempt have dealt to this silo, and what they say of themselves with it.

Guarantees: a silo reads its own slice of each shares note before it uploads anything. It reads more of them only where
a sum cannot be opened without: what silos have dealt that dropped out, or whose shares do not combine, and what others
have dealt to these. What it reads follows from the list of survivors and the reveals, which the coordinator knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from crypto.errors import NotesWantedError
from crypto.secagg.dealt.share_bundle import ShareBundle
from crypto.secagg.masks import Unmasking
from crypto.secagg.words import Word, higher
from policies.plan.note_sizes import note_limit
from protos.steps import Note
from silo_agent.protocol.attempt import Attempt
from silo_agent.protocol.calls.client import Client
from silo_agent.protocol.mail import Mail
from silo_agent.storage.state import State

log = structlog.get_logger()
_NEWER = (
    "state folder and ledger were put back from an older copy; stop the agent, put the newer copy of both back, and"
    " start it again; until then this silo sits the round out"
)


class ReceivedShares:
    """The shares notes of one silo's attempts."""

    def __init__(self, client: Client, state: State, mail: Mail) -> None:
        self._client, self._state, self._mail = client, state, mail

    def receive(self, attempt: Attempt) -> dict[str, ShareBundle]:
        """Fetch what the participants have dealt to this silo, unless it is here already, and read it."""
        self._mail.receive_shares(attempt.place, attempt.participants, attempt.me, _limit(attempt))
        return self.read(attempt)

    def read(self, attempt: Attempt) -> dict[str, ShareBundle]:
        """The participants' shares for this attempt, read and checked once."""
        if not set(attempt.participants) <= set(attempt.bundles):
            tensors, needed = attempt.tensors, attempt.threshold
            notes = self._mail.shares(attempt.place, attempt.participants)
            bundles = attempt.membership.read_shares(attempt.place, tensors, needed, notes, (attempt.me,))
            self._require_newest(attempt, _shown_to(attempt.me, bundles))
            self.hear(attempt, {owner: bundle.words[owner] for owner, bundle in bundles.items()})
            attempt.bundles = bundles
        return attempt.bundles

    def unmasking(self, attempt: Attempt, reveals: Mapping[str, bytes], answerable: Sequence[str]) -> Unmasking:
        """What still masks the survivors' sum. Raises `RecoveryRefused` (`Membership.unmasking`)."""
        while True:
            try:
                return attempt.membership.unmasking(
                    reveals,
                    attempt.bundles,
                    attempt.survivor_list,
                    participants=attempt.participants,
                    threshold=attempt.threshold,
                    answerable=answerable,
                )
            except NotesWantedError as wanted:
                # Nothing is wanted twice, so this ends: of these silos all is read afterwards.
                self._read_more(attempt, wanted.silos)

    def _read_more(self, attempt: Attempt, silos: Sequence[str]) -> None:
        """Read these silos' whole notes, and what the other participants have dealt to them."""
        place, circle, limit = attempt.place, attempt.membership.roster.circle, _limit(attempt)
        others = [one for one in attempt.participants if one not in silos and set(circle.holders(one)) & set(silos)]
        more: dict[str, ShareBundle] = {}
        for owners, about in ((silos, None), (others, silos)):
            notes = self._mail.fetch_shares(place, owners, about or (), limit) if owners else {}
            more |= attempt.membership.read_more(place, attempt.tensors, attempt.threshold, notes, about)
        joined = {owner: attempt.bundles[owner].joined(bundle) for owner, bundle in more.items()}
        attempt.bundles = {**attempt.bundles, **joined}

    # --- what silos have said (docs/design/sums.md, "Rolled back") ------------------------------------------------
    def words(self, attempt: Attempt) -> dict[str, Word]:
        """This silo's own word, of one thing more than before, and the last that it has heard of each other silo."""
        own = self.word(attempt, self._state.anchored.say(attempt.place))
        return {**self._state.heard.of(attempt.place.study), attempt.me: own}

    def word(self, attempt: Attempt, said: int) -> Word:
        """This silo's word, with this count."""
        return Word.of(attempt.membership.attempt(attempt.place), attempt.me, said, self._client.sign)

    def hear(self, attempt: Attempt, words: Mapping[str, Word]) -> None:
        """Keep what other silos have signed that they said, to show it to them again."""
        study, heard = attempt.place.study, self._state.heard
        fresh = {name: word for name, word in higher(heard.of(study), words).items() if name != attempt.me}
        heard.keep(study, {name: word for name, word in fresh.items() if attempt.membership.said_by(name, word)})

    def _require_newest(self, attempt: Attempt, shown: Mapping[str, Word]) -> None:
        """Raise `StateOlderError` if a peer shows a word of this silo that its own word of this attempt contradicts.

        `shown`: this silo's word as each note has it; without its own note, nothing can be compared yet. What a peer
        states without this silo's signature is disregarded: nobody sits out on another's word.
        """
        if (own := shown.get(attempt.me)) is None:
            return
        more = {name: word for name, word in shown.items() if word.precedes(own)}
        for name, word in sorted(more.items(), key=lambda one: (-one[1].said, one[0])):
            if attempt.membership.said_by(attempt.me, word):
                log.error("older than what a peer last saw", silo=name, seen=word.said, own=own.said, mend=_NEWER)
                self._state.anchored.shown(attempt.place, name, word.said)
            log.warning("a peer states more of this silo than it shows; that is disregarded", silo=name)


def _limit(attempt: Attempt) -> int:
    return note_limit(attempt.study, attempt.place.round, Note.SHARES)


def _shown_to(silo: str, bundles: Mapping[str, ShareBundle]) -> dict[str, Word]:
    """Return what each note says of a silo. On a circle only the notes of its neighbours say anything."""
    return {owner: bundle.words[silo] for owner, bundle in bundles.items() if silo in bundle.words}
