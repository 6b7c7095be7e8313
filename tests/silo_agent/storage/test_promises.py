import sqlite3
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine

from protos.messages import Place, Tensor
from silo_agent.core.bonds import SurvivorsError
from silo_agent.storage.errors import SecondSumError
from silo_agent.storage.keyed.anchored import Anchored
from silo_agent.storage.promises import KeptRefusal, Promises, key_sums
from support.states import DIGESTS, keyed

STUDY, OTHER = "5" * 64, "6" * 64
PLACE = Place(STUDY, 2, 3)
NAMES, OTHERS = ("east", "north", "west"), ("east", "north")
HEADS = Tensor.HEADS
LABEL = "a" * 64


def at(attempt):
    return replace(PLACE, attempt=attempt)


@pytest.fixture
def promises(tmp_path):
    """Every call is made by a process that has just begun."""

    class Restarted:
        def __getattr__(self, name):
            return getattr(Promises(create_engine(f"sqlite:///{tmp_path / 'state.sqlite3'}"), DIGESTS), name)

    return Restarted()


# --- lists ------------------------------------------------------------------------------------------------------------
def test_for_one_sum_of_a_round_one_list_is_signed_and_contributed_to(promises):
    assert promises.binding(PLACE, HEADS) == ()
    promises.require(PLACE, HEADS, OTHERS)
    promises.sign(PLACE, HEADS, NAMES)
    for attempt in (1, 3, 9):
        promises.sign(at(attempt), HEADS, NAMES)
        promises.require(at(attempt), HEADS, NAMES)
        for names in (OTHERS, (*NAMES, "zoo")):
            for ask in (promises.sign, promises.require):
                with pytest.raises(SurvivorsError, match="east, north, west; it takes part in no sum of others"):
                    ask(at(attempt), HEADS, names)
    assert promises.binding(PLACE, HEADS) == NAMES


@pytest.mark.parametrize(
    ("place", "tensor"),
    [(PLACE, Tensor.ENCODER), (replace(PLACE, round=3), HEADS), (replace(PLACE, study=OTHER), HEADS)],
)
def test_another_sum_has_promises_of_its_own(promises, place, tensor):
    promises.sign(PLACE, HEADS, NAMES)
    promises.reveal(PLACE, HEADS)
    promises.sign(place, tensor, OTHERS)
    assert promises.void(place, tensor, 3)
    promises.close(place, tensor, 3)
    assert (promises.binding(PLACE, HEADS), promises.binding(place, tensor)) == (NAMES, ())
    assert (promises.voided(PLACE, HEADS), promises.voided(place, tensor)) == (0, 3)


def test_in_one_attempt_a_silo_contributes_among_the_same_silos_only(promises):
    promises.contribute(PLACE, HEADS, NAMES)
    promises.contribute(PLACE, HEADS, NAMES)
    with pytest.raises(SurvivorsError, match=r"in attempt 3 among east, north, west. It seals none among"):
        promises.contribute(PLACE, HEADS, OTHERS)
    promises.contribute(PLACE, Tensor.ENCODER, OTHERS)
    promises.contribute(at(4), HEADS, OTHERS)
    assert promises.binding(PLACE, HEADS) == ()


# --- voids ------------------------------------------------------------------------------------------------------------
def test_who_has_voided_neither_reveals_nor_signs_in_those_attempts(promises):
    promises.sign(at(2), HEADS, NAMES)
    assert promises.void(at(4), HEADS, 3)
    for attempt in (1, 2, 3):
        with pytest.raises(SurvivorsError, match="has voided"):
            promises.reveal(at(attempt), HEADS)
        with pytest.raises(SurvivorsError, match="was voided"):
            promises.sign(at(attempt), HEADS, NAMES)
    with pytest.raises(SurvivorsError, match="no sum of others"):
        promises.sign(at(4), HEADS, OTHERS)
    promises.close(at(4), HEADS, 3)
    promises.sign(at(4), HEADS, OTHERS)
    promises.reveal(at(4), HEADS)
    assert promises.binding(PLACE, HEADS) == OTHERS


def test_who_has_revealed_does_not_void_until_others_have_closed_it(promises):
    promises.sign(at(2), HEADS, NAMES)
    promises.reveal(at(2), HEADS)
    assert not promises.void(at(4), HEADS, 3)
    assert promises.voided(PLACE, HEADS) == 0
    promises.close(at(4), HEADS, 3)
    promises.sign(at(4), HEADS, OTHERS)
    assert promises.void(at(6), HEADS, 5), "what it revealed was closed without it"


def test_a_void_of_fewer_attempts_frees_no_later_list(promises):
    promises.sign(at(5), HEADS, NAMES)
    promises.close(at(6), HEADS, 4)
    assert promises.binding(PLACE, HEADS) == NAMES


def test_a_list_that_an_earlier_version_signed_binds_for_ever_and_is_not_voided(tmp_path):
    """That version kept no reveals, so the list may have been opened."""
    state = keyed(tmp_path / "state")
    state.close()
    with closing(sqlite3.connect(tmp_path / "state" / "state.sqlite3")) as database:
        database.execute("DROP TABLE promises")
        database.execute("DROP TABLE sums")
        database.execute("INSERT INTO survivors VALUES (?, 2, 'heads', ?)", (STUDY, '["east", "north", "west"]'))
        database.commit()
    state = keyed(tmp_path / "state")
    try:
        promises = state.promises
        assert promises.binding(PLACE, HEADS) == NAMES
        assert not promises.void(at(4), HEADS, 3)
        promises.sign(at(4), HEADS, NAMES)
        assert not promises.void(at(5), HEADS, 4)
        with pytest.raises(SurvivorsError):
            promises.sign(at(5), HEADS, OTHERS)
    finally:
        state.close()


@settings(max_examples=25, deadline=None)
@given(
    silos=st.integers(3, 6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(("sign", "reveal", "void")), st.sets(st.integers(0, 5)), st.booleans(), st.booleans()
        ),
        max_size=8,
    ),
)
def test_no_two_lists_are_revealed_by_enough_silos(silos, steps):
    """The counting argument of docs/design/sums.md, "Voided lists", played with the promises alone; silo 0 colludes."""
    needed = (silos + 1) // 2 + 1
    honest = {number: Promises(create_engine("sqlite://")) for number in range(1, silos)}
    revealed: dict[tuple[int, tuple[str, ...]], set[int]] = {}
    for attempt, (what, asked, other, hand) in enumerate(steps, 1):
        place, names = at(attempt), OTHERS if other else NAMES
        present = sorted(asked & set(honest))
        if what == "void":
            if attempt > 1:
                given_ = [n for n in present if honest[n].void(place, HEADS, attempt - 1)]
                if len(given_) + 1 >= needed:
                    for number in honest if hand else present:
                        honest[number].close(place, HEADS, attempt - 1)
            continue
        signed = [n for n in present if _signs(honest[n], place, names)]
        if len(signed) + 1 >= needed and what == "reveal":
            for number in signed:
                honest[number].reveal(place, HEADS)
            revealed.setdefault((attempt, names), {0}).update(signed)
    assert len({names for (_, names), who in revealed.items() if len(who) >= needed}) <= 1


def _signs(promises, place, names):
    try:
        promises.sign(place, HEADS, names)
    except SurvivorsError:
        return False
    return True


# --- sums -------------------------------------------------------------------------------------------------------------
def test_of_all_sums_under_one_label_the_first_alone_is_tried(promises):
    promises.open(PLACE, LABEL, "1" * 64)
    promises.open(PLACE, LABEL, "1" * 64)
    with pytest.raises(SecondSumError, match="only the first is ever tried"):
        promises.open(PLACE, LABEL, "2" * 64)
    promises.open(PLACE, "b" * 64, "2" * 64)


# --- spoilt sums ------------------------------------------------------------------------------------------------------
def test_after_a_spoilt_sum_the_round_begins_anew_for_every_tensor_and_nothing_else_does(promises):
    for tensor in (HEADS, Tensor.ENCODER):
        promises.sign(at(2), tensor, NAMES)
        promises.reveal(at(2), tensor)
    promises.renew(at(3), 2)
    assert (promises.spoilt(at(3)), promises.spoilt(replace(PLACE, round=3)), promises.spoilt(Place(OTHER, 2, 3))) == (
        2,
        0,
        0,
    )
    for tensor in (HEADS, Tensor.ENCODER):
        assert promises.binding(at(3), tensor) == ()
        promises.sign(at(3), tensor, OTHERS)
        assert promises.binding(at(4), tensor) == OTHERS
        with pytest.raises(SurvivorsError):
            promises.sign(at(4), tensor, NAMES)


def test_in_a_spoilt_attempt_nothing_is_signed_or_revealed_again(promises):
    promises.sign(at(2), HEADS, NAMES)
    promises.renew(at(3), 2)
    for attempt in (1, 2):
        with pytest.raises(SurvivorsError, match="voided or spoilt"):
            promises.sign(at(attempt), HEADS, OTHERS)
        with pytest.raises(SurvivorsError, match="a member has spoilt the sum"):
            promises.reveal(at(attempt), HEADS)


def test_who_has_revealed_before_a_spoilt_sum_can_void_what_came_after_it(promises):
    promises.sign(at(2), HEADS, NAMES)
    promises.reveal(at(2), HEADS)
    assert not promises.void(at(3), HEADS, 2)
    promises.renew(at(3), 2)
    promises.sign(at(3), HEADS, NAMES)
    assert promises.void(at(4), HEADS, 3)
    promises.sign(at(4), HEADS, NAMES)
    promises.reveal(at(4), HEADS)
    assert not promises.void(at(5), HEADS, 4)


def test_an_older_proof_takes_nothing_back(promises):
    promises.renew(at(5), 4)
    promises.renew(at(5), 2)
    assert promises.spoilt(at(5)) == 4


def test_the_first_refusal_of_a_sum_stays_and_is_of_its_attempt_and_tensor_alone(promises):
    promises.refuse(at(2), HEADS, KeptRefusal(LABEL, ""))
    promises.refuse(at(2), HEADS, KeptRefusal("b" * 64, "west"))
    assert promises.refused(at(2), HEADS) == KeptRefusal(LABEL, "")
    assert promises.refused(at(3), HEADS) is promises.refused(at(2), Tensor.ENCODER) is None


def test_a_spoilt_sum_stays_among_those_that_its_silos_are_charged_for(promises):
    """It counts as opened for ever, though its list binds nobody and another takes its place."""
    others, fewer = ("north", "south", "west"), ("north", "west")
    for tensor in (HEADS, Tensor.ENCODER):
        promises.sign(at(2), tensor, others)
    promises.renew(at(3), 2)
    assert not promises.binding(at(3), HEADS)
    promises.sign(at(3), HEADS, fewer)
    assert set(promises.lists_of("south")) == {(at(2), Tensor.ENCODER), (at(2), HEADS)}
    assert set(promises.lists_of("west")) == {(at(2), Tensor.ENCODER), (at(2), HEADS), (at(3), HEADS)}
    promises.renew(at(4), 3)
    promises.renew(at(4), 3)
    assert set(promises.lists_of("west")) == {(at(2), Tensor.ENCODER), (at(2), HEADS), (at(3), HEADS)}


def test_a_list_that_was_voided_before_a_spoilt_sum_was_never_opened(promises):
    promises.sign(at(1), HEADS, ("north", "south"))
    promises.close(at(2), HEADS, 1)
    promises.renew(at(3), 2)
    assert promises.lists_of("south") == []


# --- the database -----------------------------------------------------------------------------------------------------
def test_plain_digests_of_an_earlier_version_are_keyed_each_by_itself(tmp_path, promises):
    engine = create_engine(f"sqlite:///{tmp_path / 'state.sqlite3'}")
    plain = {label * 64: digest * 64 for label, digest in ("ax", "by", "cz")}
    assert promises.binding(PLACE, HEADS) == ()
    with closing(sqlite3.connect(tmp_path / "state.sqlite3")) as database:
        database.executemany("INSERT INTO sums VALUES (?, ?)", plain.items())
        database.commit()
        with engine.begin() as connection:
            key_sums(connection, DIGESTS)
        stored = dict(database.execute("SELECT label, sha256 FROM sums"))
        with pytest.raises(sqlite3.IntegrityError):
            database.execute("INSERT INTO sums VALUES (?, ?)", ("a" * 64, "f" * 64))
    assert stored == {label: DIGESTS.keyed("sum", digest) for label, digest in plain.items()}


def test_words_are_counted_where_the_folder_counts_them(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'state.sqlite3'}")
    anchored = Anchored(engine)
    anchored.binding = Mock(wraps=anchored.binding)
    Promises(engine, DIGESTS, anchored).sign(PLACE, HEADS, NAMES)
    anchored.binding.assert_called_once_with(PLACE)
