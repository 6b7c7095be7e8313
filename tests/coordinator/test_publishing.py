"""Nothing is accepted that a study does not list; what is shown is exactly what enough silos have signed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator import publishing
from protos.messages import Confirm, Figure, MessageError, Place, Publication, SignedPublication, Tensor
from protos.steps import Task
from support.studies import tiny_study

STUDY = tiny_study(publish=["auc", "patients"])
PLACE = Place(STUDY.digest, 2, 1)
FIGURES = tuple(Figure(domain, metric, 0.5, 0.0, 1.0) for domain in ("a", "b") for metric in ("auc", "patients"))


def confirmed(figures=FIGURES, **changes):
    fields = {"publication": Publication(STUDY.digest, tuple(figures)).canonical(), "signature": b"s"}
    return Confirm(PLACE, Task.OPEN, Tensor.METRICS, "m", **{**fields, **changes})


def accept(confirm, study=STUDY):
    return publishing.accept(study, "north", confirm, b"certificate")


def test_all_that_is_listed_is_accepted_in_any_order():
    for figures in (FIGURES, FIGURES[::-1]):
        confirm = confirmed(figures)
        assert accept(confirm) == SignedPublication("north", confirm.publication, b"s", b"certificate")


def test_figures_of_all_patients_are_due_if_the_study_says_so():
    study = tiny_study(publish=STUDY.publish, evaluation={"together": True})
    figures = (*FIGURES, *(replace(figure, domain="all patients") for figure in FIGURES if figure.domain == "a"))
    whole = confirmed(publication=Publication(study.digest, figures).canonical())
    assert accept(whole, study) is not None
    with pytest.raises(MessageError, match="it lacks auc of 'all patients'"):
        accept(confirmed(publication=Publication(study.digest, FIGURES).canonical()), study)


def test_how_far_a_hospital_could_move_a_figure_stands_beside_it_if_the_study_announces_hospitals():
    announced = tiny_study(publish=STUDY.publish, expected={"patients": [600]})
    moved = Figure("a", "auc_moved", 0.1, 0.0, 0.1)
    for figures in (FIGURES, (*FIGURES, moved)):
        whole = confirmed(publication=Publication(announced.digest, figures).canonical())
        assert accept(whole, announced) is not None
    with pytest.raises(MessageError, match="the study does not publish auc_moved of 'a'"):
        accept(confirmed((*FIGURES, moved)))
    for other in (replace(moved, metric="accuracy_moved"), replace(moved, domain="c")):
        with pytest.raises(MessageError, match=f"the study does not publish {other.metric} of {other.domain!r}"):
            accept(confirmed(publication=Publication(announced.digest, (*FIGURES, other)).canonical()), announced)
    with pytest.raises(MessageError, match="it lacks auc of 'b'"):
        accept(
            confirmed(publication=Publication(announced.digest, (*FIGURES[:2], FIGURES[3], moved)).canonical()),
            announced,
        )


@pytest.mark.parametrize(
    ("confirm", "sentence"),
    [
        (
            confirmed(publication=b"", signature=b""),
            "confirm.publication: is missing; the study publishes auc, patients",
        ),
        (confirmed(publication=b"{}"), "publication: is not a publication"),
        (confirmed((*FIGURES, replace(FIGURES[0], metric="accuracy"))), "the study does not publish accuracy of 'a'"),
        (confirmed((*FIGURES, replace(FIGURES[0], domain="c"))), "the study does not publish auc of 'c'"),
        (confirmed(FIGURES[1:]), "it lacks auc of 'a'"),
        (confirmed(()), "it lacks auc of 'a'"),
        (confirmed(publication=Publication("f" * 64, FIGURES).canonical()), "is about the study ffffffffffff"),
    ],
)
def test_anything_else_is_refused_by_name(confirm, sentence):
    with pytest.raises(MessageError, match=sentence):
        accept(confirm)


def test_what_is_not_due_is_neither_needed_nor_taken():
    silent = tiny_study()
    for confirm, study in (
        (Confirm(PLACE, Task.OPEN, Tensor.HEADS), STUDY),
        (Confirm(PLACE, Task.ADOPT), STUDY),
        (Confirm(PLACE, Task.OPEN, Tensor.METRICS, dispute="sum"), STUDY),
        (Confirm(PLACE, Task.OPEN, Tensor.METRICS), silent),
    ):
        assert accept(confirm, study) is None
    with pytest.raises(MessageError, match="the study publishes nothing"):
        accept(confirmed(), silent)


values = st.sampled_from((None, 0.25, 0.5))


@given(
    st.lists(st.tuples(values, values), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_shown_is_what_enough_agree_on_and_nothing_else_has_as_many(signed, needed):
    publications = [
        SignedPublication(
            f"silo-{i}",
            Publication(
                STUDY.digest, (Figure("a", "auc", one, 0.0, 1.0), Figure("b", "auc", other, 0.0, 1.0))
            ).canonical(),
            b"s",
            b"certificate",
        )
        for i, (one, other) in enumerate(signed)
    ]
    shown = {one.figure.domain: one for one in publishing.agreed(publications, needed)}
    for domain, column in (("a", 0), ("b", 1)):
        votes = Counter(row[column] for row in signed)
        winners = [value for value, count in votes.items() if count >= needed]
        if len(winners) == 1:
            found = shown.pop(domain)
            assert (found.figure, found.silos) == (Figure(domain, "auc", winners[0], 0.0, 1.0), votes[winners[0]])
    assert not shown


def test_another_interval_is_another_figure():
    blobs = [Publication(STUDY.digest, (Figure("a", "auc", 0.5, low, 1.0),)).canonical() for low in (0.0, 0.1)]
    publications = [SignedPublication(f"silo-{i}", blob, b"s", b"certificate") for i, blob in enumerate(blobs)]
    assert publishing.agreed(publications, 2) == ()
