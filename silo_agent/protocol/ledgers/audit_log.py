"""Follows the coordinator's audit log, so that an operator who rewrites it is found.

Guarantees: this silo signs a head only if it has computed it itself from the head that it signed before. What it has
followed is kept durably before it is signed. If the coordinator cannot go on from there, because the log was rewritten,
begun anew or put back from a backup, the silo follows what is there from its first entry; everything that it signs from
then on names the head that was lost (docs/design/audit-log.md). It sees digests, and no word of the log.

What leaves follows from the coordinator's log alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Protocol

import structlog

from crypto.audit_chain import DIGEST_BYTES, UNKNOWN, AuditStatement, Followed, follow
from protos.audit import AuditTrail
from silo_agent.metrics import AgentMetrics
from silo_agent.storage.durable import write_whole

log = structlog.get_logger()
PAGES: Final = 64
"""Messages of digests that one look reads at most; the next look goes on."""


class AuditCalls(Protocol):
    """The coordinator's calls."""

    def audit_trail(self, after: Followed) -> AuditTrail | None:
        """Return what comes after a head; None if the log has no such head."""

    def cosign_audit(self, statement: AuditStatement) -> None:
        """Sign how far this silo has followed the log."""


class AuditFollower:
    """This silo's memory of the coordinator's audit log."""

    def __init__(self, calls: AuditCalls, memory: Path, metrics: AgentMetrics) -> None:
        """Read the memory. Without a readable one the log is followed from its beginning."""
        self._calls, self._memory, self._metrics = calls, memory, metrics
        self._known = _read(memory)
        self._signed: AuditStatement | None = None
        """What this process has signed last, so that a signature which did not arrive is given again."""
        self._metrics.audit_broke.set(bool(self._known.broke.entries))

    def look(self, latest: Followed) -> None:
        """Follow the log up to what the coordinator says is its head, and sign it. Raises what calls and files raise.

        Nothing happens if the silo has followed it so far already, or if the coordinator has no such log.
        """
        if not latest.entries:
            return
        if latest != self._known.now:
            self._keep(self._followed())
        if self._known.now.entries and self._signed != self._known:
            self._calls.cosign_audit(self._known)
            self._signed = self._known

    def _keep(self, found: AuditStatement) -> None:
        """Remember, durably, what was followed."""
        if found == self._known:
            return
        if found.broke != self._known.broke:
            log.error(
                "the coordinator's audit log does not go on from what this silo has followed: it was rewritten, or put"
                " back from a backup; ask its operators, and tell the other hospitals",
                entries=found.broke.entries,
                head=found.broke.head.hex(),
            )
        write_whole(self._memory, _written(found))
        self._known = found
        self._metrics.audit_broke.set(bool(found.broke.entries))

    def _followed(self) -> AuditStatement:
        now, broke = self._known.now, self._known.broke
        for _ in range(PAGES):
            trail = self._calls.audit_trail(now)
            if trail is None:
                if now == UNKNOWN:
                    break
                broke = max(broke, now, key=lambda one: one.entries)
                now = UNKNOWN
                continue
            digests = [
                trail.digests[start : start + DIGEST_BYTES] for start in range(0, len(trail.digests), DIGEST_BYTES)
            ]
            if not digests or len(digests[-1]) != DIGEST_BYTES:
                break
            now = Followed(now.entries + len(digests), follow(now.head, digests))
            if now.entries >= trail.entries:
                break
        return AuditStatement(now, broke)


def _written(statement: AuditStatement) -> bytes:
    parts = {"now": statement.now, "broke": statement.broke}
    return json.dumps({name: [one.entries, one.head.hex()] for name, one in parts.items()}).encode()


def _read(memory: Path) -> AuditStatement:
    try:
        content = json.loads(memory.read_bytes())
        now, broke = (Followed(int(content[name][0]), bytes.fromhex(content[name][1])) for name in ("now", "broke"))
    except FileNotFoundError:
        return AuditStatement(UNKNOWN)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        log.warning(
            "what this silo has followed of the coordinator's audit log cannot be read; it is followed from its"
            " beginning",
            file=memory.name,
            fault=type(error).__name__,
        )
        return AuditStatement(UNKNOWN)
    return AuditStatement(now, broke)
