import pytest
import torch

from silo_agent.learning.heads.logits import head_logits


@pytest.mark.parametrize("rows", [1, 3])
def test_each_record_is_judged_by_its_own_domains_head(rows):
    g = torch.Generator().manual_seed(0)
    phi, heads = torch.randn(6, 3, generator=g), torch.randn(2, rows * 4, generator=g)
    logits = head_logits(phi, heads, torch.arange(6) % 2, rows)
    assert logits.shape == (6, rows)
    for i in range(len(phi)):
        own = heads[i % 2].reshape(rows, 4)
        torch.testing.assert_close(logits[i], own[:, :-1] @ phi[i] + own[:, -1])


@pytest.mark.parametrize("rows", [1, 3])
def test_a_row_without_a_bias_is_one_with_the_bias_zero(rows):
    g = torch.Generator().manual_seed(0)
    phi, heads = torch.randn(6, 3, generator=g), torch.randn(2, rows, 3, generator=g)
    padded = torch.cat([heads, torch.zeros(2, rows, 1)], dim=2)
    domains = torch.arange(6) % 2
    logits = head_logits(phi, heads.flatten(1), domains, rows)
    torch.testing.assert_close(logits, head_logits(phi, padded.flatten(1), domains, rows))
