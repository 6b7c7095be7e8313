import torch

from silo_agent.learning.heads.logits import head_logits
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.cross_entropy import cross_entropy, losses
from silo_agent.learning.terms.term import Batch, Seen


def data(n=6, k=3, domains=2, rows=1):
    g = torch.Generator().manual_seed(0)
    phi, heads = torch.randn(n, k, generator=g), torch.randn(domains, rows * (k + 1), generator=g)
    return phi, heads, torch.arange(n) % domains, torch.arange(n) % max(rows, 2)


def test_of_two_classes_it_is_that_of_the_one_logit():
    phi, heads, domains, labels = data()
    p = torch.sigmoid(head_logits(phi, heads, domains, 1)[:, 0])
    expected = -(labels * p.log() + (1 - labels) * (1 - p).log())
    torch.testing.assert_close(cross_entropy(family_of(2), phi, heads, domains, labels), expected)


def test_of_more_classes_it_is_that_of_the_softmax():
    phi, heads, domains, labels = data(rows=3)
    expected = -torch.log_softmax(head_logits(phi, heads, domains, 3), dim=1)[torch.arange(6), labels]
    torch.testing.assert_close(cross_entropy(family_of(3), phi, heads, domains, labels), expected)


def test_two_rows_would_be_the_one_row_of_their_difference():
    phi, heads, domains, labels = data(rows=2)
    one = heads[:, 4:] - heads[:, :4]
    softmax = torch.nn.functional.cross_entropy(head_logits(phi, heads, domains, 2), labels, reduction="none")
    torch.testing.assert_close(cross_entropy(family_of(2), phi, one, domains, labels), softmax, atol=1e-6, rtol=1e-5)


def test_a_record_counts_as_much_as_its_weight_says_and_once_without():
    phi, heads, domains, labels = data()
    plain = cross_entropy(family_of(2), phi, heads, domains, labels)
    for weights, expected in ((None, plain), (torch.arange(6.0), torch.arange(6.0) * plain)):
        batch = Batch(torch.zeros(6, 0), None, labels, domains, weights, heads, family_of(2))
        assert torch.equal(losses(Seen(batch, phi)), expected)
