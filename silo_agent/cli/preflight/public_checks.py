"""The checks whose findings may be shown to anybody: they read no record, not even whether there are any.

They read the hospital's configuration, certificate and policy, the charges in its ledger, the machine's size, and what
the authority and the coordinator answer. Nothing is written, but for revocation lists in the place of stale ones. What
a machine has free is not among it, because a hospital's files decide that; `inside` looks at it.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from common.os_errors import explained
from crypto.errors import CryptoError
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.pki.identity import Role
from crypto.pki.joining.renewal import WARN_FROM, due, fades, live_lists, look
from crypto.pki.key_files import read_passphrase
from crypto.pki.reading import ends, valid
from crypto.pki.standing import CertificateStanding
from policies.decision import decide
from policies.documents.policy import Policy
from policies.documents.study import Study, load_study
from policies.errors import LedgerRolledBackError, PolicyError
from policies.ledger.chain import Entry
from policies.ledger.cosign import CosignatureFile, require_head
from policies.ledger.events import Debit, InForce, Recovery
from policies.ledger.ledger import read_history
from policies.plan import disk, memory
from policies.plan.cost import Cost
from policies.refusals import Refused
from protos.messages import MessageError
from silo_agent.cli.preflight.findings import Finding, Status
from silo_agent.config import AgentConfig
from silo_agent.errors import SiloError
from silo_agent.oversight.approval import policy_of_agent
from silo_agent.protocol.calls.client import CoordinatorGreeting, greet
from silo_agent.storage.folders import StateFolder

FAULTS: Final = (SiloError, CryptoError, PolicyError, MessageError, OSError)
"""What a check may raise; its text becomes the finding."""
SECONDS: Final = 10.0
"""Most time for the connection, for the handshake, and for each call."""
SKEW_LOOK: Final = 30.0
SKEW_FAILS: Final = 300.0
"""Seconds between this machine's clock and the coordinator's."""
_MOST_ANSWER: Final = 16_384
_SHOWN: Final = 100
_SOON: Final = timedelta(days=14)
_MIB: Final = 1 << 20
_CHARGES: Final = (Debit, InForce, Recovery)
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


class Skipped(SiloError):  # noqa: N818  # what the check needs has failed, and that is a finding itself
    """A check cannot be made. The text says what it needs."""


@dataclass(frozen=True)
class CheckedSilo:
    """What is checked."""

    given: Study | None
    """None if it cannot be read."""
    settings: AgentConfig
    credential: Credential | None
    newest: CertificateStanding | None = None
    """What the issuing authority hands out now; None if there is none, or if it does not answer."""

    @property
    def study(self) -> Study:
        """The study. Raises `Skipped` if it cannot be read."""
        if self.given is None:
            raise Skipped("the study fails")  # noqa: EM101, TRY003  # the whole text
        return self.given

    @property
    def silo(self) -> str:
        """The silo's name; empty without a credential."""
        return "" if self.credential is None else self.credential.identity.name

    @property
    def ledger(self) -> Path:
        """The hospital's ledger."""
        return StateFolder(self.settings.state).ledger

    def policy(self) -> Policy:
        """The policy under which the agent would run. Raises what `policy_of_agent` raises."""
        return policy_of_agent(self.ledger, self.settings.policy)

    def entries(self) -> tuple[Entry, ...]:
        """The ledger's entries; none if there is no ledger yet. The file is opened for reading only."""
        return read_history(self.ledger)[1] if self.ledger.exists() else ()


Check = Callable[[CheckedSilo], Finding]


def guarded(name: str, check: Callable[[], Finding]) -> Finding:
    """Run a check; whatever it raises on purpose is what was found."""
    try:
        return check()
    except Skipped as reason:
        return Finding(name, Status.SKIPPED, str(reason))
    except FAULTS as fault:
        return Finding(name, Status.FAILS, explained(fault))


def read_study(file: Path) -> tuple[Study | None, Finding]:
    """The study, and the finding about its file."""
    try:
        study = load_study(file)
    except (PolicyError, OSError) as fault:
        return None, Finding("study", Status.FAILS, str(fault))
    return study, Finding("study", Status.OK, f"{study.name}, digest {study.digest}")


def ask_authority(settings: AgentConfig) -> tuple[CertificateStanding | None, Finding]:
    """What the issuing authority hands out now, and the finding about it."""
    name, url = "authority", settings.authority_url
    if url is None:
        return None, Finding(name, Status.OK, "agent.yaml names none; people bring certificates and revocation lists")
    try:
        standing = look(settings.authority, url, settings.proxy)
    except (CryptoError, OSError) as fault:
        return None, Finding(name, Status.FAILS, str(fault))
    return standing, Finding(name, Status.OK, f"{url} answers and hands out revocation lists")


def load_credential(
    settings: AgentConfig, newest: CertificateStanding | None = None
) -> tuple[Credential | None, Finding]:
    """The silo's certificate and key, and the finding about them. `newest` may revoke what the files do not yet."""
    name = "certificate"
    try:
        credential = settings.credential()
        if newest is not None:
            # The silo's own key is known to it, also before the root has named it.
            Trust(lambda: newest, keys=credential.trust.keys).identify(credential.certificate_pem)
    except CryptoError as fault:
        return None, Finding(name, Status.FAILS, str(fault))
    begins, until = valid(credential.certificate_pem)
    now = datetime.now(UTC)
    online = settings.authority_url is not None
    late = due(begins, until, now, WARN_FROM) if online else until - now < _SOON
    soon = (
        f"; it should have been renewed, see that {settings.authority_url} answers" if online else "; have it renewed"
    )
    # The lists were read, and revoke neither this silo nor its authorities.
    lists = live_lists(credential, now)
    fresh = f"; revocation lists are fresh until {lists[0][1].until:%Y-%m-%d %H:%M} UTC" if lists else ""
    fading = "".join(
        f"; the keeper of {one.name!r} should have made its next list: it is fresh until {last.until:%Y-%m-%d} alone"
        for one, last in lists
        if fades(last, now)
    )
    status = Status.LOOK if late or fading else Status.OK
    text = (
        f"{credential.identity}, valid until {until:%Y-%m-%d %H:%M} UTC ({(until - now).days} days)"
        f"{soon if late else ''}; key and authority fit{fresh}{fading}"
    )
    return credential, Finding(name, status, text)


# --- the network ---------------------------------------------------------------------------------------------------
def network(subject: CheckedSilo) -> Iterator[Finding]:
    """The way to the coordinator, step by step. After a step that fails the others are skipped.

    Of several machines the first that is reached is tried: those that stand by do not listen.
    """
    for address in subject.settings.coordinator:
        settings = subject.settings.model_copy(update={"coordinator": (address,)})
        reached = guarded("reachability", partial(_reach, settings))
        if reached.status is not Status.FAILS:
            break
    subject = replace(subject, settings=settings)
    yield reached
    if reached.status is Status.FAILS:
        yield from _skipped("the coordinator is not reached", "TLS", "coordinator", "clock")
        return
    if subject.credential is None:
        yield from _skipped("the certificate fails", "TLS", "coordinator", "clock")
        return
    secured = guarded("TLS", lambda: _handshake(subject))
    yield secured
    if secured.status is Status.FAILS:
        yield from _skipped("TLS fails", "coordinator", "clock")
        return
    try:
        greeting = greet(settings.coordinator, subject.credential, _version(), SECONDS, proxy=settings.proxy)
    except FAULTS as fault:
        yield Finding("coordinator", Status.FAILS, str(fault))
        yield from _skipped("the coordinator does not answer", "clock")
        return
    yield Finding("coordinator", Status.OK, f"it answers this silo; version {greeting.version}, here {_version()}")
    yield _clock(greeting)


def _version() -> str:
    from importlib.metadata import version

    return version("fedward")


def _skipped(why: str, *names: str) -> Iterator[Finding]:
    for name in names:
        yield Finding(name, Status.SKIPPED, why)


def _dial(settings: AgentConfig) -> socket.socket:
    """A connection to the coordinator, through the proxy if there is one. Raises OSError that says what to do."""
    if settings.proxy is None:
        return _connect(settings.coordinator[0], "coordinator")
    connection = _connect(settings.proxy.removeprefix("http://"), "proxy")
    try:
        _ask_proxy(connection, settings.coordinator[0])
    except TimeoutError:
        connection.close()
        msg = f"the proxy {settings.proxy} does not answer within {SECONDS:.0f} s; check that it is an HTTP proxy"
        raise OSError(msg) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _ask_proxy(connection: socket.socket, address: str) -> None:
    """Have the proxy connect (RFC 9110, section 9.3.6). Raises OSError with its answer."""
    connection.sendall(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < _MOST_ANSWER:
        # One byte at a time: what follows the empty line belongs to TLS.
        if not (more := connection.recv(1)):
            break
        answer += more
    said = answer.split(b"\r\n")[0][:_SHOWN].decode("ascii", "backslashreplace")
    if b"\r\n\r\n" not in answer or not re.match(r"HTTP/1\.[01] 2\d\d(?: |$)", said):
        wanted = "let this machine through without a password" if " 407" in said else f"allow CONNECT to {address}"
        msg = f"the proxy does not connect to {address} ({said or 'no answer'}); ask its administrators to {wanted}"
        raise OSError(msg)


def _connect(address: str, field: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host, int(port)), SECONDS)
    except socket.gaierror as error:
        msg = f"the name {host} is not known here ({error.strerror}); check {field} in agent.yaml and the DNS"
        raise OSError(msg) from None
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        msg = f"{address} cannot be reached ({why}); check that the {field} runs and that the firewall lets out TCP"
        raise OSError(msg) from None


def _reach(settings: AgentConfig) -> Finding:
    address, began = settings.coordinator[0], time.monotonic()
    with _dial(settings) as connection:
        peer = connection.getpeername()
        took = (time.monotonic() - began) * 1000
    where = f"is {peer[0]} port {peer[1]}" if settings.proxy is None else f"is there behind the proxy {settings.proxy}"
    return Finding("reachability", Status.OK, f"{address} {where}, reached in {took:.0f} ms")


def _handshake(subject: CheckedSilo) -> Finding:
    """A TLS handshake as gRPC makes it, with this silo's certificate, and whom the coordinator's certificate names."""
    settings, newest = subject.settings, subject.newest
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(settings.authority)
    passphrase = None if settings.key_passphrase is None else read_passphrase(settings.key_passphrase)
    context.load_cert_chain(settings.certificate, settings.key, passphrase)
    context.set_alpn_protocols(["h2"])
    host = settings.coordinator[0].rpartition(":")[0]
    try:
        with _dial(settings) as plain, context.wrap_socket(plain, server_hostname=host) as secured:
            der, protocol, alpn = (
                secured.getpeercert(binary_form=True),
                secured.version(),
                secured.selected_alpn_protocol(),
            )
    except ssl.SSLCertVerificationError as error:
        msg = (
            f"the coordinator's certificate is refused: {error.verify_message}; compare authority.pem with the"
            " coordinator's, and the address in agent.yaml with the name in its certificate"
        )
        raise OSError(msg) from None
    except (ssl.SSLError, TimeoutError, ConnectionError) as error:
        why = getattr(error, "reason", None) or str(error)
        msg = f"the TLS handshake fails ({why}); something on the way may answer in the coordinator's place"
        raise OSError(msg) from None
    pem = ssl.DER_cert_to_PEM_cert(der or b"").encode()
    memory = settings.files.memory
    trust = Trust.load(settings.authority, settings.crls, memory=memory)
    if newest is not None:
        trust = Trust(lambda: newest, keys=trust.keys)
    try:
        identity = trust.identify(pem, role=Role.COORDINATOR)
    except CryptoError as error:
        msg = (
            f"what answers at {settings.coordinator[0]} is not the consortium's coordinator, or its certificate does"
            f" not count ({error}); compare the address in agent.yaml with what the operator told you, and tell them"
        )
        raise OSError(msg) from None
    if alpn != "h2":
        msg = f"{protocol}, but the answer does not speak HTTP/2 ({alpn}); a proxy that opens TLS may be on the way"
        return Finding("TLS", Status.FAILS, msg)
    return Finding("TLS", Status.OK, f"{protocol} with {identity}, valid until {ends(pem):%Y-%m-%d %H:%M} UTC")


def _clock(greeting: CoordinatorGreeting) -> Finding:
    if greeting.ahead is None or greeting.within is None:
        text = "the coordinator is of a version that does not tell its time; compare the clocks by hand"
        return Finding("clock", Status.LOOK, text)
    skew = abs(greeting.ahead) - greeting.within
    word = "behind" if greeting.ahead > 0 else "ahead of"
    text = f"this clock is {abs(greeting.ahead):.1f} s {word} the coordinator's, to within {greeting.within:.2f} s"
    if skew > SKEW_FAILS:
        return Finding("clock", Status.FAILS, f"{text}; put it right (NTP): certificates and budgets go by it")
    return Finding("clock", Status.LOOK if skew > SKEW_LOOK else Status.OK, text)


# --- the study, here -----------------------------------------------------------------------------------------------
def policy(subject: CheckedSilo) -> Finding:
    """Whether the policy in force takes the study's first round, with what the ledger has charged to other studies."""
    held, study = subject.policy(), subject.study
    reasons = []
    if subject.credential is not None:
        try:
            require_data_set(subject.credential.certificate_pem, held.data_set.id)
        except CryptoError as fault:
            reasons.append(str(fault))
    entries = subject.entries()
    spent = list(_spent(entries, study.digest))
    try:
        decide(
            held,
            study,
            silo=subject.silo or study.silos[0],
            roster_size=None,
            spent_costs=spent,
            round=0,
            attempt=1,
            charged_attempts=0,
            ledger_day=_last_day(entries),
        )
    except Refused as refusal:
        reasons += [f"{label}: {text}" for label, text in refusal.reasons]
    if reasons:
        return Finding("policy", Status.FAILS, "\n".join(f"- {one}" for one in reasons))
    return Finding(
        "policy", Status.OK, f"policy {held.digest[:12]} takes the study; {len(spent)} charges of others stand"
    )


def _spent(entries: tuple[Entry, ...], study: str) -> Iterator[Cost]:
    """Costs of other studies, and of entries that were lost."""
    for entry in entries:
        if isinstance(entry.event, Recovery):
            yield from entry.event.costs
        elif isinstance(entry.event, Debit) and entry.event.study != study:
            yield from entry.event.costs.values()


def _last_day(entries: tuple[Entry, ...]) -> date | None:
    """The latest day of an entry that follows from charges and policies alone: others, such as faults, may not."""
    return max((entry.day for entry in entries if isinstance(entry.event, _CHARGES)), default=None)


def ledger(subject: CheckedSilo) -> Finding:
    """Whether the ledger is there and whole, with what others cosigned. It is read and not touched.

    Raises what `read_history` raises, too, if there is no ledger.
    """
    held = CosignatureFile(subject.ledger).latest()  # read first: a running agent may extend the ledger
    genesis, entries = read_history(subject.ledger)
    # Never how many entries: one that notes a fault may follow from a record.
    try:
        for item in held:
            require_head(genesis, entries, item.checkpoint.head)
    except LedgerRolledBackError:
        text = "it lacks entries that others cosigned, an older copy was put in its place: fedward-silo ledger verify"
        return Finding("ledger", Status.FAILS, text)
    return Finding(
        "ledger", Status.OK, "it is there, its entries form one chain, and none that others cosigned is lost"
    )


def machine_memory(subject: CheckedSilo) -> Finding:
    """What the study may need, against what the machine has in all."""
    needs, total = memory.needed(subject.study).total, machine_bytes()
    text = f"the study may need {-(-needs // _MIB):,} MiB; this machine (or its limit) has {total // _MIB:,} MiB"
    if needs > total:
        return Finding(
            "memory", Status.FAILS, f"{text}: give it more, or have privacy.max_patients or the model smaller"
        )
    return Finding("memory", Status.OK, text)


def machine_bytes() -> int:
    """Memory of the machine, or the limit of this process's control group if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        limit = int(_CGROUP.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total
    return min(total, limit)


def disk_need(subject: CheckedSilo) -> Finding:
    """What the study takes on the disk."""
    needs = -(-disk.needed(subject.study) // _MIB)
    return Finding("disk needed", Status.OK, f"the study takes up to {needs:,} MiB in the state folder")


def device(subject: CheckedSilo) -> Finding:
    """The device on which the agent would train, and its driver."""
    from silo_agent.learning.device import describe_device, limit_threads

    limit_threads(subject.settings.threads)
    return Finding("device", Status.OK, describe_device(subject.settings.device))


CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("policy", policy),
    ("ledger", ledger),
    ("memory", machine_memory),
    ("disk needed", disk_need),
    ("device", device),
)
