"""`fedward-silo ledger`: open the data set's ledger, show it, check its chain.

Guarantees that what a program reads is valid JSON: an epsilon without bound, which only a public data set has, is the
word `unbounded` there and in the table.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from policies import accountant
from policies.chain import UNBOUNDED
from policies.ledger import Entry, Genesis, Ledger, read_ledger
from policies.policy import load_policy
from silo_agent.cli_options import DEFAULT, LEDGER_FILE, AsJson, ConfigOption
from silo_agent.config import AgentConfig

ledger_app = typer.Typer(help="What the data set has spent.", no_args_is_help=True)


@ledger_app.command("create")
def ledger_create(config: ConfigOption = DEFAULT) -> None:
    """Open the data set's ledger, once in its life. A ledger that is lost is restored, never made anew."""
    settings = AgentConfig.load(config)
    policy = load_policy(settings.policy)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = settings.state / LEDGER_FILE
    data_set = policy.data_set
    Ledger.create(
        path, data_set=data_set.id, holdout=data_set.holdout, delta=policy.budget.delta, public=data_set.public
    )
    allowed = "public data, so no budget binds" if data_set.public else f"epsilon {policy.budget.epsilon:g} to spend"
    typer.echo(f"{path}: the ledger of {data_set.id}, {allowed}")


@ledger_app.command("show")
def ledger_show(config: ConfigOption = DEFAULT, *, as_json: AsJson = False) -> None:
    """Every debit, what is spent, what is left."""
    settings = AgentConfig.load(config)
    policy = load_policy(settings.policy)
    genesis, entries = read_ledger(settings.state / LEDGER_FILE)
    spent = accountant.epsilon([cost for entry in entries for cost in entry.debit.costs.values()], genesis.delta)
    budget = policy.budget.epsilon
    if as_json:
        typer.echo(json.dumps(_statement(genesis, entries, spent, budget), indent=1, allow_nan=False))
        return
    table = Table(
        "entry", "study", "round", "attempt", "releases", "epsilon after", title=f"Ledger of {genesis.data_set}"
    )
    table.caption = _caption(genesis, spent, budget)
    for entry in entries:
        debit = entry.debit
        releases = ", ".join(f"{tensor} ({cost.count} x noise {cost.noise:g})" for tensor, cost in debit.costs.items())
        place = (debit.study[:12], str(debit.round), str(debit.attempt))
        table.add_row(str(entry.sequence), *place, releases, _shown(entry.epsilon))
    Console().print(table)


@ledger_app.command("verify")
def ledger_verify(config: ConfigOption = DEFAULT) -> None:
    """Check the chain of hashes from the first entry to the last."""
    _, entries = read_ledger(AgentConfig.load(config).state / LEDGER_FILE)
    typer.echo(f"{len(entries)} debits, the chain holds")


def _caption(genesis: Genesis, spent: float, budget: float) -> str:
    if genesis.public:
        return f"spent {_shown(spent)} at delta {genesis.delta:g}; the data are public, so no budget binds"
    return f"spent {spent:.4f} of {budget:g} at delta {genesis.delta:g}, left {max(0.0, budget - spent):.4f}"


def _statement(genesis: Genesis, entries: tuple[Entry, ...], spent: float, budget: float) -> dict[str, object]:
    """The ledger for programs. On public data nothing binds, so what is `left` is unbounded too."""
    return {
        "data_set": genesis.data_set,
        "public": genesis.public,
        "delta": genesis.delta,
        "budget": budget,
        "spent": _number(spent),
        "left": UNBOUNDED if genesis.public else max(0.0, budget - spent),
        "entries": [
            {
                "sequence": entry.sequence,
                "study": entry.debit.study,
                "policy": entry.debit.policy,
                "round": entry.debit.round,
                "attempt": entry.debit.attempt,
                "costs": {tensor: asdict(cost) for tensor, cost in entry.debit.costs.items()},
                "epsilon_after": _number(entry.epsilon),
            }
            for entry in entries
        ],
    }


def _number(epsilon: float) -> float | str:
    return epsilon if math.isfinite(epsilon) else UNBOUNDED


def _shown(epsilon: float) -> str:
    return f"{epsilon:.4f}" if math.isfinite(epsilon) else UNBOUNDED
