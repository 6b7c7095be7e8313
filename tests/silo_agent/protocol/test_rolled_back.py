"""Folder and ledger put back together, within a round: a peer shows the silo its own word, or nothing follows."""

import shutil
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from crypto.secagg.survivors import AttemptRef
from crypto.secagg.words import Word
from protos.messages import Tensor
from protos.steps import Task
from silo_agent.storage.errors import StateOlderError
from support.planted import refused

HEADS = Tensor.HEADS
OTHERS = ("south", "west")
OLDER = "this state folder is older than what south last saw of it; restore the newer one, with its ledger"


class North:
    """A round of heads, of which north forgets what follows a copy of all that it keeps."""

    def __init__(self, coordinator, silos):
        self.coordinator, self.silos, self.north = coordinator, silos, silos["north"]
        coordinator.run_round(0)

    @property
    def study(self):
        return self.coordinator.study.digest

    def copy(self):
        shutil.copytree(self.north.folder, self.north.folder.with_name("older"))

    def put_back(self):
        self.north.die()
        shutil.rmtree(self.north.folder)
        shutil.copytree(self.north.folder.with_name("older"), self.north.folder)
        self.north.restart()

    def until_revealed(self, copied):
        """An attempt at round 1, up to the reveals, which south alone reads. The copy is made before `copied`."""
        coordinator, place = self.coordinator, self.coordinator.place(1)
        roster = coordinator.offer(place)
        coordinator.deal(place, roster)
        steps = {
            "exchange": lambda: coordinator.exchange(place, roster),
            "gather": lambda: coordinator.gather(place, roster, HEADS),
            "sign": lambda: coordinator.sign(place, roster, HEADS),
            "reveal": lambda: coordinator.reveal(place, roster, HEADS),
        }
        for step, work in steps.items():
            if step == copied:
                self.copy()
            work()
        coordinator.ask("south", coordinator.work(Task.OPEN, place, roster, HEADS))

    def contributes(self, number, attempt):
        """North is asked for its contribution in another attempt."""
        coordinator = self.coordinator
        place, roster = coordinator.begin(number, attempt)
        charged = self.north.charges
        with capture_logs() as logs:
            coordinator.ask("north", coordinator.work(Task.CONTRIBUTE, place, roster, HEADS))
        self.logs = logs
        return place, charged


@pytest.fixture
def told(federation):
    return North(*federation)


def sits_out(told, place, charged):
    refused(told.coordinator, "north", Task.CONTRIBUTE, "state_older", OLDER)
    assert told.north.charges == charged
    assert (place, str(HEADS)) not in told.north.client.uploads
    (said,) = [one for one in told.logs if one["event"] == "older than what a peer last saw"]
    assert said["seen"] >= said["own"]
    assert said["mend"].startswith("state folder and ledger were put back from an older copy; stop the agent")


@pytest.mark.parametrize("copied", ["exchange", "gather", "sign", "reveal"])
def test_who_is_behind_what_a_peer_saw_sits_the_round_out_and_is_there_in_the_next(told, copied):
    told.until_revealed(copied)
    told.put_back()
    place, charged = told.contributes(1, 2)
    sits_out(told, place, charged)
    coordinator = told.coordinator
    told.north.restart()
    assert {member.silo for member in coordinator.offer(coordinator.place(1, 3))} == set(OTHERS)
    answer = told.north.client.answers[-1]
    assert (answer.refusal, answer.explanation) == ("no_data", "this silo has no data for the study")
    assert {member.silo for member in coordinator.offer(coordinator.place(2))} == {"north", *OTHERS}


def test_a_peer_remembers_across_its_own_restart(told):
    told.until_revealed("reveal")
    told.silos["south"].restart()
    told.put_back()
    sits_out(told, *told.contributes(1, 2))


def test_a_newer_copy_of_both_takes_part_again_in_the_same_round(told):
    told.until_revealed("reveal")
    newest = shutil.copytree(told.north.folder, told.north.folder.with_name("newest"))
    told.put_back()
    sits_out(told, *told.contributes(1, 2))
    told.north.die()
    shutil.rmtree(told.north.folder)
    shutil.copytree(newest, told.north.folder)
    told.north.restart()
    told.coordinator.offer(told.coordinator.place(1, 3))
    assert told.north.client.answers[-1].member is not None


def test_nothing_forgotten_is_no_roll_back(told):
    told.until_revealed("reveal")
    told.north.restart()
    place, _ = told.contributes(1, 2)
    assert told.coordinator.said("north").dispute == ""
    assert (place, str(HEADS)) in told.north.client.uploads


def test_silos_keep_the_last_word_of_each_other_and_a_reveal_has_a_later_one(told):
    told.until_revealed("reveal")
    south, west = (told.silos[name].state.heard.of(told.study) for name in OTHERS)
    assert set(south) == {"north", "west"}
    assert set(west) == {"north", "south"}
    assert south["north"].said > west["north"].said, "west has seen no reveal of this round"
    assert south["north"].said == told.north.state.anchored.count(told.study)


def stated(north, kind):
    """What a lying peer may put in the place of north's word: always of more than north has said."""
    more, sign = 10**6, north.credential.sign
    at = AttemptRef(north.running.study.digest, "", 1, 1)
    return {
        "unsigned": Word(more, 1, 1, b""),
        "noise": Word(more, 1, 1, bytes(range(70))),
        "of another count": replace(Word.of(at, "north", 1, sign), said=more),
        "of another round": replace(Word.of(at, "north", more, sign), round=0),
        "of another study": Word.of(replace(at, study="6" * 64), "north", more, sign),
        "of another silo": Word.of(at, "west", more, sign),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["unsigned", "noise", "of another count", "of another round", "of another study", "of another silo"]
)
def test_nobody_sits_out_on_the_word_of_a_peer_that_shows_no_signature_of_its_own(told, kind, monkeypatch):
    word = stated(told.north, kind)
    for name in OTHERS:
        monkeypatch.setattr(told.silos[name].state.heard, "of", lambda _: {"north": word})
    told.contributes(1, 1)
    assert told.coordinator.said("north").dispute == ""
    events = [(one["event"], one["silo"]) for one in told.logs if "disregarded" in one["event"]]
    assert events == [("a peer states more of this silo than it shows; that is disregarded", name) for name in OTHERS]


def test_a_lie_does_not_hide_what_another_peer_can_show(told, monkeypatch):
    told.until_revealed("reveal")
    told.put_back()
    lie = Word(10**6, 1, 1, b"no signature")
    monkeypatch.setattr(told.silos["west"].state.heard, "of", lambda _: {"north": lie})
    sits_out(told, *told.contributes(1, 2))


def test_a_word_that_its_silo_has_not_signed_is_not_kept(told, monkeypatch):
    before = told.north.state.heard.of(told.study)
    south = told.silos["south"].agent._tasks._shares
    monkeypatch.setattr(type(south), "word", lambda _, attempt, said: Word(said + 9, 1, 1, b"\x30" * 70))
    told.contributes(1, 1)
    assert told.coordinator.said("north").dispute == ""
    assert told.north.state.heard.of(told.study) == before


def test_what_is_shown_is_not_believed_of_oneself_by_memory(told):
    """A silo keeps no word of its own as heard."""
    told.until_revealed("reveal")
    assert "north" not in told.north.state.heard.of(told.study)


def test_the_error_names_who_saw_more_and_what_to_do(told):
    anchored, place = told.north.state.anchored, told.coordinator.place(1)
    with pytest.raises(StateOlderError, match=OLDER):
        anchored.shown(place, "south", anchored.count(told.study) + 1)
