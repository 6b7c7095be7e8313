"""`fedward-silo ledger`: open the data set's ledger, show, check and export it, note what happened, recover it.

Guarantees: the output for programs is valid JSON. An epsilon without bound, which only a public data set has, is the
word `unbounded` there and in the table. `policies.ledger.exports` and `statement_page` define the exports.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from common import durable
from common.output_format import OutputFormat
from policies.documents.policy import load_policy
from policies.errors import ExportError
from policies.ledger.chain import UNBOUNDED, Entry, Genesis
from policies.ledger.cosign import CosignatureFile, read_cosignatures
from policies.ledger.events import (
    Debit,
    NoticeKind,
    content_of,
)
from policies.ledger.exports import (
    Export,
    budget_in_force,
    finite_or_word,
    recomputed,
    require_cosigned,
    to_csv,
    to_json,
)
from policies.ledger.ledger import Ledger, read_history
from policies.ledger.summary import SpentPart, summarise
from silo_agent.cli.options import (
    DEFAULT,
    JSON,
    TABLE,
    ConfigOption,
    FormatOption,
    ReplacesOption,
    print_whole,
    waiting,
)
from silo_agent.config import AgentConfig
from silo_agent.oversight.ledger_tables import by_entry, by_part, shown
from silo_agent.review.spent import spent_in, whole_history
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import begun_names

if TYPE_CHECKING:
    from crypto.pki.certificates import Credential, Trust
    from policies.plan.cost import Cost

ledger_app = typer.Typer(help="What the data set has spent.", no_args_is_help=True)


_ASK_SECONDS: Final = 30.0


class By(StrEnum):
    """What one line of `ledger show` stands for."""

    ENTRY = "entry"
    STUDY = "study"
    TENSOR = "tensor"


class ExportForm(StrEnum):
    """The formats of an export."""

    JSON = "json"
    CSV = "csv"
    HTML = "html"


@ledger_app.command("create")
def ledger_create(config: ConfigOption = DEFAULT) -> None:
    """Create the data set's ledger, once in its life. A lost ledger must be restored, never created again."""
    from crypto.pki.certificates import require_data_set

    settings = AgentConfig.load(config)
    policy = load_policy(settings.policy)
    require_data_set(settings.credential().certificate_pem, policy.data_set.id)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = StateFolder(settings.state).ledger
    data_set = policy.data_set
    Ledger.create(path, Genesis.of(policy))
    allowed = "public data, so no budget binds" if data_set.public else f"epsilon {policy.budget.epsilon:g} to spend"
    typer.echo(f"{path}: the ledger of {data_set.id}, {allowed}")


@ledger_app.command("show")
def ledger_show(
    config: ConfigOption = DEFAULT,
    *,
    by: Annotated[By, typer.Option(help="One line for each entry, study or tensor.")] = By.ENTRY,
    form: FormatOption = TABLE,
) -> None:
    """Show every entry, what is spent and what is left. A ledger that lost entries is refused, as by `verify`."""
    settings = AgentConfig.load(config)
    budget = load_policy(settings.policy).budget.epsilon
    with waiting("adding the ledger up"):
        _, genesis, entries = whole_history(StateFolder(settings.state).ledger, lambda: _trust(settings))
        spent, names = spent_in(genesis, entries), begun_names(StateFolder(settings.state))
        table = by_entry(entries, names) if by is By.ENTRY else None
        if table is None:
            table = by_part(summarise(genesis, entries), names, studies=by is By.STUDY)
        history = _history(genesis, entries, spent, budget) if form is JSON else {}
    if form is JSON:
        typer.echo(json.dumps({**history, "study_names": names}, indent=1, allow_nan=False))
        return
    table.title = f"Ledger of {genesis.data_set}"
    table.caption = _caption(genesis, spent, budget)
    print_whole(table)


@ledger_app.command("verify")
def ledger_verify(
    config: ConfigOption = DEFAULT,
    *,
    export: Annotated[Path | None, typer.Option(help="Check this export instead of the ledger here.")] = None,
    authority: Annotated[
        Path | None,
        typer.Option(help="The consortium's authority.pem: needed for an export; here by default the agent's."),
    ] = None,
    signature: Annotated[
        Path | None, typer.Option(help="The export's signature; by default the file beside it.")
    ] = None,
    lists: Annotated[
        Path | None,
        typer.Option(help="Revocation lists, archived ones too; by default crls.pem beside the authority's file."),
    ] = None,
    form: FormatOption = TABLE,
) -> None:
    """Check the chain of hashes from the first entry to the last, and that all cosigned and stamped heads are in it."""
    if export is not None:
        if authority is None:
            msg = "checking an export needs the consortium's certificate; give it with --authority authority.pem"
            raise ExportError(msg)
        with waiting("checking the export"):
            verified = _verified_export(export, authority, signature, lists)
        _say(verified, form)
        return
    settings = AgentConfig.load(config)
    files = StateFolder(settings.state)
    with waiting("checking the chain"):
        held, genesis, entries = whole_history(files.ledger, lambda: _trust(settings))
    debits = sum(isinstance(entry.event, Debit) for entry in entries)
    others = f" and {len(entries) - debits} other entries" if len(entries) > debits else ""
    witnesses = f", with what {', '.join(item.signer for item in held)} cosigned" if held else ""
    said = [f"{debits} debits{others}, the chain holds{witnesses}"]
    if files.stamps():
        from crypto.pki.certificates import Trust
        from silo_agent.oversight.stamping import stamped_heads

        known_by = authority or settings.authority
        stamps = stamped_heads(files, genesis, entries, Trust.load(known_by, lists or settings.crls))
        known = [one for one in stamps if one.at is not None]
        if known:
            newest = known[-1]
            said.append(
                f"up to entry {newest.head.sequence} timestamped by the authority on {newest.at:%Y-%m-%d %H:%M} UTC"
            )
        if len(known) < len(stamps):
            said.append(
                f"{len(stamps) - len(known)} timestamps are of a root that {known_by.name} does not hold, and are not"
                " checked; give a file that holds it with --authority"
            )
    _say(said, form)


def _say(holds: Sequence[str], form: OutputFormat) -> None:
    """Print what a check has found to hold. What does not hold is an error."""
    typer.echo(json.dumps({"holds": holds}, indent=1) if form is JSON else "\n".join(holds))


@ledger_app.command("export")
def ledger_export(
    out: Annotated[Path, typer.Option(help="File to write; its signature goes beside it.")],
    config: ConfigOption = DEFAULT,
    *,
    form: Annotated[ExportForm, typer.Option("--format", help="JSON and CSV are complete; HTML is a page for people.")],
) -> None:
    """Write the ledger and its cosignatures for others to read and check, signed with this silo's key."""
    from crypto.pki.certificates import require_data_set
    from silo_agent.oversight.recovery import checked
    from silo_agent.oversight.signing import SUFFIX, binding, is_vouched, sign_file
    from silo_agent.oversight.statement_page import statement_page

    settings = AgentConfig.load(config)
    credential = settings.credential()
    path = StateFolder(settings.state).ledger
    own = credential.identity.name
    kept = [item for item in binding(credential.trust, CosignatureFile(path).latest()) if item.checkpoint.silo == own]
    vouched = [item for item in kept if is_vouched(credential.trust, item)]
    held = checked(vouched, credential)
    if len(vouched) < len(kept):
        typer.echo(
            f"{len(kept) - len(vouched)} cosignatures nobody else could check, and they are left out: their root is no"
            f" longer in {settings.authority.name}, or their signer was revoked as of a time before them",
            err=True,
        )
    genesis, entries = read_history(path)
    require_data_set(credential.certificate_pem, genesis.data_set)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    budget = budget_in_force(entries) or load_policy(settings.policy).budget.epsilon
    made = Export(credential.identity.uri, at, budget, genesis, entries, tuple(held))
    require_cosigned(made)
    names = begun_names(StateFolder(settings.state))
    with waiting("writing the export"):
        match form:
            case ExportForm.JSON:
                content = to_json(made)
            case ExportForm.CSV:
                content = to_csv(made, names)
            case ExportForm.HTML:
                content = statement_page(made, summarise(genesis, entries), names)
    beside = out.with_name(out.name + SUFFIX)
    beside.unlink(missing_ok=True)
    durable.write_over(out, content)
    sign_file(credential, form.value, at, content).write(beside)
    _stamp(beside, settings, credential)
    typer.echo(f"{out} and {beside.name}: {len(entries)} entries, head {made.head.sequence} {made.head.hash}")


@ledger_app.command("note")
def ledger_note(
    kind: Annotated[NoticeKind, typer.Argument(help="What happened to the data.")],
    reference: Annotated[str, typer.Option(help="The hospital's case number; never a patient's name or number.")],
    config: ConfigOption = DEFAULT,
) -> None:
    """Record a withdrawal of patients or a refresh of the data. Stop the agent first."""
    from silo_agent.gate import open_ledger

    settings = AgentConfig.load(config)
    with open_ledger(StateFolder(settings.state).ledger, load_policy(settings.policy), settings.credential()) as ledger:
        entry = ledger.note(kind, reference)
    typer.echo(f"entry {entry.sequence}: {kind}, {reference}; spent and left stay as they are")


@ledger_app.command("recover")
def ledger_recover(
    signed_by: Annotated[str, typer.Option(help="Who answers for the recovery: name and office.")],
    config: ConfigOption = DEFAULT,
    *,
    cosigned: Annotated[
        Path | None,
        typer.Option("--cosigned", "--countersigned", help="File of what the coordinator and peers cosigned."),
    ] = None,
    charge_everything: Annotated[
        bool, typer.Option("--charge-everything", help="If nobody knows what was lost; uses up the budget for good.")
    ] = False,
) -> None:
    """Charge the entries that a ledger lost, signed with this silo's key. Stop the agent first."""
    from silo_agent.gate import open_ledger
    from silo_agent.oversight.recovery import checked, recover
    from silo_agent.oversight.signing import binding

    settings = AgentConfig.load(config)
    credential = settings.credential()
    path = StateFolder(settings.state).ledger
    kept = CosignatureFile(path)
    handed = checked(read_cosignatures(cosigned), credential) if cosigned else []
    known = binding(credential.trust, [*checked((), credential, kept.latest()), *handed])
    checkpoints = [item.checkpoint for item in known]
    with open_ledger(path, load_policy(settings.policy), credential) as ledger:
        before = ledger.spent()
        summed = _summed(settings, credential)
        entry = recover(ledger, credential, checkpoints, signed_by, summed=summed, charge_everything=charge_everything)
    kept.keep(handed)
    typer.echo(f"entry {entry.sequence}: spent was {shown(before)}, is {shown(entry.epsilon)}; {signed_by} answers")


@ledger_app.command("clear-fault")
def ledger_clear_fault(
    signed_by: Annotated[str, typer.Option(help="Who has looked into the fault and answers for it: name and office.")],
    config: ConfigOption = DEFAULT,
) -> None:
    """Let the silo take part again after a computation failed. Stop the agent first, and find the cause in its log."""
    from silo_agent.gate import open_ledger

    settings = AgentConfig.load(config)
    with open_ledger(StateFolder(settings.state).ledger, load_policy(settings.policy), settings.credential()) as ledger:
        entry = ledger.clear_fault(signed_by)
    if entry is None:
        typer.echo("the ledger notes no fault that is not cleared; nothing was written")
    else:
        typer.echo(f"entry {entry.sequence}: the faults before it are cleared; {signed_by} answers")


@ledger_app.command("rebind")
def ledger_rebind(
    signed_by: Annotated[str, typer.Option(help="Who answers for it: name and office.")],
    config: ConfigOption = DEFAULT,
    replaces: ReplacesOption = None,
) -> None:
    """Bind a ledger anew to what the policy says of the data, before any study has joined. Stop the agent first."""
    from silo_agent.oversight.rebinding import rebind
    from silo_agent.protocol.calls.client import remembered
    from silo_agent.protocol.ledgers.cosigning import cosignature

    settings = AgentConfig.load(config)
    with waiting("asking the coordinator what it and others remember of this ledger"):
        known = remembered(settings.coordinator, settings.credential(), _ASK_SECONDS, proxy=settings.proxy)
    entry = rebind(settings, signed_by, map(cosignature, known), replaces)
    if entry is None:
        typer.echo("the ledger is bound to what the policy says already; nothing was written")
    else:
        typer.echo(f"entry {entry.sequence}: the ledger is bound to the policy's data_set; {signed_by} answers")


def _trust(settings: AgentConfig) -> Trust:
    from crypto.pki.certificates import Trust

    return Trust.load(settings.authority, settings.crls)


def _summed(settings: AgentConfig, credential: Credential) -> tuple[Cost, ...]:
    """What this silo's releases cost that are in lists which it has signed, as far as its state remembers."""
    from policies.ledger.judging import cost_of
    from silo_agent.protocol.ledgers.known_studies import KnownStudies
    from silo_agent.storage.state import State

    if not StateFolder(settings.state).database.is_file():
        return ()
    state, silo = State(settings.state), credential.identity.name
    try:
        known = KnownStudies(state)
        running, over = known.studies_of(silo)
        return cost_of([*running, *over], known.summed(silo))
    finally:
        state.close()


def _stamp(signature: Path, settings: AgentConfig, credential: Credential) -> None:
    """Have a signature's file timestamped, if there is an issuing authority. Without a stamp the export stands too."""
    from crypto.errors import CryptoError
    from crypto.pki.joining.renewal import link_for
    from silo_agent.oversight.signing import stamp_beside
    from silo_agent.oversight.stamping import stamp

    beside = stamp_beside(signature)
    beside.unlink(missing_ok=True)
    link = link_for(credential, settings.authority_url, settings.proxy)
    if link is None:
        return
    try:
        reply, at = stamp(signature.read_bytes(), link(), credential.trust)
    except CryptoError as fault:
        typer.echo(f"no timestamp, so nothing will show later how old the signature is: {fault}", err=True)
    else:
        durable.write_over(beside, reply)
        typer.echo(f"{beside.name}: timestamped on {at:%Y-%m-%d %H:%M} UTC")


def _verified_export(path: Path, authority: Path, beside: Path | None, lists: Path | None) -> list[str]:
    """What holds of an export, in sentences. Raises what reading and checking it raises."""
    from silo_agent.oversight.audit import audit
    from silo_agent.oversight.signing import SUFFIX, read_signed, signer_of, stamp_beside, vouched
    from silo_agent.oversight.stamping import time_of

    said = list[str]()
    content, detached, trust = read_signed(path, authority, beside, lists=lists)
    signature = beside or path.with_name(path.name + SUFFIX)
    stamp = stamp_beside(signature)
    known = time_of(stamp.read_bytes(), signature.read_bytes(), trust) if stamp.exists() else None
    if known is not None:
        said.append(f"timestamped by the authority on {known:%Y-%m-%d %H:%M} UTC")
    if detached.kind != ExportForm.JSON:
        said.append(f"signed by {vouched(signer_of(trust, detached, content, known=known), detached.at)}")
        said.append("only a JSON export has what is needed to recompute hashes and epsilons")
        return said
    found = audit(content, detached, trust, known=known)
    export = found.export
    said.append(f"signed by {vouched(found.signer, export.at)}")
    said.append(f"{len(export.entries)} entries, the chain holds, head {export.head.sequence} {export.head.hash}")
    stated = f"stated {shown(export.spent)}, recomputed {shown(recomputed(export))}"
    said.append(f"epsilon {stated} at delta {export.genesis.delta:g}, budget {export.budget:g}")
    at = {entry.sequence: entry.at for entry in export.entries}
    for place, recovery, signer in found.recoveries:
        said.append(
            f"entry {place}: a recovery, signed by {vouched(signer, at[place])}; {recovery.responsible} answers"
        )
    for item, signer in found.cosigned:
        said.append(f"up to entry {item.checkpoint.head.sequence} cosigned by {vouched(signer, item.checkpoint.at)}")
    if not found.cosigned:
        said.append("nobody cosigned it: only the silo says that it is not an older copy")
    return said


def _caption(genesis: Genesis, spent: float, budget: float) -> str:
    if genesis.public:
        return f"spent {shown(spent)} at delta {genesis.delta:g}; the data are public, so no budget binds"
    return f"spent {spent:.4f} of {budget:g} at delta {genesis.delta:g}, left {max(0.0, budget - spent):.4f}"


def _history(genesis: Genesis, entries: tuple[Entry, ...], spent: float, budget: float) -> dict[str, object]:
    """Return the ledger for programs. For public data no budget binds, so `left` is unbounded too."""
    summary = summarise(genesis, entries)
    return {
        "data_set": genesis.data_set,
        "public": genesis.public,
        "delta": genesis.delta,
        "budget": budget,
        "spent": finite_or_word(spent),
        "left": UNBOUNDED if genesis.public else max(0.0, budget - spent),
        "studies": [
            {**_part(study.whole), "tensors": [_part(part) for part in study.tensors]} for study in summary.studies
        ],
        "tensors": [_part(part) for part in summary.tensors],
        "entries": [
            {
                "sequence": entry.sequence,
                "at": entry.at,
                **content_of(entry.event),
                "epsilon_after": finite_or_word(entry.epsilon),
            }
            for entry in entries
        ],
    }


def _part(part: SpentPart) -> dict[str, object]:
    epsilon = finite_or_word(part.epsilon)
    return {"name": part.name, "charges": part.charges, "releases": part.releases, "epsilon_alone": epsilon}
