import pytest
import torch

from policies.plan import shapes
from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.terms.prior import Prior


@pytest.mark.parametrize("classes", [2, 5])
def test_it_starts_as_fedsr_does_and_has_the_public_size(make_study, classes):
    study = make_study(cmi=0.1, classes=classes)
    prior = Prior(study.model.representation, classes)
    mean, deviation = prior(torch.tensor([0, 1, classes - 1]))
    assert not mean.any()
    torch.testing.assert_close(deviation, torch.full((3, 4), 1.3133 + 1e-3), atol=1e-4, rtol=0)
    assert len(flatten(prior)) == shapes.prior_values(study)


def test_a_record_reads_its_own_class_and_no_deviation_is_zero():
    prior = Prior(4, 2)
    with torch.no_grad():
        prior.mean.weight[1] = 2.0
        prior.raw.weight[0] = -1e4
    mean, deviation = prior(torch.tensor([0, 1]))
    assert mean[0].unique().tolist() == [0.0]
    assert mean[1].unique().tolist() == [2.0]
    assert deviation[0].min() > 0
