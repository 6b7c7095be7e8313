"""The decision: may this study's round run under this silo's policy?

Guarantees: `decide` returns only where every limit of the policy holds for the whole plan, and raises `Refused` with a
reason and the two fields (policy's and study's) otherwise. It reads public constants and the ledger's costs, never
data, so a refusal tells nothing about patients. A study that asks too much is refused at its first round, before any
data is touched. Left to others: the durable debit, which checks the budget once more (ledger.py), and that the roster's
certificates are real (crypto).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from policies import accountant
from policies.costs import Cost, remaining_costs, study_costs
from policies.errors import PolicyError
from policies.policy import Policy
from policies.shapes import encoder_values
from policies.study import Study


class Reason(StrEnum):
    """Why a study, or a round of it, is refused."""

    NOT_INVITED = "not_invited"
    STUDY_NOT_ALLOWED = "study_not_allowed"
    TOO_FEW_SILOS = "too_few_silos"
    NOISE_MODE = "noise_mode"
    NOT_PUBLIC = "not_public"
    COLLUDERS = "colluders"
    SEALING = "sealing"
    DELTA = "delta"
    TOO_MANY_ROUNDS = "too_many_rounds"
    NOT_IN_PLAN = "not_in_plan"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    ENCODER_TOO_LARGE = "encoder_too_large"
    REPRESENTATION_TOO_LARGE = "representation_too_large"
    SAMPLING_RATE = "sampling_rate"
    CLIP = "clip"
    UNIT = "unit"
    EPSILON_PER_STUDY = "epsilon_per_study"
    BUDGET_SPENT = "budget_spent"
    POLICY_CHANGED = "policy_changed"


class Refused(PolicyError):  # noqa: N818 - a refusal, not a fault
    """A normal, named outcome: this silo does not take part. `str()` is one sentence for the study's authors."""

    def __init__(self, reason: Reason, text: str) -> None:
        self.reason = reason
        self.text = text
        super().__init__(f"{reason}: {text}")


def decide(
    policy: Policy,
    study: Study,
    *,
    silo: str,
    roster_size: int | None,
    spent_costs: Iterable[Cost],
    round: int,  # noqa: A002 - the protocol's word
    attempt: int,
    charged_attempts: int,
    study_spent: Iterable[Cost] = (),
) -> None:
    """Return where the attempt may be charged and computed; raise `Refused` where not.

    Args:
        policy: this silo's own.
        study: as verified by its digest.
        silo: this silo's name.
        roster_size: silos in this attempt's roster, this one included; None before there is one.
        spent_costs: all that the data set's ledger holds, without what this attempt will use.
        round: from 0 to `study.rounds`.
        attempt: of this round, from 1.
        charged_attempts: other attempts of this round that the ledger holds; 0 where this attempt owes nothing new.
        study_spent: the part of `spent_costs` that this study spent. With it, repeated attempts count against
            `limits.study_epsilon`; without it, that limit is held against the undisturbed plan only.
    """
    _check_invitation(policy, study, silo)
    _check_mixing(policy, study, roster_size)
    _check_plan(policy, study, round, attempt)
    _check_attempts(policy, study, round, attempt, charged_attempts)
    _check_model(policy, study)
    _check_privacy(policy, study, list(spent_costs), list(study_spent), remaining_costs(study, round))


def _require(holds: bool, reason: Reason, text: str) -> None:  # noqa: FBT001 - a condition is what it is given
    if not holds:
        raise Refused(reason, text)


def _check_invitation(policy: Policy, study: Study, silo: str) -> None:
    _require(
        silo in study.silos, Reason.NOT_INVITED, f"silo {silo} is not among study.silos; ask its authors to list it"
    )
    _require(
        policy.studies is None or study.digest in policy.studies,
        Reason.STUDY_NOT_ALLOWED,
        f"study {study.digest} is not among policy.studies; {policy.contact} decides whether it is added",
    )
    _require(
        policy.data_set.unit == ("record" if study.data.patient is None else "patient"),
        Reason.UNIT,
        f"policy.data_set.unit is {policy.data_set.unit}, and study.data.patient is {study.data.patient!r}: with unit"
        " patient the study must name the patient column, with unit record it must name none",
    )


def _check_mixing(policy: Policy, study: Study, roster_size: int | None) -> None:
    """How many others hide this silo's contribution."""
    least = max(policy.min_silos, study.min_silos)
    _require(
        study.min_silos >= policy.min_silos,
        Reason.TOO_FEW_SILOS,
        f"study.min_silos is {study.min_silos}; policy.min_silos asks for {policy.min_silos}",
    )
    _require(
        roster_size is None or roster_size >= least,
        Reason.TOO_FEW_SILOS,
        f"the roster has {roster_size} silos; policy.min_silos and study.min_silos ask for {least}",
    )
    _require(
        study.privacy.mode != "none" or policy.data_set.public,
        Reason.NOT_PUBLIC,
        "study.privacy.mode is none; policy.data_set does not declare the data public, and private data are never used"
        " without noise",
    )
    _require(
        study.privacy.mode in (*policy.noise_modes, "none"),
        Reason.NOISE_MODE,
        f"study.privacy.mode is {study.privacy.mode}; policy.noise_modes allows {', '.join(policy.noise_modes)}",
    )
    _require(
        study.privacy.mode == "none" or study.privacy.colluders >= policy.colluders,
        Reason.COLLUDERS,
        f"study.privacy.colluders is {study.privacy.colluders}; policy.colluders asks the study to withstand"
        f" {policy.colluders}",
    )
    _require(
        policy.encoder_sealing in ("ring", study.encoder.sealing),
        Reason.SEALING,
        f"study.encoder.sealing is {study.encoder.sealing}; policy.encoder_sealing asks for {policy.encoder_sealing}",
    )


def _check_plan(policy: Policy, study: Study, number: int, attempt: int) -> None:
    limits = policy.limits
    _require(
        study.rounds <= limits.rounds,
        Reason.TOO_MANY_ROUNDS,
        f"study.heads plans {study.rounds} rounds; policy.limits.rounds allows {limits.rounds}",
    )
    _require(
        0 <= number <= study.rounds and attempt >= 1,
        Reason.NOT_IN_PLAN,
        f"round {number}, attempt {attempt} is not in the plan of study.heads, rounds 0 to {study.rounds}, attempts"
        " from 1; policy.limits.rounds counts the same rounds",
    )


def _check_attempts(policy: Policy, study: Study, number: int, attempt: int, charged_attempts: int) -> None:
    limits = policy.limits
    _require(
        attempt <= study.max_attempts,
        Reason.TOO_MANY_ATTEMPTS,
        f"attempt {attempt} of round {number}; study.max_attempts allows {study.max_attempts}, whatever"
        f" policy.limits.charged_attempts ({limits.charged_attempts}) leaves",
    )
    _require(
        charged_attempts < limits.charged_attempts,
        Reason.TOO_MANY_ATTEMPTS,
        f"{charged_attempts} attempts of round {number} are charged; policy.limits.charged_attempts allows"
        f" {limits.charged_attempts} (study.max_attempts is {study.max_attempts})",
    )


def _check_model(policy: Policy, study: Study) -> None:
    limits, model, encoder = policy.limits, study.model, study.encoder
    weights = encoder_values(study)
    for holds, reason, asked, allowed in (
        (
            weights <= limits.encoder_weights,
            Reason.ENCODER_TOO_LARGE,
            f"study.model.hidden and study.model.representation make {weights} encoder weights",
            f"policy.limits.encoder_weights allows {limits.encoder_weights}",
        ),
        (
            model.representation <= limits.representation,
            Reason.REPRESENTATION_TOO_LARGE,
            f"study.model.representation is {model.representation}",
            f"policy.limits.representation allows {limits.representation}",
        ),
        (
            encoder.sampling_rate <= limits.sampling_rate,
            Reason.SAMPLING_RATE,
            f"study.encoder.sampling_rate is {encoder.sampling_rate}",
            f"policy.limits.sampling_rate allows {limits.sampling_rate}",
        ),
        (
            encoder.clip <= limits.clip,
            Reason.CLIP,
            f"study.encoder.clip is {encoder.clip}",
            f"policy.limits.clip allows {limits.clip}",
        ),
    ):
        _require(holds, reason, f"{asked}; {allowed}")


def _check_privacy(policy: Policy, study: Study, spent: list[Cost], study_spent: list[Cost], rest: list[Cost]) -> None:
    delta, limit, budget = policy.budget.delta, policy.limits.study_epsilon, policy.budget.epsilon
    _require(
        study.privacy.delta <= delta,
        Reason.DELTA,
        f"study.privacy.delta is {study.privacy.delta:g}; policy.budget.delta is {delta:g}, so choose one at most that",
    )
    if policy.data_set.public:
        return  # nobody is protected by a budget; the ledger still says what was done
    planned = accountant.epsilon(study_costs(study), delta)
    _require(
        planned <= limit,
        Reason.EPSILON_PER_STUDY,
        f"the noise in study.heads, study.encoder, study.evaluation and study.privacy costs epsilon {planned:.4f} at"
        f" delta {delta:g}; policy.limits.study_epsilon allows {limit}",
    )
    if study_spent:
        repeated = accountant.epsilon([*study_spent, *rest], delta)
        _require(
            repeated <= limit,
            Reason.EPSILON_PER_STUDY,
            f"with its repeated attempts the study would cost epsilon {repeated:.4f} at delta {delta:g};"
            f" policy.limits.study_epsilon allows {limit}",
        )
    total = accountant.epsilon([*spent, *rest], delta)
    _require(
        total <= budget,
        Reason.BUDGET_SPENT,
        f"the rounds that study.heads still plans would bring the data set to epsilon {total:.4f} at delta {delta:g};"
        f" policy.budget.epsilon is {budget}",
    )
