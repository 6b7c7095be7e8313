"""A name belongs to its owner, and the next revision comes when the last one is over."""

import pytest

from coordinator.core.revisions import Namesake, StudyExistsError, require_next
from coordinator.core.study import Life

ANN, EVE = "fedward://author/ann", "fedward://author/eve"
FIRST = Namesake("1" * 64, ANN, Life.ABORTED, 1)


@pytest.mark.parametrize(
    ("study", "revision", "who", "namesakes"),
    [
        ("2", 1, ANN, []),
        ("2", 7, ANN, []),
        ("2", 2, ANN, [FIRST]),
        ("2", 9, ANN, [FIRST, Namesake("3", ANN, Life.FINISHED, 8), Namesake("4", ANN, Life.ENDED, 2)]),
    ],
)
def test_what_may_be_created(study, revision, who, namesakes):
    require_next("exam", study, revision, who, namesakes)


@pytest.mark.parametrize(
    ("study", "revision", "who", "namesakes", "says"),
    [
        ("1" * 64, 2, ANN, [FIRST], "give the new one another name"),
        ("2", 2, EVE, [FIRST], "give the new one another name"),
        ("2", 2, "fedward://author/a", [FIRST], "give the new one another name"),
        ("2", 3, ANN, [Namesake("3", ANN, Life.ENDED, 8)], "in revision 8; state revision: 9"),
        ("2", 2, ANN, [Namesake("3", "", Life.ABORTED, 1)], "give the new one another name"),
        ("2", 1, ANN, [FIRST], "in revision 1; state revision: 2 to create it again"),
        ("2", 8, ANN, [Namesake("3", ANN, Life.ENDED, 8), FIRST], "in revision 8; state revision: 9"),
        ("2", 2, ANN, [Namesake("3", ANN, Life.CREATED, 1)], "and is created; delete it, or give"),
        ("2", 3, ANN, [FIRST, Namesake("3", ANN, Life.PAUSED, 2)], "and is paused; abort it, or wait"),
        ("2", 3, ANN, [FIRST, Namesake("3", EVE, Life.PAUSED, 2)], "give the new one another name"),
    ],
)
def test_what_may_not(study, revision, who, namesakes, says):
    with pytest.raises(StudyExistsError, match=f"^a study named 'exam' exists already.*{says}"):
        require_next("exam", study, revision, who, namesakes)
