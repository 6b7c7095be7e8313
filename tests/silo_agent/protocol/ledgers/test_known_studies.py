import pytest

from policies.documents.bounds import STORED
from policies.documents.study import Study
from policies.ledger.judging import Summed
from protos.messages import Place, Tensor
from silo_agent.protocol.ledgers.known_studies import KnownStudies
from silo_agent.storage.retention import today
from silo_agent.storage.state import State
from support.studies import tiny_document, tiny_study

RUNS, OVER = tiny_study(), tiny_study(name="over")
ELSEWHERE = tiny_study(name="elsewhere", silos=["south", "west", "east"])
BROKEN = Study.model_validate(tiny_document(name="broken", encoder={"learning_rate": 2e3}), context=STORED)


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path)
    for study in (RUNS, OVER, ELSEWHERE, BROKEN):
        made.add_study(study.digest, study.canonical())
    made.finish(OVER.digest, "finished", today())
    made.add_study("a" * 64, b"{")
    yield made
    made.close()


def test_the_studies_that_invite_a_silo_are_known_by_whether_they_run(state):
    known = KnownStudies(state)
    assert known.studies_of("north") == ([RUNS], [OVER])
    assert known.studies_of("east") == ([ELSEWHERE], [])
    state.finish(RUNS.digest, "aborted", today())
    assert known.studies_of("north") == ([], [RUNS, OVER]), "whether a study runs is asked each time"
    assert known.studies_of("nobody") == ([], [])


def test_the_releases_in_lists_that_were_signed_are_known_until_they_are_voided(state):
    known, place = KnownStudies(state), Place(RUNS.digest, 1, 2)
    state.promises.sign(place, Tensor.HEADS, ("north", "south"))
    state.promises.sign(place, Tensor.ENCODER, ("south", "west"))
    assert list(known.summed("north")) == [Summed(RUNS.digest, 1, 2, "heads")]
    assert list(known.summed("west")) == [Summed(RUNS.digest, 1, 2, "encoder")]
    assert state.promises.void(place, Tensor.HEADS, 2)
    state.promises.close(place, Tensor.HEADS, 2)
    assert list(known.summed("north")) == []
