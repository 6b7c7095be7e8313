"""A state folder that is put back from an older copy, beside a ledger that was not."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from policies.ledger.anchors import Anchors
from policies.ledger.ledger import Ledger
from protos.messages import Place, Tensor
from silo_agent.core.bonds import SurvivorsError
from silo_agent.storage.errors import StateOlderError, StateRolledBackError
from support.ledgers import NORTH
from support.states import keyed

STUDY, OTHER = "5" * 64, "6" * 64
PLACE, NEXT = Place(STUDY, 2, 3), Place(STUDY, 3, 1)
LABEL = "a" * 64
LISTED = ("north", "south")

WORDS = {
    "a draw": lambda state, place: state.keep_release(place, Tensor.HEADS, 3, np.array([1], np.int64), LABEL),
    "sealed bytes": lambda state, place: state.keep_sealed(place, LABEL, [b"sealed"]),
    "a list": lambda state, place: state.promises.sign(place, Tensor.HEADS, LISTED),
    "a reveal": lambda state, place: state.promises.reveal(place, Tensor.HEADS),
    "a void": lambda state, place: state.promises.void(place, Tensor.HEADS, 2),
    "a sum": lambda state, place: state.promises.open(place, LABEL, "1" * 64),
}


class Silo:
    """A state folder and its ledger."""

    def __init__(self, home):
        self.home, self.ledger = home, home / "ledger.sqlite3"
        Ledger.create(self.ledger, NORTH)
        self.start()

    def start(self):
        self.state = keyed(self.home / "state")
        self.state.anchored.bind(Anchors(self.ledger))

    def copy(self):
        self.state.close()
        shutil.rmtree(self.home / "older", ignore_errors=True)
        shutil.copytree(self.home / "state", self.home / "older")
        self.start()

    def count(self):
        return self.state.anchored.count(STUDY)

    def roll_back(self):
        self.state.close()
        shutil.rmtree(self.home / "state")
        shutil.copytree(self.home / "older", self.home / "state")
        self.start()


@pytest.fixture
def silo(tmp_path):
    silo = Silo(tmp_path)
    silo.state.add_study(STUDY, b"{}")
    silo.copy()
    yield silo
    silo.state.close()


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("forgotten", WORDS)
def test_after_a_roll_back_nothing_is_said_in_the_round_and_everything_in_the_next(silo, forgotten, word):
    WORDS[forgotten](silo.state, PLACE)
    silo.roll_back()
    for place in (PLACE, Place(STUDY, 2, 4), Place(STUDY, 0, 1)):
        with pytest.raises(StateRolledBackError, match="up to round 2 is not in it, so it sits these rounds out"):
            silo.state.anchored.require(place)
        with pytest.raises(StateRolledBackError):
            WORDS[word](silo.state, place)
    assert not list(silo.state.files.study(STUDY).releases(2))
    WORDS[word](silo.state, NEXT)
    silo.state.close()
    silo.start()
    silo.state.anchored.require(NEXT)
    with pytest.raises(StateRolledBackError):
        silo.state.anchored.require(PLACE)


def test_a_second_roll_back_shows_as_well(silo):
    WORDS["a list"](silo.state, PLACE)
    silo.roll_back()
    WORDS["a list"](silo.state, NEXT)
    silo.roll_back()
    with pytest.raises(StateRolledBackError, match="up to round 3"):
        silo.state.anchored.require(NEXT)


def test_another_study_and_a_mere_restart_are_no_roll_back(silo):
    WORDS["a list"](silo.state, Place(OTHER, 2, 3))
    silo.roll_back()
    WORDS["a list"](silo.state, PLACE)
    silo.copy()
    silo.roll_back()
    silo.state.anchored.require(PLACE)
    with pytest.raises(StateRolledBackError):
        silo.state.anchored.require(Place(OTHER, 2, 4))


def test_a_death_before_the_ledger_knows_is_no_roll_back_for_nothing_was_said(silo, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Anchors, "raise_to", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            WORDS["a list"](silo.state, PLACE)
    silo.state.close()
    silo.start()
    assert Anchors(silo.ledger).of(STUDY).said == 0
    silo.state.anchored.require(PLACE)
    assert Anchors(silo.ledger).of(STUDY).said == 1, "before the stored word is said"
    silo.roll_back()
    with pytest.raises(StateRolledBackError):
        silo.state.anchored.require(PLACE)


def test_the_ledger_knows_before_anybody_else_can(silo):
    for said, word in enumerate(WORDS.values(), start=1):
        word(silo.state, PLACE)
        assert Anchors(silo.ledger).of(STUDY).said == said


def test_a_word_that_is_refused_binds_nobody(silo):
    WORDS["a list"](silo.state, PLACE)
    with pytest.raises(SurvivorsError):
        silo.state.promises.sign(PLACE, Tensor.HEADS, ("north", "west"))
    assert Anchors(silo.ledger).of(STUDY).said == 1


# --- folder and ledger put back together -----------------------------------------------------------------------------


def test_a_word_of_which_nothing_else_is_kept_counts_before_it_is_said(silo):
    WORDS["a list"](silo.state, PLACE)
    assert silo.state.anchored.say(PLACE) == silo.count() == Anchors(silo.ledger).of(STUDY).said == 2
    assert silo.state.anchored.say(PLACE) == 3
    silo.state.close()
    silo.start()
    assert silo.count() == 3
    silo.roll_back()
    with pytest.raises(StateRolledBackError):
        silo.state.anchored.say(PLACE)


@pytest.mark.parametrize("said", [1, 2, 3, 9])
def test_what_a_peer_shows_bars_the_round_for_good_and_the_counts_go_on_above_it(silo, said):
    WORDS["a list"](silo.state, PLACE)
    WORDS["a reveal"](silo.state, PLACE)
    with pytest.raises(StateOlderError, match="older than what south last saw of it; restore the newer one, with its"):
        silo.state.anchored.shown(PLACE, "south", said)
    assert silo.count() == Anchors(silo.ledger).of(STUDY).said == max(2, said)
    silo.state.close()
    silo.start()
    for word in WORDS.values():
        with pytest.raises(StateRolledBackError):
            word(silo.state, Place(STUDY, PLACE.round, 9))
    WORDS["a list"](silo.state, NEXT)
    assert silo.count() == max(2, said) + 1
    silo.state.anchored.require(Place(OTHER, 0, 1))


def test_what_a_peer_shows_stays_known_where_the_folder_alone_is_put_back_again(silo):
    with pytest.raises(StateOlderError):
        silo.state.anchored.shown(PLACE, "south", 5)
    silo.roll_back()
    with pytest.raises(StateRolledBackError, match="up to round 2"):
        silo.state.anchored.require(PLACE)


def test_a_newer_copy_of_both_is_not_barred(silo, tmp_path):
    for _ in range(5):
        silo.state.anchored.say(PLACE)
    silo.state.close()
    newer = shutil.copytree(tmp_path / "state", tmp_path / "newer")
    ledger = shutil.copy(silo.ledger, tmp_path / "newer.sqlite3")
    silo.start()
    with pytest.raises(StateOlderError):
        silo.state.anchored.shown(PLACE, "south", 5)
    silo.state.close()
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(newer, tmp_path / "state")
    shutil.copy(ledger, silo.ledger)
    silo.start()
    silo.state.anchored.require(PLACE)
