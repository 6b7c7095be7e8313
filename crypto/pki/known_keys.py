"""Which key each party has: what a party remembers, so that a stolen issuing key stands for nobody whom it has met.

Admissions are public, because certificates carry them. One that names no key (a token's) says nothing about whose the
key in a certificate is: whoever has stolen the issuing key certifies a key of their own with it. So a party keeps, in a
file of its own, which key it saw first with which admission, and holds every later certificate against that.

Guarantees: a key counts if the admission names it, if a person has compared it (`peers.txt`), or if this party has
met its holder with that key. Another key of somebody whom it has met counts only if an admission names it. Somebody
whom it has not met, and whose admission names no key, is taken at first sight only if the root made the admission after
this memory began, or if the memory began at a party that version 0.6 enrolled. A party without a memory takes nobody
at first sight. A newer admission of a party supersedes its older ones with other keys. What is remembered is on the
disk before the certificate counts, and nothing of it is ever removed or changed. Several processes may share the file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

from common.digests import is_sha256
from common.durable import sync_file
from common.file_lock import lock
from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.identity import Identity
from crypto.pki.key_files import write_new
from crypto.pki.standing import Stamp, stamp

MEMORY_FILE: Final = "known-keys.jsonl"
PEERS_FILE: Final = "peers.txt"
"""What a person has compared lies beside `authority.pem` under this name: on each line a party's URI and the SHA-256
of its key. After # a line may say more."""
_FORMAT: Final = 1


@dataclass(frozen=True)
class Pin:
    """A party with the key that an admission was seen with."""

    identity: str
    """The party's URI."""
    admission: str
    """`Admission.digest`."""
    number: int
    """`Admission.number`: the highest of a party is its newest admission."""
    key: str
    """SHA-256 of the public key (DER), lowercase hex."""


@dataclass(frozen=True)
class Shown(Pin):
    """What a certificate shows, and what its admission says about the key."""

    named: bool
    """Whether the admission names the key."""
    made: datetime | None
    """When the root made the admission; None if version 0.6 made it."""


@dataclass(frozen=True)
class Memory:
    """What is remembered, at one moment."""

    begun: datetime | None = None
    """None if this party has no memory."""
    open: bool = False
    """Whether everybody is taken at first sight: the memory began at a party that version 0.6 had enrolled."""
    pins: Mapping[str, tuple[Pin, ...]] = field(default_factory=dict)
    """By URI, in the order of being met."""

    def fault(self, shown: Shown, compared: Mapping[str, frozenset[str]]) -> str | None:
        """Return why a key is not the party's, as far as is known; None if it may be."""
        met, listed = self.pins.get(shown.identity, ()), compared.get(shown.identity)
        if shown.named or any((one.admission, one.key) == (shown.admission, shown.key) for one in met):
            return None
        if shown.key in (one.key for one in met) if listed is None else shown.key in listed:
            return None
        whose = f"the certificate of {shown.identity} has a key with SHA-256 {shown.key}"
        if listed is not None:
            return f"{whose}, and {PEERS_FILE} has another; compare it with the party, and fix the line if it is right"
        line = f"`{shown.identity} {shown.key}`"
        ask = f"compare it with the party and put the line {line} into {PEERS_FILE} beside authority.pem"
        if met:
            return (
                f"{whose}, and this party has met it with {met[-1].key}; a party changes its key only by an admission"
                " that names the new one (`fedward-authority admit --key`). If nobody announced that, the issuing key"
                f" may be stolen: ask the keeper of the root, or {ask}"
            )
        if self.begun is not None and (self.open or (shown.made is not None and shown.made > self.begun)):
            return None
        return (
            f"{whose}, which its admission does not name, and this party has not met it before; have the root admit"
            f" everybody again with their keys (`fedward-authority readmit`), or {ask}"
        )

    def superseded(self, shown: Shown) -> str | None:
        """Return why a key counts no more, though it was the party's; None if it does."""
        newest = max(self.pins.get(shown.identity, ()), key=lambda one: one.number, default=None)
        if newest is None or newest.number <= shown.number or newest.key == shown.key:
            return None
        return (
            f"the certificate of {shown.identity} has the key with SHA-256 {shown.key}, and the root has since admitted"
            f" it with another, {newest.key}; the party must use its newest key"
        )

    def has(self, shown: Shown) -> bool:
        """Whether exactly this was remembered."""
        return _pin(shown) in self.pins.get(shown.identity, ())

    def with_pins(self, pins: Iterable[Pin]) -> Memory:
        """Return the memory with more pins at the end."""
        by_identity = dict(self.pins)
        for one in pins:
            if one not in by_identity.get(one.identity, ()):
                by_identity[one.identity] = (*by_identity.get(one.identity, ()), one)
        return Memory(self.begun, self.open, by_identity)


class KnownKeys:
    """A party's memory of keys. Safe for many threads; files that did not change cost two calls of `stat`."""

    def __init__(self, file: Path | None = None, peers: Path | None = None, *, keeps: bool = False) -> None:
        """`file` is the memory; with `keeps` it is begun and added to, else only read. `peers` is `PEERS_FILE`.

        Without `file` this party has no memory.
        """
        self._file, self._peers, self._keeps = file, peers, keeps
        self._guard = threading.Lock()
        self._own: tuple[str, str] | None = None
        self._memory = Memory()
        self._seen: Stamp = None
        self._compared: Mapping[str, frozenset[str]] = {}
        self._peers_seen: Stamp = None
        self._began: str | None = None

    def begin(self, identity: Identity, key: str, *, enrolled_before: bool) -> None:
        """Say whose memory it is: `key` is this party's own. Begin the memory if there is none yet.

        `enrolled_before` says that this party was enrolled before there were memories, by version 0.6: then others
        were as well, and are taken as they are found. Raises `CertificateError`.
        """
        with self._guard:
            self._own = identity.uri, key
            if self._file is None:
                return
            if not self._file.exists():
                self._memory = Memory(datetime.now(UTC), enrolled_before)
                if self._keeps:
                    self._write_header(self._file, enrolled=enrolled_before)
            self._refresh()

    def just_begun(self) -> str | None:
        """Return a sentence, once, if the memory began with this object."""
        with self._guard:
            said, self._began = self._began, None
            return said

    def require(self, shown: Shown) -> None:
        """Raise `CertificateError` if the key is not the party's, as far as this party knows."""
        with self._guard:
            if self._own == (shown.identity, shown.key):
                return
            self._refresh()
            _refuse(self._memory.fault(shown, self._compared))

    def require_newest(self, shown: Shown) -> None:
        """Raise `CertificateError` if a newer admission of the party is known, with another key. Remember the key.

        Call it last, for a certificate that counts now.
        """
        with self._guard:
            self._refresh()
            if self._own != (shown.identity, shown.key) and shown.key not in self._compared.get(shown.identity, ()):
                _refuse(self._memory.superseded(shown))
            if not self._memory.has(shown) and self._file is not None:
                if self._keeps:
                    self._append(self._file, _pin(shown))
                self._memory = self._memory.with_pins([_pin(shown)])

    def _refresh(self) -> None:
        if self._peers is not None and (seen := stamp(self._peers)) != self._peers_seen:
            self._compared = {} if seen is None else read_peers(self._peers)
            self._peers_seen = seen
        if self._file is not None and (seen := stamp(self._file)) != self._seen:
            if seen is not None:
                self._memory = read_memory(self._file)
            self._seen = seen

    def _write_header(self, path: Path, *, enrolled: bool) -> None:
        begun = self._memory.begun
        header = {"format": _FORMAT, "begun": begun and begun.isoformat(), "open": enrolled}
        try:
            write_new(path, json.dumps(header).encode() + b"\n", secret=False)
        except EnrolmentError as error:
            raise CertificateError(str(error)) from None
        self._began = f"{path.name}: this party remembers from now on which keys the others have" + (
            ", as it finds them now" if enrolled else ""
        )

    def _append(self, path: Path, pin: Pin) -> None:
        try:
            with _locked(path) as file:
                self._memory = _parse(path, file.read())
                file.write(json.dumps(asdict(pin), sort_keys=True).encode() + b"\n")
                sync_file(file)
        except OSError as error:
            msg = f"{path.name} cannot be written ({error.strerror}), so nobody new is accepted; fix owner or disk"
            raise CertificateError(msg) from None


def read_memory(path: Path) -> Memory:
    """Read a memory. Raises `CertificateError`."""
    try:
        return _parse(path, path.read_bytes())
    except OSError as error:
        msg = f"{path.name} cannot be read ({error.strerror}); fix its owner"
        raise CertificateError(msg) from None


def add(path: Path, others: Memory) -> None:
    """Add to a memory what another one of the same party remembers. Raises `CertificateError`, OSError."""
    with _locked(path) as file:
        held = _parse(path, file.read())
        for pins in others.pins.values():
            for pin in pins:
                if pin not in held.pins.get(pin.identity, ()):
                    file.write(json.dumps(asdict(pin), sort_keys=True).encode() + b"\n")
        sync_file(file)


def read_peers(path: Path) -> dict[str, frozenset[str]]:
    """Read what a person has compared: keys by URI. Raises `CertificateError`, which names the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path.name} cannot be read ({getattr(error, 'strerror', None) or 'no text'}); fix it or its owner"
        raise CertificateError(msg) from None
    by_uri: dict[str, frozenset[str]] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or not is_sha256(words[1]):  # noqa: PLR2004
            msg = (
                f"{path.name}: line {number} is no party's URI with the SHA-256 of its key, such as"
                " `fedward://silo/north` and 64 digits; fix the line"
            )
            raise CertificateError(msg)
        uri = Identity.parse(words[0]).uri
        by_uri[uri] = by_uri.get(uri, frozenset()) | {words[1]}
    return by_uri


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise CertificateError(fault)


def _pin(shown: Pin) -> Pin:
    return Pin(shown.identity, shown.admission, shown.number, shown.key)


def _parse(path: Path, content: bytes) -> Memory:
    """Read a memory. A last line without an end was cut off by a crash, and nobody relied on it."""
    whole = content[: content.rfind(b"\n") + 1].splitlines() or [b""]
    memory = _header(whole[0])
    pins = [_pin_of(line) for line in whole[1:]]
    damaged = next((number for number, one in enumerate([memory, *pins], 1) if one is None), None)
    if memory is None or damaged is not None:
        msg = (
            f"{path.name}: line {damaged} is damaged, so nobody can be told from a stranger; put back the file from the"
            " newest backup"
        )
        raise CertificateError(msg)
    return memory.with_pins(one for one in pins if one is not None)


def _header(line: bytes) -> Memory | None:
    try:
        fields = json.loads(line)
        begun, opened = datetime.fromisoformat(fields["begun"]), fields["open"]
        fits = fields["format"] == _FORMAT and begun.tzinfo is not None and isinstance(opened, bool)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return Memory(begun, opened) if fits else None


def _pin_of(line: bytes) -> Pin | None:
    try:
        pin = Pin(**json.loads(line))
        whose = Identity.parse(pin.identity).uri
        fits = all(map(is_sha256, (pin.key, pin.admission))) and isinstance(pin.number, int)
    except (ValueError, TypeError, AttributeError, RecursionError, CertificateError):
        return None
    return pin if fits and whose == pin.identity else None


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """Open a memory for one process alone, without what a crash cut off."""
    with path.open("r+b") as file:
        lock(file)
        content = file.read()
        end = content.rfind(b"\n") + 1
        if end != len(content):
            file.truncate(end)
        file.seek(0)
        yield file
