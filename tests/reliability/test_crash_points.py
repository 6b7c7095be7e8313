"""Kill -9 before and after durable writes of the coordinator and of one silo: the study ends as if nothing had been.

Same models, same results, same ledgers, same training logs, bit for bit (docs/design/threat-model.md, "Invariants" 1,
3, 4, 5 and 9). The tests take one crash point in `STRIDE`; `make reliability` takes every one.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.demo.recount import recount
from policies.documents.study import Study
from support.certificates import make_authority
from support.crash_federation import HUB, CrashFederation, credentials_of, described
from support.crash_points import Crash
from support.small_cohort import study_document

STRIDE = int(os.environ.get("FEDWARD_CRASH_STRIDE", "9"))
"""Every point would take half an hour: 1 does so."""
SILO = "south"


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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("party", [HUB, SILO])
def test_a_party_killed_at_a_durable_write_changes_nothing(party, when, undisturbed, credentials, tmp_path):
    expected, writes = undisturbed.outcome(), undisturbed.writes(party)
    assert len(writes) > 60, "a study of three rounds writes more than that"
    first = 1 if when == "before" else 1 + STRIDE // 2

    def disturb(number: int) -> str:
        folder = tmp_path / str(number)
        folder.mkdir()
        federation = CrashFederation(folder, crash_study(), credentials, doomed=(party, Crash(when, number)))
        where = f"{party} killed {when} its write {number} ({writes[number - 1]})"
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
        faults = [fault for fault in pool.map(disturb, range(first, len(writes) + 1, STRIDE)) if fault]
    assert not faults, "\n\n".join(faults)
