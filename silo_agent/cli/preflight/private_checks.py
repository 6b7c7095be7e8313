"""The checks that are only for this hospital: its records, and what its machine has free.

What they find is private: counts of records, and the space that the hospital's own files leave.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from policies.errors import PolicyError
from policies.ledger.events import Cleared, Fault
from policies.plan import disk, memory
from silo_agent.cli.preflight.findings import Finding, Status
from silo_agent.cli.preflight.public_checks import Check, CheckedSilo, Skipped, machine_bytes
from silo_agent.errors import SiloError

_MIB: Final = 1 << 20
_FREE: Final = Path("/proc/meminfo")


def free_disk(subject: CheckedSilo) -> Finding:
    """Whether the disk of the state folder has room for the study."""
    folder = subject.settings.state
    while not folder.exists():
        folder = folder.parent
    needs, free = disk.needed(subject.study), shutil.disk_usage(folder).free
    text = f"{free // _MIB:,} MiB are free for the state folder, up to {-(-needs // _MIB):,} MiB are needed"
    if free < needs:
        return Finding("disk free", Status.FAILS, f"{text}: free some, or put state on another disk")
    return Finding("disk free", Status.OK, text)


def free_memory(subject: CheckedSilo) -> Finding:
    """Whether the memory that other programs leave is enough now."""
    needs, free = memory.needed(subject.study).total, min(_available(), machine_bytes())
    text = f"{free // _MIB:,} MiB are available now, up to {-(-needs // _MIB):,} MiB may be needed"
    return Finding("memory free", Status.OK if free >= needs else Status.LOOK, text)


def _available() -> int:
    lines = _FREE.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def fault(subject: CheckedSilo) -> Finding:
    """Whether a fault stands in the ledger, with which the agent takes no part in any study."""
    noted = [entry for entry in subject.entries() if isinstance(entry.event, Fault | Cleared)]
    if noted and isinstance(noted[-1].event, Fault):
        text = f"entry {noted[-1].sequence} notes a fault: the agent takes no part until `ledger clear-fault`"
        return Finding("fault", Status.FAILS, text)
    return Finding("fault", Status.OK, "none stands in the ledger")


def data(subject: CheckedSilo) -> Finding:
    """What of the hospital's records the study would use, by column and by domain."""
    from silo_agent.data.errors import RecordError
    from silo_agent.data.profiling.profile import profile
    from silo_agent.data.sources.sql import is_missing
    from silo_agent.data.table import Written
    from silo_agent.storage.approvals import looked_at, source_of
    from silo_agent.storage.folders import StateFolder
    from silo_agent.storage.rows import withdrawn_of

    study = subject.study
    try:
        held = subject.policy()
    except (SiloError, PolicyError):
        raise Skipped("the policy fails") from None  # noqa: EM101, TRY003  # the whole text
    source = looked_at(subject.settings, study, held)
    gone = is_missing(source)
    if gone is not None:
        msg = f"the data are not there: {gone}; fix data or databases in agent.yaml"
        raise SiloError(msg)
    try:
        withdrawn = withdrawn_of(StateFolder(subject.settings.state), subject.settings.key_holder)
        found = profile(source, study.data, held.data_set.identified_by, Written.of(held), withdrawn)
    except RecordError as error:
        msg = f"reading fails on the records, so the agent would send noise alone: {error.found}"
        raise SiloError(msg) from None
    columns = [
        {
            "column": one.name,
            "do not fit": one.unfit,
            "missing": one.missing,
            "gives the label away": "YES" if one.gives_away else "no" if one.tells is not None else "not looked at",
            "AUC at least": "" if one.tells is None else f"{one.tells:.3f}",
        }
        for one in found.columns
    ]
    domains: list[Mapping[str, Any]] = [
        {"domain": one.name, "records": one.kept, "patients": one.patients, "left out": one.left_out}
        for one in found.domains
    ]
    away = [one.name for one in found.columns if one.gives_away]
    text = (
        f"{found.rows} rows: {found.kept} records of {found.patients} patients fit, {found.left_out} would be left out"
    )
    text += f" ({found.broken} are no rows)" if found.broken else ""
    most = study.privacy.max_patients
    text += f"; privacy.max_patients is {most}" if found.patients > most else ""
    text += f"; {', '.join(away)} alone give the label away: ask the study's authors" if away else ""
    strange = [one for one in found.columns if one.unit]
    text += f"; {', '.join(one.name for one in strange)}: numbers that look like another unit" if strange else ""
    if source_of(subject.settings, study, held) is None:
        text += "; nobody has approved the study yet: fedward-silo study approve"
    look = bool(found.left_out or away or strange or found.patients > most)
    status = Status.FAILS if not found.kept else Status.LOOK if look else Status.OK
    units = [{"column": one.name, "found": one.unit} for one in strange]
    return Finding("data", status, text, {"By column": columns, "By domain": domains, "Another unit": units})


CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("disk free", free_disk),
    ("memory free", free_memory),
    ("fault", fault),
    ("data", data),
)
