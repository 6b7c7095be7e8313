"""The part of `fedward-silo plan` that says what a study will be worth.

It reads the study and options; with `--after` also what an earlier study's opened sums say in this silo's state, and
with `--data` this hospital's file, if policy and ledger declare it public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from policies.documents.policy import Policy
from policies.documents.study import Study
from policies.ledger.ledger import read_history
from policies.plan.derive import HELD_OUT
from silo_agent.cli.options import counting, print_whole
from silo_agent.config import AgentConfig
from silo_agent.review.known import find_study
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

if TYPE_CHECKING:
    from silo_agent.forecast.assumptions import KnownData
    from silo_agent.forecast.forecast import Forecast, ForecastInterval, Row

HOW: Final = (
    "For a forecast of what it will be worth, write expected: {patients: ...} into the study, or give --patients."
)


def known(
    study: Study, settings: AgentConfig | None, policy: Policy | None, *, after: str | None, data: bool
) -> KnownData | None:
    """What an earlier study or the hospital's public file says of the data; None if neither is asked for.

    Raises `StateError` without a configuration and for a study that the state does not know, and what
    `learning.forecast.earlier` and `models.expecting` raise.
    """
    if after is None and not data:
        return None
    if after is not None and data:
        msg = "--after and --data both say what to expect of the data; give one of them"
        raise StateError(msg)
    if settings is None or policy is None:
        msg = "--after and --data need this hospital's configuration: give --config agent.yaml"
        raise StateError(msg)
    state = StateFolder(settings.state)
    if after is not None:
        return _after(study, policy, state, after)
    from silo_agent.models.expecting import known_of_file

    file = settings.data.get(study.name)
    if file is None:
        msg = f"--data: {study.name!r} is not under data in agent.yaml; name the study's file there"
        raise StateError(msg)
    return known_of_file(study, policy, read_history(state.ledger)[0], file)


def _after(study: Study, policy: Policy, state: StateFolder, beginning: str) -> KnownData:
    from policies.documents.study import read_stored
    from silo_agent.forecast.earlier_study import known_after
    from silo_agent.storage.opening import read_state

    if not state.database.is_file():
        msg = f"--after: {state.path} has no state of an agent; name the folder of the agent that took part"
        raise StateError(msg)
    kept = read_state(state.path)
    try:
        digest, _ = find_study(kept, beginning)
        canonical = kept.canonical(digest)
    finally:
        kept.close()
    if canonical is None:
        msg = f"--after: the state has no text of study {digest[:12]}; name another study"
        raise StateError(msg)
    return known_after(study, read_stored(canonical), state.study(digest), policy.data_set.holdout)


def made(
    study: Study,
    *,
    patients: Sequence[int],
    prevalence: float | None,
    effect: float | None,
    held_out: float | None,
    known: KnownData | None = None,
) -> Forecast | None:
    """The forecast, or None if nobody says how many patients are expected. Raises `LearningError`."""
    if not patients and study.expected is None and known is None:
        return None
    # This loads torch, which no price needs.
    from silo_agent.forecast.assumptions import asked_of
    from silo_agent.forecast.forecast import forecast

    aside = HELD_OUT if held_out is None else held_out
    asked = asked_of(study, patients=patients, prevalence=prevalence, effect=effect, held_out=aside, known=known)
    if asked is None:
        return None
    with counting("runs of the forecast") as done:
        return forecast(study, asked, done=done)


def show(study: Study, found: Forecast, known: KnownData | None = None) -> None:
    """Print the forecast, what it starts from and what it means."""
    from silo_agent.forecast.forecast import counted
    from silo_agent.forecast.verdict import NAMES, sentences

    name, asked = NAMES[found.figure], found.asked
    heading = (
        f"Forecast of {name} from made-up patients: {asked.total:,} who train at {len(asked.patients)} hospitals,"
        f" {found.draws} runs"
    )
    table = Table(title=heading, title_justify="left")
    table.add_column(f"if the features reach {name}")
    for row in found.rows:
        table.add_column(f"{row.effect:g}", justify="right", no_wrap=True)
    parts = {
        "mean of the domains": [_interval(row.mean) for row in found.rows],
        "worst domain": [_interval(row.worst) for row in found.rows],
        "the same without noise": [_middle(row.plain_mean) for row in found.rows],
        "worst domain without noise": [_middle(row.plain_worst) for row in found.rows],
        "one hospital alone, no privacy": [_middle(row.alone) for row in found.rows],
        "width of a published interval": [_width(row) for row in found.rows],
    }
    for what, cells in parts.items():
        table.add_row(what, *cells)
    console = Console(markup=False, emoji=False)
    print_whole(table, console)
    about, domains = len(counted(study, asked)), len(study.data.domains)
    if about < domains:
        few = (
            f"It is about {about} of the {domains} domains: the study will publish no figures of the others, because"
            " they have too few patients (expected.shares, privacy.smallest_domain)."
        )
        console.print(few, soft_wrap=True, highlight=False)
    notes = () if known is None else known.notes
    for sentence in (*notes, *sentences(study, found)):
        console.print(sentence, soft_wrap=True, highlight=False)


def document(study: Study, found: Forecast, known: KnownData | None = None) -> dict[str, object]:
    """The forecast as plain data; what is not known is None. `known` stands there if there is any."""
    from silo_agent.forecast.verdict import is_coin, is_no_gain, is_often_no_gain, sentences

    rows = [
        asdict(row)
        | {
            "coin_toss": is_coin(found.figure, row),
            "no_better_than_alone": is_no_gain(row),
            "may_be_no_better_than_alone": is_often_no_gain(row),
        }
        for row in found.rows
    ]
    content: dict[str, object] = {
        "figure": found.figure,
        "asked": asdict(found.asked),
        "draws": found.draws,
        "rows": rows,
    }
    if known is not None:
        content["known"] = asdict(known)
    return {name: _plain(part) for name, part in (content | {"sentences": sentences(study, found)}).items()}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _interval(found: ForecastInterval) -> str:
    return "-" if math.isnan(found.middle) else f"{found.middle:.3f} ({found.low:.3f} to {found.high:.3f})"


def _middle(found: ForecastInterval | None) -> str:
    return "-" if found is None or math.isnan(found.middle) else f"{found.middle:.3f}"


def _width(row: Row) -> str:
    return "too few patients" if math.isnan(row.width) else f"{row.width:.3f}"
