"""`fedward-silo study show`, `sign`, `approve`, `decline`, `approvals`, `withdraw-approval`: people read and decide.

Guarantees: an approval stores the whole digest of a text that this silo keeps, because the study was offered to it or
because somebody at the hospital gives the file. Names and beginnings of digests only choose among these texts, and an
ambiguous one is refused with the candidates. Nothing here reads records or charges; `sign` alone opens a key, of the
person who signs. The running agent writes what was decided into the ledger (`oversight.decisions`).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, print_whole, waiting

if TYPE_CHECKING:
    from silo_agent.review.shown import ShownStudy

_SHORT = 12
Wanted = Annotated[
    str,
    typer.Argument(
        metavar="NAME|DIGEST|FILE",
        help="A study that was offered or has begun here, or the file of one. At least twelve digits of the digest.",
    ),
]
_DATA = "Name of the data in agent.yaml, under data or databases."
Reason = Annotated[
    str, typer.Option(help="Why, for this hospital's records. Only a keyed hash of it stands in the ledger.")
]
Given = Annotated[str | None, typer.Argument(metavar="NAME|DIGEST", help="A study that `study approvals` lists.")]


def show(wanted: Wanted, config: ConfigOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """Print a study that this silo was offered, what it costs, and what the policy says. Exit code 3 if it refuses.

    The ledger is read and not changed.
    """
    from policies.documents.writing import write_study
    from silo_agent.cli.plan import document_of, show_prices
    from silo_agent.cli.policy import ATTENTION, listed
    from silo_agent.config import AgentConfig
    from silo_agent.review import texts
    from silo_agent.review.shown import shown

    settings = AgentConfig.load(config)
    study = texts.chosen(settings, wanted)
    with waiting("pricing the study"):
        found = shown(settings, study, wanted)
    prices, refused = found.prices, found.refused
    if form is JSON:
        document: dict[str, object] = {"study": study.name, "digest": study.digest}
        if prices is not None:
            document = document_of(study, prices, found.outlook, None, {})
        typer.echo(json.dumps(document | _document(found), indent=1, allow_nan=False))
    else:
        head = f"Study {study.digest}, as this silo keeps it."
        if prices is None:  # what breaks a bound has no form for people
            typer.echo(f"# {head}\n{json.dumps(json.loads(study.canonical()), indent=1)}")
        else:
            typer.echo(write_study(study, head=[head]))
        typer.echo(texts.asked(study, found.author, found.earlier))
        if prices is None or found.outlook is None:
            typer.echo(f"The policy refuses{'' if refused is None else listed(refused)}")
        else:
            show_prices(study, prices, found.outlook)
        typer.echo(found.approval)
    if refused is not None:
        raise typer.Exit(ATTENTION)


def _document(found: ShownStudy) -> dict[str, object]:
    """What `show` says beyond the prices, for programs."""
    from silo_agent.review.texts import changes

    study, earlier = found.study, found.earlier
    before = None if earlier is None else {"digest": earlier.digest, "changes": list(changes(earlier, study))}
    refused = () if found.refused is None else found.refused.reasons
    return {
        "author": found.author.uri,
        "author_fault": found.author.fault,
        "purpose": study.purpose,
        "earlier": before,
        "text": json.loads(study.canonical()),
        "reasons": [{"reason": label, "text": text} for label, text in refused],
        "approval": found.approval,
    }


def approve(
    wanted: Wanted,
    data: Annotated[str | None, typer.Option(help=_DATA)] = None,
    config: ConfigOption = DEFAULT,
    reason: Reason = "",
    *,
    signature: Annotated[
        Path | None, typer.Option(help="What `study sign` wrote: needed where the policy names approvers.")
    ] = None,
) -> None:
    """Let one study use data that agent.yaml names, while the agent runs. The policy still decides whether it begins.

    Read it first: fedward-silo study show. It begins when it is offered again, within about a minute. The agent notes
    it in the ledger.
    """
    from policies.documents.policy import load_policy
    from silo_agent.config import AgentConfig
    from silo_agent.errors import SiloError
    from silo_agent.oversight.decisions import NO_APPROVER, approvers_of
    from silo_agent.review import texts
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    settings = AgentConfig.load(config)
    if (data is None) is (signature is None):
        msg = "say which data with --data NAME, or give --signature FILE, which says it"
        raise typer.BadParameter(msg)
    texts.upgrade(settings)
    study = texts.chosen(settings, wanted, keep=True)
    if signature is not None:
        given = kept.read_signed(signature, study)
    else:
        given = kept.made(study, str(data), datetime.now(UTC), reason)
        policy = load_policy(settings.policy)
        if policy.approvers is not None:
            named = approvers_of(policy)
            msg = (
                f"the policy names approvers ({', '.join(named)}), and one of them signs: fedward-silo study sign"
                f" {study.digest[:_SHORT]} --data {data} --key KEY, then --signature FILE in place of --data"
            )
            raise SiloError(msg if named else NO_APPROVER)
    if settings.source(str(given.data)) is None:
        raise SiloError(kept.unknown(str(given.data), settings))
    kept.approve(StateFolder(settings.state), study, given)
    typer.echo(f"{study.name} {study.digest} may use {given.data} from its next offer on")


def sign(
    wanted: Wanted,
    data: Annotated[str, typer.Option(help=_DATA)],
    key: Annotated[Path, typer.Option(help="Private key of an approver's certificate.")],
    config: ConfigOption = DEFAULT,
    reason: Reason = "",
    *,
    certificate: Annotated[Path | None, typer.Option(help="By default certificate.pem beside the key.")] = None,
    authority: Annotated[Path | None, typer.Option(help="By default authority.pem beside the key.")] = None,
    out: Annotated[Path | None, typer.Option(help="New file; by default NAME.approval, here.")] = None,
) -> None:
    """Sign the approval of one study as an approver, after reading it. `study approve --signature FILE` hands it in."""
    from common.durable import write_whole
    from crypto.pki.certificates import Credential
    from crypto.pki.identity import Role
    from silo_agent.config import AgentConfig
    from silo_agent.errors import SiloError
    from silo_agent.review import texts
    from silo_agent.storage import approvals as kept

    study, home = texts.chosen(AgentConfig.load(config), wanted), key.parent
    credential = Credential.load(certificate or home / "certificate.pem", key, authority or home / "authority.pem")
    if credential.identity.role is not Role.APPROVER:
        msg = f"{credential.identity} approves nothing; sign with a certificate of the role approver"
        raise SiloError(msg)
    target = out or Path(f"{study.name}.approval")
    write_whole(target, kept.signed_text(study, kept.made(study, data, datetime.now(UTC), reason), credential).encode())
    typer.echo(f"{target}: {credential.identity} approves {study.name} {study.digest} for {data}")


def decline(wanted: Wanted, config: ConfigOption = DEFAULT, reason: Reason = "") -> None:
    """Decline one study: it gets no data, whatever the policy's rule says. The agent notes it in the ledger."""
    from silo_agent.config import AgentConfig
    from silo_agent.review import texts
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    settings = AgentConfig.load(config)
    texts.upgrade(settings)
    study = texts.chosen(settings, wanted, keep=True)
    told = {study.digest: study.name}
    kept.withdraw(StateFolder(settings.state), told, datetime.now(UTC), reason=reason, declined=True)
    typer.echo(f"{study.name} {study.digest} is declined; it gets no data here")


def approvals(config: ConfigOption = DEFAULT, *, form: FormatOption = TABLE) -> None:
    """List which studies may use which data, as people approved it, and what was taken back."""
    from rich.table import Table

    from silo_agent.config import AgentConfig
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    found = kept.approvals(StateFolder(AgentConfig.load(config).state))
    if form is JSON:
        bound = [
            {"digest": digest, "verdict": one.verdict, "signed": one.signed is not None}
            | {name: getattr(one, name) for name in ("study", "data", "at", "reason")}
            for digest, one in found.bound.items()
        ]
        typer.echo(json.dumps({"approvals": bound, "unbound": dict(found.unbound)}, indent=1))
        return
    if not found.bound and not found.unbound:
        typer.echo("This silo has approved no study.")
        return
    table = Table("study", "digest", "may use", "since", "reason", pad_edge=False)
    for digest, one in found.bound.items():
        nothing = "nothing: declined" if one.declined else "nothing: taken back"
        table.add_row(one.study, digest[:_SHORT], one.data or nothing, one.at, one.reason)
    for word, data in found.unbound.items():
        table.add_row(
            word, "", f"nothing: version 0.6 approved {data} by a name; see `study show`, approve it anew", "", ""
        )
    print_whole(table)


def withdraw_approval(
    wanted: Given = None,
    config: ConfigOption = DEFAULT,
    reason: Reason = "",
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every study's, also if the list of approvals is damaged or gone.")
    ] = False,
) -> None:
    """Take a study's approval back, while the agent runs. The study is charged nothing more at this hospital.

    What was charged before may still leave, and stays charged. A rule of the policy gives the study nothing either.
    """
    from silo_agent.config import AgentConfig
    from silo_agent.review import texts
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    if (wanted is None) is not everything:
        msg = "name a study, or give --all"
        raise typer.BadParameter(msg)
    settings = AgentConfig.load(config)
    folder, now = StateFolder(settings.state), datetime.now(UTC)
    if wanted is None:
        running = texts.begun(settings)
        kept.begin_anew(folder, running, now)
        typer.echo(f"nothing is approved any more; {len(running)} studies that have begun here are charged no more")
        return
    texts.upgrade(settings)
    found = kept.approvals(folder)
    if wanted in found.unbound:
        kept.withdraw(folder, {}, now, [wanted])
        typer.echo(f"{wanted}: what version 0.6 approved by this name is taken off the list")
        return
    names = {**{one.digest: one.name for one in texts.offers(settings)}, **texts.begun(settings)}
    names |= {digest: one.study or names.get(digest, "") for digest, one in found.bound.items()}
    digest = texts.one_of(names, wanted, "fedward-silo study approvals")
    kept.withdraw(folder, {digest: names[digest]}, now, reason=reason)
    typer.echo(f"{names[digest]} {digest} may use nothing any more; it is charged nothing from now on")
