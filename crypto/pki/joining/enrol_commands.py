"""What the `enrol` commands of silos, coordinators and operators share: the token that is given, and what is said."""

from __future__ import annotations

import sys
from pathlib import Path

from crypto.errors import EnrolmentError
from crypto.pki.admission import Token
from crypto.pki.identity import PEOPLE
from crypto.pki.joining.enrol import Enrolled


def read_token(text: str | None, file: Path | None) -> Token:
    """Read the token from the command line or from a file, where `-` is the standard input. Raises `EnrolmentError`."""
    if (text is None) == (file is None):
        msg = "give the token either with --token or with --token-file (- for the standard input)"
        raise EnrolmentError(msg)
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{file.name} cannot be read ({getattr(error, 'strerror', None) or 'no token'}); fix --token-file"
            raise EnrolmentError(msg) from None
    return Token.parse(text or "")


def lines(done: Enrolled) -> list[str]:
    """Say in sentences what became of a token."""
    hosts = f", hosts {', '.join(done.hosts)}" if done.hosts else ""
    renewed = "by itself while the program runs"
    if done.subject.identity.role in PEOPLE:
        renewed = "by any command that is given after a third of that time"
    return [
        f"certified as {done.subject}{hosts} by {done.url}",
        f"the key stays here; its SHA-256 is {done.key}: compare it with what the authority registered",
        f"the certificate lasts until {done.ends:%Y-%m-%d %H:%M} UTC and is renewed {renewed}",
    ]
