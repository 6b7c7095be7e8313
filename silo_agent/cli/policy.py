"""`fedward-silo policy`: check a policy, explain it, compare two, sign one, put it into force, the schema for editors.

Only `reload` changes anything, and the ledger records it. approval.py decides which policy may come into force. Exit
codes: 1 for an error, 2 for a wrong call, and 3 if `check --study` refuses or if `diff` finds something looser or
something that the ledger forbids, so that a script can ask for a second look.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

import policies
from common import durable
from policies.decision import decide
from policies.documents.document import DocumentError
from policies.documents.policy import Policy, load_policy
from policies.documents.schema import policy_schema
from policies.documents.study import Study, load_study
from policies.documents.words.compare import Change, Difference, differences
from policies.documents.words.explain import explain
from policies.plan import quorum
from policies.refusals import Refused
from silo_agent.cli.options import (
    DEFAULT,
    JSON,
    TABLE,
    ConfigOption,
    FormatOption,
    ReplacesOption,
    on_terminal,
    waiting,
)
from silo_agent.config import AgentConfig
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

policy_app = typer.Typer(help="What this hospital allows.", no_args_is_help=True)
ATTENTION = 3
"""Exit code if a person should look: a study is refused, or a policy becomes looser."""
_WIDTH = 100
_PAIR = 2
_POLLS = "polls: 5                    # words a day to each author about studies that are not created; 0 for none\n"
_TEMPLATE = Path(policies.__file__).parent / "samples" / "three-hospitals.yaml"
PolicyFile = Annotated[Path, typer.Argument(help="policy.yaml")]


@policy_app.command("new")
def policy_new(
    *,
    data_set: Annotated[
        str, typer.Option(prompt="Name of the data set (a-z, 0-9, hyphens)", help="data_set.id, as in the certificate.")
    ],
    contact: Annotated[str, typer.Option(prompt="Who decides about studies (an address)", help="contact")],
    patient: Annotated[str, typer.Option(prompt="Column that says whose record it is", help="data_set.identified_by")],
    hospitals: Annotated[
        int, typer.Option(min=2, prompt="How many hospitals are in a study", help="This one included; sets min_silos.")
    ],
    epsilon: Annotated[
        float, typer.Option(prompt="Epsilon of all studies together (4 is usual)", help="budget.epsilon")
    ],
    years: Annotated[int, typer.Option(min=1, max=10, help="Until the policy expires.")] = 2,
    file: Annotated[
        Path | None,
        typer.Option(help="The hospital's data, CSV or Parquet: how they are written is proposed, for you to confirm."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take all that --file proposes; read it first.")] = False,
    out: Annotated[Path, typer.Option(help="New file for the policy; an existing one is never overwritten.")] = Path(
        "policy.yaml"
    ),
) -> None:
    """Write a commented policy from five answers. One study may use half the epsilon.

    Of two hospitals each adds its whole noise, because there is nobody to share it with.
    With --file it also says how that file is written, as far as it shows: delimiter, encoding, decimal comma, dates,
    and marks for "not recorded". The output quotes what twenty patients or more have, and must stay in the hospital.
    """
    if out.exists():
        msg = f"{out} exists already; give another --out, or remove it"
        raise StateError(msg)
    parted, spelling = ({}, "") if file is None else _seen_in(file, patient, yes=yes)
    today = datetime.now(UTC).date()
    answered = {
        **parted,
        "contact": json.dumps(contact),
        "  id": json.dumps(data_set),
        "  identified_by": json.dumps([patient]),
        "  epsilon": repr(epsilon),
        "  expires": date(today.year + years, today.month, min(today.day, 28)).isoformat(),
        "min_silos": str(quorum.least(hospitals, colluders=1)),
        "noise_modes": "[local, distributed]" if hospitals > _PAIR else "[local]",
        "  study_epsilon": repr(epsilon / 2),
        "  round_epsilon": repr(epsilon / 2),
    }
    head = f"# Written by `fedward-silo policy new` on {today}. Read every line: it binds this hospital.\n"
    body = _TEMPLATE.read_text(encoding="utf-8").partition("version:")
    text = head + body[1] + _filled_in(body[2], answered) + _POLLS + spelling
    try:
        durable.write_new(out, text.encode())
    except FileExistsError:
        msg = f"{out} exists already; give another --out, or remove it"
        raise StateError(msg) from None
    try:
        policy = load_policy(out)
    except DocumentError:
        out.unlink()
        raise
    typer.echo(f"{out}: a complete policy, digest {policy.digest}")
    typer.echo(f"Read it, then see what it means: fedward-silo policy explain {out}")


def _seen_in(file: Path, patient: str, *, yes: bool) -> tuple[dict[str, str], str]:
    """What a person confirms of what a file shows: the field `data_set.file`, and the part `spelling`."""
    from silo_agent.data.profiling.proposing import as_yaml, look

    with waiting("looking at the file"):
        found = look(file, patient)
    proposed = (*found.file, *found.spelling)
    said = [f"{one.field}: {json.dumps(one.value, ensure_ascii=False)} ({one.why})" for one in proposed]
    if said and not yes and not on_terminal():
        nobody = "nobody is here to confirm what the file shows; run it on a terminal, or give --yes"
        raise StateError("\n".join([*said, nobody]))
    typer.echo(f"{file}: {found.rows} rows{'. A policy can say of it:' if said else ', written as studies expect it'}")
    kept = []
    for one, text in zip(proposed, said, strict=True):
        if yes:
            typer.echo(f"- {text}")
        if yes or typer.confirm(text, default=True):
            kept.append(one)
    for remark in found.remarks:
        typer.echo(f"look at {remark}")
    parted: dict[str, Any] = {"delimiter": ",", "columns": []}
    parted |= {one.field.rpartition(".")[2]: one.value for one in kept if one in found.file}
    written = ", ".join(f"{name}: {json.dumps(value)}" for name, value in parted.items())
    return {"  file": f"{{{written}}}"}, as_yaml([one for one in kept if one in found.spelling], found.remarks)


def _filled_in(sample: str, answered: Mapping[str, str]) -> str:
    """The sample with the answers in the place of its own values; comments stay. Every field must be in it once."""
    for field, answer in answered.items():
        found = list(re.finditer(rf"^{field}: (\S+(?: \S+)*?)(?=$|\s+#)", sample, re.MULTILINE))
        if len(found) != 1:
            msg = f"the sample of a policy has the field {field.strip()} {len(found)} times; report this to FedWard"
            raise StateError(msg)
        sample = sample[: found[0].start(1)] + answer + sample[found[0].end(1) :]
    return sample


@policy_app.command("check")
def policy_check(
    file: PolicyFile,
    study: Annotated[Path | None, typer.Option(help="A study to decide on, with the whole budget left.")] = None,
    silo: Annotated[str | None, typer.Option(help="This silo's name; by default the study's first silo.")] = None,
    *,
    form: FormatOption = TABLE,
) -> None:
    """Say whether the policy can be used and, with --study, whether the study would be taken."""
    from silo_agent.oversight.approval import no_approvers

    policy = load_policy(file)
    with waiting("deciding on the study"):
        wanted, refusal = (None, None) if study is None else _considered(policy, study, silo)
    if form is JSON:
        reason = None if refusal is None else {"reason": refusal.reason, "text": refusal.text}
        reasons = [{"reason": label, "text": text} for label, text in (() if refusal is None else refusal.reasons)]
        document = {"digest": policy.digest, "study": wanted and wanted.digest, "refused": reason, "reasons": reasons}
        typer.echo(json.dumps(document, indent=1))
    else:
        typer.echo(f"{file}: a complete policy, digest {policy.digest}")
        if datetime.now(UTC).date() > policy.budget.expires:
            typer.echo(f"It expired on {policy.budget.expires}: nothing will be charged.")
        if fault := no_approvers(policy):
            typer.echo(f"It can stay in force and cannot come into force: {fault}.")
        if study is not None:
            name = study if wanted is None else wanted.name
            typer.echo(f"{name}: {'would be taken' if refusal is None else f'refused{listed(refusal)}'}")
    if refusal is not None:
        raise typer.Exit(ATTENTION)


@policy_app.command("explain")
def policy_explain(file: PolicyFile) -> None:
    """Say in plain words, on one page, what the policy allows and what its epsilon means."""
    policy = load_policy(file)
    for heading, text in explain(policy):
        typer.echo(textwrap.fill(f"{heading.upper()}. {text}", _WIDTH) + "\n")
    typer.echo(f"Digest {policy.digest}")


@policy_app.command("diff")
def policy_diff(
    old: Annotated[Path, typer.Argument(help="The policy before.")],
    new: Annotated[Path, typer.Argument(help="The policy after.")],
    *,
    form: FormatOption = TABLE,
) -> None:
    """Say what becomes looser and what stricter. Exit code 3 if anything becomes looser or the ledger forbids it."""
    found = differences(load_policy(old), load_policy(new))
    if form is JSON:
        typer.echo(json.dumps([{"field": d.field, "change": d.change, "text": d.text} for d in found], indent=1))
    else:
        typer.echo("\n".join(_lines(found)) or "The policies mean the same.")
    if any(difference.change in (Change.LOOSER, Change.FIXED) for difference in found):
        raise typer.Exit(ATTENTION)


@policy_app.command("schema")
def policy_schema_command() -> None:
    """Print the JSON Schema of a policy, for an editor that completes and checks YAML."""
    typer.echo(policy_schema(), nl=False)


@policy_app.command("sign")
def policy_sign(
    file: PolicyFile,
    key: Annotated[Path, typer.Option(help="Private key of a person's certificate, from `enrol --role approver`.")],
    certificate: Annotated[Path | None, typer.Option(help="By default certificate.pem beside the key.")] = None,
    authority: Annotated[Path | None, typer.Option(help="By default authority.pem beside the key.")] = None,
) -> None:
    """Sign a policy after reading it. The signature covers its content, not the file's comments."""
    from crypto.pki.certificates import Credential
    from silo_agent.oversight.approval import sign_policy

    policy = load_policy(file)
    home = key.parent
    credential = Credential.load(certificate or home / "certificate.pem", key, authority or home / "authority.pem")
    written = sign_policy(policy, file, credential)
    typer.echo(f"{written}: {credential.identity} signed policy {policy.digest}")
    if policy.approvers is not None and credential.identity.uri not in policy.approvers:
        typer.echo("This policy does not name you; the signature counts only if the policy in force does.")


@policy_app.command("reload")
def policy_reload(
    config: ConfigOption = DEFAULT,
    replaces: ReplacesOption = None,
) -> None:
    """Put the policy of agent.yaml into force, with an entry in the ledger. Stop the agent first."""
    from silo_agent.gate import open_ledger
    from silo_agent.oversight.approval import predecessor_of, put_into_force

    settings = AgentConfig.load(config)
    policy = load_policy(settings.policy)
    credential = settings.credential()
    with open_ledger(StateFolder(settings.state).ledger, policy, credential) as ledger:
        if ledger.policy == policy.digest:
            typer.echo(f"Policy {policy.digest} is in force already.")
            return
        before = predecessor_of(ledger, settings.state, policy, replaces)
        put_into_force(ledger, settings.policy, settings.state, credential.trust, replaces)
        shown = ["The first policy of this ledger."] if before is None else _lines(differences(before, policy))
        typer.echo("\n".join(shown))
        typer.echo(f"Policy {policy.digest} is in force, ledger entry {ledger.head.sequence}.")


def refused(policy: Policy, study: Study, silo: str) -> Refused | None:
    """Return why the study's first round would be refused with nothing spent, or None if it would be taken."""
    try:
        decide(policy, study, silo=silo, roster_size=None, spent_costs=(), round=0, attempt=1, charged_attempts=0)
    except Refused as refusal:
        return refusal
    return None


def _considered(policy: Policy, file: Path, silo: str | None) -> tuple[Study | None, Refused | None]:
    """Return the study (None if its text alone is refused), and why it would be refused."""
    try:
        study = load_study(file)
    except Refused as refusal:
        return None, refusal
    return study, refused(policy, study, silo or study.silos[0])


def listed(refusal: Refused) -> str:
    """The reasons of a refusal, to be put behind a word: one in the line, several below it."""
    if len(refusal.reasons) == 1:
        return f": {refusal}"
    return "\n- ".join(["", *(f"{label}: {text}" for label, text in refusal.reasons)])


def _lines(found: tuple[Difference, ...]) -> list[str]:
    headings = {
        Change.LOOSER: "LOOSER",
        Change.FIXED: "NOT POSSIBLE",
        Change.STRICTER: "stricter",
        Change.NEUTRAL: "neither",
    }
    return [f"{headings[difference.change]:12}  {difference.field}: {difference.text}" for difference in found]
