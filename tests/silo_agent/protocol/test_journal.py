from dataclasses import replace

import numpy as np
import pytest

from protos.messages import Place, Tensor, Work
from protos.steps import Task
from silo_agent.core import turns
from silo_agent.core.turns import Stage, Turn
from silo_agent.learning.model.shared import SharedModel
from silo_agent.protocol.journal import Journal, Standing
from silo_agent.storage.errors import StateError
from support.states import keyed
from support.studies import tiny_study

STUDY = tiny_study()
PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))


@pytest.fixture
def state(tmp_path):
    opened = keyed(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def journal(state):
    return Journal(state)


def standing(*, number=0, total=None, stage=Stage.SEATED):
    model = SharedModel.start(STUDY)
    heads = np.full(model.heads.shape, float(number))
    turn = replace(turns.sit(Turn(PLAN), Place(STUDY.digest, 0, 1)), stage=stage)
    return Standing(turn, model.with_heads(heads, number), f"{number:064x}", total)


def files(state):
    return sorted(path.name for path in state.study_folder(STUDY.digest).glob("attempt-*"))


def same(one, other):
    totals = (one.total, other.total)
    return (
        (one.turn, one.digest, one.model.to_bytes()) == (other.turn, other.digest, other.model.to_bytes())
        and (totals[0] is None) == (totals[1] is None)
        and (totals[0] is None or np.array_equal(*totals))
    )


def test_nothing_is_recalled_where_nothing_was_kept(journal):
    assert journal.recall(STUDY.digest) is None
    journal.forget(STUDY.digest)


@pytest.mark.parametrize("total", [None, np.array([3, -(2**40), 0], np.int64)])
def test_a_standing_is_recalled_as_it_was(journal, state, total):
    kept = standing(number=4, total=total)
    journal.keep(STUDY.digest, kept)
    assert same(Journal(state).recall(STUDY.digest), kept)


def test_the_last_standing_counts_and_the_files_of_older_ones_are_gone(journal, state):
    for number in range(4):
        total = None if number == 3 else np.array([number], np.int64)
        journal.keep(STUDY.digest, standing(number=number, total=total))
    assert same(journal.recall(STUDY.digest), standing(number=3))
    assert len(files(state)) == 1


def test_a_model_that_did_not_change_is_not_written_again(journal, state):
    journal.keep(STUDY.digest, standing())
    (name,) = files(state)
    written = (state.study_folder(STUDY.digest) / name).stat().st_mtime_ns
    journal.keep(STUDY.digest, standing(stage=Stage.SENT))
    assert journal.recall(STUDY.digest).turn.stage is Stage.SENT
    assert (state.study_folder(STUDY.digest) / name).stat().st_mtime_ns == written


@pytest.mark.parametrize("suffix", ["safetensors", "i64"])
def test_a_file_that_is_not_as_it_was_is_an_error_by_name(journal, state, suffix):
    journal.keep(STUDY.digest, standing(total=np.arange(5)))
    (path,) = state.study_folder(STUDY.digest).glob(f"attempt-*.{suffix}")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(StateError, match="same backup"):
        journal.recall(STUDY.digest)
    path.unlink()
    with pytest.raises(StateError, match="same backup"):
        journal.recall(STUDY.digest)


def test_a_row_that_cannot_be_read_is_an_error_by_name(journal, state):
    state.keep_attempt(STUDY.digest, "{}")
    with pytest.raises(StateError, match="cannot be read"):
        journal.recall(STUDY.digest)


def test_a_finished_study_leaves_nothing(journal, state):
    journal.keep(STUDY.digest, standing(total=np.arange(3)))
    journal.forget(STUDY.digest)
    assert journal.recall(STUDY.digest) is None
    assert files(state) == []


def test_a_crash_between_file_and_row_leaves_the_standing_before(journal, state, monkeypatch):
    journal.keep(STUDY.digest, standing(number=1))

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(state, "keep_attempt", crash)
        with pytest.raises(KeyboardInterrupt):
            journal.keep(STUDY.digest, standing(number=2))
    assert same(journal.recall(STUDY.digest), standing(number=1))
    work = Work(Task.GREET, Place(STUDY.digest, 0, 1))
    assert turns.take(journal.recall(STUDY.digest).turn, work).last.task is Task.GREET
