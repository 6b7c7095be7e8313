"""The agents' recipes give what `bench.papers.feddar.recipes` gives, from the same state."""

import dataclasses

import numpy as np
import pytest

from bench.papers.feddar import agents
from bench.papers.feddar.__main__ import FEW, LINEAR
from bench.papers.feddar.law import draw
from bench.papers.feddar.recipes import Clients, LinearModel, averaged_encoder, closed_form, plain_total, second_order
from deploy.local.simulate.engine import simulate

SAMPLES, CLIENTS, SEED = 40, 6, 43


def trained(recipe, steps, rounds):
    study = agents.study_of(recipe, steps, rounds, samples=SAMPLES, clients=CLIENTS)
    return agents.model_of(simulate(study, agents.ClientDraws(SAMPLES, CLIENTS).draw(study, SEED), seed=1).model)


@pytest.fixture(scope="module")
def clients():
    return Clients.of(draw(SEED, SAMPLES, CLIENTS).training, plain_total)


def test_algorithm_2_takes_the_steps_of_the_paper(clients):
    """After one round with heads of the domains; three more rounds and the heads at their end are compared."""
    model = trained("feddar-linear", LINEAR, 1)
    for _ in range(3):
        model = closed_form(clients, model, plain_total, LINEAR)
    solved = closed_form(clients, model, plain_total, dataclasses.replace(LINEAR, encoder_rate=0.0))
    found = trained("feddar-linear", LINEAR, 4)
    np.testing.assert_allclose(found.encoder.T @ found.encoder, np.eye(2), atol=1e-6)
    np.testing.assert_allclose(found.encoder @ found.encoder.T, solved.encoder @ solved.encoder.T, atol=1e-3)
    np.testing.assert_allclose(found.coefficients, solved.coefficients, atol=1e-3)


@pytest.mark.slow
def test_sa_takes_the_steps_of_the_paper(clients):
    model = trained("feddar-sa", FEW, 1)
    for _ in range(2):
        moved = LinearModel(averaged_encoder(clients, model.encoder, model.heads, plain_total, FEW), model.heads)
        model = second_order(clients, moved, plain_total, dataclasses.replace(FEW, encoder_steps=0))
    found = trained("feddar-sa", FEW, 3)
    np.testing.assert_allclose(found.encoder, model.encoder, atol=1e-3)
    np.testing.assert_allclose(found.coefficients, model.coefficients, atol=1e-3)
