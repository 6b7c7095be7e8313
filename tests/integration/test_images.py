"""Images through the whole federation: joined with records, and with an encoder of eleven million weights."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from policies.ledger.ledger import read_ledger
from policies.plan import shapes
from silo_agent.data.reader import read_records
from silo_agent.learning.model.shared import SharedModel
from support import images
from support.live_files import live_files, size_of
from support.prepared import prepare
from support.small_cohort import policy_document, write_yaml

SECONDS = 900.0
UNNOISED = {
    "heads": {"pooled_rounds": 1, "domain_rounds": 2, "pooled_noise": 0, "domain_noise": 0},
    "privacy": {"delta": 1e-5, "mode": "none", "count_noise": 0, "max_patients": 1000},
    "evaluation": {"bins": 6, "noise": 0},
}


def build(folder: Path, document: dict[str, object], policy: dict[str, object], **sites: int) -> Federation:
    study = write_yaml(folder / "study.yaml", document)
    files = images.write_sites(folder / "data", **sites)
    federation = Federation(folder / "federation", study, files, yaml.safe_dump(policy))
    prepare(federation)
    return federation


def finish(federation: Federation) -> None:
    end = time.monotonic() + SECONDS
    with federation.author() as author:
        while (status := author.status(federation.study.digest)).state not in ("finished", "ended", "aborted"):
            assert time.monotonic() < end, "\n".join(map(federation.log_tail, images.SILOS))
            time.sleep(0.1)
    assert status.state == "finished", status.why
    federation.wait_for_silos()


def final_model(federation: Federation) -> SharedModel:
    name = f"model-{federation.study.rounds}.safetensors"
    blobs = {(federation.state(silo) / name).read_bytes() for silo in images.SILOS}
    assert len(blobs) == 1
    return SharedModel.from_bytes(blobs.pop())


@pytest.mark.campaign
@pytest.mark.slow
def test_image_and_record_are_learned_together_from_public_data(tmp_path):
    # Everybody in each step: with half of them at twice this rate, two draws in a hundred diverged.
    encoder = {"steps": 12, "sampling_rate": 1.0, "batch_size": 48, "learning_rate": 1.0, "noise": 0, "clip": 5.0}
    document = images.study_document(classes=3, **UNNOISED, encoder=encoder, publish=["accuracy", "patients"])
    federation = build(tmp_path, document, policy_document(public=True), patients=60, classes=3)
    with federation:
        federation.begin()
        finish(federation)
        with federation.author() as author:
            results = author.results(federation.study.digest)
    model = final_model(federation)
    fresh = images.write_sites(tmp_path / "fresh", patients=60, classes=3, seed=99)["north"]
    records = read_records(fresh, federation.study.data).whole()
    right = model.predict(records.inputs, records.domains, records.images).argmax(axis=1) == records.labels
    assert right.mean() > 0.85, right.mean()
    published = {(a.figure.domain, a.figure.metric): a for a in results.agreed}
    assert set(published) == {(d, m) for d in ("a", "b") for m in ("accuracy", "patients")}
    assert {a.silos for a in published.values()} == {3}
    held_out = sum(a.figure.value for key, a in published.items() if key[1] == "patients")
    assert 0 < held_out < 180
    for silo in images.SILOS:
        genesis, entries = read_ledger(federation.place.party(silo) / "state" / "ledger.sqlite3")
        assert genesis.public
        assert {entry.epsilon for entry in entries} == {math.inf}


@pytest.mark.slow
def test_resnet18_in_a_federation_with_a_coordinator_that_is_killed_while_it_receives(tmp_path):
    document = images.study_document(
        classes=2,
        size=16,
        model={"encoder": "resnet18", "hidden": [], "representation": 8, "seed": 3},
        heads={"pooled_rounds": 1, "domain_rounds": 2, "pooled_noise": 20.0, "domain_noise": 20.0},
        encoder={"steps": 1, "sampling_rate": 0.2, "batch_size": 4, "learning_rate": 0.1, "noise": 4.0},
        deadlines={"offer": 120, "keys": 120, "train": 240, "open": 240, "solve": 120},
    )
    document.pop("personal")
    policy = policy_document()
    policy["limits"] = {**policy["limits"], "encoder_weights": 12_000_000}
    federation = build(tmp_path, document, policy)
    size = 4 * shapes.encoder_values(federation.study)
    assert size > 4 * 11_000_000
    with federation:
        federation.begin()
        cut = kill_while_receiving(federation, size)
        with federation.author() as author:
            author.status(federation.study.digest)  # what the first call loads is not the uploads'
        before = peak_memory(federation)
        finish(federation)
        growth = peak_memory(federation) - before
    assert growth < size / 2, f"the coordinator grew by {growth} bytes while it added uploads of {size}"
    resumed = [
        entry
        for silo in images.SILOS
        for line in federation.log(silo).read_text().splitlines()
        if line[:1] == "{" and (entry := json.loads(line))
        if entry["event"] == "upload goes on" and 0 < entry["offset"] < size
    ]
    assert resumed, f"{cut} bytes were durable, yet nobody resumed"
    model = final_model(federation)
    assert model.encoder.size == shapes.encoder_values(federation.study)
    assert not np.array_equal(model.encoder, SharedModel.start(federation.study).encoder)
    for silo in images.SILOS:
        _, entries = read_ledger(federation.place.party(silo) / "state" / "ledger.sqlite3")
        charged = [(entry.debit.round, tensor) for entry in entries for tensor in entry.debit.costs]
        assert len(charged) == len(set(charged)), "a killed coordinator costs nobody a second charge"


def kill_while_receiving(federation: Federation, size: int) -> int:
    """Kill the coordinator when an encoder lies there in part, start it again; returns the durable bytes.

    Less than half of it: a part that is nearly whole may be complete before the signal arrives.
    """
    spool = federation.place.party(COORDINATOR) / "data" / "spool"
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        growing = [size_of(path) for path in live_files(spool) if "encoder" in str(path)]
        parts = [length for length in growing if size // 20 < length < size // 2]
        if parts:
            process = federation.processes[COORDINATOR]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            start_again(federation)
            return max(parts)
        time.sleep(0.005)
    pytest.fail("no upload of an encoder was seen under way\n" + federation.log_tail(COORDINATOR))


def start_again(federation: Federation) -> None:
    """The coordinator's machine comes back under its old address."""
    file = federation.place.party(COORDINATOR) / "coordinator.yaml"
    write_yaml(file, {**yaml.safe_load(file.read_text()), "port": federation.port})
    federation.log(COORDINATOR).unlink()
    federation.start_coordinator()


def peak_memory(federation: Federation) -> int:
    """Most bytes that the coordinator has ever held, without pages of program files.

    The kernel counts those as they are touched, and how many it keeps depends on the machine and not on the uploads.
    """
    status = Path(f"/proc/{federation.processes[COORDINATOR].pid}/status").read_text()
    kibibytes = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
    return (kibibytes["VmHWM"] - kibibytes["RssFile"]) * 1024
