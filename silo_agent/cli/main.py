"""`fedward-silo`: enrol a hospital, run its agent, keep policy and ledger, check its file, plan studies, use models.

This file has enrolment and the agent itself. The commands of the ledger are in `ledger` and `together`, those of the
policy in `policy`, of the file in `data`, of a study's document in `study`, of prices in `plan`, of models in `models`
and `new_silo`.

Every command imports what it needs when it is called: the learning libraries take seconds to load, databases, grpc and
cryptography a tenth of one each, and whoever asks for help or a ledger should not wait for them.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from common import command_line
from crypto.errors import CryptoError
from policies.errors import PolicyError
from protos.messages import MessageError
from silo_agent.cli import models, new_silo, plan
from silo_agent.cli.console import console
from silo_agent.cli.data import data_app
from silo_agent.cli.enrolment.command import enrol
from silo_agent.cli.enrolment.rekey import rekey
from silo_agent.cli.ledger import ledger_app
from silo_agent.cli.options import DEFAULT, ConfigOption, waiting
from silo_agent.cli.policy import policy_app
from silo_agent.cli.preflight.command import preflight
from silo_agent.cli.studies.listing import studies
from silo_agent.cli.studies.report import report
from silo_agent.cli.studies.study import study_app
from silo_agent.cli.together import ledger_together
from silo_agent.errors import SiloError

app = typer.Typer(help="A hospital's agent.", no_args_is_help=True, pretty_exceptions_enable=False)
app.add_typer(ledger_app, name="ledger")
app.add_typer(policy_app, name="policy")
app.add_typer(data_app, name="data")
app.add_typer(study_app, name="study")
ledger_app.command("together")(ledger_together)


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=command_line.version_teller("fedward-silo"),
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """A hospital's agent."""


@app.command()
def run(
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", "-c", envvar="FEDWARD_AGENT_CONFIG", help="agent.yaml; once for each silo."),
    ] = None,
    *,
    until_finished: Annotated[bool, typer.Option(help="Exit when a study has ended. For one silo.")] = False,
) -> None:
    """Take part in studies until stopped. Several configurations are several silos, each in a process of its own."""
    from protos.core_log import diverted
    from silo_agent import logs

    configs = config or [DEFAULT]
    if len(configs) > 1:
        _run_several(configs, until_finished=until_finished)
        return
    with diverted() as lines:
        logs.configure()
        lines.tell(logs.tell_core)
        from silo_agent.learning.light_imports import load_lean

        load_lean()
        from silo_agent.assembly import run_agent
        from silo_agent.config import AgentConfig

        ended = run_agent(AgentConfig.load(configs[0]), until_finished=until_finished)
    for study, why in ended:
        typer.echo(f"{study}: {why}")


def _run_several(configs: list[Path], *, until_finished: bool) -> None:
    import signal
    import threading

    from common.systemd import notified
    from silo_agent import logs
    from silo_agent.config import AgentConfig
    from silo_agent.supervisor import Supervisor, require_apart

    if until_finished:
        raise typer.BadParameter("it is for one silo", param_hint="--until-finished")  # noqa: EM101, TRY003
    require_apart({path: AgentConfig.load(path) for path in configs})
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with notified():
        Supervisor(configs).run(stop)


@app.command()
def backup(
    out: Annotated[Path, typer.Argument(help="New file for the backup.")], config: ConfigOption = DEFAULT
) -> None:
    """Copy ledger, models, results and the record of what was used up into one file, also while the agent runs.

    The file is as private as the records. The key, and what only a running study needs, are not in it.
    """
    from silo_agent.config import AgentConfig
    from silo_agent.storage.backup import make_backup
    from silo_agent.storage.retention import today

    settings = AgentConfig.load(config)
    with waiting("copying the state"):
        made = make_backup(settings.state, out, version=version("fedward"), day=today())
    typer.echo(f"{out}: {len(made.files)} files, the ledger up to entry {made.entries}. Keep the silo's key elsewhere.")


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="A backup of this data set's agent.")], config: ConfigOption = DEFAULT
) -> None:
    """Put a backup in place of the agent's state. An older ledger never replaces a newer one. Stop the agent first.

    Studies that were running end for this silo.
    """
    from policies.documents.policy import load_policy
    from silo_agent.config import AgentConfig
    from silo_agent.storage import backup as backups
    from silo_agent.storage.retention import today

    settings = AgentConfig.load(config)
    data_set = load_policy(settings.policy).data_set.id
    with waiting("checking the backup, and putting it in place"):
        done = backups.restore(file, settings.state, data_set=data_set, day=today(), key=settings.key_holder)
    typer.echo(f"restored the state of {done.manifest.made}, the ledger up to entry {done.manifest.entries}")
    for digest in done.ended:
        typer.echo(f"study {digest[:12]} was running and is over for this silo; a new study may follow it")
    if done.aside is not None:
        typer.echo(f"what was there before is in {done.aside}; delete it when nothing is missing")


app.command()(studies)
app.command()(console)
app.command()(enrol)
app.command()(rekey)
app.command()(preflight)
app.command()(plan.plan)
app.command()(models.evaluate)
app.command()(models.fairness)
app.command()(models.predict)
app.command()(models.export)
app.command()(report)
app.command()(new_silo.adapt)
app.command("hand-over")(new_silo.hand_over)
app.command("import")(new_silo.take)


def main() -> None:
    """Run the command line. An error is one sentence on stderr and exit code 1."""
    fix = "install FedWard with requirements-silo.txt of the release, and not with a coordinator's"
    command_line.run("fedward-silo", app, (SiloError, CryptoError, PolicyError, MessageError, OSError), fix)


if __name__ == "__main__":
    main()
