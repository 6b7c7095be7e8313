"""FedWard's terms and an independent implementation in numpy give the same, on stored cases and random programmes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from silo_agent.learning.outcomes.registry import family_of
from silo_agent.learning.terms.losses import cmi, cosine, deep_kernel, group_dro, irm, mk_mmd
from silo_agent.learning.terms.term import Batch, Seen
from tests.vectors import checker_terms

STORED = json.loads(checker_terms.FILE.read_text())
SAME = 1e-6


def cases(name):
    return pytest.mark.parametrize("case", STORED[name], ids=range(len(STORED[name])))


def tensors(case, *keys):
    return (torch.tensor(case["given"][key], dtype=torch.float64) for key in keys)


def same(found, case, key):
    np.testing.assert_allclose(
        torch.as_tensor(found).detach().numpy(), np.array(case["expected"][key]), atol=SAME, rtol=0
    )


@cases("mk_mmd")
def test_mk_mmd_its_coefficients_and_its_gradient(case):
    x, y = tensors(case, "x", "y")
    x.requires_grad_()
    compared = mk_mmd.compare(x, y)
    weights = mk_mmd.kernel_weights(compared.statistics())
    same(weights, case, "coefficients")
    same(compared.mmd(weights), case, "distance")
    same(torch.autograd.grad(compared.mmd(weights), x)[0], case, "gradient")


@cases("mmd_d")
def test_mmd_d_and_its_power(case):
    x, y = tensors(case, "x", "y")
    kernel = deep_kernel.DeepKernel(x.shape[1]).double()
    with torch.no_grad():
        kernel.raw.copy_(torch.tensor(case["given"]["raw"]))
        for layer, (weight, bias) in zip(kernel.layers, checker_terms.deep_layers(x.shape[1]), strict=True):
            layer.weight.copy_(torch.tensor(weight))
            layer.bias.copy_(torch.tensor(bias))
    statistics = kernel.statistics(x, y)
    same(deep_kernel.discrepancy(statistics), case, "distance")
    same(deep_kernel.power(statistics), case, "power")


@cases("cosine")
def test_cosine(case):
    same(cosine.turned(*tensors(case, "x", "y")), case, "distance")


@cases("cmi")
def test_cmi(case):
    mean, deviation, tables, scales = tensors(case, "mean", "deviation", "prior_mean", "prior_deviation")
    labels = case["given"]["y"]
    same(cmi.gaussian_kl(mean, deviation, tables[labels], scales[labels]), case, "losses")


@cases("irm")
def test_the_penalty_of_irm(case):
    """Under heads that are the identity, features are logits."""
    (logits,) = tensors(case, "logits")
    count, classes = logits.shape
    heads = torch.eye(classes, dtype=torch.float64).reshape(1, -1)
    labels, where = (torch.tensor(case["given"][key]) for key in ("y", "environments"))
    nowhere = torch.zeros(count, dtype=torch.int64)
    seen = Seen(Batch(logits, None, labels, nowhere, None, heads, family_of(classes), where), logits)
    means, _ = seen.batch.environment_means(irm.slopes(seen))
    same(means**2, case, "penalties")
    same(irm.loss(seen, None, None), case, "penalty")


@cases("group_dro")
def test_the_weights_of_group_dro_after_all_steps(case):
    risks, steps = np.array(case["given"]["risks"]), []
    weights = np.full(risks.shape[1], 1 / risks.shape[1])
    for own in risks:
        weights = group_dro.moved(weights, own, case["given"]["rate"])
        steps.append(weights)
    same(np.array(steps), case, "weights")


def test_a_thousand_random_programmes_have_the_optimum_of_a_general_solver():
    """min b'Ab with m'b = 1 and b >= 0: SciPy's SLSQP finds nothing smaller, and the same weights."""
    drawn = np.random.default_rng(11)
    for _ in range(1000):
        size = int(drawn.integers(2, 7))
        root = drawn.normal(size=(size, size + 2))
        a, mean = root @ root.T / size + 0.05 * np.eye(size), drawn.normal(0.3, 1.0, size)
        mean[drawn.integers(size)] = drawn.uniform(0.1, 1.0)
        ours = mk_mmd.coefficients(mean, a)
        assert ours.min() >= 0
        ours = ours / (mean @ ours)
        start = np.where(mean > 0, 1.0, 0.0)
        general = minimize(
            lambda b, a=a: b @ a @ b,
            start / (mean @ start),
            jac=lambda b, a=a: 2 * a @ b,
            method="SLSQP",
            bounds=[(0, None)] * size,
            constraints={"type": "eq", "fun": lambda b, m=mean: m @ b - 1, "jac": lambda b, m=mean: m},
            options={"ftol": 1e-14, "maxiter": 500},
        )
        value = ours @ a @ ours
        assert value <= general.fun * (1 + 1e-7)
        assert general.fun <= value * (1 + 1e-5)
        np.testing.assert_allclose(ours, general.x, atol=1e-3 * ours.max())


def test_the_checker_names_a_case_that_does_not_hold():
    changed = json.loads(json.dumps({name: STORED[name] for name in ("cosine", "cmi", "group_dro")}))
    changed["cmi"][0]["expected"]["losses"][2] += 1e-8
    changed["group_dro"][1]["expected"]["weights"][0][0] *= 1.1
    assert checker_terms.differing(changed) == ["cmi 0", "group_dro 1"]


def test_the_stored_values_follow_from_what_is_given_by_numpy_alone():
    assert STORED.keys() == checker_terms.RULES.keys()
    path = Path(checker_terms.__file__)
    done = subprocess.run([sys.executable, "-I", str(path)], cwd="/", env={}, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
