"""What several groups of commands share: options, the terminal, the connection, and the question before a deed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from common.output_format import OutputFormat
from coordinator.config import OperatorConfig
from coordinator.errors import CoordinatorError

if TYPE_CHECKING:
    from coordinator.operating import Operator
    from crypto.authorship import SignatureBeside
    from crypto.pki.certificates import Credential
    from policies.documents.study import Study

OperatorOption = Annotated[Path, typer.Option("--operator", "-o", envvar="FEDWARD_OPERATOR_CONFIG")]
ConfigOption = Annotated[Path, typer.Option("--config", "-c", envvar="FEDWARD_COORDINATOR_CONFIG")]
FormatOption = Annotated[OutputFormat, typer.Option("--format", help="For people, or for programs.")]
TABLE, JSON = OutputFormat.TABLE, OutputFormat.JSON
ReasonOption = Annotated[
    str, typer.Option(help="Why, for the audit log. Needed for a study that is not your own, by your certificate.")
]
DEFAULT = Path("operator.yaml")


class AmbiguousSignatureError(CoordinatorError):
    """Several authors' signatures lie beside one study. Nothing was handed in."""


class UnconfirmedError(CoordinatorError):
    """Nobody has confirmed what cannot be undone. Nothing changed."""


def console() -> Console:
    """Return the terminal. What others wrote is text, even if it looks like markup."""
    return Console(markup=False, emoji=False)


def connected(path: Path) -> Operator:
    """Return the connection of a person's configuration file."""
    from coordinator.operating import Operator

    return Operator(OperatorConfig.load(path), lambda level, text: typer.echo(f"{level}: {text}", err=True))


def person(path: Path) -> Credential:
    """Return the credential of a person's configuration file, renewed if it is time."""
    from coordinator.operating import credential_of

    return credential_of(OperatorConfig.load(path), lambda level, text: typer.echo(f"{level}: {text}", err=True))


def confirm(question: str, *, yes: bool) -> None:
    """Return if a person says yes, on the terminal or with `--yes`. Raises `UnconfirmedError`."""
    if yes:
        return
    if not sys.stdin.isatty():
        msg = f"{question} Nobody can be asked here: give --yes"
        raise UnconfirmedError(msg)
    if not typer.confirm(question, err=True):
        msg = "nothing was done"
        raise UnconfirmedError(msg)


def signature_file(study: Path, author: str) -> Path:
    """Return where an author's signature lies, beside the study."""
    return study.with_name(f"{study.name}.{author}.sig")


def signature_beside(study: Path) -> SignatureBeside | None:
    """Return the author's signature that lies beside a study; None if none does.

    Raises `AmbiguousSignatureError` if several do: a study has one author. `SignatureRefused`, OSError.
    """
    from crypto.authorship import SignatureBeside

    found = sorted(study.parent.glob(f"{study.name}.*.sig"))
    if len(found) > 1:
        msg = f"a study has one author, and beside {study} lie {', '.join(one.name for one in found)}; leave one there"
        raise AmbiguousSignatureError(msg)
    return SignatureBeside.read(found[0]) if found else None


def signed_by(client: Operator, study: Path, text: Study) -> SignatureBeside | None:
    """Return the author's signature: made by an author's own certificate, else what lies beside the file, if anything.

    Raises what `signature_beside` raises.
    """
    from crypto.authorship import sign_study
    from crypto.pki.identity import Role

    if client.credential.identity.role is Role.AUTHOR:
        return sign_study(client.credential, text.digest, text.purpose)
    return signature_beside(study)
