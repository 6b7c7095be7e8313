"""The command `fedward-silo rekey`: a silo takes the key and certificate of a new enrolment.

Guarantees: what the former key sealed and what must outlive it is sealed under the new key before the former one is
replaced. If the command is cut off at any place, the agent does not start, and the same command finishes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from silo_agent.cli.options import DEFAULT, ConfigOption


def rekey(
    enrolled: Annotated[Path, typer.Argument(help="The folder into which this silo enrolled anew.")],
    config: ConfigOption = DEFAULT,
) -> None:
    """Go on under the key of a new enrolment, with the state of the former. Stop the agent first.

    Enrol into a new folder with a new token, then run this. A round that was under way begins again.
    """
    from crypto.entropy import SystemEntropy
    from crypto.errors import EnrolmentError
    from crypto.pki.certificates import Credential
    from crypto.pki.reading import parse_certificate, subject_of
    from policies.ledger.lock import WriterLock
    from silo_agent.config import AgentConfig
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.rows import seal_anew

    settings = AgentConfig.load(config)
    held, files = settings.files, StateFolder(settings.state)
    certificate, key = enrolled / "certificate.pem", enrolled / "key.pem"
    lists = held.lists if held.lists.exists() else None
    credential = Credential.load(certificate, key, held.authority, lists, passphrase=held.passphrase)
    subject = subject_of(parse_certificate(held.certificate.read_bytes()))
    if subject_of(parse_certificate(credential.certificate_pem)) != subject:
        msg = f"{enrolled} was enrolled for another party than {subject}; enrol this silo, with a token for it"
        raise EnrolmentError(msg)
    former = settings.key_holder()
    lock = WriterLock(files.ledger.with_name(files.ledger.name + ".lock"))
    try:
        seal_anew(files, former, credential, SystemEntropy())
        _put(key, held.key, mode=0o600)
        _put(certificate, held.certificate, mode=0o644)
        key.unlink()
    finally:
        lock.leave()
    typer.echo(f"{subject.identity.name} has the key and the certificate of {enrolled}; what was sealed opens with it.")
    typer.echo("Ask the authority to revoke the former certificate, if its key may have leaked. Start the agent.")


def _put(source: Path, target: Path, *, mode: int) -> None:
    """Put a copy of a file in another's place, durably, whole or not at all, with the owner of what was there."""
    from common.durable import write_whole

    before = target.stat()
    write_whole(target, source.read_bytes())
    target.chmod(mode)
    if (target.stat().st_uid, target.stat().st_gid) != (before.st_uid, before.st_gid):
        os.chown(target, before.st_uid, before.st_gid)
