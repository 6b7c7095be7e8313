"""A federation of version 0.5 is upgraded while its study is paused, and finishes the study with its ledgers.

The wire changed, so all are upgraded before anybody goes on (docs/operating.md, "Upgrading"): two versions refuse each
other, and say so. Version 0.5 is installed from a wheel that is built from the repository's own history.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from coordinator.errors import OperatorError
from crypto.pki.authority import root
from crypto.pki.authority.building import read_request
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from deploy.local import parties, processes
from deploy.local.federation import Federation
from deploy.local.parties import COORDINATOR
from protos.messages import PROTOCOL
from support.small_cohort import SILOS, policy_document, study_document, write_sites, write_yaml

ROOT = Path(__file__).parents[2]
VERSION_05 = "f7d9fde"
"""The commit of 0.5.0."""
MAINS = {
    "fedward-authority": "crypto.pki.authority_cli",
    "fedward-coordinator": "coordinator.cli",
    "fedward-silo": "silo_agent.cli.main",
}
SECONDS = 120
HEADS = {"pooled_rounds": 1, "domain_rounds": 5, "pooled_noise": 8.0, "domain_noise": 16.0}
pytestmark = [pytest.mark.slow, pytest.mark.as_installed]


@pytest.fixture
def old(tmp_path):
    """The programs of version 0.5, in a folder."""
    archive = subprocess.run(["git", "archive", VERSION_05], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("this clone does not reach back to version 0.5: the upgrade from it is not tried")
    source, wheels, site = tmp_path / "source", tmp_path / "wheels", tmp_path / "site"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(source, filter="data")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("fedward-0.5.0-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    programs = tmp_path / "old"
    programs.mkdir()
    for name, module in MAINS.items():
        # Programs that fork a process of their own start it in the same version.
        begin = f'export PYTHONSAFEPATH=1 PYTHONPATH="{site}"'
        call = f'exec "{sys.executable}" -c "from {module} import main; main()" "$@"'
        (programs / name).write_text(f"#!/bin/sh\n{begin}\n{call}\n")
        (programs / name).chmod(0o755)
    return programs


class Versions:
    """Starts programs of either version."""

    def __init__(self, old, monkeypatch):
        self._old, self._new = old, Path(sys.executable).parent
        self.now = old
        monkeypatch.setattr(processes, "script", lambda program: str(self.now / program))
        monkeypatch.setattr(parties, "AUTHOR_ROLE", "operator")  # version 0.5 knows no authors

    def new(self):
        self.now = self._new


def follow(federation, until):
    deadline = time.monotonic() + SECONDS
    with federation.author() as author:
        while time.monotonic() < deadline:
            with contextlib.suppress(OperatorError):  # the coordinator is just being upgraded
                status = author.status(federation.study.digest)
                if until(status):
                    return status
            time.sleep(0.05)
    pytest.fail("\n".join(federation.log(name).read_text()[-3000:] for name in (*SILOS, COORDINATOR)))


def entries(federation, silo, program):
    command = [program / "fedward-silo", "ledger", "show", "--json", "-c", federation.config(silo)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["entries"]


def over(status):
    return status.state in ("finished", "ended", "aborted")


def pause(federation, after):
    """Let the study rest in the round after this one."""
    follow(federation, lambda status: status.round > after or over(status))
    call(federation, "pause")


def call(federation, what):
    """An author's call, as soon as the coordinator answers."""
    deadline = time.monotonic() + SECONDS
    with federation.author() as author:
        while True:
            try:
                getattr(author, what)(federation.study.digest, "the upgrade")
            except OperatorError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            else:
                return


def await_log(federation, silo, wanted):
    """A silo that another version's coordinator refuses says so; it may end with it."""
    deadline = time.monotonic() + SECONDS
    while wanted not in federation.log(silo).read_text():
        assert time.monotonic() < deadline, federation.log(silo).read_text()[-3000:]
        time.sleep(0.1)


def restart(federation, name):
    process = federation.processes[name]
    process.terminate()
    process.wait(60)
    if name == COORDINATOR:
        federation.start_coordinator()
    else:
        federation.start_silo(name)


@pytest.mark.parametrize("order", ["coordinator first", pytest.param("silos first", marks=pytest.mark.campaign)])
def test_a_paused_study_of_05_goes_on_once_all_parties_are_upgraded(tmp_path, monkeypatch, old, order):
    versions = Versions(old, monkeypatch)
    monkeypatch.setattr(Federation, "approve", lambda _: None)  # 0.5 has no approvals: agent.yaml names the study
    study = write_yaml(tmp_path / "study.yaml", study_document(personal=None, heads=HEADS))
    federation = Federation(
        tmp_path / "federation",
        study,
        write_sites(tmp_path / "data"),
        yaml.safe_dump(policy_document(publish=["auc", "accuracy", "patients"])),
    )
    federation.prepare()
    fix_port(federation)
    groups = [[COORDINATOR], SILOS] if order == "coordinator first" else [SILOS, [COORDINATOR]]
    with federation:
        await_log(federation, COORDINATOR, '"version": "0.5.0"')  # silos are ready a moment before they have joined
        federation.begin()
        pause(federation, 1)
        before = {silo: entries(federation, silo, old) for silo in SILOS}
        versions.new()
        for name in groups[0]:
            restart(federation, name)
        if order == "silos first":
            await_log(federation, SILOS[0], "this coordinator speaks protocol 5")
        for name in groups[1]:
            restart(federation, name)
        call(federation, "resume")
        status = follow(federation, over)
        assert status.state == "finished", status.why
        assert {member.state for member in status.members} == {"active"}
        federation.wait_for_silos()
        versions.now = old
        restart(federation, SILOS[0])
        await_log(federation, SILOS[0], f"this coordinator speaks protocol {PROTOCOL}")
    models = {(federation.state(silo) / "model-6.safetensors").read_bytes() for silo in SILOS}
    assert len(models) == 1
    for silo in SILOS:
        after = entries(federation, silo, Path(sys.executable).parent)
        assert after[: len(before[silo])] == before[silo], "what 0.5 wrote stays as it was"
        charged = [(entry["round"], tensor) for entry in after if entry["kind"] == "debit" for tensor in entry["costs"]]
        assert len(charged) == len(set(charged)), "nothing is charged twice"
        verified = subprocess.run(
            [old / "fedward-silo", "ledger", "verify", "-c", federation.config(silo)], check=False
        )
        assert verified.returncode == 0, "version 0.5, to which a hospital rolls back, reads the ledger"


def test_a_ledger_of_05_outlives_its_root(tmp_path, monkeypatch, old):
    """Both roots are trusted, then the old one is taken out; the ledger goes on, and what it cannot check it keeps."""
    versions = Versions(old, monkeypatch)
    study = write_yaml(tmp_path / "study.yaml", study_document(personal=None))
    policy = yaml.safe_dump(policy_document(publish=["auc", "accuracy", "patients"]))
    federation = Federation(tmp_path / "federation", study, write_sites(tmp_path / "data"), policy)
    federation.prepare()
    fix_port(federation)
    with federation:
        federation.begin()
        assert follow(federation, over).state == "finished"
        federation.wait_for_silos()
    versions.new()
    before = {silo: entries(federation, silo, versions.now) for silo in SILOS}
    roots = change_root(federation, tmp_path / "second")
    for place in federation.place.root.iterdir():
        if (place / "certificate.pem").exists():
            (place / "authority.pem").write_bytes(b"".join(roots))
    for silo in SILOS:
        assert "the chain holds, with what" in call_silo(federation, silo, "ledger", "verify")
    exported = tmp_path / "of-05.json"
    call_silo(federation, "north", "ledger", "export", "--format", "json", "--out", exported)
    (tmp_path / "both.pem").write_bytes(b"".join(roots))
    audit = ["ledger", "verify", "--export", exported, "--authority", tmp_path / "both.pem"]
    assert "cosigned by fedward://" in call_silo(federation, "north", *audit)

    for place in federation.place.root.iterdir():  # nobody was cosigned under the new root yet
        if (place / "certificate.pem").exists():
            (place / "authority.pem").write_bytes(roots[1])
    write_yaml(study, study_document(personal=None, name="second"))
    for silo in SILOS:
        call_silo(federation, silo, "study", "approve", study, "--data", "small")
    federation.start_coordinator()
    for silo in SILOS:
        federation.start_silo(silo)
    try:
        wait_for(federation.port)
        federation.begin()
        status = follow(federation, over)
        assert status.state == "finished", status.why
        federation.wait_for_silos()
    finally:
        federation.stop()
    for silo in SILOS:
        after = entries(federation, silo, versions.now)
        assert after[: len(before[silo])] == before[silo]
        assert len(after) > len(before[silo])
        assert "the chain holds, with what" in call_silo(federation, silo, "ledger", "verify")
    again = tmp_path / "later.json"
    call_silo(federation, "north", "ledger", "export", "--format", "json", "--out", again)
    (tmp_path / "new.pem").write_bytes(roots[1])
    audit = ["ledger", "verify", "--export", again, "--authority", tmp_path / "new.pem"]
    assert "cosigned by fedward://" in call_silo(federation, "north", *audit)


def change_root(federation, folder):
    """A second root that goes on with the register of the first and certifies everybody. Returns both."""
    first = federation.place.authority
    second = root.init(folder, "second", 400, predecessor=first)
    enrol_author(federation.place.party(parties.AUTHOR))
    for place in federation.place.root.iterdir():
        if (place / "request.csr").exists():
            asked = read_request((place / "request.csr").read_bytes())
            hosts = ["127.0.0.1"] if place.name == COORDINATOR else []
            pem = (place / "request.csr").read_bytes()
            signed = root.sign(folder, pem, subject=asked.subject, days=90, hosts=hosts)
            (place / "certificate.pem").write_bytes(signed)
    return [(first / "authority.pem").read_bytes(), second]


def enrol_author(place):
    """Whom version 0.5 certified as an operator signs no study; the author asks for a certificate of that role."""
    for file in ("key.pem", "request.csr"):
        (place / file).unlink()
    create_request(place, Subject(Identity(Role.AUTHOR, parties.AUTHOR)), ())


def call_silo(federation, silo, *arguments):
    command = [Path(sys.executable).parent / "fedward-silo", *arguments]
    if "--export" not in arguments:
        command += ["-c", federation.config(silo)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(port):
    """The log still has the line of the start before."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def fix_port(federation):
    """Let the coordinator have the same port after a restart."""
    config = federation.place.coordinator_file
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "port": free_port()}))


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
