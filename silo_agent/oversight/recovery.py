"""A signed recovery: the entries that a ledger lost are charged to it again, and a person answers for it.

Guarantees: the charge is at least what the lost entries cost (`policies.ledger.cosign.gap`), and every release in a
list of survivors that this silo has signed is charged afterwards. If nobody knows what was lost, the budget is used up
for good, and only if a person says so. The entry is signed with the silo's own key, and the signature is checked before
it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crypto.pki.certificates import Credential
from policies.accounting import totals
from policies.errors import CosignError
from policies.ledger.chain import Entry
from policies.ledger.cosign import Checkpoint, Cosignature, gap
from policies.ledger.events import EXHAUSTED, Recovery, recovery_message
from policies.ledger.ledger import Ledger
from policies.plan.cost import Cost
from silo_agent.oversight.signing import cosigner_of, held_by


def checked(
    handed: Iterable[Cosignature], credential: Credential, kept: Iterable[Cosignature] = ()
) -> list[Cosignature]:
    """Return the cosignatures of this silo's ledger, each with its true signer. Raises `CryptoError`, `CosignError`.

    A cosignature whose certificate has expired since counts too, because it can only increase the charge. So does one
    that this silo `kept`, whatever became of its signer.
    """
    trust, silo = credential.trust, credential.identity.name
    cosignatures = [*(held_by(trust, item) for item in kept), *(cosigner_of(trust, item)[0] for item in handed)]
    others = {item.checkpoint.silo for item in cosignatures} - {silo}
    if others:
        msg = f"these cosignatures are of the ledger of {', '.join(sorted(others))}; give those of {silo}"
        raise CosignError(msg)
    return cosignatures


def recover(
    ledger: Ledger,
    credential: Credential,
    checkpoints: Iterable[Checkpoint],
    responsible: str,
    *,
    summed: Iterable[Cost] = (),
    charge_everything: bool = False,
) -> Entry:
    """Charge what these cosigned checkpoints have and the ledger lacks, and return the entry.

    `summed` is what this silo's releases in signed lists of survivors cost. It is charged whatever became of the heads,
    also if the key that signed them was revoked as stolen. Set `charge_everything` if nobody can say what was lost.
    Raises `CosignError` if nothing is missing or a checkpoint is about another data set, and `LedgerError` if the entry
    cannot be written.
    """
    lost = _lost(ledger, checkpoints)
    costs = gap(ledger.genesis, ledger.history(), lost) if lost else ()
    costs = totals.merged((*costs, *totals.beyond(summed, (*ledger.costs(), *costs))))
    if charge_everything:
        costs = totals.merged((*costs, EXHAUSTED))
    if not lost and not costs:
        msg = (
            "there is nothing to recover: the ledger contains every cosigned entry, or was charged for it, and every"
            " release in a list that this silo has signed. If you know that entries were lost, look for a newer copy of"
            " the ledger and for cosignatures (--cosigned); if there are none, --charge-everything uses up the budget"
        )
        raise CosignError(msg)
    made_up = [item for item in lost if not ledger.genesis.public and any(cost.noise == 0 for cost in item.totals)]
    if made_up:
        named = ", ".join(f"{item.head.sequence} of {item.at}" for item in made_up)
        msg = (
            f"the cosigned head {named} counts releases without noise, and no ledger of private data has any: somebody"
            " else has signed it with this silo's key. Have the root revoke that key as of the theft, get the new"
            " revocation lists and recover again: what was signed since then counts no more (docs/ledger.md)"
        )
        raise CosignError(msg)
    covers = tuple(item.head for item in lost)
    message = recovery_message(ledger.genesis.data_set, ledger.head, covers, costs, responsible)
    signature, signer = credential.sign(message), credential.identity.uri
    credential.trust.verify(credential.certificate_pem, message, signature)
    certificate = credential.certificate_pem.decode("ascii")
    return ledger.recover(Recovery(covers, costs, responsible, signer, certificate, signature.hex()), lost)


def _lost(ledger: Ledger, checkpoints: Iterable[Checkpoint]) -> Sequence[Checkpoint]:
    held = list(checkpoints)
    foreign = {item.data_set for item in held} - {ledger.genesis.data_set}
    if foreign:
        msg = (
            f"a cosigned head belongs to {', '.join(sorted(foreign))}, but the ledger to {ledger.genesis.data_set};"
            " give the cosignatures of this ledger"
        )
        raise CosignError(msg)
    by_head = {item.head: item for item in ledger.missing(held)}
    return tuple(by_head.values())
