"""The public rule that turns a draft into a study: rounds, clips, splits and the noises' proportions.

Guarantees: the rule reads what a draft states and nothing else, no record and no file. It decides in the order of
`RULE`, one line for each field, and never overrules what the draft states. The noises it gives are proportions:
`policies.accounting.completing` scales them until the study costs what the draft says.

The choices and their reasons: docs/design/heads.md, "The rule for a new study".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.documents.draft import MARGIN, Draft
from policies.documents.sections.encoder import LARGEST_BATCH
from policies.documents.study import BINARY
from policies.plan import quorum
from policies.plan.families import form_of

WIDEST_RAW: Final = 256
"""Inputs that heads can read by themselves; the widest representation."""
WIDEST_HEAD: Final = 512
"""Weights of a head that the hierarchical solver takes (documents/study.py)."""
MANY_PATIENTS: Final = 30_000
"""Patients of all silos from which on a trained encoder of many inputs may be worth its share of the budget."""
ENCODER_SHARE: Final = 0.4
"""Share of the training budget, in 1 / noise^2, that a trained encoder gets."""
COUNT_SHARE: Final = 0.01
"""Share of the heads' budget, in 1 / noise^2, that the counts get."""
LEAST_HONEST: Final = 2
"""Silos that must share the noise, after this one and the colluders, for distributed noise to be less than local."""
MOST_DELTA: Final = -5
"""Power of ten of the largest delta, however few the patients: that of the policy which `policy new` writes."""
RATE: Final = 0.2
"""Chance of a patient to take part in a step of a trained encoder. With a much smaller one the steps' noise would lie
below 1, where sampling hides little, and the encoder would take more than its share."""

HELD_OUT: Final = 0.2
"""Share of a hospital's patients whom its policy holds out, if no policy is at hand."""
_MANY_EVENTS, _FEW_EVENTS = 100, 30
"""Held-out patients of the rarer class in a domain, from which on there are 20 bins, and below which 6."""
_OF_ALL: Final = 0.2
"""Share of the noised counts that is of all patients (docs/design/evaluation.md, "All patients together")."""
_ENOUGH_FOR_R2: Final = 2000
"""Held-out patients of a domain from which on an interval of R^2 says something."""


@dataclass(frozen=True)
class DraftFacts:
    """What the rule may read: the draft's public facts, and what is decided so far."""

    draft: Draft
    document: Mapping[str, Any]

    def __getitem__(self, field: str) -> object:
        """The value of a field that is stated or already decided, None if it is neither."""
        value: object = self.document
        for name in field.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def number(self, field: str) -> float:
        """The same for a number; 1 if something else stands there, which the study's schema then refuses by name."""
        value = self[field]
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        return 1.0

    @property
    def colluders(self) -> int:
        """Silos that may pool what they know (t)."""
        value = self["privacy.colluders"]
        return value if isinstance(value, int) else 1

    @property
    def silos(self) -> int:
        """Number of silos (N)."""
        return len(self.draft.silos)

    @property
    def patients(self) -> int:
        """Expected patients of all silos together."""
        return sum(self.draft.patients)

    @property
    def domains(self) -> int:
        """Number of domains (M)."""
        return len(self.draft.data.domains)

    @property
    def is_number(self) -> bool:
        """Whether the outcome is a number."""
        return self.draft.data.label.number is not None

    @property
    def is_hierarchical(self) -> bool:
        """Whether all releases are solved together."""
        return bool(self["heads.solver"] == "hierarchical")

    @property
    def is_trained(self) -> bool:
        """Whether an encoder is trained."""
        return self["encoder.rounds"] != 0

    @property
    def heads(self) -> float:
        """Sum of 1 / noise^2 over the rounds of the heads."""
        pooled, domain = self["heads.pooled_rounds"] or 0, self["heads.domain_rounds"] or 0
        terms = ((pooled, "heads.pooled_noise"), (domain, "heads.domain_noise"))
        return math.fsum(rounds / self.number(noise) ** 2 for rounds, noise in terms if isinstance(rounds, int)) or 1.0


def _delta(known: DraftFacts) -> float:
    return float(f"1e{min(MOST_DELTA, math.floor(-math.log10(MARGIN * known.patients) + 1e-9))}")


def _least_silos(known: DraftFacts) -> int:
    least, most = quorum.least(known.silos, known.colluders), known.silos - known.silos // 8
    shared = known["privacy.mode"] != "local" and most - 1 - known.colluders >= LEAST_HONEST
    return max(least, most) if shared else least


def _mode(known: DraftFacts) -> str:
    least = known["min_silos"]
    honest = least - 1 - known.colluders if isinstance(least, int) else 0
    return "distributed" if honest >= LEAST_HONEST else "local"


def _encoder(known: DraftFacts) -> str:
    if known.draft.data.image is not None:
        return "cnn"
    return "raw" if known.draft.data.inputs <= WIDEST_RAW else "mlp"


def _start(known: DraftFacts) -> str:
    return "gram-schmidt" if known["model.encoder"] == "raw" else "hadamard"


def _representation(known: DraftFacts) -> int:
    if known["model.encoder"] == "raw":
        return known.draft.data.inputs
    return 16 if known.draft.data.image is not None else 128


def _solver(known: DraftFacts) -> str:
    weights = form_of(known.draft.data.label.count).logits * (known.number("model.representation") + 1)
    alone = known.is_number or weights > WIDEST_HEAD or known["heads.domain_rounds"] == 0
    return "newton" if alone else "hierarchical"


def _domain_rounds(known: DraftFacts) -> int:
    if known.is_hierarchical:
        return 5
    if known.domains == 1:
        return 0
    return 1 if known.is_number else 3


def _pooled_rounds(known: DraftFacts) -> int:
    if known.is_number:
        return 2  # least squares are solved by one step
    if known.is_hierarchical:
        return 3 if _learns(known) else 2  # the encoder is trained in all but the last
    return 4


def _pooled_noise(known: DraftFacts) -> float:
    if not known["heads.domain_rounds"]:
        return 1.0
    if known.is_number:
        return 2.0
    return 2.5 if known.is_hierarchical else 3.0


def _is_binary(known: DraftFacts) -> bool:
    return known.draft.data.label.count == BINARY


def _clip(known: DraftFacts) -> float:
    if known.is_number:
        return 0.3
    return 1.0 if known.patients >= MANY_PATIENTS and known.is_hierarchical else 0.5


def _clip_by(known: DraftFacts) -> str:
    """By the worst outcome where it costs nothing (docs/design/heads.md, "Clip")."""
    sums = known["recipe"] in {None, "second-order"}
    return "worst" if known["heads.clip"] == 1.0 and sums else "own"


def _input_scale(known: DraftFacts) -> str:
    return "counted" if known["model.encoder"] == "raw" or known["model.skip"] is True else "even"


def _bins(known: DraftFacts) -> int:
    """As many as the held-out events of a domain bear: each bin's noise adds up (docs/design/evaluation.md, "Bins")."""
    if not _is_binary(known):
        return 10
    stated = known["expected.prevalence"]
    share = float(stated) if isinstance(stated, int | float) and 0.0 < stated < 1.0 else 0.5
    events = round(HELD_OUT * known.patients * min(share, 1.0 - share), 6)
    if events >= _MANY_EVENTS * known.domains:
        return 20
    return 6 if events < _FEW_EVENTS * known.domains and events < 2 * _MANY_EVENTS else 10


def _together_share(known: DraftFacts) -> float:
    """Of the noised counts for all patients: their noise falls by a quarter, the domains' rises by a twentieth."""
    return _OF_ALL if known["evaluation.together"] is True and known.domains > 1 else 0.0


def _calibration(known: DraftFacts) -> str:
    return "none" if known["model.bias"] is False else "pooled"


def _calibration_noise(known: DraftFacts) -> float:
    """About a thirtieth of the heads' budget."""
    return 0.0 if known["heads.calibration"] == "none" else known.number("heads.pooled_noise")


def _learns(known: DraftFacts) -> bool:
    """Whether the rule would train an encoder."""
    image, many = known.draft.data.image is not None, known.patients >= MANY_PATIENTS
    return known["model.encoder"] != "raw" and (image or many)


def _encoder_rounds(known: DraftFacts) -> int:
    if not _learns(known):
        return 0
    return max(0, int(known.number("heads.pooled_rounds")) - 1)


def _sampling_rate(known: DraftFacts) -> float:
    return RATE if known.is_trained else 0.01  # nothing is drawn then; policies still compare it with their limit


def _batch_size(known: DraftFacts) -> int:
    if not known.is_trained:
        return 1
    expected = round(known.number("encoder.sampling_rate") * sum(known.draft.patients) / known.silos)
    return min(max(1, expected), LARGEST_BATCH)


def _encoder_noise(known: DraftFacts) -> float:
    """The noise with which the steps have their share, by the variance of their privacy loss at much noise."""
    if not known.is_trained:
        return 1.0
    rounds, steps, rate = (known.number(f"encoder.{field}") for field in ("rounds", "steps", "sampling_rate"))
    share = ENCODER_SHARE / (1 - ENCODER_SHARE)
    return math.sqrt(rounds * steps * rate**2 / (share * known.heads))


def _most_patients(known: DraftFacts) -> int:
    """Four times the largest expectation, rounded up to 1, 2 or 5 times a power of ten."""
    wanted = max(1000, 4 * max(known.draft.patients))
    power: int = 10 ** math.floor(math.log10(wanted))
    return min(10_000_000, next(power * digit for digit in (1, 2, 5, 10) if power * digit >= wanted))


def _publish(known: DraftFacts) -> list[str]:
    """What tells something: the R^2 of few patients has an interval that says nothing (docs/design/evaluation.md)."""
    if known.is_number:
        held_out = HELD_OUT * known.patients
        return ["mae", "r2" if held_out >= _ENOUGH_FOR_R2 * known.domains else "mean_error"]
    return ["auc" if _is_binary(known) else "balanced_accuracy", *_RISKS]


_RISKS: Final = ("calibration", "expected_observed")
Rule = Callable[[DraftFacts], Any]
RULE: Final[tuple[tuple[str, Rule], ...]] = (
    ("version", lambda _: 1),
    ("min_silos", _least_silos),
    ("publish", _publish),
    ("privacy.delta", _delta),
    ("privacy.mode", _mode),
    ("privacy.max_patients", _most_patients),
    ("privacy.smallest_domain", lambda _: 20),
    ("model.encoder", _encoder),
    ("model.hidden", lambda _: []),
    ("model.representation", _representation),
    ("model.start", _start),
    ("model.input_scale", _input_scale),
    ("model.seed", lambda _: 1),
    ("heads.solver", _solver),
    ("heads.pooled_rounds", _pooled_rounds),
    ("heads.domain_rounds", _domain_rounds),
    ("heads.clip", _clip),
    ("heads.clip_by", _clip_by),
    ("heads.max_step", lambda _: 30.0),
    ("heads.domain_noise", lambda _: 1.0),
    ("heads.pooled_noise", _pooled_noise),
    ("heads.calibration", _calibration),
    ("heads.calibration_noise", _calibration_noise),
    ("encoder.rounds", _encoder_rounds),
    ("encoder.steps", lambda known: 30 if known.is_trained else 1),
    ("encoder.sampling_rate", _sampling_rate),
    ("encoder.batch_size", _batch_size),
    ("encoder.learning_rate", lambda _: 0.5),
    ("encoder.noise", _encoder_noise),
    ("evaluation.bins", _bins),
    ("evaluation.auc", lambda known: "fitted" if _is_binary(known) else "cells"),
    ("evaluation.together", lambda _: True),
    ("evaluation.together_share", _together_share),
    ("evaluation.noise", lambda _: 1.0),
    ("privacy.count_noise", lambda known: 1 / math.sqrt(COUNT_SHARE * known.heads)),
)
"""Field and rule, in the order of deciding. A rule reads what stands above it. Noises are proportions: training's are
scaled by one factor, evaluation's by another. What has no line keeps the default of the study's schema."""


def derive(draft: Draft) -> dict[str, Any]:
    """The draft's document with every field of `RULE` that it leaves out; the noises are proportions."""
    document = draft.stated()
    for field, rule in RULE:
        *path, name = field.split(".")
        place = document
        for part in path:
            place = place.setdefault(part, {}) if isinstance(place, dict) else {}
        if isinstance(place, dict) and name not in place:
            place[name] = rule(DraftFacts(draft, document))
    return document
