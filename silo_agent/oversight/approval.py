"""How a policy comes into force: signed where it has to be, compared with the one before, noted in the ledger.

Guarantees: a policy that names approvers comes into force only with valid signatures of two of them, and so does the
policy that replaces it, whatever that one says about approvers: dropping the rule needs two signatures too. The policy
in force is the ledger's word, not a file's, and the ledger charges under no other (ledger.py). A signature is good when
the policy comes into force; a certificate that runs out later takes nothing back. What a policy says of its data set
never changes, whoever signs: the budget would be another one's. Signatures lie beside the policy as
`<policy>.<name>.sig`. Left to others: who may write the ledger's file, and that the first policy is the right one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from crypto.canonical import canonical
from crypto.errors import CryptoError
from crypto.pki.certificates import Credential, Trust
from crypto.pki.identity import Role
from policies.documents.document import DocumentError
from policies.documents.policy import Policy, load_policy
from policies.documents.predecessor import load_predecessor
from policies.errors import PolicyError
from policies.ledger.ledger import Ledger
from silo_agent.errors import SiloError
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

NEEDED: Final = 2
"""Signatures of different people."""
_MAX_SIGNATURE: Final = 1 << 16


class ApprovalError(SiloError, PolicyError):
    """A policy may not come into force: a signature or the policy before it is missing, or the data set is another."""


def approval_message(policy: Policy) -> bytes:
    """What an approver signs."""
    return canonical("policy approval", policy.digest)


def sign_policy(policy: Policy, path: Path, credential: Credential) -> Path:
    """Write the credential's signature beside the policy; returns its path. Raises `ApprovalError`.

    Anybody with a person's certificate may sign: whether it counts is for those to say whom the policies name.
    """
    identity = credential.identity
    if identity.role is not Role.OPERATOR:
        msg = f"{identity} is no person; sign with a certificate of the role operator"
        raise ApprovalError(msg)
    signature = {
        "certificate": credential.certificate_pem.decode("ascii"),
        "signature": credential.sign(approval_message(policy)).hex(),
    }
    target = path.with_name(f"{path.name}.{identity.name}.sig")
    write_whole(target, (json.dumps(signature, indent=1) + "\n").encode())
    return target


def signers(policy: Policy, path: Path, trust: Trust) -> dict[str, str]:
    """Who has signed this policy, by URI; of signatures that do not count, the file and what is wrong with it."""
    found: dict[str, str] = {}
    for file in sorted(path.parent.glob(f"{path.name}.*.sig")):
        try:
            with file.open("rb") as opened:
                content = json.loads(opened.read(_MAX_SIGNATURE))
            certificate, signature = content["certificate"].encode(), bytes.fromhex(content["signature"])
            found[trust.verify(certificate, approval_message(policy), signature, role=Role.OPERATOR).uri] = ""
        except (CryptoError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            found[file.name] = str(error) if isinstance(error, CryptoError) else "cannot be read; sign again"
    return found


def require_approved(policy: Policy, path: Path, trust: Trust, predecessor: Policy | None) -> None:
    """Return where the policy, and the one that it replaces, have the signatures that they ask for.

    Raises `ApprovalError` naming who may sign and which signatures do not count.
    """
    given = signers(policy, path, trust)
    for asking, words in ((policy, "the policy asks"), (predecessor, "the policy in force asks")):
        if asking is None or asking.approvers is None:
            continue
        counted = [person for person in asking.approvers if given.get(person) == ""]
        if len(counted) < NEEDED:
            faults = "".join(f"; {name}: {fault}" for name, fault in given.items() if fault)
            msg = (
                f"{words} for {NEEDED} signatures of {', '.join(asking.approvers)}, and has {len(counted)}"
                f" (fedward-silo policy sign){faults}"
            )
            raise ApprovalError(msg)


def require_same_data_set(policy: Policy, predecessor: Policy | None) -> None:
    """Return where both policies are of one data set, told apart alike. Raises `ApprovalError` naming the field.

    The ledger is bound to these fields too, but one that is older than a field cannot say it.
    """
    if predecessor is None:
        return
    wanted = policy.data_set.model_dump(mode="json")
    for field, before in predecessor.data_set.model_dump(mode="json").items():
        after = wanted[field]
        if before != after:
            msg = (
                f"the policy's data_set.{field} is {after}, and in the policy in force it is {before}; it is fixed for"
                " the life of the data set, so put it back"
            )
            raise ApprovalError(msg)


def predecessor_of(ledger: Ledger, state: Path, successor: Policy, replaces: Path | None = None) -> Policy | None:
    """The policy in force by the ledger's word; None where none was put into force yet.

    It is read from the agent's state, or from `replaces`; what its version could not say is the successor's. Raises
    `ApprovalError` where neither is that policy.
    """
    digest = ledger.policy
    if digest is None:
        return None
    try:
        policy, found = load_predecessor(replaces or _kept(state, digest), successor)
    except DocumentError as error:
        msg = f"policy {digest[:12]} is in force and cannot be read ({error}); give its file by --replaces"
        raise ApprovalError(msg) from None
    if found != digest:
        msg = f"policy {digest[:12]} is in force, the one given is {found[:12]}; give the right file"
        raise ApprovalError(msg)
    return policy


def put_into_force(ledger: Ledger, path: Path, state: Path, trust: Trust, replaces: Path | None = None) -> Policy:
    """Put the policy in this file into force, durably; again does nothing. Returns it.

    Raises `ApprovalError`, `DocumentError` and what `Ledger.put_into_force` raises; then nothing has changed.
    """
    policy = load_policy(path)
    if ledger.policy != policy.digest:
        predecessor = predecessor_of(ledger, state, policy, replaces)
        require_same_data_set(policy, predecessor)
        require_approved(policy, path, trust, predecessor)
    # Kept first: a ledger that names a policy nobody can read could not be led to another one.
    write_whole(_kept(state, policy.digest), policy.canonical())
    ledger.put_into_force(policy.digest, policy.budget.epsilon)
    return policy


def start_under(ledger: Ledger, path: Path, state: Path, trust: Trust) -> Policy:
    """Put a ledger's first policy into force; any other only comes into force by `policy reload`. Returns it.

    Raises `ApprovalError` where the file holds another policy than the one in force, and what `put_into_force` raises.
    """
    if ledger.policy not in (None, load_policy(path).digest):
        msg = (
            f"{path.name} is not the policy in force ({str(ledger.policy)[:12]}): compare them with `fedward-silo"
            " policy diff`, then put it into force with `fedward-silo policy reload`, or put the old file back"
        )
        raise ApprovalError(msg)
    return put_into_force(ledger, path, state, trust)


def _kept(state: Path, digest: str) -> Path:
    return StateFolder(state).policy(digest)
