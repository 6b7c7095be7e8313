import torch

from silo_agent.learning.terms.losses.l2r import squared_norm


def test_it_is_the_squared_length_of_each_record():
    phi = torch.tensor([[3.0, 4.0], [0.0, 0.5]])
    assert squared_norm(phi).tolist() == [25.0, 0.25]
