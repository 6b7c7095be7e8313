"""What a silo has heard last of each other silo."""

from crypto.secagg.words import Word
from support.states import keyed

STUDY, OTHER = "5" * 64, "6" * 64


def word(said, signature=b"s", number=1, attempt=1):
    return Word(said, number, attempt, signature)


def test_the_highest_word_of_each_silo_in_each_study_stays_across_a_restart(tmp_path):
    state = keyed(tmp_path)
    assert state.heard.of(STUDY) == {}
    state.heard.keep(STUDY, {"south": word(3), "west": word(7)})
    state.heard.keep(STUDY, {"south": word(5, b"later", 2, 4), "west": word(6)})
    state.heard.keep(OTHER, {"south": word(1)})
    state.close()
    state = keyed(tmp_path)
    assert state.heard.of(STUDY) == {"south": word(5, number=2, attempt=4), "west": word(7)}
    assert state.heard.of(STUDY)["south"].signature == b"later"
    assert state.heard.of(OTHER) == {"south": word(1)}
    state.close()


def test_the_first_word_of_a_count_stays(tmp_path):
    state = keyed(tmp_path)
    state.heard.keep(STUDY, {"south": word(3, b"first")})
    state.heard.keep(STUDY, {"south": word(3, b"second"), "north": word(0)})
    assert {name: one.signature for name, one in state.heard.of(STUDY).items()} == {"south": b"first"}
    state.close()
