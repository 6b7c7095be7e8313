"""The sections of a study: model, heads, encoder, evaluation, privacy, deadlines, and what its author expects."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from common import names
from policies.documents import bounds, recipes
from policies.documents.document import Closed

Name = Annotated[str, Field(pattern=f"^{names.PATTERN}$", max_length=63)]
Purpose = Annotated[str, Field(min_length=1, max_length=2000), bounds.text(2000, lines=True)]
Noise = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False), bounds.within(1e-3, 1e6, zero=True)]
"""A noise multiplier; 0 only in a study of public data (`privacy.mode: none`)."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Coefficient = Annotated[float, Field(ge=0, allow_inf_nan=False), bounds.within(0, 100)]
Penalty = Annotated[float, Field(ge=0, allow_inf_nan=False), bounds.within(0, 1_000_000)]
"""IRM's coefficient, which is large where it counts; the whole loss is divided by it if it is above 1."""
Share = Annotated[float, Field(ge=0, le=1)]
GroupRate = Annotated[Positive, bounds.within(1e-6, 10)]
AnnealingSteps = Annotated[int, Field(ge=0, le=100_000)]
Seconds = Annotated[Positive, bounds.within(0.01, 30 * 86_400, fix="choose at most 30 days")]
LARGEST_BATCH: Final = 1_000_000
"""Of `encoder.batch_size`."""
LEAST_CLIP: Final = 1e-3
"""Of `heads.clip`. A shorter one gains nothing, and multiplies whatever is wrong in a term (docs/design/heads.md,
"Rounding")."""
_LONGER_CLIP: Final = (
    f"write {LEAST_CLIP:g} or more (.35 to 1 are usual): what an error adds to a term grows as it falls"
)


def _known(name: str) -> str:
    """The name of a registered recipe. The error's type is that of a value which the schema does not have."""
    if name in recipes.RECIPES:
        return name
    kind = "literal_error"
    raise PydanticCustomError(kind, "Input should be {expected}", {"expected": " or ".join(map(repr, recipes.RECIPES))})


Recipe = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(recipes.RECIPES), "type": "string"})]
"""How encoder and heads are learned and aggregated (`policies.documents.recipes`, docs/design/recipes.md)."""


class Model(Closed):
    """An encoder phi with values in [-1, 1]^k / sqrt(k), so that ||phi|| <= 1, and one linear head per domain.

    Heads read the representation, and beside it the inputs and random features of them if the study says so
    (docs/design/heads.md, "What a head reads").

    An image passes through its own network. The output is put beside the features, and both enter the `hidden` layers
    and the projection to the representation. Architectures are names: the silo builds them from its own list
    (`silo_agent.learning`), and code never comes from outside.
    """

    encoder: Literal["mlp", "cnn", "resnet18", "raw", "linear"] = "mlp"
    """raw: no network; the heads read the inputs themselves, divided by a public number, and `representation` is their
    number. linear: a matrix times these, without biases and tanh; only for data declared public. mlp: a network on the
    inputs alone. cnn: a 3x3 convolution with GroupNorm and a halving per entry of `channels`. resnet18: ResNet-18 (He
    et al. 2016) with GroupNorm."""
    channels: Annotated[tuple[Annotated[int, Field(ge=4, le=512)], ...], Field(min_length=1, max_length=6)] = (16, 32)
    """Channels of the cnn, one entry for each convolution."""
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], Field(max_length=8)] = (32,)
    representation: Annotated[int, Field(ge=1, le=256)] = 16
    skip: bool = False
    """Whether heads read the inputs too, beside the encoder's output: first the k values of the representation, then
    the inputs, divided by a public number."""
    random_features: Annotated[int, Field(ge=0, le=256)] = 0
    """Public random features of the inputs, which heads read after the inputs themselves: cosines of random directions,
    made from `seed` and never trained. With `encoder: raw` or `skip`."""
    bias: bool = True
    """Whether each row of a head has a bias, a weight for the constant 1."""
    gain: Annotated[Positive, bounds.within(1e-6, 1e3)] = 1.0
    """Scale of the last layer's orthogonal initial weights."""
    first_biases: Annotated[float, Field(ge=0, le=100)] = 0.0
    """The hidden layers' first biases lie evenly between this and its negative. With 0 the network starts as an odd
    function of its inputs, and finds squares and products slowly."""
    seed: Annotated[int, Field(ge=0, lt=2**32)]
    """Public seed of the common initial weights."""
    samples: Annotated[int, Field(ge=0, le=100)] = 0
    """With `encoder.cmi` only: a prediction is the mean over so many draws of the representation, which are public and
    the same for every record. 0: it is taken at the mean of the representation."""


class HeadPlan(Closed):
    """Second-order heads (FedDAR Eq. 8 at the common head): rounds on one pooled head, then on the domain heads."""

    solver: Literal["newton", "hierarchical"] = "newton"
    """newton: each round's sums give the next heads by one Newton step. hierarchical: the domain rounds' sums are all
    kept and give the heads of all domains together, each drawn to what they share as far as they are alike
    (docs/design/heads.md, "All releases together"). It is the better choice for a new study; the encoder must then be
    finished before the domain rounds."""
    pooled_share: Annotated[float, Field(ge=0, le=0.9)] = 0.3
    """hierarchical only: how much of a domain round's release, by square, is the sum of all domains at least. It grows
    as far as the domains turn out not to differ."""
    pooled_rounds: Annotated[int, Field(ge=1, le=200)] = 2
    domain_rounds: Annotated[int, Field(ge=0, le=200)] = 4
    pooled_noise: Noise
    domain_noise: Noise
    """Noise multipliers: standard deviation of the sum's noise for an l2 sensitivity of 1."""
    clip: Annotated[float, Field(gt=0, le=1), bounds.within(LEAST_CLIP, 1, fix=_LONGER_CLIP)] = 1.0
    """tau: a record's joint term (curvature, gradient) is scaled down to this norm, and the sums are in units of tau.
    1 clips nothing. Below 1 the noise is small compared with the terms of most patients, and rare, badly predicted
    patients count less, as in DP-SGD. Scores then keep their order better, but probabilities of a rare outcome come out
    too low, unless `calibration` corrects them."""
    calibration: Literal["none", "pooled", "domain"] = "none"
    """One round more, after the last of the heads, that releases how far the predicted risks are from the observed
    rates, without a clip, and moves nothing but the intercepts (docs/design/heads.md, "Calibration"). pooled: all by
    the same shift. domain: each domain's own, drawn to the common one as far as noise and few patients demand."""
    calibration_noise: Noise = 0.0
    """Noise multiplier of that round; 0 if there is none."""
    repair: Annotated[Positive, bounds.within(1e-6, 1e6)] = 1.0
    """c of docs/design/heads.md, "Repair": eigenvalues below c * sd_H * sqrt(2K) are raised to this value."""
    max_step: Annotated[Positive, bounds.within(1e-6, 1e6)] = 8.0
    """Trust region: a head moves at most this far (l2) in one round, at a silo too if it takes local steps."""
    steps: Annotated[int, Field(ge=1, le=1000)] = 20
    """feddar-sa and feddar-wa only: local steps of a silo's heads in one round."""
    learning_rate: Annotated[Positive, bounds.within(1e-6, 2)] = 1.0
    """feddar-sa and feddar-wa only: length of a local step, over the silo's largest curvature at heads of zero."""
    ridge: Annotated[float, Field(ge=0, le=1)] = 1e-3
    """feddar-sa only: part of its mean eigenvalue that is added to a summed curvature. It holds the head to where it
    was in directions that hardly any patient has."""


class EncoderPlan(Closed):
    """DP-SGD on the encoder with the heads frozen."""

    warm_up: Annotated[int, Field(ge=0, le=400)] = 0
    """In how many of the first rounds encoder and one head for all are trained together and averaged (FedAvg)."""
    every: Annotated[int, Field(ge=1, le=400)] = 1
    """After the warm-up the encoder is trained in each `every`-th round only: several rounds of heads for one of it."""
    together: bool = False
    """feddar-sa only: a silo trains encoder and heads together, in the encoder's steps, and its heads are then averaged
    with their Hessians. The heads take no local steps of their own."""
    rounds: Annotated[int, Field(ge=0, le=400)] | None = None
    """In how many of the first rounds the encoder is trained. None: in every round but the last, or with
    `heads.solver: hierarchical` in every pooled round but the last. 0: never; the heads then read the features of the
    public random network."""
    steps: Annotated[int, Field(ge=1, le=10_000)]
    sampling_rate: Annotated[float, Field(ge=1e-9, le=1)]
    batch_size: Annotated[int, Field(ge=1, le=LARGEST_BATCH)]
    """Public denominator of the gradient sum. It is never derived from a private count."""
    learning_rate: Annotated[Positive, bounds.within(1e-9, 1e3)]
    schedule: Literal["constant", "cosine"] = "constant"
    """How the learning rate goes on over all steps of the study. cosine: from `learning_rate` along half a cosine
    towards 0."""
    head_steps: Annotated[int, Field(ge=0, le=10_000)] = 0
    """fedrep only: how many noised steps of a round train the heads alone, before `steps` train the encoder alone."""
    proximal: Annotated[float, Field(ge=0, le=100)] = 0.0
    """FedProx: how strongly a silo's weights are drawn to where the round began."""
    momentum: Annotated[float, Field(ge=0, lt=1), bounds.within(0, 0.999)] = 0.0
    """Momentum of the noised gradients, as of torch's SGD: a step goes on with this share of the step before.
    Steps become longer by 1 / (1 - momentum), so choose a lower `learning_rate`."""
    sealed_steps: bool = False
    """False: a silo takes `steps` steps of its own in a round and adds its noise whole. True: every step is a round of
    its own, in which all patients take part. The silos' gradient sums are opened like those of the heads, with noise as
    `privacy.mode` says."""
    clip: Annotated[Positive, bounds.within(1e-6, 1e6)] = 1.0
    noise: Noise
    l2r: Annotated[float, Field(ge=0, le=100)] = 0.0
    cmi: Annotated[float, Field(ge=0, le=100)] = 0.0
    l2r_norm: Literal["squared", "plain"] = "squared"
    """squared: |z|^2, as FedSR writes it. plain: |z|, as its code has it."""
    prior: Literal["averaged", "local", "fixed"] = "averaged"
    """FedSR's r(z|y). It is trained in the same DP step, and averaged over silos or kept at the silo. fixed: it follows
    from `model.seed`, is public, and is never trained."""
    cmi_scale: bool = False
    """Whether `cmi` compares q(z|x) with r(z|y) after a factor that is trained with the tables, as in FedSR's published
    code. It is averaged or kept as they are."""
    weight_clip: Annotated[float, Field(ge=1, le=100)] = 3.0
    """FedDAR's domain weights u_m are clipped to [1/weight_clip, weight_clip]. 1: records are not re-weighted."""
    max_update: Annotated[Positive, bounds.within(1e-9, 1e6)] = 2.0
    """Public bound on every coordinate of a silo's update, which is clamped to it before it is summed."""
    irm: Penalty = 0.0
    """Only for data declared public, with `irm_after`, `group_dro` and `group_rate`: what the silos upload is trained
    to be as good in every environment of `data.environment`. The meaning is that of the fields of `personal`."""
    irm_after: AnnealingSteps = 0
    group_dro: Share = 0.0
    group_rate: GroupRate = 0.01
    sealing: Literal["ring32", "ring64", "ckks"] = "ring32"
    """How the sum of the updates is sealed: integers mod 2^32 or 2^64 under masks, or masked CKKS ciphertexts."""


class Evaluation(Closed):
    """Metric sums over the patients whom the silo holds out, released once, after the last round."""

    bins: Annotated[int, Field(ge=2, le=256)] = 10
    """Bins of the score. The sums of a number have none."""
    noise: Noise
    largest_error: Annotated[float, Field(gt=0, le=1), bounds.within(1e-3, 1)] = 1.0
    """Of a number: an error beyond this share of the label's range counts as this one in the noised figures. The noise
    of the mean absolute error is in proportion to it, that of the mean squared error to its square."""
    auc: Literal["cells", "fitted"] = "cells"
    """How the AUC of two classes follows from the noised histograms. cells: from the cells' own counts, with a
    bootstrap's interval. fitted: from a risk that rises with the score and is fitted to all cells, with a narrower
    interval."""
    together: bool = False
    """Whether figures of all patients together, from the same sums, are published beside those of the domains."""


ALL_PATIENTS: Final = "all patients"
"""Stands for a domain's name where figures of all patients together are given."""
Metric = Literal[
    "auc",
    "accuracy",
    "balanced_accuracy",
    "false_negatives",
    "calibration",
    "expected_observed",
    "patients",
    "mae",
    "r2",
    "mean_error",
]
"""Metrics by domain, from the noised sums: area under the ROC curve (two classes only), share of right predictions,
mean of the classes' shares, share of the second class that is predicted as the first (two classes only), expected
calibration error, predicted over observed number of patients of the second class
(more than two classes: the predictions' confidence over the share that is right), number of held-out patients. If the
label is a number: mean absolute error, share of the variance explained, mean of prediction less outcome, number of
held-out patients."""
OF_NUMBERS: Final = frozenset({"mae", "r2", "mean_error", "patients"})
OF_CLASSES: Final = frozenset(
    {"auc", "accuracy", "balanced_accuracy", "false_negatives", "calibration", "expected_observed", "patients"}
)


PERSONAL_MOMENTUM: Final = 0.9
"""Momentum of the personal model's steps, as of torch's SGD."""
_MOST_PULL: Final = 2.0 * (1.0 + PERSONAL_MOMENTUM)
"""Of learning rate times curvature: beyond it, gradient descent with this momentum leaves even a parabola's bottom."""


class Personal(Closed):
    """The personal model, which never leaves the silo: weights of the terms that hold it close to the shared one."""

    epochs: Annotated[int, Field(ge=1, le=1000)] = 2
    learning_rate: Annotated[Positive, bounds.within(1e-9, 10)] = 0.05
    batch_size: Annotated[int, Field(ge=2, le=4096)] = 64
    ditto: Coefficient = 0.1
    mmd: Coefficient = 0.1
    cosine: Coefficient = 0.0
    mmd_d: Coefficient = 0.0
    kernel_steps: Annotated[int, Field(ge=1, le=100)] = 5
    """Steps of MMD-D's deep kernel before each step of the model."""
    irm: Penalty = 0.0
    """Weight of IRMv1's penalty on the environments of `data.environment`; above 1 it divides the whole loss too."""
    irm_after: AnnealingSteps = 0
    """Steps, over all rounds, before `irm` has its full weight; until then it weighs at most 1."""
    group_dro: Share = 0.0
    """Share of GroupDRO's loss, which weighs environments by how badly they are predicted; 1 leaves nothing of the
    mean over records."""
    group_rate: GroupRate = 0.01
    """How fast these weights move: eta of GroupDRO."""
    mmd_every: Annotated[int, Field(ge=1, le=1000)] = 1
    """When MK-MMD chooses the weights of its kernels: at every step, on its batch, or after every so many steps, on the
    batches of those steps. They stay fixed in between."""
    depth: Annotated[int, Field(ge=1, le=10)] = 1
    """How many layers of the encoder `mmd`, `mmd_d` and `cosine` compare, from the last down: 1 is the representation
    alone. The image network counts as one layer."""
    adversary: Coefficient = 0.0
    """Weight of the loss of a network that guesses `data.protected` from the representation, and that the personal
    model is trained to lead astray."""
    adversary_steps: Annotated[int, Field(ge=1, le=100)] = 5
    """Steps of that network before each step of the model."""

    @model_validator(mode="after")
    def _check_pull(self, info: ValidationInfo) -> Self:
        if bounds.lifted(info):
            return self
        # Ditto's distance is divided by `irm` from its step on, so this is the most that it ever weighs.
        pull = self.ditto if self.irm_after else self.ditto / max(1.0, self.irm)
        if self.learning_rate * pull > _MOST_PULL:
            msg = (
                f"personal.learning_rate {self.learning_rate:g} times the {pull:g} that personal.ditto weighs at most"
                f" exceeds {_MOST_PULL:g}, so that each step throws the model further from the shared one; lower one of"
                " them"
            )
            raise ValueError(msg)
        return self


class Privacy(Closed):
    """What the study asks of every silo's budget, in addition to the noise of each part."""

    delta: Annotated[float, Field(gt=0, lt=1e-2), bounds.within(1e-12, 1e-2)]
    mode: Literal["local", "distributed", "none"]
    """Who carries the noise of head, count and metric sums, and of the encoder's sealed steps (docs/design/noise.md,
    "Distributed noise"). The noise of an encoder's update is always local. `none`: no noise anywhere, for data that
    every silo's policy declares public; everything is sealed all the same."""
    colluders: Annotated[int, Field(ge=0, le=1000)] = 1
    """t: silos that may share what they know with the coordinator. Recovery from a dropout needs more shares than they
    hold, and distributed noise protects against them."""
    count_noise: Noise
    max_patients: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Public bound on the number of patients of one silo. Statistics are clamped to the range that it implies, never
    refused."""
    smallest_domain: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Least number of patients, by the opened and noised sums of all silos, with which a domain gets its own results.
    Below it, the head stays where the pooled rounds left it, and no figure of the domain is reported."""


class Expected(Closed):
    """What the study's author expects of the data: public guesses, written down before anybody looked.

    Rules and forecasts start from them. Nothing that a silo computes from records depends on them.
    """

    patients: Annotated[tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...], Field(min_length=1, max_length=256)]
    """Patients of each silo that are fit for training, in the order of `silos`; one number stands for every silo."""
    shares: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(max_length=256)] = ()
    """Share of the patients in each domain, in the order of the domains. Empty: all domains are equally frequent."""
    prevalence: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of the patients who have the outcome, of two classes. None: one half, and of more classes equal shares."""
    effect: Annotated[float, Field(gt=0, lt=1)] | None = None
    """How well the features tell the outcome without noise: AUC for classes, R^2 for a number. None: a common range."""


class Deadlines(Closed):
    """Seconds that each phase may last before the attempt is aborted."""

    offer: Seconds = 120.0
    keys: Seconds = 120.0
    train: Seconds = 1800.0
    open: Seconds = 300.0
    solve: Seconds = 300.0
