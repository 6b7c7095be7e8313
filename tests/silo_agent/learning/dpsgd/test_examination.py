"""The examination on modules made for it; that it binds the code that trains is shown by the planted faults below."""

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn
from torch.nn import functional

from policies.plan.release import encoder_release
from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd import training
from silo_agent.learning.dpsgd.examination import require_apart, require_layers, require_noised
from silo_agent.learning.dpsgd.training import Training, require_accountable, train_encoder
from silo_agent.learning.encoder import image_networks
from silo_agent.learning.encoder.encoder import Encoder, build_encoder
from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses.cmi import Prior
from silo_agent.learning.terms.losses.mk_mmd import compare, kernel_weights
from support.entropy import SeededEntropy

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
NETWORKS = {
    "mlp": {},
    "cnn": {"image": 8, "encoder": "cnn", "channels": (4, 8)},
    "resnet18": {"image": 96, "encoder": "resnet18"},
}


def refusal(act, *given):
    with pytest.raises(Refused) as caught:
        act(*given)
    return caught.value


# --- layers -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm2d(4, affine=False),
        nn.BatchNorm3d(4, track_running_stats=False),
        nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, track_running_stats=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_norm_over_the_batch_is_refused_with_the_layers_name(layer):
    refused = refusal(require_layers, nn.Sequential(nn.Linear(2, 4), nn.Sequential(nn.Tanh(), layer)))
    assert refused.reason is Reason.BATCH_NORM
    assert refused.text.startswith(f"layer 1.1 is {type(layer).__name__}, ")


class Bare(nn.Module):
    """A parameter that no layer holds."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


class Remembering(nn.Module):
    """A mean that is kept beside what is trained."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(3))


@pytest.mark.parametrize(
    ("layer", "reason", "says"),
    [
        (
            Bare(),
            Reason.NO_PER_SAMPLE_GRADIENT,
            "layer 0 is Bare, and Opacus takes no gradient by record of its scale;",
        ),
        (
            nn.PReLU(),
            Reason.NO_PER_SAMPLE_GRADIENT,
            "layer 0 is PReLU, and Opacus takes no gradient by record of its weight;",
        ),
        (
            nn.Bilinear(2, 2, 2),
            Reason.NO_PER_SAMPLE_GRADIENT,
            "layer 0 is Bilinear, and Opacus takes no gradient by record of its weight, bias;",
        ),
        (nn.LSTM(2, 2), Reason.NO_PER_SAMPLE_GRADIENT, "layer 0 is LSTM"),
        (Remembering(), Reason.UNNOISED_PART, "layer 0 is Remembering and keeps centre"),
    ],
)
def test_a_layer_without_gradients_by_record_or_with_a_memory_is_refused(layer, reason, says):
    refused = refusal(require_layers, nn.Sequential(layer))
    assert refused.reason is reason
    assert refused.text.startswith(says)


def test_layers_whose_records_stay_apart_pass():
    require_layers(
        nn.Sequential(
            nn.Linear(2, 4), nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.Embedding(2, 2), nn.Tanh()
        )
    )
    require_layers(Bare().requires_grad_(requires_grad=False))


# --- the one step -----------------------------------------------------------------------------------------------------
def test_what_is_trained_outside_the_noised_step_is_refused_by_name():
    trained = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    require_noised(trained, torch.optim.SGD(trained.parameters(), lr=1.0))
    refused = refusal(require_noised, trained, torch.optim.SGD(trained[0].parameters(), lr=1.0))
    assert refused.reason is Reason.UNNOISED_PART
    assert refused.text.startswith("1.weight is trained, but not in the step")
    trained[1].requires_grad_(requires_grad=False)
    require_noised(trained, torch.optim.SGD(trained[0].parameters(), lr=1.0))


def test_a_step_that_trains_more_than_is_examined_is_refused():
    trained, other = nn.Linear(2, 3), nn.Linear(2, 3)
    optimizer = torch.optim.SGD([*trained.parameters(), *other.parameters()], lr=1.0)
    assert refusal(require_noised, trained, optimizer).reason is Reason.UNNOISED_PART


# --- records stay apart -----------------------------------------------------------------------------------------------
X = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).view(4, 3).sin()
STRANGER = nn.Parameter(torch.ones(3, dtype=torch.float64))


def network():
    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for number, parameter in enumerate(made.parameters()):
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter).add(number).cos())
    return made


def apart(losses):
    """Examine a loss of a small network; `losses` is given the network and a part of X."""
    made = network()
    hooked = GradSampleModule(made, loss_reduction="sum")
    optimizer = torch.optim.SGD(made.parameters(), lr=1.0)
    require_apart(hooked, optimizer, lambda part: losses(made, X[part]), len(X))


@pytest.mark.parametrize(
    "losses",
    [
        lambda net, x: (net(x) ** 2).sum(dim=1),
        lambda net, x: net(x)[:, 0] + 0.1 * net[0](x).abs().sum(dim=1),
        lambda net, x: functional.cross_entropy(net(x), torch.ones(len(x), dtype=torch.int64), reduction="none"),
        lambda net, x: net[0](x).sum(dim=1),
    ],
    ids=["squares", "a layer twice", "cross-entropy", "a layer not read"],
)
def test_losses_by_record_pass(losses):
    apart(losses)


def mmd(net, x):
    compared = compare(net(x), net(x).detach().roll(1, 0) + 0.5)
    return (net(x) ** 2).sum(dim=1) + 0.01 * compared.mmd(kernel_weights(compared.statistics()))


def only_in_the_gradient(net, x):
    """The value of every record is its own; the gradient is the batch's."""
    own = (net(x) ** 2).sum(dim=1)
    return own + 0.001 * (own.max() - own.max().detach())


def past_the_layer(net, x):
    """Opacus sees calls of layers; this reads a layer's weight."""
    return (net(x) ** 2).sum(dim=1) + functional.linear(x, net[0].weight).sum(dim=1)


@pytest.mark.parametrize(
    ("losses", "reason", "says"),
    [
        (mmd, Reason.BATCH_STATISTICS, "changes with the other records of its batch"),
        (lambda net, x: net(x)[:, 0] - net(x)[:, 0].mean(), Reason.BATCH_STATISTICS, "changes with the other records"),
        (
            lambda net, x: net(x)[:, 0] * net(x)[:, 0].max().detach(),
            Reason.BATCH_STATISTICS,
            "changes with the other records",
        ),
        (
            lambda net, x: functional.normalize(net(x), dim=0)[:, 0],
            Reason.BATCH_STATISTICS,
            "changes with the other records",
        ),
        (lambda net, x: (net(x) ** 2).mean(), Reason.BATCH_STATISTICS, "one number for a batch"),
        (lambda net, x: net(x)[:, 0] / torch.zeros(1), Reason.BATCH_STATISTICS, "changes with the other records"),
        (only_in_the_gradient, Reason.NO_PER_SAMPLE_GRADIENT, "has another gradient by record"),
        (past_the_layer, Reason.NO_PER_SAMPLE_GRADIENT, "0.weight has another gradient by record"),
        (lambda net, x: net(x)[:, 0] + x @ STRANGER, Reason.UNNOISED_PART, "trained outside the noised step"),
    ],
    ids=["mmd", "centred", "detached max", "normalised", "mean", "nan", "gradient", "past", "stranger"],
)
def test_records_that_meet_are_found_whatever_it_is_called(losses, reason, says):
    refused = refusal(apart, losses)
    assert refused.reason is reason
    assert says in refused.text


# --- the code that trains ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cmi", [0.0, 0.3])
@pytest.mark.parametrize(
    "network", [pytest.param(name, marks=[pytest.mark.slow] * (name == "resnet18")) for name in NETWORKS]
)
def test_every_study_that_can_be_written_passes(make_study, network, cmi):
    require_accountable(make_study(cmi=cmi, prior="local", classes=3 if cmi else 2, **NETWORKS[network]))


def test_a_large_study_is_examined_with_few_values(make_study, monkeypatch):
    seen = []
    apart = training.examination.require_apart

    def note(hooked, *rest):
        seen.extend(parameter.numel() for parameter in hooked.parameters())
        apart(hooked, *rest)

    monkeypatch.setattr(training.examination, "require_apart", note)
    require_accountable(make_study(inputs=300, hidden=(1024, 1024), representation=64))
    assert seen
    assert max(seen) <= 64


def planted_losses(extra):
    real = training._losses

    def losses(trained, batch, plan, latent):
        return real(trained, batch, plan, latent) + extra(trained, batch)

    return losses


def domain_mean(trained, batch):
    phi = trained.encoder(batch.x)
    return torch.stack([phi[batch.domains == own].mean() for own in batch.domains])


def coupled(trained, batch):
    phi = trained.encoder(batch.x)
    compared = compare(phi, phi.detach().flip(0) + 0.1)
    return 0.01 * compared.mmd(kernel_weights(compared.statistics()))


@pytest.mark.parametrize("extra", [domain_mean, coupled])
def test_a_batch_statistic_in_the_uploaded_loss_is_refused(make_study, monkeypatch, extra):
    monkeypatch.setattr(training, "_losses", planted_losses(extra))
    assert refusal(require_accountable, make_study()).reason is Reason.BATCH_STATISTICS


def test_a_local_layer_that_the_loss_reads_is_refused(make_study, monkeypatch):
    local = nn.Linear(4, 1).double()
    monkeypatch.setattr(training, "_losses", planted_losses(lambda own, batch: local(own.encoder(batch.x))[:, 0]))
    assert refusal(require_accountable, make_study()).reason is Reason.UNNOISED_PART


def test_a_prior_that_is_trained_beside_the_step_is_refused_by_name(make_study, monkeypatch):
    """The step is given the encoder alone: r(z|y), the last two tables, would be trained elsewhere, without noise."""
    sgd = torch.optim.SGD
    monkeypatch.setattr(torch.optim, "SGD", lambda parameters, **rates: sgd(list(parameters)[:-2], **rates))
    study = make_study(cmi=0.3)
    for refused in (
        refusal(require_accountable, study),
        refusal(train, study, build_encoder(study.model, study.data, stochastic=True), Prior(4, 2), None),
    ):
        assert refused.reason is Reason.UNNOISED_PART
        assert refused.text.startswith("prior.mean.weight is trained")


@pytest.mark.parametrize("network", ["cnn", "resnet18"])
def test_batch_norm_in_the_uploaded_encoder_is_refused_by_name(make_study, monkeypatch, network):
    monkeypatch.setattr(image_networks, "_norm", nn.BatchNorm2d)
    refused = refusal(require_accountable, make_study(**NETWORKS[network]))
    assert refused.reason is Reason.BATCH_NORM
    assert refused.text.startswith("layer encoder.image_network.1 is BatchNorm2d")


def test_a_bare_parameter_in_the_uploaded_encoder_is_refused_by_name(make_study, monkeypatch):
    begin = Encoder.__init__

    def init(self, *given, **named):
        begin(self, *given, **named)
        self.temperature = nn.Parameter(torch.ones(1))

    monkeypatch.setattr(Encoder, "__init__", init)
    refused = refusal(require_accountable, make_study())
    assert refused.reason is Reason.NO_PER_SAMPLE_GRADIENT
    assert refused.text.startswith(
        "layer encoder is Encoder, and Opacus takes no gradient by record of its temperature"
    )


def test_a_weight_that_is_read_past_its_layer_is_refused(make_study, monkeypatch):
    moments = Encoder.moments

    def past(self, x, images=None):
        mean, deviation = moments(self, x, images)
        return mean + functional.linear(x, self.layers[0].weight).sum(dim=1, keepdim=True), deviation

    monkeypatch.setattr(Encoder, "moments", past)
    refused = refusal(require_accountable, make_study())
    assert refused.reason is Reason.NO_PER_SAMPLE_GRADIENT
    assert refused.text.startswith("encoder.layers.0.weight has another gradient")


# --- the door of training ---------------------------------------------------------------------------------------------
class Unread:
    """Records that nobody may look at."""

    def __getattr__(self, name):
        msg = f"{name} was read"
        raise AssertionError(msg)


def train(study, encoder, prior, records):
    return train_encoder(
        Training(
            encoder=encoder,
            heads=np.zeros((3, 5)),
            records=Unread() if records is None else records,
            plan=study.encoder,
            release=encoder_release(study),
            family=family_of(study.data.label.count),
            domain_weights=np.ones(3),
            prior=prior,
        ),
        mode="local",
        entropy=SeededEntropy(0),
    )


def test_an_encoder_that_cannot_be_accounted_for_is_refused_before_a_record_is_read(make_study):
    study = make_study()
    encoder = build_encoder(study.model, study.data, stochastic=False)
    with pytest.raises(AssertionError, match="was read"):
        train(study, encoder, None, None)
    encoder.layers.insert(1, nn.BatchNorm1d(8))
    refused = refusal(train, study, encoder, None, None)
    assert refused.reason is Reason.BATCH_NORM
    assert "encoder.layers.1 is BatchNorm1d" in refused.text
