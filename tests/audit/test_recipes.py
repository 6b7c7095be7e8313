"""The audit's canaries once for every private recipe that uploads: no recipe may say more than its ledger does."""

from dataclasses import replace

import numpy as np
import pytest

from audit.scenes import silo
from bench.attacks import audit
from policies.accounting import accountant
from policies.documents.recipes import RECIPES
from policies.documents.study import Study
from protos.messages import Tensor
from silo_agent.learning.model.shared import SharedModel

STEPS = 5
"""Of a round; a quarter of the audit's own, at the same price."""
TERMS = {
    "fedsr": {"encoder": {"l2r": 1e-3, "cmi": 1e-3}},
    "fedprox": {"encoder": {"proximal": 1.0}},
    "ditto": {"personal": {"ditto": 0.1}},
    "fedrep": {"encoder": {"head_steps": STEPS}},
    "lg-fedavg": {"encoder": {"clip": 0.5}},
}
ROUND = 2
"""The first round in which every domain has a head of its own."""


def audited(name):
    document = audit.canary_study().model_dump(mode="json")
    for part, fields in TERMS.get(name, {}).items():
        document[part] = (document[part] or {}) | fields
    document["recipe"] = name
    document["encoder"]["steps"] = STEPS
    if RECIPES[name].one_head:
        document["heads"] |= {"pooled_rounds": ROUND, "domain_rounds": 0}
    if RECIPES[name].joint:
        document["heads"] |= {"clip": 1.0}
    return accountant.calibrate(Study.model_validate(document, strict=False), 1.0)


def model_of(made):
    """Heads that make each canary's gradient one weight of the encoder; or one direction in the head of its domain."""
    if made.composition.encoder == "kept":
        return audit.measuring_model(made)
    steep = audit.training_model(made)
    if made.composition.one_head:
        heads = np.zeros_like(steep.heads)
        heads[:, 0] = audit.STEEP
        return replace(steep, heads=heads)
    return steep


def scores(held, canaries):
    """What the encoder's sum shows at each canary's place, (canaries,), in units of one step that draws it."""
    made, plan = held.study, held.study.encoder
    start = SharedModel.start(made)
    held.values(Tensor.COUNTS, 0, start)
    held.open_counts(start)
    values = held.values(Tensor.ENCODER, ROUND, model_of(made))
    unit = plan.learning_rate * plan.clip / plan.batch_size
    if made.composition.encoder == "kept":
        blocks = values.reshape(audit.CANARIES, audit.ROWS + 1)
        direction = np.append(np.full(audit.ROWS, 1 / np.sqrt(audit.ROWS)), 1.0) / np.sqrt(2.0)
        return (blocks @ direction / unit)[:canaries]
    return -values[:canaries] / unit * np.sign(values[:canaries].sum())


UPLOADING = [
    name
    for name, recipe in RECIPES.items()
    # What PerInvFL uploads is FedAvg's; its terms act on the personal model.
    if not recipe.public and recipe.joint and name != "perinvfl" and (recipe.encoder, recipe.heads) != ("kept", "kept")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", UPLOADING)
def test_no_recipe_shows_more_of_a_canary_than_its_ledger_says(name, tmp_path):
    """Without noise the same canaries are found: they are in what this recipe uploads."""
    made = audited(name)
    canaries = audit.INPUTS if made.composition.one_head else audit.CANARIES
    included = np.random.default_rng(5).random(audit.CANARIES) < 0.5
    included[canaries:] = False
    records, nobody = audit.canary_records(included), audit.canary_records(np.zeros_like(included))
    found = {}
    for factor in (1.0, 0.0):
        with audit.weakened(factor), silo(tmp_path, made, records, nobody, 1) as held:
            seen = np.abs(scores(held, canaries))
            spent = held.gate.ledger.spent()
            found[factor] = audit.judged(seen, included[:canaries], spent)
    assert found[1.0].bound <= found[1.0].epsilon <= 1.0
    assert found[0.0].bound > found[0.0].epsilon
