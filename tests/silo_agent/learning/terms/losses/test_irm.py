import numpy as np
import pytest
import torch

from policies.plan.families import TARGET_STEPS
from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.irm import loss, slopes
from silo_agent.learning.terms.term import Batch, Seen

KINDS = (2, 4, 1)
"""Two classes, four, and a number."""


def seen(kind, *, weights=None, environments=(0, 2, 0, 2, 2, 0, 0)):
    drawn, n, k = torch.Generator().manual_seed(kind), len(environments), 3
    family = family_of(kind)
    phi = torch.randn(n, k, generator=drawn, dtype=torch.float64, requires_grad=True)
    heads = torch.randn(2, family.form.logits * (k + 1), generator=drawn, dtype=torch.float64)
    y = torch.randint(TARGET_STEPS if kind == 1 else kind, (n,), generator=drawn)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    domains = torch.arange(n) % 2
    return Seen(Batch(phi, None, y, domains, given, heads, family, torch.tensor(environments)), phi)


def by_autograd(own, scale):
    """A record's loss with its logits times a factor."""
    batch = own.batch
    logits = head_logits(own.phi, batch.heads, batch.domains, batch.family.form.logits)
    return batch.family.losses(scale[:, None] * logits, batch.y)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_mean_of_squared_derivatives_of_the_environments_risks(kind):
    own = seen(kind)
    scale = torch.ones(7, dtype=torch.float64, requires_grad=True)
    (each,) = torch.autograd.grad(by_autograd(own, scale).sum(), scale)
    torch.testing.assert_close(slopes(own), each)
    where = own.batch.environments
    wanted = (each[where == 0].mean() ** 2 + each[where == 2].mean() ** 2) / 2
    torch.testing.assert_close(loss(own, None, None), wanted)


def test_of_two_classes_it_is_the_papers_closed_form():
    own = seen(2, environments=(1,) * 5)
    head, y = own.batch.heads[own.batch.domains], own.batch.y.numpy()
    logits = ((own.phi * head[:, :3]).sum(1) + head[:, 3]).detach().numpy()
    wanted = np.mean((1 / (1 + np.exp(-logits)) - y) * logits) ** 2
    assert loss(own, None, None).item() == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_its_gradient_reaches_the_features(kind):
    own = seen(kind)
    found = torch.autograd.grad(loss(own, None, None), own.phi)[0]
    step = torch.zeros_like(own.phi)
    step[3, 1] = 1e-6
    ends = [loss(Seen(own.batch, own.phi + sign * step), None, None).item() for sign in (1, -1)]
    assert found[3, 1].item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4, abs=1e-9)


def test_a_record_counts_as_its_loss_does():
    weights = (1.0, 0.5, 2.0, 3.0, 1.0, 0.25, 1.0)
    torch.testing.assert_close(slopes(seen(2, weights=weights)), torch.tensor(weights).double() * slopes(seen(2)))


def test_records_without_environments_are_an_error():
    own = seen(2)
    with pytest.raises(ValueError, match="the records have none"):
        loss(Seen(Batch(own.phi, None, own.batch.y, own.batch.domains, None, own.batch.heads, own.batch.family),
                  own.phi), None, None)  # fmt: skip
