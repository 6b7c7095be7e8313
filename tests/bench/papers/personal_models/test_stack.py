"""A step of the stack is the step of each model alone with FedWard's terms."""

import pytest
import torch
from torch.nn import functional

from bench.papers.personal_models import stack
from bench.papers.personal_models.published import CONSTRAINTS, SETTINGS
from bench.papers.personal_models.synthetic import CLIENTS, draw
from silo_agent.learning.terms.losses import cosine, ditto, mk_mmd, mmd_d
from silo_agent.learning.terms.losses.deep_kernel import DeepKernel, Trained
from silo_agent.learning.terms.term import Seen

TERMS = {"cosine": cosine.loss, "mk-mmd": mk_mmd.loss, "mmd-d": mmd_d.loss}


class Alone:
    """A client's model as the terms read one."""

    def __init__(self, weights):
        self.weights = [values.detach().clone().requires_grad_() for values in weights]

    def parameters(self):
        return iter(self.weights)

    def features(self, x):
        return x @ self.weights[0].T + self.weights[1].T

    def loss(self, batch, method, anchor, *, doubled):
        x, y = batch
        phi = self.features(x)
        outputs = phi @ self.weights[2].T + self.weights[3].T
        found = functional.cross_entropy(outputs.softmax(1) if doubled else outputs, y)
        if method is None:
            return found
        seen = Seen(None, phi, reference=anchor.features(x).detach(), kernel=DeepKernel(20))
        if method.mu:
            found = found + method.mu * TERMS[CONSTRAINTS[method.constraint]](seen, None, None)
        return found + method.ditto * ditto.loss(seen, self, anchor)


class Orders:
    """Stands in for the generator that a deep kernel is trained with."""

    def __init__(self, seed):
        self._drawn = torch.Generator().manual_seed(seed)

    def permutation(self, count):
        return torch.randperm(count, generator=self._drawn).numpy()


def apart(whole):
    """Every model with other weights."""
    drawn = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for values in whole.weights:
            values.add_(0.2 * torch.randn(values.shape, generator=drawn))
    return whole


@pytest.mark.parametrize("doubled", [False, True])
def test_each_model_takes_the_step_that_it_would_take_alone(doubled):
    settings, data = SETTINGS[0.5], draw(0.5, [1])
    whole = apart(stack.Stack(settings, stack.TrainingWay(doubled=doubled), [1]))
    before = [values.detach().clone() for values in whole.weights]
    x, y = data.x[:, :10], data.y[:, :10]
    whole.step(x, y)
    for client in (0, CLIENTS - 1):
        anchor = Alone([values[client, 0] for values in whole.anchor])
        for at, method in enumerate((None, *settings.methods)):
            if method is not None and CONSTRAINTS[method.constraint] == "mk-mmd every 20":
                continue
            alone = Alone([values[client, at] for values in before])
            loss = alone.loss((x[client], y[client]), method, anchor, doubled=doubled)
            gradients = torch.autograd.grad(loss, alone.weights)
            for values, mine, gradient in zip(whole.weights, alone.weights, gradients, strict=True):
                expected = mine.detach() - settings.rate * (gradient + 1e-3 * mine.detach())
                torch.testing.assert_close(values.detach()[client, at], expected, atol=2e-6, rtol=1e-4)


@pytest.fixture
def double():
    """Doubles: AdamW makes a whole step of a gradient that is rounding alone, and rounding differs by processor."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)


@pytest.mark.usefixtures("double")
def test_kernels_adapt_as_each_client_would_alone():
    data = draw(0.5, [1])
    whole = apart(stack.Stack(SETTINGS[0.5], stack.TrainingWay(doubled=True), [1]))
    x = data.x[:, 10:40].double()
    with torch.no_grad():
        own, shared = whole.features(x), whole.reference(x)
    whole.adapt(x, torch.Generator().manual_seed(3))
    for client in (0, CLIENTS - 1):
        for held in (0, 1):
            compared = mk_mmd.compare(own[client, 4 + 5 * held], shared[client, 0])
            expected = torch.tensor(mk_mmd.kernel_weights(compared.statistics()))
            torch.testing.assert_close(torch.tensor(whole.kept[client, held]), expected, atol=1e-6, rtol=1e-6)
            trained = Trained(20)
            trained.improve(own[client, 5 + 5 * held], shared[client, 0], stack.KERNEL_STEPS, Orders(3))
            # The last biases have no gradient but rounding: distances do not change with them.
            for name, values in list(trained.kernel.named_parameters())[:-1]:
                mine = whole.deep._state[name][2 * client + held]
                torch.testing.assert_close(mine, values, atol=1e-7, rtol=0, msg=name)


def test_all_models_of_a_seed_start_from_its_mean():
    whole = stack.Stack(SETTINGS[0.0], stack.TrainingWay(doubled=True), [4, 5])
    with torch.no_grad():
        whole.weights[1][:, 0] = torch.arange(16.0)[:, None, None]
    whole.average()
    assert whole.weights[1][:, 0, 0, 0].tolist() == whole.anchor[1][:, 0, 0, 0].tolist() == [3.5] * 8 + [11.5] * 8
