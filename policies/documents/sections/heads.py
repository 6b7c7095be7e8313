"""How the heads are learned from noised sums, and how they are calibrated."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from policies.documents import bounds
from policies.documents.about import About
from policies.documents.document import Closed
from policies.documents.sections.kinds import Noise, Positive

LEAST_CLIP: Final = 1e-3
"""Of `heads.clip`. A shorter one gains nothing, and multiplies whatever is wrong in a term (docs/design/heads.md,
"Rounding")."""

_LONGER_CLIP: Final = (
    f"write {LEAST_CLIP:g} or more (.35 to 1 are usual): what an error adds to a term grows as it falls"
)


class HeadPlan(Closed):
    """Second-order heads (FedDAR Eq. 8 at the common head): rounds on one pooled head, then on the domain heads."""

    solver: Annotated[
        Literal["newton", "hierarchical"],
        About(
            (
                "whether a domain round's heads follow from its own sums, or those of all domains from"
                " the sums of all rounds"
            ),
            comment="hierarchical: from all releases of all domains; newton: from each round's own",
            change="the study is new: `hierarchical`, which is nowhere worse by more than its noise",
            since="0.6",
            read_by="solved",
        ),
    ] = "newton"
    """newton: each round's sums give the next heads by one Newton step. hierarchical: the domain rounds' sums are all
    kept and give the heads of all domains together, each drawn to what they share as far as they are alike
    (docs/design/heads.md, "All releases together"). It is the better choice for a new study; the encoder must then be
    finished before the domain rounds."""
    pooled_share: Annotated[
        float,
        Field(ge=0, le=0.9),
        About(
            "hierarchical only: least share of a domain round's release for the sum of all domains",
            comment="hierarchical: least share of a domain round for the sum of all domains",
            unit="share",
            change="domains are known to differ: less",
            since="0.6",
            read_by="solved",
        ),
    ] = 0.3
    """hierarchical only: how much of a domain round's release, by square, is the sum of all domains at least. It grows
    as far as the domains turn out not to differ."""
    pooled_rounds: Annotated[
        int,
        Field(ge=1, le=200),
        About(
            "rounds for one head of all patients, the start of all",
            comment="on one head for all patients",
            unit="rounds",
            change="one group dominates: more",
        ),
    ] = 2
    domain_rounds: Annotated[
        int,
        Field(ge=0, le=200),
        About(
            "rounds for a head of each domain; 0 keeps one head",
            comment="on a head for each domain",
            unit="rounds",
            change="domains do not differ, or epsilon is small: fewer",
            read_by="several_heads",
        ),
    ] = 4
    pooled_noise: Annotated[
        Noise,
        About(
            "noise of each pooled round; epsilon falls as it grows",
            comment="deviation, at sensitivity 1",
            unit="deviation at sensitivity 1",
            change="`fedward-silo plan --target-epsilon` recommends it",
            read_by="alternating",
        ),
    ]
    domain_noise: Annotated[
        Noise,
        About(
            "noise of each domain round",
            comment="deviation, at sensitivity 1",
            unit="deviation at sensitivity 1",
            change="`fedward-silo plan --target-epsilon` recommends it",
            read_by="alternating",
        ),
    ]
    """Noise multipliers: standard deviation of the sum's noise for an l2 sensitivity of 1."""
    clip: Annotated[
        float,
        Field(gt=0, le=1),
        bounds.within(LEAST_CLIP, 1, fix=_LONGER_CLIP),
        About(
            "a record's term is cut to it and noise shrinks with it; costs no epsilon",
            comment="a record's term is cut to this norm, and noise shrinks with it",
            unit="norm",
            change=(
                "noise is what limits: .35 to .5; probabilities of rare outcomes then come out too low"
                " unless the study calibrates"
            ),
        ),
    ] = 1.0
    """tau: a record's joint term (curvature, gradient) is scaled down to this norm, and the sums are in units of tau.
    1 clips nothing. Below 1 the noise is small compared with the terms of most patients, and rare, badly predicted
    patients count less, as in DP-SGD. Scores then keep their order better, but probabilities of a rare outcome come out
    too low, unless `calibration` corrects them."""
    clip_by: Annotated[
        Literal["own", "worst"],
        About(
            (
                "whether a record's term is cut by its length or by the length under the outcome that would make it"
                " longest, so that the cut does not depend on the outcome"
            ),
            comment="worst: by the length under the worst outcome, so that no outcome decides how much is cut",
            change="coefficients are to be read, or a rare yes/no column matters: `worst`, with `clip: 1`",
            since="0.7",
        ),
    ] = "own"
    """own: by the term's own length, which is long where the outcome was a surprise, so that the ill of a rare outcome
    count less and coefficients of long one-sided columns are biased. worst: by the largest length that the term would
    have under any outcome; terms only get shorter, and what is cut follows from the inputs alone."""
    calibration: Annotated[
        Literal["none", "pooled", "domain"],
        About(
            (
                "one round more that brings predicted risks to the observed rates, by one shift of all"
                " intercepts or one for each domain"
            ),
            comment="a last round that brings predicted risks to the observed rates",
            change="new studies: `pooled`; domains have many patients and rates of their own: `domain`",
            since="0.6",
            read_by="solved",
        ),
    ] = "none"
    """One round more, after the last of the heads, that releases how far the predicted risks are from the observed
    rates, without a clip, and moves nothing but the intercepts (docs/design/heads.md, "Calibration"). pooled: all by
    the same shift. domain: each domain's own, drawn to the common one as far as noise and few patients demand."""
    calibration_noise: Annotated[
        Noise,
        About(
            (
                "noise of that round; needed if the study calibrates. About as much as"
                " `heads.pooled_noise` costs 3 % of the heads' budget"
            ),
            comment="deviation, at sensitivity 1",
            unit="deviation at sensitivity 1",
            change="fewer than 100 patients have the outcome: half of it",
            since="0.6",
            read_by="solved",
        ),
    ] = 0.0
    repair: Annotated[
        Positive,
        bounds.within(1e-6, 1e6),
        About(
            "curvature below it counts as noise",
            comment="curvature below this multiple of its noise counts as noise",
            unit="multiple of the noise",
            change="steps are too timid: lower; results jump: raise",
            read_by="alternating",
        ),
    ] = 1.0
    """c of docs/design/heads.md, "Repair": eigenvalues below c * sd_H * sqrt(2K) are raised to this value."""
    max_step: Annotated[
        Positive,
        bounds.within(1e-6, 1e6),
        About(
            "farthest a head moves in one round",
            comment="farthest a head moves in a round",
            unit="l2",
            change="weights must become large, without noise",
            read_by="alternating",
        ),
    ] = 8.0
    """Trust region: a head moves at most this far (l2) in one round, at a silo too if it takes local steps."""
    steps: Annotated[
        int,
        Field(ge=1, le=1000),
        About(
            "`feddar-sa` and `feddar-wa`: local steps of a hospital's heads in one round",
            comment="local steps of the recipes feddar-sa and feddar-wa",
            unit="steps",
            change="hospitals' heads are far from done: more",
            since="0.6",
            read_by="local_heads",
        ),
    ] = 20
    learning_rate: Annotated[
        Positive,
        bounds.within(1e-6, 2),
        About(
            "`feddar-sa` and `feddar-wa`: length of such a step; 2 is the edge of what is stable",
            comment="of those steps",
            unit="over the largest curvature",
            change="many classes: less",
            since="0.6",
            read_by="local_heads",
        ),
    ] = 1.0
    """feddar-sa and feddar-wa only: length of a local step, over the silo's largest curvature at heads of zero."""
    ridge: Annotated[
        float,
        Field(ge=0, le=1),
        About(
            "`feddar-sa`: added to the summed curvature, holds a head where hardly any patient tells",
            comment="feddar-sa: added to the summed curvature; keeps heads where hardly any patient tells",
            unit="share of the mean eigenvalue",
            change="many weights for few patients: more",
            since="0.6",
            read_by="by_hessians",
        ),
    ] = 1e-3
    """feddar-sa only: part of its mean eigenvalue that is added to a summed curvature. It holds the head to where it
    was in directions that hardly any patient has."""
