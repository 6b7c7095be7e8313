"""What is left to 1 keeps its digits, however sure a prediction is, and so has everything that is made of it."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from silo_agent.learning.outcomes.expected import ExpectedOutcomes, others
from silo_agent.learning.outcomes.registry import family_of

FEW_BITS = 2e-15
"""Of a value by relative error, beside one unit for each class that a sum adds."""


def exactly(logits):
    """Probabilities of the softmax of float64 logits, and what the others have, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        parts = [Decimal(value).exp() for value in logits]
        total = sum(parts)
        return [part / total for part in parts], [sum(parts[:c] + parts[c + 1 :]) / total for c in range(len(parts))]


def near(found, exact, size):
    """Whether float64 values have all but their last bits. Those below 1e-290 have none left."""
    pairs = zip(found, exact, strict=True)
    return all(abs(Decimal(a) - b) <= max(b * Decimal(FEW_BITS + size * 2.3e-16), Decimal("1e-290")) for a, b in pairs)


gaps = st.one_of(st.floats(-700, 700), st.floats(-40, 40), st.sampled_from([0.0, 18.0, 19.0, 36.7, 37.5, -19.0]))


@given(st.lists(gaps, min_size=3, max_size=9), st.integers(0, 8))
@settings(max_examples=200)
def test_of_a_softmax_every_value_and_norm_has_its_digits(logits, label):
    family, label = family_of(len(logits)), label % len(logits)
    logits = np.array(logits) - max(logits)  # so that the gaps are those that a softmax sees, to the bit
    expected = family.expected(torch.tensor(logits)[None])
    mean, rest = exactly(logits)
    assert near(expected.mean[0].tolist(), mean, len(logits))
    assert near(expected.rest[0].tolist(), rest, len(logits))
    error = [-left if c == label else p for c, (p, left) in enumerate(zip(mean, rest, strict=True))]
    found = family.residual(expected, torch.tensor([label]))[0].tolist()
    assert near(map(abs, found), map(abs, error), len(logits))
    assert [value <= 0 for value in found if value] == [c == label for c, value in enumerate(found) if value]
    with localcontext() as context:
        context.prec = 60
        squares = sum((p * left) ** 2 for p, left in zip(mean, rest, strict=True))
        squares += 2 * sum((mean[c] * mean[d]) ** 2 for c in range(len(mean)) for d in range(c))
        norm = squares.sqrt()
    if norm > Decimal("1e-140"):  # its square is a number
        assert near([family.curvature_norm(expected).item()], [norm], 3 * len(logits))


@given(gaps, st.integers(0, 1))
def test_of_two_classes_too(logit, label):
    family = family_of(2)
    expected = family.expected(torch.tensor([[logit]], dtype=torch.float64))
    mean, rest = exactly([0.0, logit])
    assert near(expected.mean[0].tolist(), mean[1:], 2)
    assert near(expected.rest[0].tolist(), rest[1:], 2)
    error = -rest[1] if label else mean[1]
    assert near(map(abs, family.residual(expected, torch.tensor([label]))[0].tolist()), [abs(error)], 2)
    assert near([family.curvature_norm(expected).item()], [mean[1] * rest[1]], 4)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_others_are_all_but_the_value_itself(size):
    values = torch.tensor(np.random.default_rng(size).random((4, size)) * 10.0 ** np.arange(0, -3 * size, -3))
    for row, found in zip(values.tolist(), others(values).tolist(), strict=True):
        assert found == pytest.approx([sum(row[:c] + row[c + 1 :]) for c in range(size)], rel=1e-15)


def test_a_record_without_a_number_is_told_and_the_others_keep_theirs():
    mean = torch.tensor([[0.5, 0.5], [float("nan"), 1.0], [0.25, 0.75]])
    rest = torch.tensor([[0.5, 0.5], [0.0, 0.0], [float("inf"), 0.25]])
    found, sound = ExpectedOutcomes(mean, rest).sound()
    assert sound.tolist() == [True, False, False]
    assert torch.isfinite(torch.cat([found.mean, found.rest])).all()
    assert found.of(torch.tensor([0])).rest.tolist() == [[0.5, 0.5]]
    assert [len(part.mean) for part in found.split(2)] == [2, 1]
