import pytest
import torch

from silo_agent.learning.terms.losses import cosine, mk_mmd, mmd_d
from silo_agent.learning.terms.losses.deep_kernel import DeepKernel
from silo_agent.learning.terms.term import LayerPair, Seen


@pytest.mark.parametrize("loss", [mk_mmd.loss, mmd_d.loss, cosine.loss])
def test_every_layer_that_is_compared_adds_its_own_value(loss):
    drawn = torch.Generator().manual_seed(0)
    layers = [
        LayerPair(torch.randn(8, width, generator=drawn), torch.randn(8, width, generator=drawn) + 1, DeepKernel(width))
        for width in (3, 5)
    ]
    alone = [loss(Seen(None, one.own, reference=one.constant, kernel=one.kernel), None, None) for one in layers]
    first, second = layers
    both = Seen(None, first.own, reference=first.constant, kernel=first.kernel, deeper=(second,))
    torch.testing.assert_close(loss(both, None, None), alone[0] + alone[1])
