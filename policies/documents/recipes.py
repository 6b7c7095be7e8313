"""The recipes that a study may name: what is shared, what is kept, how heads are aggregated.

Everything else reads the properties of a row; no code asks for a recipe by its name.

Guarantees that a part which feeds an upload is trained in the clipped, noised, charged step, whether it is shared or
kept: a recipe says where a part lies, and cannot say that it is trained in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

Heads = Literal["solved", "hessians", "counts", "averaged", "kept"]
"""How the next heads follow. solved: from second-order sums at the common heads. hessians, counts: local heads,
weighted by their Hessians or by numbers of patients. averaged: they are trained in the encoder's step, and averaged
with it. kept: they are trained in the encoder's step, and stay at the silo."""
Encoder = Literal["averaged", "kept"]
"""averaged: the mean of the silos' changes moves the shared encoder. kept: every silo has its own."""
Order = Literal["alternating", "together", "heads-first"]
"""alternating: heads and encoder have sums of their own. together: one step trains both. heads-first: the first steps
of a round train the heads alone, the others the encoder alone."""


Part = Literal["encoder", "heads"]
"""A part of a model that lies at one place."""
PARTS: Final[tuple[Part, ...]] = get_args(Part)


@dataclass(frozen=True)
class Composition:
    """One recipe.

    Attributes:
        name: what a study writes as `recipe`.
        source: where it comes from.
        heads, encoder, order: see the types.
        public: whether it is for data declared public alone, because nobody can bound what a patient adds.
        one_head: whether one head serves all domains in every round.
        linear: whether the encoder is a matrix that is made orthonormal after every step.
        needs: groups of the study's fields, as `part.field`. Of each group at least one must be above 0 (or be there).
    """

    name: str
    source: str
    heads: Heads
    encoder: Encoder = "averaged"
    order: Order = "together"
    public: bool = False
    one_head: bool = False
    linear: bool = False
    needs: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if (self.order == "alternating") != (self.heads in {"solved", "hessians", "counts"}):
            msg = f"recipe {self.name}: heads that are {self.heads} are not trained {self.order}; choose another order"
            raise ValueError(msg)
        if self.order == "heads-first" and (self.heads != "kept" or self.encoder != "averaged"):
            msg = f"recipe {self.name}: heads come first only if they are kept and the encoder is averaged"
            raise ValueError(msg)
        if self.encoder == "kept" and self.order == "alternating":
            msg = f"recipe {self.name}: an encoder that is kept needs heads that are trained in its own step"
            raise ValueError(msg)
        if (self.local_heads or self.linear) and not self.public:
            msg = f"recipe {self.name}: nobody can bound what a patient adds to such a sum; say that it is public"
            raise ValueError(msg)

    @property
    def joint(self) -> bool:
        """Whether the heads are trained in the encoder's own steps, in every round, and have no sum of their own."""
        return not self.alternating

    @property
    def solved(self) -> bool:
        """Whether heads are solved from sums at the common heads, under an encoder that DP-SGD trains."""
        return self.heads == "solved" and not self.linear

    @property
    def alternating(self) -> bool:
        """Whether the heads have sums of their own, and the encoder is trained while they are frozen."""
        return self.order == "alternating"

    @property
    def heads_first(self) -> bool:
        """Whether the first steps of a round train the heads alone."""
        return self.order == "heads-first"

    @property
    def by_hessians(self) -> bool:
        """Whether local heads are averaged with their Hessians."""
        return self.heads == "hessians"

    @property
    def several_heads(self) -> bool:
        """Whether domains may have heads of their own."""
        return not self.one_head

    @property
    def local_heads(self) -> bool:
        """Whether a silo's heads take local steps on its records, without a clip."""
        return self.heads in {"hessians", "counts"}

    @property
    def kept(self) -> frozenset[Part]:
        """The parts that stay at the silo."""
        return frozenset(part for part in PARTS if getattr(self, part) == "kept")

    @property
    def keeps(self) -> bool:
        """Whether a part stays at the silo."""
        return bool(self.kept)

    @property
    def shares(self) -> bool:
        """Whether a part of the model is shared."""
        return self.kept != frozenset(PARTS)


_TABLE: Final = (
    # FedWard's own: second-order sums at the common heads, solved; then the encoder with the heads frozen.
    Composition("second-order", "docs/design/heads.md", heads="solved", order="alternating"),
    # FedDAR-SA: local heads, averaged with their Hessians (Eq. 8); then the encoder with the heads frozen.
    Composition("feddar-sa", "FedDAR, ICLR 2023, Algorithm 1", heads="hessians", order="alternating", public=True),
    # FedDAR-WA: local heads, averaged with numbers of patients; then the encoder with the heads frozen.
    Composition("feddar-wa", "FedDAR, ICLR 2023, Algorithm 1", heads="counts", order="alternating", public=True),
    # FedDAR's Algorithm 2: heads in closed form, then one step of a linear encoder and its QR.
    Composition(
        "feddar-linear", "FedDAR, ICLR 2023, Algorithm 2", heads="solved", order="alternating", public=True, linear=True
    ),
    # FedAvg: encoder and one head for all are trained together and averaged.
    Composition("fedavg", "McMahan et al. 2017", heads="averaged", one_head=True),
    # FedAvg with a head for each domain.
    Composition("multi-head-fedavg", "FedDAR, ICLR 2023, Table 2", heads="averaged"),
    # FedProx: FedAvg, and a silo's weights are drawn to where the round began.
    Composition("fedprox", "Li et al. 2020, Eq. 2", heads="averaged", needs=(("encoder.proximal",),)),
    # FedSR: FedAvg with an encoder that is drawn at random, L2R and CMI in every record's loss.
    Composition("fedsr", "Nguyen et al. 2022", heads="averaged", needs=(("encoder.l2r",), ("encoder.cmi",))),
    # Ditto: a shared model by FedAvg, and at every silo a personal model that is held close to it.
    Composition("ditto", "Li et al. 2021, Algorithm 1", heads="averaged", needs=(("personal.ditto",),)),
    # PerInvFL: a personal model that holds in all environments of a silo, pulled to a shared one.
    Composition(
        "perinvfl",
        "Tang, Guo, Zhang 2022, Algorithm 1",
        heads="averaged",
        needs=(("data.environment",), ("personal.ditto",), ("personal.irm", "personal.group_dro")),
    ),
    # LG-FedAvg: every silo keeps an encoder of its own under shared heads. FedPer is its mirror image.
    Composition("lg-fedavg", "Liang et al. 2020", heads="averaged", encoder="kept"),
    # FedPer: a shared encoder under heads that every silo keeps; one step trains both.
    Composition("fedper", "Arivazhagan et al. 2019", heads="kept"),
    # FedRep: FedPer, but the first steps of a round train the silo's heads alone, the others the encoder alone.
    Composition("fedrep", "Collins et al. 2021", heads="kept", order="heads-first", needs=(("encoder.head_steps",),)),
    # Nothing is shared: every silo trains encoder and heads alone, by the same charged steps. The baseline.
    Composition("local", "Liang et al. 2020, the baseline", heads="kept", encoder="kept"),
)
RECIPES: Final[Mapping[str, Composition]] = MappingProxyType({row.name: row for row in _TABLE})
"""Every recipe by its name, in the order in which documents list them."""
