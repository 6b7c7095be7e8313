import numpy as np
import pytest
import torch

from policies.documents.study import Personal
from policies.plan import terms
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.environments import Steps
from silo_agent.learning.terms.losses import cross_entropy, group_dro, irm
from silo_agent.learning.terms.term import Batch, Seen


@pytest.fixture
def seen():
    drawn = torch.Generator().manual_seed(1)
    phi, none = torch.randn(6, 2, generator=drawn), torch.zeros(6, dtype=torch.int64)
    heads, where = torch.randn(1, 3, generator=drawn), torch.tensor([0, 1, 0, 1, 1, 0])
    return Seen(Batch(phi, None, torch.tensor([0, 1, 1, 0, 1, 0]), none, None, heads, family_of(2), where), phi)


def plan(**fields):
    return Personal(ditto=0, mmd=0, **fields)


def losses(steps, asked, seen, count):
    return [steps.loss(terms.of_personal(asked), seen, None, None).item() for _ in range(count)]


def test_irm_weighs_at_most_one_before_its_steps_and_divides_the_loss_afterwards(seen):
    asked = plan(irm=50.0, irm_after=2)
    plain, penalty = cross_entropy.losses(seen).mean().item(), irm.loss(seen, None, None).item()
    found = losses(Steps.start(asked, 2), asked, seen, 4)
    later = (plain + 50 * penalty) / 50
    assert found == pytest.approx([plain + penalty, plain + penalty, later, later])
    weak = plan(irm=0.5, irm_after=2)
    assert losses(Steps.start(weak, 2), weak, seen, 3) == pytest.approx([plain + 0.5 * penalty] * 3)


def test_environments_weigh_by_what_they_lost_before_and_the_weights_go_on(seen):
    asked = plan(group_dro=1.0, group_rate=0.5)
    whole, halves = Steps.start(asked, 2), Steps.start(asked, 2)
    found = group_dro.risks(seen, 2)
    wanted = np.full(2, 0.5) * np.exp(0.5 * found)
    wanted /= wanted.sum()
    assert losses(whole, asked, seen, 1) == pytest.approx([wanted @ found])
    np.testing.assert_allclose(whole.weights, wanted)
    rest = losses(whole, asked, seen, 3)
    losses(halves, asked, seen, 2)
    again = Steps.from_array(asked, 2, halves.to_array())
    assert losses(again, asked, seen, 2) == rest[1:]
    np.testing.assert_array_equal(again.to_array(), whole.to_array())
    assert whole.taken == 4


@pytest.mark.parametrize(
    "flat", [[3, 1.0], [3, 0.5, 0.25, 0.25], [-1, 0.5, 0.5], [1.5, 0.5, 0.5], [1, 0.5, 0.6], [1, np.nan, 0.5], []]
)
def test_a_state_that_no_training_gives_is_refused(flat):
    with pytest.raises(ValueError, match="environments' weights"):
        Steps.from_array(plan(irm=1.0), 2, np.array(flat, np.float64))
