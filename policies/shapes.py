"""How many values each sum of a study has: public, and implied by the study alone.

The coordinator checks sizes against it before it accepts a byte; the silo packs by it. What the values mean is the
silo's business (`silo_agent.learning`).
"""

from __future__ import annotations

from itertools import pairwise

from policies.study import Study

CLASSES = 2
"""Labels are binary."""


def encoder_values(study: Study) -> int:
    """Weights and biases of the shared encoder; a stochastic one (FedSR) has two outputs per coordinate."""
    outputs = study.model.representation * (2 if study.encoder.cmi > 0 else 1)
    widths = (study.data.inputs, *study.model.hidden, outputs)
    return sum(a * b + b for a, b in pairwise(widths))


def prior_values(study: Study) -> int:
    """FedSR's tables r(z|y), mean and raw deviation per class, where they are averaged."""
    averaged = study.encoder.cmi > 0 and study.encoder.prior == "averaged"
    return 2 * CLASSES * study.model.representation if averaged else 0


def head_values(study: Study, round_number: int) -> int:
    """Upper triangles and gradients: K(K+1)/2 + K values a head, K = k + 1; one head while pooled, then M."""
    width = study.model.representation + 1
    blocks = 1 if is_pooled(study, round_number) else len(study.data.domains)
    return blocks * (width * (width + 1) // 2 + width)


def is_pooled(study: Study, round_number: int) -> bool:
    """Whether this round moves one pooled head (privacy.md, "Repair")."""
    return round_number <= study.heads.pooled_rounds


def values(study: Study, round_number: int, tensor: str) -> int:
    """Length of the summed vector of a tensor in a round."""
    domains = len(study.data.domains)
    match tensor:
        case "counts":
            return domains
        case "heads":
            return head_values(study, round_number)
        case "encoder":
            return encoder_values(study) + prior_values(study)
        case "metrics":
            return domains * CLASSES * study.evaluation.bins
    msg = f"no tensor is named {tensor!r}"
    raise ValueError(msg)


def tensors(study: Study, round_number: int) -> tuple[str, ...]:
    """What is summed in a round, in order: counts first of all, then heads and encoder, metrics at the end."""
    if round_number == 0:
        return ("counts",)
    return ("heads", "metrics") if round_number == study.rounds else ("heads", "encoder")
