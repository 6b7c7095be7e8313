"""A signed recovery: what a ledger lost is charged to it again, and a person answers for it.

Guarantees: the charge is at least what the lost entries cost (`policies.countersign.gap`); where nobody knows, the
budget is over for good. The entry is signed with the silo's own key, and the signature is checked before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crypto.certificates import Credential, Trust
from policies import totals
from policies.chain import Entry
from policies.countersign import Countersignature, Statement, gap
from policies.errors import CountersignError
from policies.events import EXHAUSTED, Recovery, recovery_message
from policies.ledger import Ledger
from silo_agent.signing import countersigner_of


def checked(handed: Iterable[Countersignature], credential: Credential) -> list[Countersignature]:
    """Countersignatures of this silo's ledger, each as its signer's. Raises `CryptoError`, `CountersignError`.

    One whose certificate expired since counts as well: it can only make a ledger stand for more.
    """
    trust, silo = Trust(credential.authority_pem), credential.identity.name
    found = [countersigner_of(trust, item)[0] for item in handed]
    others = {item.statement.silo for item in found} - {silo}
    if others:
        msg = f"these countersignatures are about the ledger of {', '.join(sorted(others))}; give those of {silo}"
        raise CountersignError(msg)
    return found


def recover(
    ledger: Ledger,
    credential: Credential,
    statements: Iterable[Statement],
    responsible: str,
    *,
    charge_everything: bool = False,
) -> Entry:
    """Charge what these countersigned statements know of and the ledger does not contain; returns the entry.

    `charge_everything` is for a gap of which nobody can say what was in it. Raises `CountersignError` where nothing is
    missing or a statement is about another data set, `LedgerError` where the entry cannot be written.
    """
    lost = _lost(ledger, statements)
    if not lost and not charge_everything:
        msg = "the ledger contains every countersigned entry, or was charged for it: there is nothing to recover"
        raise CountersignError(msg)
    costs = gap(ledger.genesis, ledger.history(), lost)
    if charge_everything and lost:  # where nothing is known, the gap is everything already
        costs = totals.merged((*costs, EXHAUSTED))
    covers = tuple(item.head for item in lost)
    message = recovery_message(ledger.genesis.data_set, ledger.head, covers, costs, responsible)
    signature, signer = credential.sign(message), credential.identity.uri
    Trust(credential.authority_pem).verify(credential.certificate_pem, message, signature)
    certificate = credential.certificate_pem.decode("ascii")
    return ledger.recover(Recovery(covers, costs, responsible, signer, certificate, signature.hex()), lost)


def _lost(ledger: Ledger, statements: Iterable[Statement]) -> Sequence[Statement]:
    held = list(statements)
    foreign = {item.data_set for item in held} - {ledger.genesis.data_set}
    if foreign:
        msg = f"a countersigned head belongs to {', '.join(sorted(foreign))}, the ledger to {ledger.genesis.data_set}"
        raise CountersignError(msg)
    by_head = {item.head: item for item in ledger.missing(held)}
    return tuple(by_head.values())
