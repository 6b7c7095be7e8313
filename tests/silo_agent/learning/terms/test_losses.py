import pytest
import torch
from torch.distributions import Normal, kl_divergence

from silo_agent.learning.terms.losses import cross_entropy, gaussian_kl, head_logits, squared_norm


def data(n=6, k=3, domains=2, rows=1):
    g = torch.Generator().manual_seed(0)
    phi, heads = torch.randn(n, k, generator=g), torch.randn(domains, rows * (k + 1), generator=g)
    return phi, heads, torch.arange(n) % domains, torch.arange(n) % max(rows, 2)


def test_each_record_is_judged_by_its_own_domains_head():
    phi, heads, domains, labels = data()
    logits = head_logits(phi, heads, domains)
    assert logits.shape == (6, 1)
    for i in range(len(phi)):
        assert logits[i].item() == pytest.approx((phi[i] @ heads[i % 2, :-1] + heads[i % 2, -1]).item(), abs=1e-6)
    p = torch.sigmoid(logits[:, 0])
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log())
    torch.testing.assert_close(cross_entropy(phi, heads, domains, labels), expected)


def test_more_classes_have_a_row_of_weights_each():
    phi, heads, domains, labels = data(rows=3)
    logits = head_logits(phi, heads, domains)
    assert logits.shape == (6, 3)
    for i in range(len(phi)):
        rows = heads[i % 2].reshape(3, 4)
        torch.testing.assert_close(logits[i], rows[:, :-1] @ phi[i] + rows[:, -1])
    expected = -torch.log_softmax(logits, dim=1)[torch.arange(6), labels]
    torch.testing.assert_close(cross_entropy(phi, heads, domains, labels), expected)


def test_two_rows_would_be_the_one_row_of_their_difference():
    phi, heads, domains, labels = data(rows=2)
    one = heads[:, 4:] - heads[:, :4]
    torch.testing.assert_close(
        cross_entropy(phi, one, domains, labels), cross_entropy(phi, heads, domains, labels), atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("rows", [1, 3])
def test_every_loss_of_a_record_is_the_same_in_any_batch(rows):
    phi, heads, domains, labels = data(rows=rows)
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
