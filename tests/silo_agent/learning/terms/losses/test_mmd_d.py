import pytest
import torch

from silo_agent.learning.terms.losses.deep_kernel import DeepKernel, discrepancy
from silo_agent.learning.terms.losses.mmd_d import loss
from silo_agent.learning.terms.term import Seen


def test_it_is_the_unbiased_estimate_and_its_gradient_reaches_the_own_features_alone():
    kernel, own, shared = DeepKernel(2), torch.randn(6, 2, requires_grad=True), torch.randn(6, 2)
    beside = torch.cat([own, torch.ones(6, 3)], dim=1)
    found = loss(Seen(None, beside, reference=shared, kernel=kernel), None, None)
    assert found == discrepancy(kernel.statistics(own, shared))
    (gradient,) = torch.autograd.grad(found, own)
    assert gradient.abs().sum() > 0


def test_one_record_has_no_discrepancy_and_no_kernel_is_an_error():
    seen = Seen(None, torch.ones(1, 2), reference=torch.ones(1, 2))
    assert loss(seen, None, None) == 0
    with pytest.raises(ValueError, match="deep kernel"):
        loss(Seen(None, torch.ones(2, 2), reference=torch.ones(2, 2)), None, None)
