import numpy as np
import pytest

from policies.documents.study import Study
from silo_agent.learning.each_record import MOST_ROWS, chunk_rows, sum_records
from support.images import study_document
from support.studies import tiny_study

TERMS = np.arange(1.0, 31.0).reshape(10, 3)


def total(*, faulty=(), raised=None, value=np.nan, rows=4, **words):
    asked = []

    def term(chosen):
        asked.append(len(chosen))
        found = TERMS[chosen].copy()
        for place in np.flatnonzero(np.isin(chosen, faulty)):
            if raised is not None:
                raise raised
            found[place, 1] = value
        return found.sum(axis=0)

    return sum_records(len(TERMS), 3, term, rows=rows, **words), asked


def test_terms_are_summed_in_chunks_of_a_fixed_size():
    found, asked = total()
    np.testing.assert_array_equal(found, TERMS.sum(axis=0))
    assert asked == [4, 4, 2]


@pytest.mark.parametrize("raised", [ValueError, MemoryError, ZeroDivisionError, RuntimeError, KeyError])
def test_a_record_that_raises_costs_no_other_record_its_term(raised):
    found, asked = total(faulty=[5], raised=raised)
    np.testing.assert_allclose(found, np.delete(TERMS, 5, axis=0).sum(axis=0))
    assert asked == [4, 4, 1, 1, 1, 1, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_record_whose_term_is_not_finite_is_left_out_alone(value):
    found, _ = total(faulty=[0, 9], value=value)
    np.testing.assert_allclose(found, TERMS[1:9].sum(axis=0))


def test_a_term_of_another_size_is_left_out():
    assert sum_records(2, 3, lambda _: np.ones(4)).tolist() == [0, 0, 0]


def test_of_made_up_records_every_fault_is_raised():
    with pytest.raises(KeyError):
        total(faulty=[5], raised=KeyError, strict=True)
    with pytest.raises(FloatingPointError):
        total(faulty=[5], strict=True)
    np.testing.assert_array_equal(total(strict=True)[0], TERMS.sum(axis=0))


def test_a_wish_to_stop_is_not_a_records_fault():
    with pytest.raises(KeyboardInterrupt):
        total(faulty=[5], raised=KeyboardInterrupt)


def test_how_much_is_computed_at_once_follows_from_the_study():
    assert chunk_rows(tiny_study()) == MOST_ROWS
    wide = study_document()
    wide["data"]["image"].update(height=1024, width=1024)
    assert chunk_rows(Study.model_validate(wide)) == 4
