"""The command `fedward-silo enrol`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def enrol(  # noqa: PLR0917  # typer calls it, by name
    folder: Annotated[Path, typer.Argument(help="New folder for the key, the certificate and agent.yaml.")] = Path(
        "silo"
    ),
    coordinator: Annotated[str | None, typer.Option(help="With a token: the coordinator, as host:port.")] = None,
    token: Annotated[str | None, typer.Option(help="The one-time token. It stays in the shell's history.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; - reads the standard input.")] = None,
    authority: Annotated[
        str | None, typer.Option(help="The issuing authority as https://host:port, if the token does not say.")
    ] = None,
    proxy: Annotated[str | None, typer.Option(help="The hospital's proxy (HTTP CONNECT), as http://host:port.")] = None,
    institution: Annotated[
        str | None,
        typer.Option(help="Without a token: who runs this silo. Two silos of one never join one study."),
    ] = None,
    key_passphrase: Annotated[
        Path | None, typer.Option(help="File with a passphrase, mode 0600, under which the key is kept.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Without a token: this silo's name in the federation.")] = None,
    data_set: Annotated[
        str | None,
        typer.Option(help="Without a token: data_set.id of this silo's policy, whose budget the silo keeps."),
    ] = None,
) -> None:
    """Make this silo's key, and have it certified: by a one-time token, or by a request that people carry.

    The key never leaves this machine. A person who is to sign for this hospital redeems an approver's token here, too.
    """
    if name is not None or data_set is not None:
        _request(
            folder, name, data_set, institution, key_passphrase, with_token=token is not None or token_file is not None
        )
        return
    from crypto.errors import EnrolmentError
    from crypto.pki.identity import Role
    from crypto.pki.joining import enrol_commands
    from crypto.pki.joining.enrol import enrol as redeem
    from crypto.pki.key_files import read_passphrase, write_new
    from silo_agent.cli.enrolment.agent_file import agent_text, checked

    given = enrol_commands.read_token(token, token_file)
    role = given.admission.subject.identity.role
    if role not in (Role.SILO, Role.APPROVER):
        msg = f"the token is for {given.admission.subject}; enrol that party with `fedward-coordinator enrol`"
        raise EnrolmentError(msg)
    address = "" if role is Role.APPROVER else checked(coordinator, proxy)
    secret = None if key_passphrase is None else read_passphrase(key_passphrase)
    done = redeem(folder, given, url=authority, proxy=proxy, passphrase=secret)
    if role is Role.APPROVER:
        typer.echo("\n".join(enrol_commands.lines(done)))
        typer.echo(f"next, to sign a policy: fedward-silo policy sign POLICY.yaml --key {folder / 'key.pem'}")
        return
    config = folder / "agent.yaml"
    if not config.exists():
        write_new(config, agent_text(address, done, proxy, key_passphrase).encode(), secret=False)
    typer.echo("\n".join(enrol_commands.lines(done)))
    policy = f"fedward-silo policy new --data-set {done.subject.data_set} --out {folder / 'policy.yaml'}"
    typer.echo(f"next, for a new silo: a policy ({policy}), then data in {config}")


def _request(
    folder: Path,
    name: str | None,
    data_set: str | None,
    institution: str | None,
    key_passphrase: Path | None,
    *,
    with_token: bool,
) -> None:
    from crypto.errors import EnrolmentError
    from crypto.pki.enrolment import KEY_FILE, create_request, request_of
    from crypto.pki.identity import Identity, Role, Subject
    from crypto.pki.key_files import open_key, read_passphrase

    if with_token or name is None or data_set is None:
        msg = "give a token, which says who this silo is, or both --name and --data-set for a request"
        raise EnrolmentError(msg)
    subject = Subject(Identity(Role.SILO, name), data_set, institution)
    secret = None if key_passphrase is None else read_passphrase(key_passphrase)
    request = create_request(folder, subject, passphrase=secret)
    _, key = request_of(open_key((folder / KEY_FILE).read_bytes(), secret), subject)
    typer.echo(f"The key stays here; its SHA-256 is {key}: tell it to the authority.")
    typer.echo(f"Send {request} to the consortium's authority and put the certificate it returns beside it.")
