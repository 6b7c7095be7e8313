"""Kill -9 before and after durable writes of the coordinator and of one silo: the study ends as if nothing had been.

Same models, same results, same ledgers, same training logs, bit for bit (docs/design/threat-model.md,
"Invariants" 1, 3, 4, 5 and 9).
`make test-slow` takes one of every kind of write, before it and after it, and one in `STRIDE` of all; `make
reliability` takes every one.
"""

from __future__ import annotations

import itertools
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.demo.recount import recount
from policies.documents.study import Study
from protos.messages import Tensor
from support.certificates import make_authority
from support.crash_federation import HUB, CrashFederation, credentials_of, described
from support.crash_points import Crash
from support.small_cohort import study_document

pytestmark = pytest.mark.slow
STRIDE = int(os.environ.get("FEDWARD_CRASH_STRIDE", "9"))
"""Every point would take half an hour: 1 does so."""
SILO = "south"
KINDS = {HUB: 5, SILO: 17}
"""How many kinds of durable write there are at least."""


def crash_study(**changes: object) -> Study:
    """Every kind of sum in three rounds, at prices that take no time to add up."""
    document = study_document(name="crash", publish=["accuracy"], **changes)
    document["heads"] = {**document["heads"], "pooled_rounds": 1, "domain_rounds": 1}
    document["encoder"] = {**document["encoder"], "sampling_rate": 1.0, "noise": 12.0}
    return Study.model_validate(document)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory) -> dict[str, Path]:
    return credentials_of(make_authority(tmp_path_factory.mktemp("consortium")), crash_study())


@pytest.fixture(scope="module")
def undisturbed(credentials, tmp_path_factory) -> CrashFederation:
    federation = CrashFederation(tmp_path_factory.mktemp("undisturbed"), crash_study(), credentials)
    assert federation.run().state == "finished"
    return federation


def test_two_undisturbed_runs_are_the_same(undisturbed, credentials, tmp_path):
    again = CrashFederation(tmp_path, crash_study(), credentials)
    again.run()
    assert again.outcome() == undisturbed.outcome()


@pytest.mark.parametrize("party", [HUB, SILO])
def test_a_party_killed_at_any_kind_of_durable_write_changes_nothing(party, undisturbed, credentials, tmp_path):
    crashes = kinds_of(undisturbed.writes(party))
    assert len(crashes) >= KINDS[party], "there were more kinds of durable writes"
    require_unchanged(party, crashes, undisturbed, credentials, tmp_path)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("party", [HUB, SILO])
def test_a_party_killed_at_a_durable_write_changes_nothing(party, when, undisturbed, credentials, tmp_path):
    writes = undisturbed.writes(party)
    assert len(writes) > 60, "a study of three rounds writes more than that"
    first = 1 if when == "before" else 1 + STRIDE // 2
    crashes = [Crash(when, number) for number in range(first, len(writes) + 1, STRIDE)]
    require_unchanged(party, crashes, undisturbed, credentials, tmp_path)


def kinds_of(writes: list[str]) -> list[Crash]:
    """Every kind of write once, one in the middle of its kind; before and after take turns."""
    numbers: dict[str, list[int]] = {}
    for number, write in enumerate(writes, 1):
        numbers.setdefault(kind_of(write), []).append(number)
    whens = itertools.cycle(("before", "after"))
    return [Crash(when, found[len(found) // 2]) for found, when in zip(numbers.values(), whens, strict=False)]


def kind_of(write: str) -> str:
    """A write's name without whose it is: every silo's folder, digest, number and tensor is one kind."""
    name = write.removeprefix("sync ")
    for kind, members in (("silo", "north|south|west"), ("digest", "[0-9a-f]{24}"), ("number", "[0-9]+")):
        if re.fullmatch(members, name):
            return kind
    return "tensor" if name in set(Tensor) else write


def require_unchanged(
    party: str, crashes: list[Crash], undisturbed: CrashFederation, credentials: dict[str, Path], root: Path
) -> None:
    """A study with any of these crashes ends as the undisturbed one did."""
    expected, writes = undisturbed.outcome(), undisturbed.writes(party)

    def disturb(crash: Crash) -> str:
        folder = root / f"{crash.when}-{crash.number}"
        folder.mkdir()
        federation = CrashFederation(folder, crash_study(), credentials, doomed=(party, crash))
        where = f"{party} killed {crash.when} its write {crash.number} ({writes[crash.number - 1]})"
        try:
            status = federation.run()
        except AssertionError as error:
            return f"{where}: {error}"
        if not federation.killed:
            return f"{where}: it was not"
        if status.state != "finished" or {time.attempt for time in status.times} != {1}:
            return f"{where}: {status.state}, {status.why}, attempts {sorted({t.attempt for t in status.times})}"
        if federation.outcome() != expected:
            return f"{where}: {described(federation.difference(expected))}"
        for silo in federation.study.silos:
            state = folder / silo / "state"
            counted = recount(state / "studies" / federation.study.digest / "training.jsonl", 1e-5)
            if counted > float(str(expected[f"{silo} epsilon"])) * 1.01:
                return f"{where}: {silo} trained at epsilon {counted}"
        return ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [fault for fault in pool.map(disturb, crashes) if fault]
    assert not faults, "\n\n".join(faults)
