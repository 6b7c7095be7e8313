import pytest
import torch
from torch.distributions import Normal, kl_divergence

from silo_agent.learning.losses import cross_entropy, gaussian_kl, head_logits, squared_norm


def data(n=6, k=3, domains=2):
    g = torch.Generator().manual_seed(0)
    phi, heads = torch.randn(n, k, generator=g), torch.randn(domains, k + 1, generator=g)
    return phi, heads, torch.arange(n) % domains, (torch.arange(n) % 3 == 0).float()


def test_each_record_is_judged_by_its_own_domains_head():
    phi, heads, domains, labels = data()
    logits = head_logits(phi, heads, domains)
    for i in range(len(phi)):
        assert logits[i].item() == pytest.approx((phi[i] @ heads[i % 2, :-1] + heads[i % 2, -1]).item(), abs=1e-6)
    p = torch.sigmoid(logits)
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log())
    torch.testing.assert_close(cross_entropy(phi, heads, domains, labels), expected)


def test_every_loss_of_a_record_is_the_same_in_any_batch():
    phi, heads, domains, labels = data()
    moments = [t.abs() + 0.1 for t in torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(1))]
    whole = cross_entropy(phi, heads, domains, labels), squared_norm(phi), gaussian_kl(*moments)
    for i in range(len(phi)):
        one = slice(i, i + 1)
        alone = (
            cross_entropy(phi[one], heads, domains[one], labels[one]),
            squared_norm(phi[one]),
            gaussian_kl(*(t[one] for t in moments)),
        )
        for a, b in zip(alone, whole, strict=True):
            torch.testing.assert_close(a, b[one])


def test_the_divergence_is_that_of_gaussians():
    mean, deviation, other, width = (t.abs() + 0.1 for t in torch.randn(4, 5, 3))
    expected = kl_divergence(Normal(mean, deviation), Normal(other, width)).sum(1)
    torch.testing.assert_close(gaussian_kl(mean, deviation, other, width), expected)
    torch.testing.assert_close(gaussian_kl(mean, deviation, mean, deviation), torch.zeros(5), atol=1e-6, rtol=0)
