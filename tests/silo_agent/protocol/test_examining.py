"""Every silo finds out for itself who lied, where one complains about the shares that another has sealed for it."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from crypto.secagg import unmasking
from crypto.secagg.dealt.bundles import bound
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.unmasking import _shares_key
from protos.messages import Complaint, Work
from protos.steps import Task
from support.studies import tiny_study

FOUR = tiny_study(silos=["north", "polar", "south", "west"], min_silos=3, privacy={"colluders": 1})
RULES = {"min_silos": 3, "noise_modes": ["local"], "colluders": 1}
OWNER, HOLDER = "west", "north"


class Scene:
    """A roster whose shares are dealt: by `OWNER` wrongly to `HOLDER`, if asked. `HOLDER` complains."""

    def __init__(self, federate, monkeypatch, *, wrongly):
        commit = unmasking._commit
        with monkeypatch.context() as patch:
            if wrongly:
                patch.setattr(
                    unmasking,
                    "_commit",
                    lambda attempt, owner, spot, holder, value: commit(
                        attempt, owner, spot, holder, b"x" if (owner, holder) == (OWNER, HOLDER) else value
                    ),
                )
            self.coordinator, self.silos = federate(FOUR, **RULES)
            self.place = self.coordinator.place(0)
            self.roster = self.coordinator.offer(self.place)
            self.coordinator.deal(self.place, self.roster)
            self.coordinator.exchange(self.place, self.roster)
        membership = self.attempt(HOLDER).membership
        self.ref = membership.attempt(self.place)
        self.key = _shares_key(membership._pairs(), OWNER, HOLDER, bound("shares", self.ref, OWNER, HOLDER))

    def attempt(self, silo):
        work = self.coordinator.work(Task.EXCHANGE, self.place, self.roster)
        return self.silos[silo].agent._running[self.place.study].attempt(work, self.place)

    def complaint(self, **changes):
        said = replace(ShareComplaint(self.ref, OWNER, HOLDER, self.key), **changes)
        return Complaint(said.holder, said.owner, said.evidence, self.silos[HOLDER].credential.sign(said.to_sign()))

    @property
    def note(self):
        return self.coordinator.content[self.place, "note-shares", OWNER]

    @note.setter
    def note(self, blob):
        self.coordinator.content[self.place, "note-shares", OWNER] = blob

    def work(self, complaint):
        parts = self.coordinator.parts(Task.EXAMINE, self.place, self.roster, None, complaint.owner)
        return Work(Task.EXAMINE, self.place, roster=self.roster, parts=parts, complaint=complaint)

    def ask(self, silo, complaint):
        """What a silo says of a complaint, and what its own log tells of it."""
        with capture_logs() as logs:
            self.coordinator.ask(silo, self.work(complaint))
        told = [(one["silo"], one["complains"], one["about"]) for one in logs if one["event"] == "a silo has lied"]
        return self.coordinator.said(silo), told


@pytest.fixture
def scene(federate, monkeypatch):
    return lambda *, wrongly: Scene(federate, monkeypatch, wrongly=wrongly)


def test_all_find_the_same_liar_and_their_own_logs_name_it(scene):
    dealt = scene(wrongly=True)
    for silo in ("polar", "south"):
        said, told = dealt.ask(silo, dealt.complaint())
        assert (said.task, said.dispute, said.culprit) == (Task.EXAMINE, "", OWNER)
        assert told == [(OWNER, HOLDER, OWNER)]
    again, told = dealt.ask("south", dealt.complaint())
    assert (again, told) == (said, []), "asked again, a silo says the same and looks at nothing"


@pytest.mark.parametrize("change", ["right key", "another key", "another roster"])
def test_a_complaint_about_right_shares_lies_at_who_complains(scene, change):
    dealt = scene(wrongly=False)
    other = {"another key": {"key": bytes(32)}, "another roster": {"attempt": replace(dealt.ref, roster="0" * 64)}}
    said, told = dealt.ask("south", dealt.complaint(**other.get(change, {})))
    if change == "another roster":  # nobody has signed a note for it, so nobody can tell who lied
        assert (said.dispute, told) == ("recovery", [])
        return
    assert (said.dispute, said.culprit) == ("", HOLDER)
    assert told == [(HOLDER, HOLDER, OWNER)]


@pytest.mark.parametrize("lie", ["key", "owner", "holder", "signature", "note", "signed note"])
def test_nothing_that_the_coordinator_shows_otherwise_names_anybody(scene, lie):
    """Whatever it changes of the complaint or of the note, the silo sees that they are not those that were signed."""
    dealt = scene(wrongly=True)
    shown = dealt.complaint()
    if lie == "key":
        shown = replace(shown, evidence=bytes(32) + shown.evidence[32:])
    elif lie == "owner":
        shown = replace(shown, owner="polar")
    elif lie == "holder":
        shown = replace(shown, silo="polar")
    elif lie == "signature":
        shown = replace(shown, signature=shown.signature[:-1] + bytes([shown.signature[-1] ^ 1]))
    else:
        at = 40 if lie == "note" else len(dealt.note) - 1
        dealt.note = dealt.note[:at] + bytes([dealt.note[at] ^ 1]) + dealt.note[at + 1 :]
    said, told = dealt.ask("south", shown)
    assert (said.task, said.dispute, said.culprit) == (Task.EXAMINE, "recovery", "")
    assert told == []
    fault, why = dealt.coordinator.own_words("south")
    signed = f"'{OWNER}' did not sign its shares note" if "note" in lie else "has not signed the complaint about"
    assert (fault, signed in why) == ("recovery", True), why


def test_a_silo_that_has_left_the_attempt_examines_a_complaint_too(scene):
    """It complained as well, and another complaint came first."""
    dealt = scene(wrongly=True)
    dealt.silos["south"].agent._abandon(dealt.place.study)
    said, told = dealt.ask("south", dealt.complaint())
    assert (said.dispute, said.culprit, len(told)) == ("", OWNER, 1)


def test_the_shares_that_are_complained_about_must_be_offered(scene):
    dealt = scene(wrongly=True)
    work = dealt.work(dealt.complaint())
    dealt.coordinator.ask("south", replace(work, complaint=replace(work.complaint, owner="polar")))
    assert dealt.coordinator.said("south").dispute == "out_of_turn"
