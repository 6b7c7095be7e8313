"""`fedward-silo study`: what helps to write a study. Nothing here reads records or talks to anybody."""

from __future__ import annotations

import typer

study_app = typer.Typer(help="Write a study.", no_args_is_help=True)


@study_app.callback()
def _group() -> None:
    """Keep `schema` as a named command, although it is the only one."""


@study_app.command("schema")
def study_schema_command() -> None:
    """Print the JSON Schema of a study, for an editor that completes and checks YAML."""
    from policies.documents.schema import study_schema

    typer.echo(study_schema(), nl=False)
