import pytest
import torch

from silo_agent.learning.terms.losses.cosine import loss, turned
from silo_agent.learning.terms.term import Seen


def value(own, shared):
    return loss(Seen(None, own, reference=shared), None, None)


def test_it_is_one_less_the_mean_cosine_whatever_the_lengths():
    own = torch.tensor([[3.0, 0.0], [0.0, 0.5], [-2.0, 0.0], [1.0, 1.0]])
    shared = torch.tensor([[0.1, 0.0], [7.0, 0.0], [5.0, 0.0], [0.0, 2.0]])
    assert value(own, shared).item() == pytest.approx(1 - (1 + 0 - 1 + 0.5**0.5) / 4)
    assert value(torch.zeros(3, 2), torch.ones(3, 2)).item() == 1.0


def test_what_heads_read_beside_the_encoder_does_not_count():
    own, shared = torch.randn(5, 2), torch.randn(5, 2)
    assert value(torch.cat([own, torch.full((5, 3), 100.0)], 1), shared) == value(own, shared)


def test_its_gradient_turns_the_own_features():
    own, shared = (torch.randn(6, 2, dtype=torch.float64).requires_grad_() for _ in range(2))
    (gradient,) = torch.autograd.grad(value(own, shared.detach()), [own])
    assert torch.autograd.gradcheck(lambda x: value(x, shared.detach()), [own])
    torch.testing.assert_close((gradient * own).sum(dim=1), torch.zeros(6, dtype=torch.float64), atol=1e-12, rtol=0)


def test_without_a_constant_model_it_says_so():
    with pytest.raises(ValueError, match="there is none"):
        value(torch.ones(2, 2), None)


def test_batches_beside_each_other_give_what_each_gives_alone():
    x, y = torch.randn(3, 5, 2), torch.randn(1, 5, 2)
    torch.testing.assert_close(turned(x, y), torch.stack([turned(own, y[0]) for own in x]))
