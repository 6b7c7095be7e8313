"""The decision: may this study's round run under this silo's policy?

Guarantees: `decide` returns only if every limit of the policy holds for the whole plan. Otherwise it raises one
`Refused` with all its reasons, each with the two fields (of the policy and of the study). It reads public constants and
the ledger's costs, never data, so a refusal tells nothing about patients. A study that asks too much is refused at its
first round, before any data is touched. Left to others: the durable debit, which checks the budget once more
(ledger.py), and the check of the roster's certificates (crypto).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Final

from policies import file_fit
from policies.accounting import accountant
from policies.documents.policy import Policy
from policies.documents.study import Study, require_bounds
from policies.plan import architectures, grids, memory, quorum
from policies.plan.cost import Cost
from policies.plan.release import KINDS, Plan, plan
from policies.plan.shapes import encoder_values
from policies.refusals import Reason, Refused, Why

_MIB: Final = 1 << 20
_PRICELESS: Final = {Reason.TOO_MANY_ROUNDS, Reason.NOT_IN_PLAN, Reason.NOT_PUBLIC}
"""With one of these reasons no price is computed: there is none, or nothing that is allowed bounds the work."""
_STRANGER: Final = {Reason.EXPIRED, Reason.NOT_INVITED, Reason.STUDY_NOT_ALLOWED}
"""With one of these reasons a refusal says nothing that follows from what the ledger holds."""


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
    renewed: int = 0,
    study_spent: Iterable[Cost] = (),
    today: date | None = None,
    ledger_day: date | None = None,
) -> None:
    """Return if the attempt may be charged and computed. Raise `Refused` if not.

    Args:
        policy: this silo's own policy.
        study: the study, already verified by its digest.
        silo: this silo's name.
        roster_size: number of silos in this attempt's roster, this one included; None if there is no roster yet.
        spent_costs: all costs in the data set's ledger, without those that this attempt will use.
        round: from 0 to `plan(study).last`.
        attempt: of this round, from 1.
        charged_attempts: other attempts of this round in the ledger; 0 if this attempt is charged already.
        renewed: those of them that ended with a spoilt sum or before one, so that everything is drawn anew.
        study_spent: the part of `spent_costs` that this study spent. If it is given, repeated attempts count against
            `limits.study_epsilon`. If not, that limit is compared with the plan without repeated attempts.
        today: the day in UTC; None means the machine's day.
        ledger_day: the latest day on which an entry of the ledger was written. The later of the two days counts, so a
            policy that has expired stays expired if the machine's clock is set back.
    """
    require_bounds(study)
    found = [
        *_check_validity(policy, today or datetime.now(UTC).date(), ledger_day),
        *_check_invitation(policy, study, silo),
        *_check_mixing(policy, study, roster_size),
        *_check_plan(policy, study, round, attempt),
        *_check_attempts(policy, study, round, attempt, charged_attempts),
        *_check_model(policy, study),
        *_check_memory(policy, study),
        *_check_reports(policy, study),
        *_check_delta(policy, study),
    ]
    # For public data no budget protects anybody; the ledger still records what was done.
    reasons = {reason for reason, _ in found}
    if not policy.data_set.public and not reasons & _PRICELESS:
        stranger = bool(reasons & _STRANGER)
        planned = plan(study)
        rest = planned.costs(round)
        found += _check_study(policy, planned, [] if stranger else list(study_spent), rest)
        attempts = (0, 0) if stranger else (charged_attempts, renewed)
        found += _check_rounds(policy, planned, round, *attempts)
        found += _check_split(policy, planned)
        found += [] if stranger else _check_budget(policy, list(spent_costs), rest)
    found += grids.faults(study)
    if found:
        raise Refused.of(found)


def decide_continued(policy: Policy, study: Study, earlier: Study, silo: str) -> None:
    """Return if `study` may continue a model of `earlier`, as far as this silo's policy says. Raise `Refused` if not.

    Who has helped to train a model decides whether those who have not may have it.
    """
    newcomers = sorted(set(study.silos) - set(earlier.silos))
    if policy.hand_over or silo not in earlier.silos or not newcomers:
        return
    raise Refused(
        Reason.HAND_OVER,
        f"study.continues is a model of study {earlier.name}, to which {', '.join(newcomers)} did not belong, and"
        f" policy.hand_over is false; {policy.contact} decides whether the model is handed over",
    )


def _unless(holds: bool, reason: Reason, text: str) -> Iterator[Why]:  # noqa: FBT001 - a condition is what it is given
    if not holds:
        yield reason, text


def _check_validity(policy: Policy, today: date, ledger_day: date | None) -> Iterator[Why]:
    expires = policy.budget.expires
    yield from _unless(
        today <= expires,
        Reason.EXPIRED,
        f"policy.budget.expires is {expires}, and today is {today}: no study is charged any more; {policy.contact}"
        " decides whether a new policy is made",
    )
    yield from _unless(
        today > expires or ledger_day is None or ledger_day <= expires,
        Reason.EXPIRED,
        f"policy.budget.expires is {expires}, and an entry of the ledger was written on {ledger_day}, although this"
        f" machine's clock now says {today}. Correct the clock; if the entry's day was wrong, {policy.contact} decides"
        " whether a new policy with a later budget.expires is put into force (fedward-silo policy reload)",
    )


def _check_invitation(policy: Policy, study: Study, silo: str) -> Iterator[Why]:
    yield from _unless(
        silo in study.silos, Reason.NOT_INVITED, f"silo {silo} is not among study.silos; ask its authors to list it"
    )
    yield from _unless(
        policy.studies is None or study.digest in policy.studies,
        Reason.STUDY_NOT_ALLOWED,
        f"study {study.digest} is not among policy.studies; {policy.contact} decides whether it is added",
    )
    yield from _check_unit(policy, study)


def _check_unit(policy: Policy, study: Study) -> Iterator[Why]:
    """Check the unit. The policy says by which columns cohorts are drawn, so that all studies draw the same ones."""
    unit, columns = policy.data_set.unit, policy.data_set.identified_by
    patient = study.data.patient
    fits = unit == ("record" if patient is None else "patient")
    yield from _unless(
        fits,
        Reason.UNIT,
        f"policy.data_set.unit is {unit}, and study.data.patient is {patient!r}: with unit patient the study must name"
        " the patient column, with unit record it must name none",
    )
    yield from _unless(
        not fits or patient is None or (patient,) == columns,
        Reason.UNIT,
        f"study.data.patient is {patient!r}, and policy.data_set.identified_by is {', '.join(map(repr, columns))}: the"
        " policy decides which column names the patient, so the study must name the same column",
    )
    yield from file_fit.unreadable(policy, study)


def _check_mixing(policy: Policy, study: Study, roster_size: int | None) -> Iterator[Why]:
    """Check how many other silos hide this silo's contribution."""
    least = max(policy.min_silos, study.min_silos)
    yield from _unless(
        study.min_silos >= policy.min_silos,
        Reason.TOO_FEW_SILOS,
        f"study.min_silos is {study.min_silos}; policy.min_silos asks for {policy.min_silos}",
    )
    try:
        quorum.require(study)
    except Refused as refusal:
        yield from refusal.reasons
    yield from _unless(
        roster_size is None or roster_size >= least,
        Reason.TOO_FEW_SILOS,
        f"the roster has {roster_size} silos; policy.min_silos and study.min_silos ask for {least}",
    )
    yield from _unless(
        study.privacy.mode != "none" or policy.data_set.public,
        Reason.NOT_PUBLIC,
        "study.privacy.mode is none, but policy.data_set does not declare the data public; private data are never used"
        " without noise",
    )
    yield from _unless(
        study.privacy.mode in (*policy.noise_modes, "none"),
        Reason.NOISE_MODE,
        f"study.privacy.mode is {study.privacy.mode}; policy.noise_modes allows {', '.join(policy.noise_modes)}",
    )
    yield from _unless(
        study.privacy.mode == "none" or study.privacy.colluders >= policy.colluders,
        Reason.COLLUDERS,
        f"study.privacy.colluders is {study.privacy.colluders}; policy.colluders asks the study to withstand"
        f" {policy.colluders}",
    )
    yield from _unless(
        policy.encoder_sealing in ("ring", study.encoder.sealing),
        Reason.SEALING,
        f"study.encoder.sealing is {study.encoder.sealing}; policy.encoder_sealing asks for {policy.encoder_sealing}",
    )


def _check_plan(policy: Policy, study: Study, number: int, attempt: int) -> Iterator[Why]:
    limits = policy.limits
    yield from _unless(
        study.rounds <= limits.rounds,
        Reason.TOO_MANY_ROUNDS,
        f"{_planned_rounds(study)}; policy.limits.rounds allows {limits.rounds}",
    )
    last = plan(study).last
    yield from _unless(
        0 <= number <= last and attempt >= 1,
        Reason.NOT_IN_PLAN,
        f"round {number}, attempt {attempt} is not in the plan of study.heads, rounds 0 to {last}, attempts from 1;"
        f" policy.limits.rounds counts the training rounds, 1 to {study.rounds}",
    )


def _planned_rounds(study: Study) -> str:
    """Which fields plan how many rounds, in words."""
    if not study.encoder.sealed_steps:
        return f"study.heads plans {study.rounds} rounds"
    sealed = study.encoder_steps
    return (
        f"study.encoder.sealed_steps plans {sealed} rounds and study.heads {study.rounds - sealed},"
        f" {study.rounds} together"
    )


def _check_attempts(policy: Policy, study: Study, number: int, attempt: int, charged_attempts: int) -> Iterator[Why]:
    limits = policy.limits
    yield from _unless(
        attempt <= study.max_attempts,
        Reason.TOO_MANY_ATTEMPTS,
        f"this is attempt {attempt} of round {number}; study.max_attempts allows {study.max_attempts}, whatever"
        f" policy.limits.charged_attempts ({limits.charged_attempts}) would allow",
    )
    yield from _unless(
        charged_attempts < limits.charged_attempts,
        Reason.TOO_MANY_ATTEMPTS,
        f"{charged_attempts} attempts of round {number} are charged; policy.limits.charged_attempts allows"
        f" {limits.charged_attempts} (study.max_attempts is {study.max_attempts})",
    )


def _check_model(policy: Policy, study: Study) -> Iterator[Why]:
    limits, model, encoder = policy.limits, study.model, study.encoder
    weights = encoder_values(study)
    for holds, reason, asked, allowed in (
        (
            model.encoder in {"raw", "linear", *limits.architectures},
            Reason.ARCHITECTURE,
            f"study.model.encoder is {model.encoder}",
            f"policy.limits.architectures allows {', '.join(limits.architectures)}",
        ),
        (
            weights <= limits.encoder_weights,
            Reason.ENCODER_TOO_LARGE,
            _encoder_weights(study, weights),
            f"policy.limits.encoder_weights allows {limits.encoder_weights}",
        ),
        (
            study.head_inputs <= limits.representation,
            Reason.REPRESENTATION_TOO_LARGE,
            f"study.model.representation is {model.representation}"
            if study.head_inputs == model.representation
            else f"study.model (representation, skip, random_features) has heads read {study.head_inputs} values",
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
        yield from _unless(holds, reason, f"{asked}; {allowed}")


def _encoder_weights(study: Study, weights: int) -> str:
    """Which fields make how many weights, in words: an image network has its own before the layers that follow it."""
    model, image = study.model, study.data.image
    if image is None:
        return f"study.model.hidden and study.model.representation make {weights} encoder weights"
    own = architectures.weights(model, image)
    named = "study.model.channels make" if model.encoder == "cnn" else f"study.model.encoder {model.encoder} makes"
    return (
        f"{named} {own} encoder weights and study.model.hidden and study.model.representation {weights - own},"
        f" {weights} together"
    )


def _check_memory(policy: Policy, study: Study) -> Iterator[Why]:
    """Check what the study may need in memory, before anything of its size is built."""
    needed, allowed = memory.needed(study), policy.limits.memory_mib
    shown = "; ".join(
        f"{name} {-(-size // _MIB):,}"
        for name, size in (
            (f"records of privacy.max_patients {study.privacy.max_patients}", needed.records),
            ("model.encoder", needed.encoder),
            ("heads", needed.heads),
            ("personal", needed.personal),
        )
    )
    yield from _unless(
        needed.total <= allowed * _MIB,
        Reason.MEMORY,
        f"the study may need {-(-needed.total // _MIB):,} MiB at a silo ({shown}); policy.limits.memory_mib allows"
        f" {allowed:,}",
    )


def _check_reports(policy: Policy, study: Study) -> Iterator[Why]:
    """Check what may be said about small groups, and to the public."""
    yield from _unless(
        study.privacy.smallest_domain >= policy.smallest_domain,
        Reason.SMALLEST_DOMAIN,
        f"study.privacy.smallest_domain is {study.privacy.smallest_domain}; policy.smallest_domain asks for at least"
        f" {policy.smallest_domain}",
    )
    refused = [metric for metric in study.publish if metric not in policy.publish]
    yield from _unless(
        not refused,
        Reason.PUBLISH,
        f"study.publish lists {', '.join(refused)}; policy.publish allows {', '.join(policy.publish) or 'nothing'}",
    )


def _check_delta(policy: Policy, study: Study) -> Iterator[Why]:
    delta = policy.budget.delta
    yield from _unless(
        study.privacy.delta <= delta,
        Reason.DELTA,
        f"study.privacy.delta is {study.privacy.delta:g}; choose at most policy.budget.delta, which is {delta:g}",
    )


def _check_study(policy: Policy, plan: Plan, study_spent: list[Cost], rest: list[Cost]) -> Iterator[Why]:
    delta, limit = policy.budget.delta, policy.limits.study_epsilon
    planned = accountant.epsilon(plan.costs(), delta)
    yield from _unless(
        planned <= limit,
        Reason.EPSILON_PER_STUDY,
        f"the noise in study.heads, study.encoder, study.evaluation and study.privacy costs epsilon {planned:.4f} at"
        f" delta {delta:g}; policy.limits.study_epsilon allows {limit}",
    )
    if study_spent:
        repeated = accountant.epsilon([*study_spent, *rest], delta)
        yield from _unless(
            repeated <= limit,
            Reason.EPSILON_PER_STUDY,
            f"with its repeated attempts and other revisions the study would cost epsilon {repeated:.4f} at delta"
            f" {delta:g}; policy.limits.study_epsilon allows {limit}",
        )


def _check_rounds(policy: Policy, plan: Plan, number: int, charged_attempts: int, renewed: int) -> Iterator[Why]:
    """Check every round of the plan, and this round together with its attempts that were charged before.

    Rounds of one price are one reason: a study of sealed steps has a hundred of them.
    """
    delta, limit = policy.budget.delta, policy.limits.round_epsilon
    attempts = dict.fromkeys(range(len(plan.rounds)), 1) | {number: charged_attempts + 1}
    dear: dict[tuple[str, int], list[int]] = {}
    for planned, times in attempts.items():
        anew = renewed if planned == number else 0
        wanted = accountant.epsilon(plan.repeated_costs(planned, times, anew), delta)
        if wanted > limit:
            dear.setdefault((f"{wanted:.4f}", times), []).append(planned)
    for (price, times), rounds in dear.items():
        each = " each" if len(rounds) > 1 else ""
        text = (
            f"{_rounds(rounds)} of study.heads would{each} cost epsilon {price} at delta {delta:g} in {times} charged"
            f" attempts; policy.limits.round_epsilon allows {limit}"
        )
        yield Reason.EPSILON_PER_ROUND, text


def _rounds(numbers: list[int]) -> str:
    """Rounds in words; `numbers` rise."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = [f"{run[0]} to {run[-1]}" if run[1:] else str(run[0]) for run in runs]
    return f"round{'s' if len(numbers) > 1 else ''} {', '.join(shown)}"


def _check_split(policy: Policy, plan: Plan) -> Iterator[Why]:
    delta, limit = policy.budget.delta, policy.limits.study_epsilon
    for tensor, costs in plan.tensor_costs().items():
        share = getattr(policy.split, tensor)
        alone = accountant.epsilon(costs, delta)
        yield from _unless(
            alone <= share * limit,
            Reason.SPLIT,
            f"{_noise_of(tensor)} costs epsilon {alone:.4f} at delta {delta:g} for {tensor} alone;"
            f" policy.split.{tensor} allows {share:g} of policy.limits.study_epsilon {limit}, which is"
            f" {share * limit:.4f}",
        )


def _check_budget(policy: Policy, spent: list[Cost], rest: list[Cost]) -> Iterator[Why]:
    delta, budget = policy.budget.delta, policy.budget.epsilon
    total = accountant.epsilon([*spent, *rest], delta)
    yield from _unless(
        total <= budget,
        Reason.BUDGET_SPENT,
        f"the rounds that study.heads still plans would bring the data set to epsilon {total:.4f} at delta {delta:g};"
        f" policy.budget.epsilon is {budget}",
    )


def _noise_of(tensor: str) -> str:
    """Where a study sets the noise of a tensor, in words."""
    field, *more = KINDS[tensor].noises
    return f"the noise in study.{field.split('.')[0]}" if more else f"study.{field}"
