"""`fedward-silo plan`: what a study would cost, whether it would be taken, what would be left, what it will be worth.

The command reads the study and, with an agent's configuration, its policy and ledger. It charges nothing and reads no
patient, but with `--data` those of a file that policy and ledger declare public. With a target epsilon it prints noise
and clips as YAML that can be pasted into the study. The exit code is 3
if the policy would refuse the study, or if every silo would, because the study asks for something that has no price.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from policies.accounting.accountant import field_of, with_fields
from policies.accounting.planning import Advice, Noises, Prices, advise, price
from policies.documents.policy import Policy, load_policy
from policies.documents.study import Study, load_study
from policies.ledger.chain import UNBOUNDED
from policies.ledger.exports import finite_or_word
from policies.plan import grids, memory, person_periods, quorum, rare_columns
from policies.refusals import Refused
from silo_agent.cli import forecast as forecasts
from silo_agent.cli.options import DEFAULT, JSON, TABLE, FormatOption, print_whole, waiting
from silo_agent.cli.policy import ATTENTION, listed
from silo_agent.cli.policy import refused as policy_refuses
from silo_agent.config import AgentConfig
from silo_agent.review.standing import HospitalOutlook, standing_of


def plan(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")],
    target_epsilon: Annotated[float | None, typer.Option(help="Recommend noise for a study of this price.")] = None,
    encoder_share: Annotated[
        float | None, typer.Option(help="With a target: the encoder's share of the budget, between 0 and 1.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            envvar="FEDWARD_AGENT_CONFIG",
            help="agent.yaml, whose policy and ledger decide; without one only prices are shown.",
        ),
    ] = None,
    *,
    patients: Annotated[
        list[int] | None,
        typer.Option(help="Expected patients of each silo who train; repeat it, or give one number for every silo."),
    ] = None,
    prevalence: Annotated[float | None, typer.Option(help="Expected share of patients with the outcome.")] = None,
    effect: Annotated[
        float | None, typer.Option(help="Expected AUC (R2 of a number) that the features reach without noise.")
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="Expect what the opened, noised sums of this earlier study say, in which this silo took part.",
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Expect what this hospital's file says, if its policy declares it public.")
    ] = False,
    forecast: Annotated[bool, typer.Option(help="Simulate what it will be worth, if patients are expected.")] = True,
    form: FormatOption = TABLE,
) -> None:
    """Price a study before anybody trains, and forecast what it will be worth."""
    if encoder_share is not None and target_epsilon is None:
        msg = "--encoder-share is a share of --target-epsilon; give both"
        raise typer.BadParameter(msg)
    try:
        study = load_study(study_file)
    except Refused as refusal:
        told = {"refused": {"reason": refusal.reason, "text": refusal.text}}
        typer.echo(json.dumps(told, indent=1) if form is JSON else f"{study_file}: every silo refuses: {refusal}")
        raise typer.Exit(ATTENTION) from None
    path = config or (DEFAULT if DEFAULT.is_file() else None)
    settings = None if path is None else AgentConfig.load(path)
    policy = None if settings is None else load_policy(settings.policy)
    delta = study.privacy.delta if policy is None else policy.budget.delta
    with waiting("pricing the study"):
        prices = price(study, delta)
        advice = None if target_epsilon is None else advise(study, target_epsilon, delta, encoder_share)
        standing = None if settings is None or policy is None else standing_of(settings, policy, study)
        objections = _objections(policy, study, advice)
    refused = _refused_by_all(study)
    held_out = None if policy is None else policy.data_set.holdout
    worth, known = None, None
    if forecast:
        known = forecasts.known(study, settings, policy, after=after, data=data)
        worth = forecasts.made(
            study, patients=patients or [], prevalence=prevalence, effect=effect, held_out=held_out, known=known
        )
    if form is JSON:
        document = document_of(study, prices, standing, advice, objections) | {
            "sums": _sums(study, refused),
            "time_at_risk": list(person_periods.time_at_risk(study)),
            "cut_by_outcome": list(rare_columns.cut_by_outcome(study)),
        }
        if worth is not None:
            document["forecast"] = forecasts.document(study, worth, known)
        typer.echo(json.dumps(document, indent=1, allow_nan=False))
    else:
        show_prices(study, prices, standing)
        typer.echo("\n".join([*_advice_lines(study, advice, objections), ""]), nl=False)
        typer.echo(_missing(study) if refused is None else f"Every silo refuses: {refused}")
        for text in _warnings(study):
            typer.echo(text)
        if worth is not None:
            forecasts.show(study, worth, known)
        elif forecast:
            typer.echo(forecasts.HOW)
    if refused is not None or (standing is not None and standing.refused is not None):
        raise typer.Exit(ATTENTION)


def _refused_by_all(study: Study) -> Refused | None:
    """Return the refusal of a study that no silo can take, whatever its policy says; None if there is no such reason.

    Its `min_silos` is too small for its silos and colluders, or a noise cannot be drawn on the grid of its sums.
    """
    try:
        quorum.require(study)
        grids.require(study)
    except Refused as refusal:
        return refusal
    return None


def _sums(study: Study, refused: Refused | None) -> dict[str, object]:
    return {
        "silos": len(study.silos),
        "needed": quorum.needed(study),
        "may_be_missing": quorum.spare(study),
        "refused": None if refused is None else refused.text,
    }


def _warnings(study: Study) -> list[str]:
    """What the author should look at, a paragraph each."""
    return [text for text in (person_periods.warning(study), rare_columns.warning(study)) if text is not None]


def _missing(study: Study) -> str:
    """Return how many silos may be missing from a sum, in a sentence."""
    silos, needed, spare = len(study.silos), quorum.needed(study), quorum.spare(study)
    who = "nobody" if spare == 0 else "1 silo" if spare == 1 else f"{spare} silos"
    return f"A sum needs {needed} of the {silos} silos, so {who} may be missing."


def _objections(policy: Policy | None, study: Study, advice: Advice | None) -> dict[str, Refused | None]:
    """What this hospital's policy has against each way of the advice, with the whole budget left."""
    if policy is None or advice is None:
        return {}
    ways = {"scaled": advice.scaled, "encoder_only": advice.encoder_only, "split": advice.split}
    changed: dict[str, dict[str, float]] = {
        name: {**noises.fields, **noises.clips} for name, noises in ways.items() if noises is not None
    }
    if advice.domain_rounds is not None and advice.domain_rounds < study.heads.domain_rounds:
        changed["domain_rounds"] = {"heads.domain_rounds": advice.domain_rounds}
    return {
        name: policy_refuses(policy, with_fields(study, fields), study.silos[0]) for name, fields in changed.items()
    }


def show_prices(study: Study, prices: Prices, standing: HospitalOutlook | None) -> None:
    """Print what a study costs, and what it would mean for this hospital if that is known."""
    table = Table("releases", "epsilon alone", title=f"{study.name} at delta {prices.delta:g}", title_justify="left")
    for tensor, alone in prices.alone.items():
        table.add_row(tensor, _shown(alone))
    for cohort, together in prices.cohorts.items():
        table.add_row(f"{cohort} patients, together", _shown(together))
    table.add_row("dearest round", _shown(prices.dearest_round))
    table.add_row("the study", _shown(prices.total))
    table.add_row("the study with one round repeated", _shown(prices.repeated))
    table.add_row("the study with one round repeated after a spoilt sum", _shown(prices.spoilt))
    for hospitals, bound in prices.several.items():
        table.add_row(f"a patient of {hospitals} of its hospitals", _shown(bound))
    print_whole(table)
    typer.echo("Epsilons do not add up. Each patient is in one cohort, so the larger of the two is the study's.")
    typer.echo(f"It may need {_mib(study):,} MiB of memory at a silo, for {study.privacy.max_patients:,} patients.")
    if standing is not None:
        taken = (
            "The policy would take it." if standing.refused is None else f"The policy refuses{listed(standing.refused)}"
        )
        typer.echo(taken)
        if standing.again is not None:
            typer.echo(f"After one repeated round it would refuse the rest{listed(standing.again)}")
        typer.echo(
            f"Spent before {_shown(standing.spent)}, after {_shown(standing.after)} of {_shown(standing.budget)},"
            f" left {_shown(standing.left)}."
        )


def _advice_lines(study: Study, advice: Advice | None, objections: Mapping[str, Refused | None]) -> list[str]:
    if advice is None:
        return []

    def objection(way: str) -> list[str]:
        why = objections.get(way)
        return [] if why is None else [f"# This hospital's policy refuses that: {why.text}"]

    target = advice.target
    lines = [f"\n# For epsilon {target:g}: all noise scaled, which costs {advice.scaled.epsilon:.4f}"]
    lines += _yaml(study, advice.scaled) + objection("scaled")
    if advice.encoder_only is None:
        lines.append(f"# The encoder's noise alone cannot bring the study to {target:g}.")
    else:
        lines.append(f"# Or the encoder's noise alone, which costs {advice.encoder_only.epsilon:.4f}")
        lines += _yaml(study, advice.encoder_only) + objection("encoder_only")
    if advice.split is not None:
        lines.append(f"# Or all noise, with the given share for the encoder, which costs {advice.split.epsilon:.4f}")
        lines += _yaml(study, advice.split) + objection("split")
    rounds, planned = advice.domain_rounds, study.heads.domain_rounds
    if rounds is None:
        lines.append(f"# With unchanged noise, no number of domain rounds costs at most {target:g}.")
    elif rounds < planned:
        lines.append(f"# Or unchanged noise and heads.domain_rounds {rounds} instead of {planned}.")
        lines += objection("domain_rounds")
    return lines


def _yaml(study: Study, noises: Noises) -> list[str]:
    parts: dict[str, list[str]] = {}
    for field, value in (*noises.fields.items(), *noises.clips.items()):
        part, name = field.split(".")
        free = ""
        if field in noises.clips:
            free = "  # as planned" if value == field_of(study, field) else "  # costs no epsilon, keeps the noise down"
        parts.setdefault(part, []).append(f"  {name}: {value!r}{free}")
    return [line for part, fields in parts.items() for line in (f"{part}:", *fields)]


def document_of(
    study: Study,
    prices: Prices,
    standing: HospitalOutlook | None,
    advice: Advice | None,
    objections: Mapping[str, Refused | None],
) -> dict[str, object]:
    """The same for programs, with the advice if there is one."""
    document: dict[str, object] = {
        "study": study.name,
        "digest": study.digest,
        "delta": prices.delta,
        "epsilon": finite_or_word(prices.total),
        "alone": {tensor: finite_or_word(alone) for tensor, alone in prices.alone.items()},
        "cohorts": {cohort: finite_or_word(together) for cohort, together in prices.cohorts.items()},
        "dearest_round": finite_or_word(prices.dearest_round),
        "one_round_repeated": finite_or_word(prices.repeated),
        "one_round_repeated_after_a_spoilt_sum": finite_or_word(prices.spoilt),
        "memory_mib": _mib(study),
        "patient_of_hospitals": {str(many): finite_or_word(bound) for many, bound in prices.several.items()},
    }
    if standing is not None:
        refused = standing.refused
        document["hospital"] = {
            "taken": refused is None,
            "reason": None if refused is None else refused.reason,
            "why": None if refused is None else refused.text,
            "why_after_one_repeated_round": None if standing.again is None else standing.again.text,
            "spent": finite_or_word(standing.spent),
            "after": finite_or_word(standing.after),
            "budget": finite_or_word(standing.budget),
            "left": finite_or_word(standing.left),
        }
    if advice is not None:
        document["advice"] = asdict(advice)
        document["advice_refused"] = {way: None if why is None else why.text for way, why in objections.items()}
    return document


def _mib(study: Study) -> int:
    """Memory that the study may need at a silo, in MiB, rounded up."""
    return -(-memory.needed(study).total >> 20)


def _shown(epsilon: float) -> str:
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else UNBOUNDED
