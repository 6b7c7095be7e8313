"""Binds a ledger anew to what the policy says of the data, while nothing was charged and no study has joined.

Guarantees: nobody else remembers a later entry of this ledger. Whoever calls asks the coordinator for what it and other
silos have signed. A ledger that lacks any of it is refused, because a ledger that lost its entries looks unused, too.
Before the first charge the gate needs both signatures on a head that contains the new entry (`silo_agent.gate`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crypto.pki.certificates import require_data_set
from policies.documents.policy import load_policy
from policies.ledger.chain import Entry, Genesis, bound
from policies.ledger.cosign import Cosignature, CosignatureFile, check
from policies.ledger.ledger import Ledger, read_history
from silo_agent.config import AgentConfig
from silo_agent.oversight.approval import put_into_force, require_succession
from silo_agent.oversight.signing import binding, held_by, verifier
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder


def rebind(
    config: AgentConfig, responsible: str, known: Iterable[Cosignature], replaces: Path | None = None
) -> Entry | None:
    """Bind the agent's ledger to its policy, and put the policy into force if one was. None if it is bound already.

    `known` is what the coordinator and other silos remember now, not yet checked; `replaces` the policy in force, if
    the agent's state has lost it. Raises `StateError` if a study has joined, `LedgerRolledBackError` if others remember
    more, `LedgerMismatchError` if something was charged, `ApprovalError`, `DocumentError`, `CryptoError`,
    `CosignError`.
    """
    credential, files, policy = config.credential(), StateFolder(config.state), load_policy(config.policy)
    require_data_set(credential.certificate_pem, policy.data_set.id)
    joined = [folder.path.name[:12] for folder in files.studies()]
    if joined:
        msg = (
            f"a study has joined ({', '.join(joined)}), and its patients were drawn by what the ledger is bound to; put"
            " the policy's data_set back as it was"
        )
        raise StateError(msg)
    now = bound(*read_history(files.ledger))
    with Ledger.open(files.ledger, now, budget_epsilon=policy.budget.epsilon) as ledger:
        if ledger.policy is not None:  # before anything is written
            require_succession(ledger, policy, config.policy, config.state, credential.trust, replaces, rebound=True)
        kept, verify = CosignatureFile(files.ledger), verifier(credential.trust)
        kept.keep([check(item, verify) for item in known])
        # As at each start: what was signed before counts, too, and what a stolen key signed does not.
        for item in binding(credential.trust, [held_by(credential.trust, one) for one in kept.latest()]):
            ledger.require(item.checkpoint.head)
        entry = ledger.rebind(Genesis.of(policy), responsible)
        if ledger.policy is not None:
            put_into_force(ledger, config.policy, config.state, credential.trust, replaces)
    return entry
