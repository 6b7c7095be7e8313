"""How the encoder is trained, and how its updates are sealed."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import AnnealingSteps, GroupRate, Noise, Penalty, Positive, Share

LARGEST_BATCH: Final = 1_000_000
"""Of `encoder.batch_size`."""


class EncoderPlan(Closed):
    """DP-SGD on the encoder with the heads frozen."""

    warm_up: Annotated[
        int,
        Field(ge=0, le=400),
        About(
            "first rounds that train the encoder and one head for all together and average them (FedAvg)",
            comment="first rounds that train encoder and heads together",
            unit="rounds",
            change="alternation starts too slowly",
            since="0.6",
            read_by="alternating",
        ),
    ] = 0
    every: Annotated[
        int,
        Field(ge=1, le=400),
        About(
            "after the warm-up the encoder is trained in every n-th round only",
            comment="trained in every so many rounds",
            unit="rounds",
            change="heads need several rounds for one of the encoder",
            since="0.6",
            read_by="alternating",
        ),
    ] = 1
    """After the warm-up the encoder is trained in each `every`-th round only: several rounds of heads for one of it."""
    together: Annotated[
        bool,
        About(
            (
                "`feddar-sa`: each hospital trains encoder and heads together, in the encoder's steps,"
                " and its heads are then averaged with their Hessians"
            ),
            comment="feddar-sa: heads are trained in the encoder's steps, too",
            change="FedDAR is to be compared with its own parts: the row of its Table 2 without alternation",
            since="0.6",
            read_by="by_hessians",
        ),
    ] = False
    """feddar-sa only: a silo trains encoder and heads together, in the encoder's steps, and its heads are then averaged
    with their Hessians. The heads take no local steps of their own."""
    rounds: Annotated[
        Annotated[int, Field(ge=0, le=400)] | None,
        About(
            (
                "in how many of the first rounds the encoder is trained; `null`: all but the last, or"
                " with the hierarchical solver all pooled rounds but the last"
            ),
            comment="0: none is trained, and the rest of this section does nothing; null: all but the last",
            unit="rounds",
            change="no encoder is worth its budget: 0",
            since="0.6",
            read_by="alternating",
        ),
    ] = None
    """In how many of the first rounds the encoder is trained. None: in every round but the last, or with
    `heads.solver: hierarchical` in every pooled round but the last. 0: never; the heads then read the features of the
    public random network."""
    steps: Annotated[
        int,
        Field(ge=1, le=10_000),
        About(
            (
                "DP-SGD steps between two sums of the heads; each costs epsilon. 60 to 150 in all are"
                " worth their price, if any are"
            ),
            comment="DP-SGD steps a round",
            unit="steps a round",
        ),
    ]
    sampling_rate: Annotated[
        float,
        Field(ge=1e-9, le=1),
        About(
            "with which a patient takes part in a step; less costs less. 1 with sealed steps",
            comment="chance of a patient to take part in a step",
            unit="probability",
        ),
    ]
    batch_size: Annotated[
        int,
        Field(ge=1, le=LARGEST_BATCH),
        About(
            (
                "public divisor of a hospital's gradient: about `sampling_rate` times the patients"
                " expected at a hospital"
            ),
            comment="public divisor of the gradient",
            unit="patients",
            change="never from a hospital's true number",
        ),
    ]
    """Public denominator of the gradient sum. It is never derived from a private count."""
    learning_rate: Annotated[
        Positive,
        bounds.within(1e-9, 1e3),
        About("how far a step goes; 1e-9 leaves the encoder as it is", unit="step length"),
    ]
    schedule: Annotated[
        Literal["constant", "cosine"],
        About(
            "how the learning rate goes on over all steps of the study",
            comment="of the learning rate, over all steps of the study",
            change="there are 60 steps or more: `cosine`, and twice the learning rate",
            since="0.6",
        ),
    ] = "constant"
    """How the learning rate goes on over all steps of the study. cosine: from `learning_rate` along half a cosine
    towards 0."""
    head_steps: Annotated[
        int,
        Field(ge=0, le=10_000),
        About(
            (
                "`fedrep`: the first so many steps of a round train the hospital's heads alone; each is"
                " noised and charged like the others"
            ),
            comment="fedrep: steps of the heads alone, before the encoder's",
            unit="steps",
            change="the recipe is `fedrep`, which needs some: as many as `encoder.steps`",
            since="0.6",
            read_by="heads_first",
        ),
    ] = 0
    proximal: Annotated[
        float,
        Field(ge=0, le=100),
        About(
            (
                "FedProx: a hospital's weights are drawn to where the round began; it reads no record,"
                " and costs no privacy. Parts that stay at the hospital are not drawn"
            ),
            comment="fedprox: draws a hospital's weights to where the round began",
            unit="weight of a distance",
            change="hospitals take many steps a round and differ: `0.01` to `1`",
            since="0.6",
            read_by="shares",
        ),
    ] = 0.0
    momentum: Annotated[
        float,
        Field(ge=0, lt=1),
        bounds.within(0, 0.999),
        About(
            (
                "a step goes on with this share of the step before, and steps become longer by 1 / (1 -"
                " momentum); with silos' own steps it begins anew in each round"
            ),
            comment="of the steps",
            unit="share",
            change="there are 20 steps a round or more, or sealed ones: `0.9`, and a tenth of the learning rate",
            since="0.6",
        ),
    ] = 0.0
    """Momentum of the noised gradients, as of torch's SGD: a step goes on with this share of the step before.
    Steps become longer by 1 / (1 - momentum), so choose a lower `learning_rate`."""
    sealed_steps: Annotated[
        bool,
        About(
            (
                "every step is a round of its own: all patients take part, and the sum's noise is shared"
                " like that of the heads ([how](docs/studies.md#sealed-steps))"
            ),
            comment="true: every step is a round, and its noise is shared",
            change="`privacy.mode` is `distributed`, and rounds are cheap",
            since="0.6",
            read_by="solved",
        ),
    ] = False
    """False: a silo takes `steps` steps of its own in a round and adds its noise whole. True: every step is a round of
    its own, in which all patients take part. The silos' gradient sums are opened like those of the heads, with noise as
    `privacy.mode` says."""
    clip: Annotated[
        Positive,
        bounds.within(1e-6, 1e6),
        About(
            "a patient's gradient is cut to it; noise is a multiple of it",
            comment="of a patient's gradient",
            unit="l2",
            change=(
                "gradients are much shorter. Where the outcome is rare 2: a short clip cuts those of the"
                " ill alone ([why](docs/design/heads.md#when-an-encoder-pays))"
            ),
        ),
    ] = 1.0
    noise: Annotated[
        Noise,
        About(
            (
                "noise of each step; at 7,681 patients and epsilon 4 the encoder adds next to nothing, so"
                " save here first"
            ),
            comment="of each step, as a multiple of clip",
            unit="multiple of `clip`",
            change="`fedward-silo plan --target-epsilon` recommends it",
        ),
    ]
    l2r: Annotated[
        float,
        Field(ge=0, le=100),
        About(
            "FedSR: keeps representations short",
            comment="FedSR: keeps representations short",
            unit="weight of a loss term",
            change="hospitals' records look different; at small epsilon leave it",
        ),
    ] = 0.0
    cmi: Annotated[
        float,
        Field(ge=0, le=100),
        About(
            "FedSR: representations of one class look alike at all hospitals; the encoder becomes stochastic",
            comment="FedSR: representations of a class alike at all silos",
            unit="weight of a loss term",
            change="hospitals' records look different; at small epsilon leave it",
        ),
    ] = 0.0
    l2r_norm: Annotated[
        Literal["squared", "plain"],
        About(
            "whether `l2r` is the squared length or the length",
            comment="of l2r: the squared length, or the plain one",
            change="the paper's published coefficients are to be used: `plain`, as in its code",
            since="0.6",
        ),
    ] = "squared"
    """squared: |z|^2, as FedSR writes it. plain: |z|, as its code has it."""
    prior: Annotated[
        Literal["averaged", "local", "fixed"],
        About(
            (
                "whether the tables that `cmi` compares with are shared, stay at each hospital, or follow"
                " from `model.seed` and are never trained"
            ),
            comment="of cmi's tables",
            change="`cmi` is above 0 and hospitals differ much: `local`; noise drowns the tables: `fixed`",
        ),
    ] = "averaged"
    """FedSR's r(z|y). It is trained in the same DP step, and averaged over silos or kept at the silo. fixed: it follows
    from `model.seed`, is public, and is never trained."""
    cmi_scale: Annotated[
        bool,
        About(
            (
                "`cmi` compares after a factor on the representation that is trained with the tables, as"
                " in FedSR's published code"
            ),
            comment="cmi compares after a factor that is trained, as in FedSR's published code",
            change="results are to be compared with that code",
            since="0.6",
        ),
    ] = False
    """Whether `cmi` compares q(z|x) with r(z|y) after a factor that is trained with the tables, as in FedSR's published
    code. It is averaged or kept as they are."""
    weight_clip: Annotated[
        float,
        Field(ge=1, le=100),
        About(
            "small domains count more in the loss, at most this much; 1: every record counts alike",
            comment="most by which a small domain counts more",
            unit="factor",
            change="a tiny domain takes over: lower",
        ),
    ] = 3.0
    """FedDAR's domain weights u_m are clipped to [1/weight_clip, weight_clip]. 1: records are not re-weighted."""
    max_update: Annotated[
        Positive,
        bounds.within(1e-9, 1e6),
        About(
            "each coordinate of an update is clamped to it; the grid's range",
            comment="each weight's update is clamped to it",
            unit="weight units",
            change="never, unless updates are cut",
        ),
    ] = 2.0
    irm: Annotated[
        Penalty,
        About(
            (
                "only with `privacy.mode: none` and `fedavg`: what is uploaded is to hold in every"
                " environment of each hospital (IRM). Every step then reads all records: no clip, and"
                " `encoder.batch_size` is not read"
            ),
            comment="of public data: what holds in all environments",
            unit="weight of a loss term",
            change="the data are public, and silos have environments that mislead: 100 or more",
            since="0.6",
        ),
    ] = 0.0
    """Only for data declared public, with `irm_after`, `group_dro` and `group_rate`: what the silos upload is trained
    to be as good in every environment of `data.environment`. The meaning is that of the fields of `personal`."""
    irm_after: Annotated[
        AnnealingSteps,
        About(
            "before so many steps `irm` weighs at most 1",
            comment="steps before irm has its weight",
            unit="steps of the study",
            change="the term has to wait until the model has learned what holds: half of all steps or more",
            since="0.6",
        ),
    ] = 0
    group_dro: Annotated[
        Share,
        About(
            "as `irm`: environments that are predicted badly count more (GroupDRO)",
            comment="of public data: badly predicted environments count more",
            unit="share",
            change="the worst environment matters, not the mean",
            since="0.6",
        ),
    ] = 0.0
    group_rate: Annotated[
        GroupRate,
        About(
            "how fast these weights move",
            comment="of these weights",
            unit="rate",
            change="they hardly move: `0.1`",
            since="0.6",
        ),
    ] = 0.01
    sealing: Annotated[
        Literal["ring32", "ring64", "ckks"],
        About(
            "how updates are added unread: 4, 8 or 13.5 bytes a weight",
            comment="how updates are added unread",
            change="a policy asks for `ckks`; many silos on a fine grid: `ring64`",
            since="0.3",
        ),
    ] = "ring32"
    """How the sum of the updates is sealed: integers mod 2^32 or 2^64 under masks, or masked CKKS ciphertexts."""
