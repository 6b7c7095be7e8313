"""`fedward-silo study show`, `sign`, `approve`, `decline`, `approvals`, `withdraw-approval`: people read and decide.

Guarantees: an approval stores the whole digest of a text that this silo keeps, because the study was offered to it or
because somebody at the hospital gives the file. Names and beginnings of digests only choose among these texts, and an
ambiguous one is refused with the candidates. Nothing here reads records or charges; `sign` alone opens a key, of the
person who signs. The running agent writes what was decided into the ledger (`oversight.decisions`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.digests import means
from silo_agent.cli.options import DEFAULT, JSON, TABLE, ConfigOption, FormatOption, print_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from policies.accounting.planning import Prices
    from policies.documents.study import Study
    from silo_agent.cli.plan import HospitalOutlook
    from silo_agent.config import AgentConfig
    from silo_agent.storage import offered
    from silo_agent.storage.approvals import Approval, Approvals

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
    from policies.accounting.planning import price
    from policies.documents.policy import load_policy
    from policies.documents.study import require_bounds
    from policies.documents.writing import write_study
    from policies.refusals import Refused
    from silo_agent.cli.plan import document_of, show_prices, standing_of
    from silo_agent.cli.policy import ATTENTION, listed
    from silo_agent.config import AgentConfig
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    settings = AgentConfig.load(config)
    study = _chosen(settings, wanted)
    folder = StateFolder(settings.state)
    policy, decided = load_policy(settings.policy), kept.approvals(folder)
    author = _author(settings, study, wanted)
    said = _said(study, decided, settings, policy.data_for(study.name, study.purpose, author.uri))
    earlier = _earlier(settings, study, author.uri)
    prices: Prices | None = None
    standing: HospitalOutlook | None = None
    try:
        require_bounds(study)  # before anything is priced: that would take long
        prices = price(study, policy.budget.delta)
        standing = standing_of(settings, policy, study)
        refused = standing.refused
    except Refused as refusal:
        refused = refusal
    if form is JSON:
        document: dict[str, object] = {"study": study.name, "digest": study.digest}
        if prices is not None:
            document = document_of(study, prices, standing, None, {})
        reasons = [{"reason": label, "text": text} for label, text in (() if refused is None else refused.reasons)]
        before = None if earlier is None else {"digest": earlier.digest, "changes": list(changes(earlier, study))}
        document |= {"author": author.uri, "author_fault": author.fault, "purpose": study.purpose, "earlier": before}
        found = {"text": json.loads(study.canonical()), "reasons": reasons, "approval": said}
        typer.echo(json.dumps(document | found, indent=1, allow_nan=False))
    else:
        head = f"Study {study.digest}, as this silo keeps it."
        if prices is None:  # what breaks a bound has no form for people
            typer.echo(f"# {head}\n{json.dumps(json.loads(study.canonical()), indent=1)}")
        else:
            typer.echo(write_study(study, head=[head]))
        typer.echo(_asked(study, author, earlier))
        if prices is None or standing is None:
            typer.echo(f"The policy refuses{'' if refused is None else listed(refused)}")
        else:
            show_prices(study, prices, standing)
        typer.echo(said)
    if refused is not None:
        raise typer.Exit(ATTENTION)


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
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    settings = AgentConfig.load(config)
    if (data is None) is (signature is None):
        msg = "say which data with --data NAME, or give --signature FILE, which says it"
        raise typer.BadParameter(msg)
    _upgrade(settings)
    study = _chosen(settings, wanted, keep=True)
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
    from silo_agent.storage import approvals as kept

    study, home = _chosen(AgentConfig.load(config), wanted), key.parent
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
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    settings = AgentConfig.load(config)
    _upgrade(settings)
    study = _chosen(settings, wanted, keep=True)
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
    from silo_agent.storage import approvals as kept
    from silo_agent.storage.folders import StateFolder

    if (wanted is None) is not everything:
        msg = "name a study, or give --all"
        raise typer.BadParameter(msg)
    settings = AgentConfig.load(config)
    folder, now = StateFolder(settings.state), datetime.now(UTC)
    if wanted is None:
        running = _begun(settings)
        kept.begin_anew(folder, running, now)
        typer.echo(f"nothing is approved any more; {len(running)} studies that have begun here are charged no more")
        return
    _upgrade(settings)
    found = kept.approvals(folder)
    if wanted in found.unbound:
        kept.withdraw(folder, {}, now, [wanted])
        typer.echo(f"{wanted}: what version 0.6 approved by this name is taken off the list")
        return
    names = {**{one.digest: one.name for one in _offers(settings)}, **_begun(settings)}
    names |= {digest: one.study or names.get(digest, "") for digest, one in found.bound.items()}
    digest = _one(names, wanted, "fedward-silo study approvals")
    kept.withdraw(folder, {digest: names[digest]}, now, reason=reason)
    typer.echo(f"{names[digest]} {digest} may use nothing any more; it is charged nothing from now on")


def _chosen(settings: AgentConfig, wanted: str, *, keep: bool = False) -> Study:
    """The one study that is meant, of a file or of the texts that this silo keeps; `keep` also keeps that of a file.

    Raises `StateError` if none or several match, and what `load_study` raises.
    """
    from policies.documents.study import load_study
    from silo_agent.storage import offered
    from silo_agent.storage.approvals import approvals as listed
    from silo_agent.storage.errors import StateError
    from silo_agent.storage.folders import StateFolder

    folder = StateFolder(settings.state)
    if Path(wanted).suffix in {".yaml", ".yml", ".json"}:
        study = load_study(Path(wanted))
        if keep:
            known = listed(folder)
            offered.keep(folder, study, datetime.now(UTC), approved={*known.approved, study.digest})
        return study
    names = {**{one.digest: one.name for one in _offers(settings)}, **_begun(settings)}
    digest = _one(names, wanted, "fedward-silo studies")
    found = _kept_text(settings, digest)
    if found is None:
        msg = f"the text of {names[digest]} {digest[:_SHORT]} cannot be read; wait until it is offered again"
        raise StateError(msg)
    return found


def _kept_text(settings: AgentConfig, digest: str) -> Study | None:
    """The study of a text that this silo keeps, since it was offered or has begun here. Raises what `State` raises."""
    from policies.documents.study import parse_study
    from silo_agent.storage import offered
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.state import State

    folder = StateFolder(settings.state)
    found = offered.text(folder, digest)
    if found is not None or not folder.database.is_file():
        return found
    state = State(settings.state)
    try:
        canonical = state.canonical(digest)
    finally:
        state.close()
    return None if canonical is None else parse_study(canonical, digest)


def _one(names: Mapping[str, str], wanted: str, lists: str) -> str:
    """The digest that is meant: a whole one, else a name or twelve digits of a digest that fit one study alone.

    Raises `StateError` if none or several fit; it lists them.
    """
    from silo_agent.storage.errors import StateError

    if wanted in names:
        return wanted
    found = [digest for digest, name in names.items() if means(wanted, name, digest)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{names[digest]} {digest}" for digest in sorted(found))
        msg = f"{len(found)} studies match {wanted!r} ({listed}); give more of the digest, or all of it"
    else:
        msg = (
            f"no study that this silo knows matches {wanted!r}; `{lists}` lists them. A study can be approved once it"
            " was offered to this silo, or by its file"
        )
    raise StateError(msg)


@dataclass(frozen=True)
class _Author:
    """Who stands behind a study, as far as this machine can tell."""

    uri: str = ""
    """Empty if nobody does."""
    fault: str = ""

    @property
    def said(self) -> str:
        return self.uri or f"nobody: {self.fault}"


def _author(settings: AgentConfig, study: Study, wanted: str) -> _Author:
    """The author whom the agent has verified; of a file, who has signed it in a file beside it."""
    from crypto.authorship import SignatureBeside, author_of
    from crypto.errors import CryptoError
    from crypto.pki.certificates import Trust
    from silo_agent.storage import offered
    from silo_agent.storage.folders import StateFolder

    if uri := offered.author_uri(StateFolder(settings.state), study.digest):
        return _Author(uri)
    fault, path = "no author's signature came with it; this silo refuses it as unsigned", Path(wanted)
    for file in sorted(path.parent.glob(f"{path.name}.*.sig")) if path.is_file() else ():
        try:
            trust = Trust.load(settings.authority, settings.crls)
            return _Author(author_of(trust, study.digest, study.purpose, SignatureBeside.read(file)).uri)
        except (CryptoError, OSError) as error:
            fault = f"{file.name}: {error}"
    return _Author("", fault)


def _earlier(settings: AgentConfig, study: Study, author: str) -> Study | None:
    """The newest earlier revision of a study that this silo keeps: of the same name and, as far as known, author."""
    from silo_agent.storage import offered
    from silo_agent.storage.folders import StateFolder

    folder = StateFolder(settings.state)
    names = {**_begun(settings), **{one.digest: one.name for one in _offers(settings)}}
    digests = [digest for digest, name in names.items() if name == study.name and digest != study.digest]
    same = [digest for digest in digests if author in ("", offered.author_uri(folder, digest) or author)]
    found = [text for digest in same if (text := _kept_text(settings, digest)) is not None]
    before = [text for text in found if text.revision < study.revision] or found
    return max(before, key=lambda one: one.revision, default=None)


def _asked(study: Study, author: _Author, earlier: Study | None) -> str:
    """Who asks, for what, and what is new."""
    lines = [f"Author: {author.said}", f"Purpose: {study.purpose}"]
    if earlier is not None:
        lines.append(f"It differs from {earlier.name} {earlier.digest[:_SHORT]}, which asked before:")
        lines += [f"  {line}" for line in changes(earlier, study)]
    return "\n".join([*lines, ""])


def changes(before: Study, after: Study) -> Iterator[str]:
    """Give what differs between two studies, one line for each field, by its path."""
    yield from _changes("", json.loads(before.canonical()), json.loads(after.canonical()))


def _changes(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}):
            yield from _changes(f"{path}.{name}".lstrip("."), before.get(name), after.get(name))
    elif before != after:
        yield f"{path}: {json.dumps(before)} before, {json.dumps(after)} now"


def _offers(settings: AgentConfig) -> Iterable[offered.Offered]:
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.offered import offered as listed

    return listed(StateFolder(settings.state))


def _begun(settings: AgentConfig) -> dict[str, str]:
    """The studies that have begun here, by digest with their names."""
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.state import State

    if not StateFolder(settings.state).database.is_file():
        return {}
    state = State(settings.state)
    try:
        return state.names()
    finally:
        state.close()


def _upgrade(settings: AgentConfig) -> None:
    """Bind what version 0.6 approved, before anything new is written, so that what runs goes on."""
    from silo_agent.storage.approvals import upgrade
    from silo_agent.storage.folders import StateFolder

    named = (*settings.data, *settings.databases)
    upgrade(StateFolder(settings.state), _begun(settings), named, datetime.now(UTC))


def _said(study: Study, decided: Approvals, settings: AgentConfig, by_rule: tuple[str, ...]) -> str:
    """Whether the study may use data here, and what to do about it."""
    one: Approval | None = decided.bound.get(study.digest)
    short = study.digest[:_SHORT]
    if one is not None and one.data is not None:
        back = f"fedward-silo study withdraw-approval {short}"
        return f"Approved on {one.at} for {one.data}. To take that back: {back}"
    give = f"fedward-silo study approve {short} --data NAME (one of: {settings.named})"
    if one is not None and one.declined:
        return f"It was declined on {one.at}. To approve it: {give}"
    if one is not None:
        return f"Its approval was taken back on {one.at}. To approve it: {give}"
    if len(by_rule) == 1:
        return (
            f"Nobody approved it, but the policy's approved_data gives it {by_rule[0]}. To give it other data: {give}"
        )
    return f"Not approved. To approve it: {give}"
