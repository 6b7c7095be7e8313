import torch

from silo_agent.learning.terms.losses.l2r_plain import losses
from silo_agent.learning.terms.term import Seen


def test_it_is_the_length_with_a_finite_gradient_at_zero():
    phi = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0]], requires_grad=True)
    found = losses(Seen(None, phi))
    torch.testing.assert_close(found, torch.tensor([5.0, 0.0, 0.0]), atol=1e-5, rtol=0)
    (gradient,) = torch.autograd.grad(found.sum(), phi)
    torch.testing.assert_close(gradient, torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.0, 0.0]]))
