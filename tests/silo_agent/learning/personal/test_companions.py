import numpy as np
import pytest
import torch

from policies.documents.study import DomainColumn, Personal
from silo_agent.learning.personal.companions import Companions
from silo_agent.learning.terms.losses.deep_kernel import Trained
from silo_agent.learning.terms.losses.mmd_d import FEWEST
from silo_agent.learning.terms.term import Batch, Seen

COUNT, BATCH = 40, 8


@pytest.fixture
def study(make_study):
    made = make_study(inputs=3, domains=1, representation=2)
    sex = DomainColumn(column="x0", edges=(0.0,), names=("f", "m"))
    return made.model_copy(update={"data": made.data.model_copy(update={"protected": (sex,)})})


def looked(study, plan, seed=0, step=BATCH):
    """A step on the first records: what it sees, which records were looked at with a gradient or without, the state."""
    phi = torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    groups, asked = (phi.detach()[:, :1] > 0).long(), []

    def look(numbers):
        asked.append((numbers.tolist(), torch.is_grad_enabled()))
        own, none = phi[numbers], torch.zeros(len(numbers), dtype=torch.int64)
        batch = Batch(own, None, none, none, None, own, None, protected=groups[numbers])
        return Seen(batch, own, reference=own.detach())

    beside = Companions(study, plan, {}, look, count=COUNT, shuffle=np.random.default_rng(seed))
    return beside.seen(np.arange(step)), asked, beside.finish()


def test_the_adversary_learns_on_records_drawn_anew_and_not_on_those_of_the_step(study):
    seen, (first, *others), state = looked(study, Personal(mmd=0.0, adversary=1.0, adversary_steps=3))
    assert first == (list(range(BATCH)), True)
    assert seen.batch.protected.shape == (BATCH, 1)
    assert len(others) == state["adversary"][-1] == 3
    for numbers, for_gradient in others:
        assert len(set(numbers)) == BATCH
        assert set(numbers) <= set(range(COUNT))
        assert set(numbers) != set(range(BATCH))
        assert not for_gradient
    assert len({tuple(numbers) for numbers, _ in others}) == 3


def test_without_an_adversary_nothing_more_is_looked_at_or_drawn(study):
    seen, asked, state = looked(study, Personal(mmd=0.0))
    assert len(asked) == 1
    assert seen.adversary is None
    assert not state


@pytest.mark.parametrize("step", [1, 2, BATCH])
def test_a_deep_kernel_learns_on_every_step_that_has_a_pair_of_records(study, step):
    plan = Personal(mmd=0.0, mmd_d=1.0, kernel_steps=3)
    seen, asked, state = looked(study, plan, step=step)
    start = Trained(2).to_array()
    assert len(asked) == 1
    assert (seen.kernel is None) == np.array_equal(state["kernel"], start) == (step < FEWEST)
    assert state["kernel"][-1] == (3 if step >= FEWEST else 0)
    assert np.isfinite(state["kernel"]).all()
