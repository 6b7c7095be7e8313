"""`fedward-silo`: enrol a hospital, run its agent, keep policy and ledger, check its file, plan studies, use models.

This file has enrolment and the agent itself. The commands of the ledger are in `ledger` and `together`, those of the
policy in `policy`, of the file in `data`, of prices in `plan`, of models in `models`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from crypto.errors import CryptoError
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from policies.documents.document import DocumentError
from policies.errors import PolicyError
from protos.messages import MessageError
from silo_agent import logs
from silo_agent.cli import models, plan
from silo_agent.cli.data import data_app
from silo_agent.cli.ledger import ledger_app
from silo_agent.cli.options import DEFAULT, ConfigOption
from silo_agent.cli.policy import policy_app
from silo_agent.cli.together import ledger_together
from silo_agent.config import AgentConfig
from silo_agent.storage.state import StateError

app = typer.Typer(help="A hospital's agent.", no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(ledger_app, name="ledger")
app.add_typer(policy_app, name="policy")
app.add_typer(data_app, name="data")
ledger_app.command("together")(ledger_together)


@app.command()
def enrol(
    folder: Annotated[Path, typer.Argument(help="New folder for this silo's key and request.")],
    name: Annotated[str, typer.Option(help="This silo's name in the federation.")],
    data_set: Annotated[
        str, typer.Option(help="data_set.id of this silo's policy; the silo keeps this data set's budget.")
    ],
) -> None:
    """Make a key and a request for the consortium's authority. The key never leaves this machine."""
    request = create_request(folder, Subject(Identity(Role.SILO, name), data_set))
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
    from silo_agent.learning.errors import LearningError  # noqa: PLC0415
    from silo_agent.protocol.client import CallRefused  # noqa: PLC0415

    try:
        ended = run_agent(AgentConfig.load(config), until_finished=until_finished)
    except (CallRefused, LearningError, MessageError) as error:
        raise StateError(str(error)) from None
    for study, why in ended:
        typer.echo(f"{study}: {why}")


app.command()(plan.plan)
app.command()(models.evaluate)
app.command()(models.predict)
app.command()(models.export)


def main() -> None:
    """Run the command line. An error is one sentence on stderr and exit code 1."""
    try:
        app()
    except (DocumentError, CryptoError, PolicyError, StateError, OSError) as error:
        typer.echo(f"fedward-silo: {error}", err=True)
        sys.exit(1)
