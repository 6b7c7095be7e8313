"""What a silo signs of how much it has said."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.secagg.survivors import AttemptRef
from crypto.secagg.words import MOST, NOTHING, WORD_BYTES, Word, higher

AT = AttemptRef("5" * 64, "a" * 64, 2, 3)
OWN = Word(9, 2, 3, b"own")


def test_a_word_is_signed_over_silo_study_place_and_count():
    signed = []
    word = Word.of(AT, "north", 9, lambda message: signed.append(message) or b"signature")
    assert (word.said, word.round, word.attempt, word.signature) == (9, 2, 3, b"signature")
    assert signed == [word.to_sign(AT.study, "north")]
    messages = {
        word.to_sign(study, silo)
        for study in (AT.study, "6" * 64)
        for silo in ("north", "south")
        for word in (OWN, replace(OWN, said=8), replace(OWN, round=1), replace(OWN, attempt=2))
    }
    assert len(messages) == 16


@given(st.integers(0, MOST), st.integers(0, 2**16), st.integers(0, 2**16), st.binary(max_size=72))
def test_a_word_is_read_as_it_was_written(said, number, attempt, signature):
    word = Word(said, number, attempt, signature)
    blob = word.to_bytes()
    assert len(blob) == WORD_BYTES
    read = Word.from_bytes(blob)
    assert (read, read.signature) == (word, signature)


@given(st.binary(min_size=WORD_BYTES, max_size=WORD_BYTES))
def test_no_bytes_raise_and_none_give_a_count_that_no_store_can_hold(blob):
    assert 0 <= Word.from_bytes(blob).said <= MOST < 2**63


def test_a_count_above_the_largest_is_that_of_no_silo():
    assert Word.from_bytes(Word(MOST, 2, 3, b"s").to_bytes()).said == MOST
    assert Word.from_bytes(Word(MOST + 1, 2, 3, b"s").to_bytes()) == NOTHING
    assert Word.from_bytes(bytes(WORD_BYTES)) == NOTHING


@pytest.mark.parametrize(
    ("said", "place", "older"),
    [
        (8, (2, 2), False),
        (8, (2, 3), False),
        (9, (2, 3), False),
        (9, (2, 2), True),
        (9, (1, 3), True),
        (10, (2, 3), True),
        (10, (1, 1), True),
        (0, (0, 0), False),
    ],
)
def test_another_word_with_a_count_that_the_own_word_has_yet_to_pass_was_forgotten(said, place, older):
    assert Word(said, *place, b"other").precedes(OWN) is older


def test_only_higher_counts_replace_what_is_known():
    known = {"north": OWN, "south": OWN}
    words = {"north": replace(OWN, said=10), "south": replace(OWN, attempt=4), "west": OWN, "east": NOTHING}
    assert higher(known, words) == {"north": words["north"], "west": OWN}
