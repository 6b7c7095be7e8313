"""How a policy comes into force: it is signed if necessary, compared with the previous one, and noted in the ledger.

Guarantees: a policy that names approvers comes into force only with valid signatures of two of them. The policy that
replaces it needs two of the same signatures too, whatever it says about approvers, so two people must also sign to drop
the rule. The ledger, not a file, says which policy is in force, and charges under no other (ledger.py). A signature
must be valid when the policy comes into force; if its certificate expires later, the policy stays in force. The fields
of the data set never change, whoever signs, because the budget would then belong to another data set. Signatures lie
beside the policy as `<policy>.<name>.sig`. Left to others: who may write the ledger's file, and that the first policy
is the right one.

Who signs has the role approver, which has no right at the coordinator. An operator's signature counts for one thing
alone: to replace a policy that is in force and names that operator, as policies of versions up to 0.6 do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from crypto.authorship import SignatureBeside
from crypto.canonical import canonical
from crypto.errors import CryptoError
from crypto.pki.certificates import Credential, Trust
from crypto.pki.identity import Role, role_of
from policies.documents.document import DocumentError
from policies.documents.policy import Policy, load_policy
from policies.documents.predecessor import load_predecessor
from policies.errors import PolicyError
from policies.ledger.chain import Entry
from policies.ledger.events import InForce
from policies.ledger.ledger import Ledger, read_history
from silo_agent.errors import SiloError
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

NEEDED: Final = 2
"""Number of signatures that are needed, by different people."""
_SIGN: Final = frozenset({Role.APPROVER, Role.OPERATOR})


class ApprovalError(SiloError, PolicyError):
    """A policy may not come into force: a signature or the policy before it is missing, or the data set is another."""


def approval_message(policy: Policy) -> bytes:
    """Return the bytes that an approver signs."""
    return canonical("policy approval", policy.digest)


def sign_policy(policy: Policy, path: Path, credential: Credential) -> Path:
    """Write the credential's signature beside the policy and return its path. Raises `ApprovalError`.

    Any approver may sign. The signature counts only if a policy names that person.
    """
    identity = credential.identity
    if identity.role not in _SIGN:
        msg = f"{identity} may sign no policy; sign with a certificate of the role approver"
        raise ApprovalError(msg)
    target = path.with_name(f"{path.name}.{identity.name}.sig")
    write_whole(target, SignatureBeside.made(credential, approval_message(policy)).text.encode())
    return target


def signers(policy: Policy, path: Path, trust: Trust) -> dict[str, str]:
    """Return who has signed this policy, by URI. A signature that does not count is there by file, with its fault."""
    faults: dict[str, str] = {}
    for file in sorted(path.parent.glob(f"{path.name}.*.sig")):
        try:
            given = SignatureBeside.read(file)
            faults[trust.verify(given.certificate, approval_message(policy), given.signature, role=_SIGN).uri] = ""
        except (CryptoError, OSError) as error:
            faults[file.name] = str(error) if isinstance(error, CryptoError) else "cannot be read; sign again"
    return faults


def no_approvers(policy: Policy) -> str:
    """Return why nobody can put this policy into force, if its approvers are operators; else nothing."""
    operators = [person for person in policy.approvers or () if role_of(person) is Role.OPERATOR]
    if not operators:
        return ""
    return (
        f"the policy's approvers name {', '.join(operators)}: an operator runs the service and approves nothing; name"
        " people by a certificate of the role approver (fedward://approver/<name>)"
    )


def require_approved(policy: Policy, path: Path, trust: Trust, predecessor: Policy | None) -> None:
    """Return if the policy, and the one that it replaces, have the signatures that they ask for.

    Raises `ApprovalError`, which names who may sign and which signatures do not count.
    """
    if fault := no_approvers(policy):
        raise ApprovalError(fault)
    given = signers(policy, path, trust)
    for asking, words in ((policy, "the policy asks"), (predecessor, "the policy in force asks")):
        if asking is None or asking.approvers is None:
            continue
        counted = [person for person in asking.approvers if given.get(person) == ""]
        if len(counted) < NEEDED:
            faults = "".join(f"; {name}: {fault}" for name, fault in given.items() if fault)
            msg = (
                f"{words} for {NEEDED} signatures of {', '.join(asking.approvers)}, but has {len(counted)}"
                f" (fedward-silo policy sign){faults}"
            )
            raise ApprovalError(msg)


def require_same_data_set(policy: Policy, predecessor: Policy | None, *, rebound: bool = False) -> None:
    """Return if both policies have the same data set. Raises `ApprovalError`, which names the field that differs.

    The ledger is bound to these fields too, but a ledger that is older than a field does not have it. If it was
    `rebound` since the predecessor came into force, it alone says what draws the cohorts.
    """
    if predecessor is None:
        return
    wanted = policy.data_set.model_dump(mode="json")
    for field, before in predecessor.data_set.model_dump(mode="json").items():
        after = wanted[field]
        if before != after and not (rebound and field in _DRAWS_COHORTS):
            msg = (
                f"the policy's data_set.{field} is {after}, but in the policy in force it is {before}; it is fixed for"
                " the life of the data set, so put it back"
            )
            raise ApprovalError(msg)


def predecessor_of(ledger: Ledger, state: Path, successor: Policy, replaces: Path | None = None) -> Policy | None:
    """Return the policy that is in force according to the ledger, or None if none was put into force yet.

    It is read from the agent's state, or from `replaces`. Fields that its version did not have are the successor's.
    Raises `ApprovalError` if neither is that policy.
    """
    digest = ledger.policy
    if digest is None:
        return None
    try:
        policy, digest_read = load_predecessor(replaces or _kept(state, digest), successor)
    except DocumentError as error:
        msg = f"policy {digest[:12]} is in force but cannot be read ({error}); give its file with --replaces"
        raise ApprovalError(msg) from None
    if digest_read != digest:
        msg = f"policy {digest[:12]} is in force, but the given file is {digest_read[:12]}; give the right file"
        raise ApprovalError(msg)
    return policy


def require_succession(  # noqa: PLR0917  # as `put_into_force`, which it is the first half of
    ledger: Ledger, policy: Policy, path: Path, state: Path, trust: Trust, replaces: Path | None, *, rebound: bool
) -> None:
    """Return if this policy, read from `path`, may come into force in a ledger. Raises `ApprovalError`.

    `rebound`: the ledger is bound, or is to be bound, to what this policy says of the data.
    """
    if ledger.policy != policy.digest:
        predecessor = predecessor_of(ledger, state, policy, replaces)
        require_same_data_set(policy, predecessor, rebound=rebound)
        require_approved(policy, path, trust, predecessor)


def put_into_force(ledger: Ledger, path: Path, state: Path, trust: Trust, replaces: Path | None = None) -> Policy:
    """Put the policy in this file into force, durably, and return it. Doing so again changes nothing.

    Raises `ApprovalError`, `DocumentError` and what `Ledger.put_into_force` raises. Nothing has changed then.
    """
    policy = load_policy(path)
    require_succession(ledger, policy, path, state, trust, replaces, rebound=ledger.rebound)
    # The policy is stored first: if nobody can read the policy that a ledger names, it cannot be replaced.
    write_whole(_kept(state, policy.digest), policy.canonical())
    ledger.put_into_force(policy.digest, policy.budget.epsilon)
    return policy


def start_under(ledger: Ledger, path: Path, state: Path, trust: Trust) -> Policy:
    """Put a ledger's first policy into force and return it. Any other comes into force only by `policy reload`.

    Raises `ApprovalError` if the file holds another policy than the one in force, and what `put_into_force` raises.
    """
    if ledger.policy is not None:
        _require_same(load_policy(path), ledger.policy, path)
    return put_into_force(ledger, path, state, trust)


def policy_in_force(ledger: Path, path: Path) -> Policy:
    """Return the policy in this file, if the ledger in the other one says that it is in force.

    For commands that do what the policy decides without opening the ledger. Raises `ApprovalError` if another policy or
    none is in force, `DocumentError`, and what `read_history` raises.
    """
    policy, (_, entries) = load_policy(path), read_history(ledger)
    in_force = _last(entries)
    if in_force is None:
        msg = f"no policy was put into force yet; put {path.name} into force with `fedward-silo policy reload`"
        raise ApprovalError(msg)
    _require_same(policy, in_force, path)
    return policy


def policy_of_agent(ledger: Path, path: Path) -> Policy:
    """Return the policy under which an agent with this ledger would read its data now.

    It is the one in the file, because an agent refuses any other than the one in force, and puts the first into force
    by itself. Raises `ApprovalError` if another one is in force, `DocumentError`, and what `read_history` raises.
    """
    policy = load_policy(path)
    in_force = _last(read_history(ledger)[1]) if ledger.exists() else None
    if in_force is not None:
        _require_same(policy, in_force, path)
    return policy


def _last(entries: Iterable[Entry]) -> str | None:
    """Digest of the policy that was put into force last."""
    return next((entry.event.policy for entry in reversed([*entries]) if isinstance(entry.event, InForce)), None)


def _require_same(policy: Policy, in_force: str, path: Path) -> None:
    if policy.digest != in_force:
        msg = (
            f"{path.name} is not the policy in force ({in_force[:12]}); compare the two with `fedward-silo"
            " policy diff`, then put the new one into force with `fedward-silo policy reload`, or put the old file back"
        )
        raise ApprovalError(msg)


_DRAWS_COHORTS: Final = frozenset({"unit", "identified_by", "holdout", "file"})
"""Fields of `data_set` that an entry of the ledger may change before anything was charged."""


def _kept(state: Path, digest: str) -> Path:
    return StateFolder(state).policy(digest)
