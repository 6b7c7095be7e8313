from types import SimpleNamespace

import pytest
import torch

from silo_agent.learning.terms.guesser import TrainedGuesser
from silo_agent.learning.terms.losses.adversary import loss
from silo_agent.learning.terms.term import Batch, Seen

OWN = SimpleNamespace(encoder=SimpleNamespace(representation=2))


def test_it_is_less_the_guessers_loss_on_the_encoders_output_alone():
    phi = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    protected = (phi.detach()[:, :1] > 0).long()
    trained = TrainedGuesser(2, [2])
    trained.improve(phi[:, :2], protected, 30)
    guesser = trained.network
    batch = Batch(phi, None, protected[:, 0], protected[:, 0], None, phi, None, protected=protected)
    found = loss(Seen(batch, phi, adversary=guesser), OWN, None)
    assert found == -guesser.losses(phi[:, :2], protected).sum()
    (gradient,) = torch.autograd.grad(found, phi)
    assert gradient[:, :2].abs().sum() > 0
    assert gradient[:, 2:].abs().sum() == 0
    fooled = Batch(phi, None, protected[:, 0], protected[:, 0], None, phi, None, protected=1 - protected)
    worse = loss(Seen(fooled, phi, adversary=guesser), OWN, None)
    assert worse.item() == pytest.approx(-guesser.chance(protected).item())
    assert torch.autograd.grad(worse, phi)[0].abs().sum() == 0
    with pytest.raises(ValueError, match="needs its network"):
        loss(Seen(batch, phi), OWN, None)
