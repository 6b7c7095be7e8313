"""Kill -9 before and after durable writes of coordinator and silo, in one study: it ends as if nothing had been.

Same models, same results, same ledgers, same training logs, bit for bit (docs/design/threat-model.md,
"Invariants" 1, 3, 4, 5 and 9).
`make test-slow` takes one of every kind of write, before it and after it, and one in `STRIDE` of all; `make
reliability` takes every one.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.demo.recount import recount
from policies.documents.study import Study
from protos.messages import Tensor
from silo_agent.data.reader import read_records
from silo_agent.data.split import split
from silo_agent.learning.personal.model import PersonalModel
from support.certificates import data_set_of, make_authority
from support.crash_points import Crash
from support.party_federation import HUB, PartyFederation, credentials_of, described
from support.party_process import PERSONAL_WRITES
from support.small_cohort import study_document

pytestmark = pytest.mark.slow
STRIDE = int(os.environ.get("FEDWARD_CRASH_STRIDE", "9"))
"""Every point would take half an hour: 1 does so."""
SILO = "south"
KINDS = {HUB: 5, SILO: 17}
"""How many kinds of durable write there are at least."""
OWN = {"epochs": 1, "ditto": 0.1, "mmd": 0.5, "mmd_every": 2, "mmd_d": 0.5, "adversary": 0.5}
"""A personal model with every term whose state goes on from round to round."""


def crash_study(**changes: object) -> Study:
    """Every kind of sum in three rounds, at prices that take no time to add up."""
    document = study_document(name="crash", publish=["accuracy"], **changes)
    document["heads"] = {**document["heads"], "pooled_rounds": 1, "domain_rounds": 1}
    document["encoder"] = {**document["encoder"], "sampling_rate": 1.0, "noise": 12.0}
    return Study.model_validate(document)


def keeping_study() -> Study:
    """The same with heads that stay at the silo, and a personal model whose terms have a state."""
    document = crash_study().model_dump(mode="json") | {"recipe": "fedrep", "personal": OWN}
    document["encoder"]["head_steps"] = 2
    document["data"]["protected"] = [{"column": "age", "edges": [0.0], "names": ["young", "old"]}]
    return Study.model_validate(document)


@pytest.fixture(scope="module")
def credentials(tmp_path_factory) -> dict[str, Path]:
    return credentials_of(make_authority(tmp_path_factory.mktemp("consortium")), crash_study())


@pytest.fixture(scope="module")
def undisturbed(credentials, tmp_path_factory) -> PartyFederation:
    federation = PartyFederation(tmp_path_factory.mktemp("undisturbed"), crash_study(), credentials)
    assert federation.run().state == "finished"
    return federation


def test_two_undisturbed_runs_are_the_same(undisturbed, credentials, tmp_path):
    again = PartyFederation(tmp_path, crash_study(), credentials)
    again.run()
    assert again.outcome() == undisturbed.outcome()


@pytest.mark.parametrize("party", [HUB, SILO])
def test_a_party_killed_at_any_kind_of_durable_write_changes_nothing(party, undisturbed, credentials, tmp_path):
    """Alone: if another one died before, the same number could be a write of another kind."""
    crashes = kinds_of(undisturbed.writes(party))
    assert len(crashes) >= KINDS[party], "there were more kinds of durable writes"
    require_unchanged({party: crashes}, undisturbed, credentials, tmp_path)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("when", ["before", "after"])
def test_parties_killed_at_a_durable_write_change_nothing(when, undisturbed, credentials, tmp_path):
    crashes = {}
    for party in (HUB, SILO):
        writes = undisturbed.writes(party)
        assert len(writes) > 60, "a study of three rounds writes more than that"
        first = 1 if when == "before" else 1 + STRIDE // 2
        crashes[party] = [Crash(when, number) for number in range(first, len(writes) + 1, STRIDE)]
    require_unchanged(crashes, undisturbed, credentials, tmp_path)


@pytest.fixture(scope="module")
def keeping(credentials, tmp_path_factory) -> PartyFederation:
    """Undisturbed. A process of its own trains the personal model of `SILO`, as with every real agent."""
    federation = PartyFederation(tmp_path_factory.mktemp("keeping"), keeping_study(), credentials, apart={SILO: None})
    assert federation.run().state == "finished"
    return federation


@pytest.mark.timeout(7200)
def test_a_silo_killed_around_the_parts_that_it_keeps_trains_them_once_for_their_charge(keeping, credentials, tmp_path):
    """From the durable write of the parts up to that of the release, which is the draw's last."""
    writes, crashes = keeping.writes(SILO), []
    kept = [n for n, write in enumerate(writes, 1) if write == "sync kept"]
    for number in kept[::3]:  # the digest to come, the parts, and their digest
        last = writes.index("commit", number) + 1
        crashes += [Crash(when, n) for n in range(number, last + 1) for when in ("before", "after")]
    assert len(crashes) == 2 * 2 * 10, (
        "two rounds: digest, parts, digest, each with its folder, training log, integers, their folder, state"
    )
    assert {f"{SILO} kept-{number}.f64" for number in (1, 2)} < set(keeping.outcome())
    require_unchanged({SILO: crashes[STRIDE // 2 :: STRIDE]}, keeping, credentials, tmp_path)


@pytest.mark.timeout(7200)
def test_a_personal_model_cut_off_in_its_training_goes_on_from_the_state_of_its_terms(keeping, credentials, tmp_path):
    """A process trains it, and dies together with the agent at one of its durable writes."""
    own = PersonalModel.from_bytes(keeping.outcome()[f"{SILO} personal.safetensors"])
    assert set(own.state) == {"kernel", "mixtures", "adversary"}
    steps = -(-records_of(keeping) // own.study.personal.batch_size) * 2
    assert own.state["kernel"][-1] == steps * own.study.personal.kernel_steps, "of both rounds"
    assert own.state["adversary"][-1] == steps * own.study.personal.adversary_steps
    writes = keeping.writes(SILO, PERSONAL_WRITES)
    assert [write for write in writes if write in ("sync personal", "sync choice")] == [
        "sync personal", "sync personal", "sync choice"
    ]  # fmt: skip
    second = [n for n, write in enumerate(writes, 1) if write == "sync personal"][1]
    every = [Crash(when, number) for number in range(1, len(writes) + 1) for when in ("before", "after")]
    crashes = every if STRIDE == 1 else [Crash("before", second)]
    require_unchanged({SILO: crashes}, keeping, credentials, tmp_path, apart=True)


def records_of(federation: PartyFederation) -> int:
    """How many records of `SILO` train its personal model."""
    study = federation.study
    records = read_records(federation.root / "data" / f"{SILO}.csv", study.data, ("patient",)).records
    return len(split(records, data_set_of(SILO), 0.2)[0])


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
    crashes: Mapping[str, Sequence[Crash]],
    undisturbed: PartyFederation,
    credentials: dict[str, Path],
    root: Path,
    *,
    apart: bool = False,
) -> None:
    """A study with any of these crashes ends as the undisturbed one did. `apart`: they are the personal model's.

    The n-th crashes of all parties come in one study. Who has more of them dies alone in the last ones.
    """
    expected, file = undisturbed.outcome(), PERSONAL_WRITES if apart else "writes"
    writes = {party: undisturbed.writes(party, file) for party in crashes}
    together = itertools.zip_longest(*([(party, crash) for crash in given] for party, given in crashes.items()))
    studies = [dict(filter(None, given)) for given in together]

    def disturb(number: int) -> str:
        folder, doomed = root / str(number), studies[number]
        folder.mkdir()
        federation = PartyFederation(
            folder,
            undisturbed.study,
            credentials,
            doomed={} if apart else doomed,
            apart=doomed if apart else undisturbed.apart,
        )
        where = ", ".join(
            f"{party} killed {crash.when} its write {crash.number} ({writes[party][crash.number - 1]})"
            for party, crash in doomed.items()
        )
        try:
            status = federation.run()
        except AssertionError as error:
            return f"{where}: {error}"
        if federation.killed != doomed.keys():
            return f"{where}: but only {sorted(federation.killed)} died"
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
        faults = [fault for fault in pool.map(disturb, range(len(studies))) if fault]
    assert not faults, "\n\n".join(faults)
