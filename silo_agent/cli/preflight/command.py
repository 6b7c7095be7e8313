"""The command `fedward-silo preflight`: runs every check, prints one report.

Exit codes: 0 if no check fails, 3 if one does, 1 if agent.yaml cannot be read, 2 for a wrong call. With `--share`
neither the report nor the exit code follows from a record.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from policies.errors import PolicyError
from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, waiting
from silo_agent.cli.policy import ATTENTION


def preflight(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="study.yaml")],
    config: ConfigOption = DEFAULT,
    *,
    share: Annotated[
        bool, typer.Option("--share", help="Read no record, and print a report that may be given to others.")
    ] = False,
    form: FormatOption = TABLE,
    dry: Annotated[bool, typer.Option("--dry-round/--no-dry-round", help="Try two rounds on this machine.")] = True,
    dry_limit: Annotated[float, typer.Option(min=1, help="Seconds for the dry round.")] = 600.0,
) -> None:
    """Look at everything that could keep this silo from a study. Exit code 3 if anything does; nothing is charged."""
    from importlib.metadata import version

    from silo_agent.cli.preflight import public_checks
    from silo_agent.cli.preflight.dry_round import dry_round
    from silo_agent.cli.preflight.findings import Finding, PreflightReport, Status
    from silo_agent.config import AgentConfig

    study, about_study = public_checks.read_study(study_file)
    try:
        settings = AgentConfig.load(config, whole=False)
    except PolicyError:
        if study is None:
            typer.echo(f"fedward-silo: {about_study.text}", err=True)
        raise
    checks = public_checks.CHECKS
    if not share:
        from silo_agent.cli.preflight import private_checks

        checks += private_checks.CHECKS
    with waiting("asking the authority") as tell:
        newest, authority = public_checks.ask_authority(settings)
        credential, certificate = public_checks.load_credential(settings, newest)
        subject = public_checks.CheckedSilo(study, settings, credential, newest)
        tell("calling the coordinator")
        found = [about_study, authority, certificate, *public_checks.network(subject)]
        for name, check in checks:
            tell(f"checking: {name}")
            found.append(public_checks.guarded(name, partial(check, subject)))
        if dry:
            tell("trying two rounds on this machine")
            found.append(public_checks.guarded("dry round", lambda: dry_round(subject, dry_limit)))
        else:
            found.append(Finding("dry round", Status.SKIPPED, "it was not asked for"))
    name, digest = (str(study_file), "") if study is None else (study.name, study.digest)
    report = PreflightReport(name, digest, subject.silo, version("fedward"), share, tuple(found))
    typer.echo(report.as_json() if form is JSON else report.as_text())
    if report.attention:
        raise typer.Exit(ATTENTION)
