"""The entries of the terms against their code: one test for all of them, so that neither can gain a term alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.documents.terms import TERMS
from policies.plan import terms as plan_terms
from policies.plan.terms import Weighted
from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd import training
from silo_agent.learning.encoder.encoder import Encoder
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.guesser import Guesser
from silo_agent.learning.terms.losses.cmi import Prior
from silo_agent.learning.terms.losses.deep_kernel import DeepKernel
from silo_agent.learning.terms.registry import (
    MODEL_TERMS,
    RECORD_TERMS,
    STEP_TERMS,
    model_loss,
    record_losses,
    require_per_record,
    step_gradient,
)
from silo_agent.learning.terms.term import Batch, Latent, Seen

PER_RECORD = [term for term in TERMS if term.per_record]
OTHERS = [term for term in TERMS if not term.per_record]
OF_MODELS = [term for term in OTHERS if term.part != "step"]
COUNT = 5


class Network(torch.nn.Module):
    """A stochastic encoder with heads, all weights made up."""

    def __init__(self, study, seed):
        super().__init__()
        self.encoder = Encoder(study.model, study.data, stochastic=True)
        self.heads = torch.nn.Parameter(torch.zeros(3, 3 * (study.model.representation + 1)))
        self.tables = Prior(study.model.representation, 3)
        drawn = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=drawn))
        self.double()


@pytest.fixture
def own(make_study):
    return Network(make_study(classes=3, cmi=0.1), 1)


@pytest.fixture
def anchor(make_study):
    return Network(make_study(classes=3, cmi=0.1), 2)


def seen(network, rows=slice(None)):
    """Made-up records as a network sees them; of a part, what it sees of the part alone."""
    drawn = torch.Generator().manual_seed(3)
    x = torch.randn(COUNT, 5, generator=drawn, dtype=torch.float64)[rows]
    y, domains = torch.arange(COUNT)[rows] % 3, torch.arange(COUNT)[rows] % 2
    weights = torch.rand(COUNT, generator=drawn, dtype=torch.float64)[rows]
    mean, deviation = network.encoder.moments(x)
    where, protected = torch.arange(COUNT)[rows] % 2, torch.stack([domains, y], dim=1)
    batch = Batch(x, None, y, domains, weights, network.heads, family_of(3), where, protected)
    reference = torch.randn(COUNT, mean.shape[1], generator=drawn, dtype=torch.float64)[rows]
    kernel = DeepKernel(mean.shape[1]).double()
    groups, latent = torch.tensor([0.3, 0.7], dtype=torch.float64), Latent(mean, deviation, network.tables)
    guesser = Guesser(mean.shape[1], [2, 3]).double()
    return Seen(batch, network.encoder.squash(mean), latent, reference, kernel, groups, adversary=guesser)


def test_entries_and_code_have_the_same_names():
    assert set(RECORD_TERMS) == {term.name for term in PER_RECORD}
    assert set(MODEL_TERMS) | set(STEP_TERMS) == {term.name for term in OTHERS}
    assert set(STEP_TERMS) == {term.name for term in TERMS if term.part == "step"}


@pytest.mark.parametrize("term", PER_RECORD, ids=lambda term: term.name)
def test_a_term_that_says_so_is_per_record(own, term):
    together = RECORD_TERMS[term.name](seen(own))
    assert together.shape == (COUNT,)
    for i in range(COUNT):
        alone = RECORD_TERMS[term.name](seen(own, slice(i, i + 1)))
        torch.testing.assert_close(alone, together[i : i + 1])
    others = [0, 1, 2]
    torch.testing.assert_close(RECORD_TERMS[term.name](seen(own, others)), together[others])


@pytest.mark.parametrize("term", OF_MODELS, ids=lambda term: term.name)
def test_a_term_that_does_not_say_so_is_one_number(own, anchor, term):
    assert MODEL_TERMS[term.name](seen(own), own, anchor).shape == ()


def test_a_batch_term_of_one_record_is_another_one_among_others(own, anchor):
    whole, half = (MODEL_TERMS["mk_mmd"](seen(own, rows), own, anchor) for rows in (slice(None), slice(0, 2)))
    assert whole.item() != pytest.approx(half.item())
    assert MODEL_TERMS["mk_mmd"](seen(own, slice(0, 1)), own, anchor).item() == 0.0


REASONS = {
    "batch": Reason.BATCH_STATISTICS,
    "weights": Reason.NO_PER_SAMPLE_GRADIENT,
    "network": Reason.UNNOISED_PART,
}


@pytest.mark.parametrize("term", OTHERS, ids=lambda term: term.name)
def test_a_term_that_is_not_per_record_is_refused_by_name_in_the_noised_step(make_study, monkeypatch, term):
    asked = plan_terms.of_upload
    monkeypatch.setattr(plan_terms, "of_upload", lambda plan: (*asked(plan), Weighted(term, 0.1)))
    with pytest.raises(Refused, match=f"the term {term.name} ") as caught:
        training.require_accountable(make_study())
    assert caught.value.reason is REASONS[term.reads]


@pytest.mark.parametrize("term", OTHERS, ids=lambda term: term.name)
def test_no_loss_of_an_upload_is_computed_with_it(own, term):
    with pytest.raises(Refused, match=f"the term {term.name} "):
        record_losses([Weighted(PER_RECORD[0], 1.0), Weighted(term, 0.1)], seen(own))


def test_an_entry_that_lies_is_found_by_the_examination(make_study, monkeypatch):
    """If somebody declares a batch term to be per record, what it computes still gives it away."""
    lie = replace(next(term for term in OTHERS if term.name == "mk_mmd"), reads="record")

    def coupled(own):
        return (own.phi - own.phi.mean(dim=0)).sum(dim=1)

    asked = plan_terms.of_upload
    monkeypatch.setattr(plan_terms, "of_upload", lambda plan: (*asked(plan), Weighted(lie, 0.1)))
    monkeypatch.setitem(RECORD_TERMS, "mk_mmd", coupled)
    require_per_record([Weighted(lie, 0.1)])
    with pytest.raises(Refused) as caught:
        training.require_accountable(make_study())
    assert caught.value.reason is Reason.BATCH_STATISTICS


def test_losses_are_added_with_their_coefficients(own, anchor):
    both = [*PER_RECORD, *OF_MODELS]
    coefficients = {term.name: 0.1 * (number + 1) for number, term in enumerate(both)}
    asked = [Weighted(term, coefficients[term.name]) for term in both]
    given = seen(own)
    by_record = sum(coefficients[name] * term(given) for name, term in RECORD_TERMS.items())
    torch.testing.assert_close(record_losses([one for one in asked if one.term.per_record], given), by_record)
    whole = by_record.mean() + sum(coefficients[name] * term(given, own, anchor) for name, term in MODEL_TERMS.items())
    torch.testing.assert_close(model_loss(asked, given, own, anchor), whole)


def test_what_reads_weights_alone_is_added_to_a_step_with_its_coefficient():
    """FedProx: the gradient of mu/2 |w - w_t|^2."""
    weight, start = torch.tensor([[3.0, -1.0]], requires_grad=True), torch.tensor([[1.0, 0.5]])
    torch.autograd.backward(0.25 * ((weight - start) ** 2).sum() / 2)
    proximal = [Weighted(term, 0.25) for term in TERMS if term.part == "step"]
    found = step_gradient(proximal, weight.detach(), start)
    torch.testing.assert_close(found, weight.grad)
    assert step_gradient([], weight, start) is None


def test_the_cross_entropy_alone_is_a_loss(own, anchor):
    alone = [Weighted(PER_RECORD[0], 1.0)]
    given = seen(own)
    assert np.array_equal(record_losses(alone, given).detach(), RECORD_TERMS["cross_entropy"](given).detach())
    assert model_loss(alone, given, own, anchor).shape == ()
