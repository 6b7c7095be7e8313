import numpy as np
import pytest
import torch

from silo_agent.learning.terms.guesser import Guesser, TrainedGuesser


def sample():
    drawn = torch.Generator().manual_seed(0)
    phi = torch.rand(80, 4, generator=drawn) - 0.5
    return phi, torch.stack(
        [(phi[:, 0] > 0).long(), torch.bucketize(phi[:, 1].contiguous(), torch.tensor([-0.2, 0.2]))], dim=1
    )


def test_it_learns_every_attribute_and_leaves_the_representation_as_it_is():
    phi, protected = sample()
    phi.requires_grad_()
    guesser = TrainedGuesser(4, [2, 3])
    before = guesser.network.losses(phi, protected).sum().item()
    guesser.improve(phi, protected, 150)
    assert phi.grad is None
    assert guesser.network.losses(phi, protected).sum().item() < 0.3 * before
    assert [tuple(part.shape) for part in guesser.network(phi)] == [(80, 2), (80, 3)]


def test_it_starts_from_public_weights_and_goes_on_where_it_was_left():
    phi, protected = sample()
    one, other = TrainedGuesser(4, [2, 3]), TrainedGuesser(4, [2, 3])
    one.improve(phi, protected, 4)
    other.improve(phi, protected, 2)
    again = TrainedGuesser(4, [2, 3])
    again.load(other.to_array())
    again.improve(phi, protected, 2)
    np.testing.assert_array_equal(again.to_array(), one.to_array())
    with pytest.raises(ValueError, match="adversary has another size"):
        TrainedGuesser(4, [2]).load(one.to_array())


def test_each_group_of_the_batch_counts_the_same_and_chance_is_a_guess_without_looking():
    phi, _ = sample()
    phi, protected = phi[:8], torch.tensor([[0, 2], *[[1, 2]] * 7])
    guesser = Guesser(4, [2, 3])
    each = [
        torch.nn.functional.cross_entropy(guesser(phi[row])[0], protected[row, 0]) for row in (slice(1), slice(1, 8))
    ]
    torch.testing.assert_close(guesser.losses(phi, protected)[0], (each[0] + each[1]) / 2)
    np.testing.assert_allclose(guesser.chance(protected), [np.log(2), 0.0], atol=1e-6)
    with torch.no_grad():
        guesser.layers[-1].weight.zero_()
        guesser.layers[-1].bias.zero_()
    assert guesser.losses(phi, protected)[0].item() == pytest.approx(np.log(2), abs=1e-6)


@pytest.mark.parametrize(("place", "value"), [(-1, 2.5), (-2, -1.0), (0, np.nan)])
def test_values_that_training_never_gives_are_refused(place, value):
    trained = TrainedGuesser(4, [2, 3])
    flat = trained.to_array()
    flat[place] = value
    with pytest.raises(ValueError, match="training never gives"):
        trained.load(flat)


def test_representations_are_read_at_the_size_of_their_entries():
    """They are at most 1 long, so their entries are small: times the root of their number."""
    phi, _ = sample()
    network = Guesser(4, [2, 3])
    first, second, last = network.layers
    by_hand = last(torch.relu(second(torch.relu(first(2.0 * phi)))))
    torch.testing.assert_close(torch.cat(network(phi), dim=1), by_hand)
