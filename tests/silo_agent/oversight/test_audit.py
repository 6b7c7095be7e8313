"""What a third party finds in an export that was made well, and in one that was bent by whoever may sign it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from policies.errors import CosignError, ExportError, LedgerRolledBackError
from policies.ledger.chain import next_entry
from policies.ledger.cosign import checkpoint
from policies.ledger.events import Debit, EntryRef, recovery_message
from policies.ledger.exports import Export, to_json
from policies.ledger.ledger import Ledger
from policies.plan.cost import Cost
from silo_agent.oversight.audit import audit
from silo_agent.oversight.recovery import recover
from silo_agent.oversight.signing import sign_file
from support.cosigners import cosigned
from support.ledgers import NORTH

LATER = datetime.now(UTC) + timedelta(days=60)
"""Certificates of the tests last a month."""


def charge(ledger, number):
    ledger.charge(Debit("s", "p", number, 1, {"heads": Cost("training", 1.0, 20.0 + number, 1)}))


@pytest.fixture
def trust(authority):
    return Trust(authority.pem)


@pytest.fixture
def export(quick_path, credentials, coordinator):
    """A ledger that lost its second debit and recovered it, and went on; two others cosigned it."""
    path, north = quick_path / "ledger.sqlite3", credentials["north"]
    Ledger.create(path, NORTH)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        charge(ledger, 1)
        older = path.read_bytes()
        charge(ledger, 2)
        lost = ledger.checkpoint("north")
    path.write_bytes(older)
    with Ledger.open(path, NORTH, budget_epsilon=4.0) as ledger:
        recover(ledger, north, [lost], "A. Weber")
        mended = ledger.checkpoint("north")
        charge(ledger, 3)
        held = [named(item, signer, north) for item, signer in ((mended, coordinator), (lost, credentials["south"]))]
        at = datetime.now(UTC).isoformat(timespec="seconds")
        return Export(north.identity.uri, at, 4.0, ledger.genesis, ledger.history(), tuple(held))


def named(item, credential, silo):
    return replace(cosigned(item, credential, silo), signer=credential.identity.uri)


@pytest.fixture
def audited(credentials, trust):
    """Checks an export as a third party does, signed by its silo whatever it says."""

    def check(export, *, now=None):
        content = to_json(export)
        return audit(content, sign_file(credentials["north"], "json", export.at, content), trust, now=now)

    return check


def with_recovery(export, **changes):
    """The chain as it would be if its recovery said something else: hashes and all, as its silo can make it."""
    first, second, third = export.entries
    bent = next_entry(first.head, replace(second.event, **changes), second.at, second.epsilon)
    return replace(export, entries=(first, bent, next_entry(bent.head, third.event, third.at, third.epsilon)))


def test_everything_that_was_signed_is_told(export, audited):
    found = audited(export)
    assert found.export == export
    assert (found.signer.identity.uri, found.signer.expired) == ("fedward://silo/north", None)
    ((place, recovery, signer),) = found.recoveries
    assert (place, recovery.responsible, signer.identity.uri) == (2, "A. Weber", "fedward://silo/north")
    said = [(item.signer, item.checkpoint.head.sequence, signer.expired) for item, signer in found.cosigned]
    assert said == [("fedward://coordinator/hub", 2, None), ("fedward://silo/south", 2, None)]


def test_after_the_certificates_expired_everything_is_told_as_of_its_time(export, audited):
    found = audited(export, now=LATER)
    signers = [found.signer, *(one[-1] for one in (*found.recoveries, *found.cosigned))]
    assert len(signers) == 4
    assert all(signer.expired < LATER for signer in signers)


def test_an_export_under_another_name_or_time_than_its_signature_is_refused(export, credentials, trust):
    content = to_json(export)
    for credential, at in ((credentials["south"], export.at), (credentials["north"], "2026-01-31T08:00:00+00:00")):
        with pytest.raises(ExportError, match=r"says that it is of fedward://silo/north at .* signed it at"):
            audit(content, sign_file(credential, "json", at, content), trust)
    detached = sign_file(credentials["north"], "json", export.at, content)
    with pytest.raises(SignatureRefused):
        audit(content + b" ", detached, trust)
    with pytest.raises(CertificateError):
        audit(content, replace(detached, certificate=b"PEM"), trust)


def test_only_the_silo_that_is_certified_for_the_data_set_exports_its_ledger(quick_folders, export, audited):
    path = quick_folders() / "ledger.sqlite3"
    Ledger.create(path, replace(NORTH, data_set="clinic"))
    with Ledger.open(path, replace(NORTH, data_set="clinic"), budget_epsilon=4.0) as ledger:
        renamed = replace(export, genesis=ledger.genesis, entries=(), cosigned=())
    with pytest.raises(CertificateError, match="data set north-ward, not for the data set clinic, and a new name"):
        audited(renamed)


# --- recoveries -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"responsible": "B. Schmidt"}, "does not fit the signed bytes"),
        ({"covers": (EntryRef(2, "e" * 64),)}, "does not fit the signed bytes"),
        ({"costs": (Cost("training", 1.0, 90.0, 1),)}, "does not fit the signed bytes"),
        ({"signature": "00"}, "does not fit the signed bytes"),
        ({"signature": "no hex"}, "not written in hex"),
        ({"certificate": "PEM"}, "exactly one PEM certificate"),
        ({"certificate": "\u00e9"}, "exactly one PEM certificate"),
    ],
)
def test_a_recovery_that_was_not_signed_so_is_refused_by_name(export, audited, changes, why):
    bent = replace(with_recovery(export, **changes), cosigned=())
    with pytest.raises(ExportError, match=f"signature of the recovery in entry 2 is not valid: .*{why}"):
        audited(bent)


def test_a_recovery_is_signed_for_its_place_alone(export, audited):
    first, second, _ = export.entries
    again = next_entry(second.head, second.event, second.at, second.epsilon * 3)
    with pytest.raises(ExportError, match="recovery in entry 3 is not valid"):
        audited(replace(export, entries=(first, second, again), cosigned=()))


def test_a_recovery_names_who_signed_it_and_only_a_silo_does(
    export, audited, foreign_authority, coordinator, credentials
):
    other = replace(with_recovery(export, signer="fedward://silo/south"), cosigned=())
    with pytest.raises(ExportError, match="entry 2 names fedward://silo/south, but fedward://silo/north signed it"):
        audited(other)
    for pem, why in ((coordinator.certificate_pem, "a silo is needed"), (foreign_authority.pem, "not issued by")):
        with pytest.raises(ExportError, match=f"entry 2 is not valid: .*{why}"):
            audited(replace(with_recovery(export, certificate=pem.decode()), cosigned=()))


def test_a_recovery_by_the_silo_of_another_data_set_is_refused(export, audited, credentials):
    event, covers = export.entries[1].event, export.entries[1].event.covers
    message = recovery_message("north-ward", export.entries[0].head, covers, event.costs, event.responsible)
    south = credentials["south"]
    other = {
        "signer": south.identity.uri,
        "certificate": south.certificate_pem.decode(),
        "signature": south.sign(message).hex(),
    }
    with pytest.raises(ExportError, match=r"entry 2 is not valid: .*data set south-ward, not for the data set north-w"):
        audited(replace(with_recovery(export, **other), cosigned=()))


# --- cosignatures ------------------------------------------------------------------------------------------------
def test_a_cosignature_that_does_not_fit_is_refused_by_name(export, audited, credentials, authority):
    hub, south = export.cosigned
    for bent, why in (
        (replace(hub, signature=south.signature), "of entry 2 is not valid: .*does not fit"),
        (
            replace(hub, checkpoint=replace(hub.checkpoint, at="2026-01-31T08:00:00+00:00")),
            "of entry 2 is not valid",
        ),
        (replace(hub, certificate=credentials["north"].certificate_pem), "of entry 2 is not valid"),
        (replace(hub, certificate=south.certificate), "of entry 2 is not valid"),
        (replace(hub, signer=south.signer), "names fedward://silo/south, but fedward://coordinator/hub signed it"),
    ):
        with pytest.raises(ExportError, match=why):
            audited(replace(export, cosigned=(bent,)))


def test_nobody_cosigns_his_own_ledger(export, audited, credentials):
    own = named(export.cosigned[0].checkpoint, credentials["north"], credentials["north"])
    with pytest.raises(CosignError, match="cannot cosign the ledger of north"):
        audited(replace(export, cosigned=(own,)))


def test_a_chain_that_was_cut_behind_a_cosigned_head_is_refused(export, audited):
    with pytest.raises(LedgerRolledBackError, match="an older copy was put in its place"):
        audited(replace(export, entries=export.entries[:1]))


def test_what_was_cosigned_has_the_chains_figures(export, audited, coordinator, credentials):
    said = checkpoint("north", export.genesis, export.entries, export.at)
    audited(replace(export, cosigned=(named(said, coordinator, credentials["north"]),)))
    for change in ({"epsilon": said.epsilon / 2}, {"totals": ()}, {"covers": ()}):
        with pytest.raises(ExportError, match=r"entry 3 that .* cosigned has other figures than the chain"):
            audited(
                replace(
                    export,
                    cosigned=(named(replace(said, **change), coordinator, credentials[change.get("silo", "north")]),),
                )
            )
    for change in ({"silo": "west"}, {"data_set": "other"}):
        with pytest.raises(ExportError, match="not this one"):
            audited(
                replace(
                    export,
                    cosigned=(named(replace(said, **change), coordinator, credentials[change.get("silo", "north")]),),
                )
            )
