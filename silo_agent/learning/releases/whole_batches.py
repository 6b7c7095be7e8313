"""Trains what a silo uploads on whole batches, with terms that compare environments: for data declared public alone.

Nothing is clipped and no noise is added, so nothing here bounds what a patient adds. Whoever calls must have checked
that the study's mode is `none`, which only policies of public data allow; it is checked here once more. Encoder and
heads are trained together, by gradient descent with momentum on all records at every step, so that each environment
counts with all of its records. Every record counts once, and losses are means: silos of any size weigh alike.

Sources: Arjovsky et al. 2019; Sagawa et al. 2020; docs/design/recipes.md, "PerInvFL".
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from policies.documents.study import EncoderPlan, Study
from policies.plan import terms
from policies.refusals import Reason, Refused
from silo_agent.learning.dpsgd.trained_heads import TrainedHeads
from silo_agent.learning.dpsgd.training import EncoderUpdate, Training
from silo_agent.learning.encoder.encoder import Encoder, flatten
from silo_agent.learning.errors import LearningError
from silo_agent.learning.terms.environments import Steps
from silo_agent.learning.terms.term import Batch, Seen


class _Trained(nn.Module):
    """What is trained: the encoder, and the heads with it."""

    def __init__(self, encoder: Encoder, heads: NDArray[np.float64]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = TrainedHeads(heads)


def require_public(study: Study) -> None:
    """Raise `Refused` if a study whose encoder has such terms is not of public data (`privacy.mode: none`)."""
    if study.privacy.mode != "none":
        coupled = " and ".join(one.term.name for one in terms.of_upload(study.encoder) if not one.term.per_record)
        raise Refused(
            Reason.BATCH_STATISTICS,
            f"the encoder's loss has the term {coupled}, which couples the records of a batch, and the data are not"
            " declared public; set privacy.mode to none, or keep it in personal, which uploads nothing",
        )


def train_plainly(study: Study, training: Training, *, steps: Steps) -> EncoderUpdate:
    """Take the steps of `training` with a copy of its encoder and of its joint heads; give the change.

    `steps` goes on from where it is: `training.first` steps were taken before. Without records nothing changes.

    Raises `Refused` for a study that is not of public data, `LearningError` if the records have no environments.
    """
    require_public(study)
    records, plan = training.records, training.plan
    if records.environments is None:
        msg = "the records have no environments, which the study's terms compare; read them by the study's schema"
        raise LearningError(msg)
    heads = training.heads[: training.joint]
    trained = _Trained(copy.deepcopy(training.encoder).requires_grad_(), heads).to(training.device).train()
    start = flatten(trained)
    if len(records):
        batch = _batch(training)
        optimizer = torch.optim.SGD(trained.parameters(), lr=plan.learning_rate, momentum=plan.momentum)
        for rate in training.rates:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.zero_grad()
            own = trained.heads.read_by(batch)
            seen = Seen(own, trained.encoder(own.x, own.images))
            torch.autograd.backward(steps.loss(terms.of_upload(plan), seen, trained, trained))
            optimizer.step()
    change = flatten(trained).astype(np.float64) - start
    return EncoderUpdate(_bounded(change, plan), None)


def _bounded(change: NDArray[np.float64], plan: EncoderPlan) -> NDArray[np.float64]:
    bound = plan.max_update
    return np.clip(np.nan_to_num(change, nan=0.0, posinf=bound, neginf=-bound), -bound, bound)


def _batch(training: Training) -> Batch:
    """All records. The heads are put in by `TrainedHeads.read_by`."""
    records, device, environments = training.records, training.device, training.records.environments
    return Batch(
        x=torch.tensor(records.inputs[:], device=device),
        images=None if records.images is None else torch.tensor(records.images.take(slice(None)), device=device),
        y=torch.tensor(records.labels, device=device),
        domains=torch.tensor(records.domains, device=device),
        weights=torch.tensor(training.domain_weights[records.domains], dtype=torch.float32, device=device),
        heads=torch.zeros(0, device=device),
        family=training.family,
        environments=None if environments is None else torch.tensor(environments, device=device),
    )
