"""`fedward-silo`: enrol a hospital, keep its ledger, run its agent, look at its models."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from crypto.enrolment import create_request
from crypto.errors import CryptoError
from crypto.identity import Identity, Role
from policies import accountant
from policies.document import DocumentError
from policies.errors import PolicyError
from policies.ledger import Entry, Genesis, Ledger, read_ledger
from policies.policy import load_policy
from protos.messages import MessageError
from silo_agent import logs
from silo_agent.config import AgentConfig
from silo_agent.state import State, StateError

app = typer.Typer(help="A hospital's agent.", no_args_is_help=True, pretty_exceptions_enable=False)
ledger_app = typer.Typer(help="What the data set has spent.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_AGENT_CONFIG", help="agent.yaml")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
DEFAULT = Path("agent.yaml")
LEDGER_FILE = "ledger.sqlite3"


@app.command()
def enrol(
    folder: Annotated[Path, typer.Argument(help="New folder for this silo's key and request.")],
    name: Annotated[str, typer.Option(help="This silo's name in the federation.")],
) -> None:
    """Make a key here and a request for the consortium's authority. The key never leaves this machine."""
    request = create_request(folder, Identity(Role.SILO, name))
    typer.echo(f"Send {request} to the consortium's authority and put the certificate it returns beside it.")


@app.command()
def run(
    config: ConfigOption = DEFAULT,
    *,
    until_finished: Annotated[bool, typer.Option(help="Exit when a study has ended.")] = False,
) -> None:
    """Take part in studies until stopped."""
    logs.configure()
    # Only this command needs the learning libraries, which take seconds to load.
    from silo_agent.assembly import run_agent  # noqa: PLC0415
    from silo_agent.client import CallRefused  # noqa: PLC0415
    from silo_agent.learning.errors import LearningError  # noqa: PLC0415

    try:
        ended = run_agent(AgentConfig.load(config), until_finished=until_finished)
    except (CallRefused, LearningError, MessageError) as error:
        raise StateError(str(error)) from None
    for study, why in ended:
        typer.echo(f"{study}: {why}")


@app.command()
def evaluate(
    study: Annotated[str, typer.Argument(help="Digest of a study, or its beginning.")],
    data: Annotated[Path, typer.Argument(help="A labelled file in the study's schema.")],
    config: ConfigOption = DEFAULT,
    *,
    as_json: AsJson = False,
) -> None:
    """AUC by domain of this silo's models on a labelled file. Nothing is released."""
    # Only this command and `run` need the learning libraries, which take seconds to load.
    from silo_agent.data.errors import DataError  # noqa: PLC0415
    from silo_agent.evaluating import NoModelError  # noqa: PLC0415
    from silo_agent.evaluating import evaluate as evaluate_models  # noqa: PLC0415
    from silo_agent.learning.errors import LearningError  # noqa: PLC0415

    state = State(AgentConfig.load(config).state)
    found = [(digest, committed) for digest, committed, _ in state.studies() if digest.startswith(study)]
    if len(found) != 1:
        raise StateError(f"{len(found)} studies match {study!r}; give more of the digest")  # noqa: EM102, TRY003
    digest, committed = found[0]
    try:
        evaluation = evaluate_models(state.study_folder(digest), committed, data)
    except (NoModelError, DataError, LearningError) as error:
        raise StateError(str(error)) from None
    if as_json:
        typer.echo(json.dumps(asdict(evaluation), indent=1))
        return
    table = Table("domain", "shared model", "personal model", title=f"AUC, {evaluation.name}, round {evaluation.round}")
    for m, domain in enumerate(evaluation.domains):
        personal = evaluation.personal[m] if evaluation.personal else None
        table.add_row(domain, _figure(evaluation.shared[m]), _figure(personal))
    Console().print(table)


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
    typer.echo(f"{path}: the ledger of {data_set.id}, epsilon {policy.budget.epsilon:g} to spend")


@ledger_app.command("show")
def ledger_show(config: ConfigOption = DEFAULT, *, as_json: AsJson = False) -> None:
    """Every debit, what is spent, what is left."""
    settings = AgentConfig.load(config)
    policy = load_policy(settings.policy)
    genesis, entries = read_ledger(settings.state / LEDGER_FILE)
    spent = accountant.epsilon([cost for entry in entries for cost in entry.debit.costs.values()], genesis.delta)
    budget = policy.budget.epsilon
    if as_json:
        typer.echo(json.dumps(_statement(genesis, entries, spent, budget), indent=1))
        return
    table = Table(
        "entry", "study", "round", "attempt", "releases", "epsilon after", title=f"Ledger of {genesis.data_set}"
    )
    table.caption = f"spent {spent:.4f} of {budget:g} at delta {genesis.delta:g}, left {max(0.0, budget - spent):.4f}"
    for entry in entries:
        debit = entry.debit
        releases = ", ".join(f"{tensor} ({cost.count} x noise {cost.noise:g})" for tensor, cost in debit.costs.items())
        place = (debit.study[:12], str(debit.round), str(debit.attempt))
        table.add_row(str(entry.sequence), *place, releases, f"{entry.epsilon:.4f}")
    Console().print(table)


@ledger_app.command("verify")
def ledger_verify(config: ConfigOption = DEFAULT) -> None:
    """Check the chain of hashes from the first entry to the last."""
    _, entries = read_ledger(AgentConfig.load(config).state / LEDGER_FILE)
    typer.echo(f"{len(entries)} debits, the chain holds")


def _statement(genesis: Genesis, entries: tuple[Entry, ...], spent: float, budget: float) -> dict[str, object]:
    return {
        "data_set": genesis.data_set,
        "delta": genesis.delta,
        "budget": budget,
        "spent": spent,
        "left": max(0.0, budget - spent),
        "entries": [
            {
                "sequence": entry.sequence,
                "study": entry.debit.study,
                "policy": entry.debit.policy,
                "round": entry.debit.round,
                "attempt": entry.debit.attempt,
                "costs": {tensor: asdict(cost) for tensor, cost in entry.debit.costs.items()},
                "epsilon_after": entry.epsilon,
            }
            for entry in entries
        ],
    }


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def main() -> None:
    """Run; a fault is a sentence on stderr and exit code 1."""
    try:
        app()
    except (DocumentError, CryptoError, PolicyError, StateError, OSError) as error:
        typer.echo(f"fedward-silo: {error}", err=True)
        sys.exit(1)
