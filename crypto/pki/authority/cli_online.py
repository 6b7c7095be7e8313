"""`fedward-authority issuing`, `delegate`, `admit`, `readmit`, `revoke`, `crl`, `register` and those of timestamps."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from common.digests import is_sha256
from common.output_format import OutputFormat
from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.authority import issuing as online
from crypto.pki.authority import root
from crypto.pki.authority.asking import diagnosed, passphrase, read, require_new, warn_unprotected
from crypto.pki.authority.building import read_authority_request
from crypto.pki.authority.folder import NEWEST_LIST
from crypto.pki.authority.issuing import IssuingAuthority, take_back
from crypto.pki.authority.readmission import READMISSIONS_FILE, to_json
from crypto.pki.authority.register import Register
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.key_files import make_folder, replace, write_new
from crypto.pki.known_keys import read_peers
from crypto.pki.reading import key_fingerprint

Folder = Annotated[Path, typer.Argument(help="Folder of the authority: the root, or an issuing authority.")]
Root = Annotated[Path, typer.Argument(help="Folder of the root, on a machine that stays offline.")]


def issuing(
    folder: Annotated[Path, typer.Argument(help="New folder, on the machine that will serve.")],
    name: Annotated[str, typer.Option(help="Name of the issuing authority, for people.")],
) -> None:
    """Make the key of an issuing authority, and a request for the root to delegate to it."""
    with diagnosed():
        given = passphrase(confirm=True)
        request = online.prepare(folder, name, passphrase=given)
        _, key = read_authority_request(request)
        typer.echo(f"issuing authority {name!r}, key SHA-256 {key_fingerprint(key)}")
        typer.echo(f"carry {online.REQUEST_FILE} to the root (`fedward-authority delegate`); the key stays here")
        warn_unprotected(given)


def delegate(
    folder: Root,
    request: Annotated[Path, typer.Argument(help="The issuing authority's request (.csr).")],
    out: Annotated[Path, typer.Option(help="Folder for authority.pem and root.crl.pem; made if it is not there.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="DNS name of the issuing service or of a coordinator; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days until the issuing authority expires.")] = 365,
) -> None:
    """Certify an issuing authority. It may certify parties that the root admits, and servers for these hosts alone."""
    with diagnosed():
        pem = read(request)
        name, key = read_authority_request(pem)
        typer.echo(f"the request is of {name!r}, key SHA-256 {key_fingerprint(key)}: compare it on the other machine")
        for path in (out / online.BUNDLE_FILE, out / online.ROOT_LISTS_FILE):
            if path.exists():
                msg = f"{path.name} exists already and is never overwritten; choose another folder with --out"
                raise EnrolmentError(msg)
        given = passphrase(confirm=False)
        bundle = root.delegate(folder, pem, days=days, hosts=host or [], passphrase=given)
        lists = root.publish(folder, passphrase=given)
        make_folder(out)
        write_new(out / online.BUNDLE_FILE, bundle, secret=False)
        write_new(out / online.ROOT_LISTS_FILE, lists, secret=False)
        typer.echo(f"delegated to {name!r} for {days} days; carry both files in {out} to its folder")


def timestamping(
    folder: Annotated[Path, typer.Argument(help="Folder of the issuing authority, whose service will answer.")],
    name: Annotated[str, typer.Option(help="Name of the timestamping authority, for people.")],
) -> None:
    """Make a key for timestamps alone, which lasts for years, and a request for the root."""
    from crypto.pki.authority import timestamping as stamps  # noqa: PLC0415  # a silo has no asn1crypto

    with diagnosed():
        given = passphrase(confirm=True)
        _, key = read_authority_request(stamps.prepare(folder, name, passphrase=given))
        typer.echo(f"timestamping authority {name!r}, key SHA-256 {key_fingerprint(key)}")
        typer.echo(
            f"carry {stamps.REQUEST_FILE} to the root (`fedward-authority certify-timestamps`), and what it writes"
            f" back into this folder as {stamps.CERTIFICATE_FILE}"
        )
        warn_unprotected(given)


def certify_timestamps(
    folder: Root,
    request: Annotated[Path, typer.Argument(help="The timestamping authority's request (.csr).")],
    out: Annotated[Path, typer.Option(help="New file for its certificate.")],
) -> None:
    """Certify a timestamping authority, for as long as the root lasts."""
    from crypto.pki.authority import timestamping as stamps  # noqa: PLC0415  # as above

    with diagnosed():
        pem = read(request)
        name, key = read_authority_request(pem)
        typer.echo(f"the request is of {name!r}, key SHA-256 {key_fingerprint(key)}: compare it on the other machine")
        require_new(out)
        write_new(out, root.certify_timestamps(folder, pem, passphrase=passphrase(confirm=False)), secret=False)
        typer.echo(f"{out}: put it beside {stamps.KEY_FILE}, and start the service anew")


def admit(  # noqa: PLR0917  # typer calls it, by name
    folder: Root,
    role: Annotated[Role, typer.Option(help="What the party will be.")],
    name: Annotated[str, typer.Option(help="Who the party will be.")],
    data_set: Annotated[
        str | None,
        typer.Option(help="The data set whose budget the silo keeps. For silos only; it cannot be changed later."),
    ] = None,
    institution: Annotated[
        str | None, typer.Option(help="Who runs the silo; two silos of one institution never join one study.")
    ] = None,
    host: Annotated[list[str] | None, typer.Option(help="DNS name of a coordinator; repeatable.")] = None,
    days: Annotated[int, typer.Option(help="Days for which certificates are renewed online.")] = 730,
    redeem_days: Annotated[int, typer.Option(help="Days until the token must have been used.")] = 14,
    key: Annotated[
        str | None,
        typer.Option(help="SHA-256 of the party's key, if it has one: others accept a new key by no other admission."),
    ] = None,
    url: Annotated[str | None, typer.Option(help="Where the issuing authority answers: https://host:port.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="New file for the token, readable by you alone; by default it is printed.")
    ] = None,
) -> None:
    """Admit a party and make its one-time token. Give it to the party over a channel that both trust."""
    with diagnosed():
        if out is not None:
            # Before the register has the admission: a token that cannot be written is lost.
            require_new(out)
            if not out.absolute().parent.is_dir():
                msg = f"the folder of {out} does not exist; make it, or choose another path with --out"
                raise EnrolmentError(msg)
        subject = Subject(Identity(role, name), data_set, institution)
        token = root.admit(
            folder,
            subject,
            days=days,
            redeem_days=redeem_days,
            hosts=host or [],
            key=_digest(key),
            url=url,
            passphrase=passphrase(confirm=False),
        )
        typer.echo(
            f"admitted {subject} until {token.admission.expires:%Y-%m-%d}; the token is secret, works once, until"
            f" {token.admission.redeem_until:%Y-%m-%d %H:%M} UTC{':' if out is None else f', and is in {out}'}",
            err=True,
        )
        if role is Role.SILO and institution is None:
            typer.echo(
                f"{name} has no --institution, so nothing keeps another silo of whoever runs it out of its studies",
                err=True,
            )
        if out is None:
            typer.echo(token.text())
        else:
            write_new(out, f"{token.text()}\n".encode("ascii"), secret=True)


def readmit(
    folder: Root,
    out: Annotated[
        Path, typer.Option(help=f"New file, to be put into the issuing authority's folder as {READMISSIONS_FILE}.")
    ],
    keys: Annotated[
        Path | None,
        typer.Option(help="What `fedward-authority keys` wrote, for those whose keys this root has not named yet."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days for which certificates are renewed online.")] = 730,
) -> None:
    """Admit everybody again who is admitted, each with their key. The parties do nothing."""
    with diagnosed():
        require_new(out)
        known = {} if keys is None else _keys(keys)
        made = root.readmit(folder, days=days, keys=known, passphrase=passphrase(confirm=False))
        write_new(out, to_json(made), secret=False)
        for one in made:
            new = ": compare it with the party before you carry the file on" if one.key in known.values() else ""
            typer.echo(f"admitted {one.subject} until {one.expires:%Y-%m-%d} for the key with SHA-256 {one.key}{new}")
        typer.echo(
            f"put {out} into the issuing authority's folder as {READMISSIONS_FILE}; whoever renews from then on is"
            " certified by these"
        )


def keys(
    folder: Annotated[Path, typer.Argument(help="Folder of the issuing authority.")],
    out: Annotated[Path, typer.Option(help="New file: a party and the SHA-256 of its key on each line.")],
) -> None:
    """Write down which key redeemed each party's token, for `readmit --keys` and for peers.txt.

    Whoever has this machine can write another key there: compare each with its party.
    """
    with diagnosed():
        require_new(out)
        by_uri = IssuingAuthority.load(folder, passphrase=passphrase(confirm=False)).keys()
        write_new(out, "".join(f"{uri} {key}\n" for uri, key in sorted(by_uri.items())).encode(), secret=False)
        typer.echo(f"{out} has {len(by_uri)} keys: compare each with its party")


def revoke(  # noqa: PLR0917  # typer calls it, by name
    folder: Folder,
    reason: Annotated[str, typer.Option(help="Why, for the register.")],
    role: Annotated[Role | None, typer.Option(help="With --name: all that this party holds.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the party.")] = None,
    authority: Annotated[
        str | None, typer.Option(help="Name of an issuing or timestamping authority whose key was stolen, at the root.")
    ] = None,
    serial: Annotated[str | None, typer.Option(help="One serial number, in hexadecimal (see `register`).")] = None,
    since: Annotated[
        datetime | None, typer.Option(help="When the key was lost, UTC; now, if not said.", formats=["%Y-%m-%dT%H:%M"])
    ] = None,
) -> None:
    """Take back what this authority certified, and make its next revocation list."""
    with diagnosed():
        now = datetime.now(UTC)
        when = now if since is None else since.replace(tzinfo=UTC)
        if sum(one is not None for one in (serial, name, authority)) != 1 or (name is None) != (role is None):
            msg = "give either --role and --name, or --authority, or --serial"
            raise EnrolmentError(msg)
        if authority is not None and _is_issuing(folder):
            msg = "an authority is taken back by the root that delegated to it; name the root's folder"
            raise EnrolmentError(msg)
        if when > now:
            msg = "--since must be past"
            raise EnrolmentError(msg)
        party = Identity(role, name).uri if role is not None and name is not None else None
        number = _number(serial) if serial is not None else None
        given = passphrase(confirm=False)
        if _is_issuing(folder):
            told = IssuingAuthority.load(folder, passphrase=given).revoke(party, number, when, reason)
        else:
            keeper = root.load(folder, given)
            with Register.open(folder, keeper.key) as register:
                if authority is not None:
                    number = register.delegated(authority)
                told = take_back(register, party, number, when, reason, now)
            root.publish(folder, passphrase=given)
        typer.echo("\n".join(told))
        if _is_issuing(folder):
            typer.echo("the issuing service hands out the new list from now on")
        else:
            typer.echo(f"bring {folder / NEWEST_LIST} to the issuing authority as {online.ROOT_LISTS_FILE}, and to")
            typer.echo("parties that fetch no lists, whose crls.pem holds the newest list of each authority")


def crl(
    folder: Folder,
    days: Annotated[int, typer.Option(help="Days until the root makes its next list.")] = root.LIST_DAYS,
    out: Annotated[
        Path | None, typer.Option(help="Write the newest lists of all authorities here, as crls.pem.")
    ] = None,
) -> None:
    """Make the authority's next revocation list."""
    with diagnosed():
        given = passphrase(confirm=False)
        if _is_issuing(folder):
            lists = IssuingAuthority.load(folder, passphrase=given).lists_pem()
        else:
            lists = root.publish(folder, days, passphrase=given)
            typer.echo(f"{NEWEST_LIST} is fresh for {days} days; make the next one before")
        if out is not None:
            replace(out, lists)
            typer.echo(f"wrote {out}")


def register(
    folder: Folder,
    *,
    form: Annotated[
        OutputFormat, typer.Option("--format", help="For people; or whole entries, one JSON object a line.")
    ] = OutputFormat.TABLE,
) -> None:
    """Check the register's chain and print it; its head, to note down, goes to stderr."""
    with diagnosed(), Register.open(folder) as register:
        for entry in register.entries():
            if form is OutputFormat.JSON:
                typer.echo(json.dumps(dict(entry), sort_keys=True))
            else:
                typer.echo("  ".join(str(entry[name]) for name in _SHOWN if entry.get(name)))
        typer.echo(f"the register is whole, SHA-256 {register.head()}", err=True)


_SHOWN = ("number", "at", "kind", "identity", "name", "not_after", "serial")
"""Fields of an entry that people see, in this order."""

COMMANDS: tuple[Callable[..., None], ...] = (
    issuing, delegate, timestamping, certify_timestamps, admit, keys, readmit, revoke, crl, register,
)  # fmt: skip


def _is_issuing(folder: Path) -> bool:
    return (folder / online.KEY_FILE).exists()


def _keys(path: Path) -> dict[str, str]:
    """What `keys` wrote. Raises `EnrolmentError`, also for a party with two keys."""
    try:
        by_uri = read_peers(path)
    except CertificateError as error:
        raise EnrolmentError(str(error)) from None
    several = sorted(uri for uri, some in by_uri.items() if len(some) > 1)
    if several:
        msg = f"{path.name} has several keys of {', '.join(several)}; leave the one that the party has"
        raise EnrolmentError(msg)
    return {uri: next(iter(some)) for uri, some in by_uri.items()}


def _digest(key: str | None) -> str | None:
    if key is not None and not is_sha256(key):
        msg = "--key is the SHA-256 of the party's key in 64 digits, as its enrolment prints it"
        raise EnrolmentError(msg)
    return key


def _number(serial: str) -> int:
    try:
        return int(serial, 16)
    except ValueError:
        msg = "--serial is a number in hexadecimal, as `register` prints it"
        raise EnrolmentError(msg) from None
