"""Every command of the handbook, as it stands there, from an empty home: authorities, three hospitals, a study.

Only what a test machine cannot have is replaced: host names, ports, and the place of the records.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.small_cohort import study_document, write_sites, write_yaml

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs" / "handbook"
SERVICES = ("fedward-authority serve", "fedward-coordinator serve", "fedward-silo run")
SILOS = ("charite", "lund", "porto")
BLOCK = re.compile(
    r"^## (?P<section>[^\n]+)$"
    r"|^```\n(?P<commands>.*?)^```$"
    r"|`(?P<file>[\w./-]+\.yaml)`:\n```yaml\n(?P<yaml>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SECONDS = 600


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def blocks(page):
    """Section, and then either commands or a file with its text, in the page's order."""
    section, found = "", []
    for match in BLOCK.finditer((BOOK / page).read_text()):
        if match["section"]:
            section = match["section"]
        elif match["commands"]:
            found.append((page, section, None, match["commands"]))
        else:
            found.append((page, section, match["file"], match["yaml"]))
    return found


class Reader:
    """Somebody who does what the handbook says, in one folder."""

    def __init__(self, folder):
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir()
        self.home.mkdir()
        self.ports = {"8443": str(free_port()), "7443": str(free_port())}
        self.done, self.running = set(), []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDWARD")}
        path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
        self.env = {**kept, "PATH": path, "HOME": str(self.home), "FEDWARD_AUTHORITY_PASSPHRASE": ""}

    def read(self, page, *sections, work=None, leaving_out=(), **replaced):
        """Do what stands under these headings."""
        wanted = [block for block in blocks(page) if block[1] in sections]
        assert {block[1] for block in wanted} == set(sections)
        for block in wanted:
            self.done.add(block)
            _, _, file, text = block
            text = self.here(text, replaced)
            if file is not None:
                ((work or self.work) / file).write_text(text)
                continue
            for line in text.replace("\\\n", " ").splitlines():
                if not line.startswith(tuple(leaving_out)):
                    self.do(line, work or self.work)

    def here(self, text, replaced):
        for name, value in {
            r"(authority|hub)\.example\.org": "localhost",
            r"0\.0\.0\.0": "127.0.0.1",
            r"metrics_port: \d+": "metrics_port: 0",
            **{rf"\b{port}\b": mine for port, mine in self.ports.items()},
            **replaced,
        }.items():
            text = re.sub(name, value, text)
        return text

    def do(self, line, work):
        if line.startswith(SERVICES):
            log = (work / f"{len(self.running)}.log").open("w+")
            process = subprocess.Popen(["bash", "-c", f"exec {line}"], cwd=work, env=self.env, stderr=log, stdout=log)
            self.running.append((line, process, log))
            self.wait_for_start(log, process)
            return
        done = subprocess.run(
            ["bash", "-euc", line], cwd=work, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"

    def wait_for_start(self, log, process):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            said = Path(log.name).read_text()
            assert process.poll() is None, said
            if '"event": "serving"' in said or '"event": "joined"' in said:
                return
            time.sleep(0.1)
        pytest.fail(Path(log.name).read_text())

    def stop(self, beginning=""):
        for line, process, log in self.running:
            if line.startswith(beginning) and process.poll() is None:
                process.terminate()
                process.wait(60)
                log.close()


def admit_of(silo):
    """The line that admits a silo."""
    lines = [line for *_, text in blocks("authority.md") for line in text.splitlines() if "--role silo" in line]
    return lines[0].replace("charite", silo)


def finished(reader):
    command = "fedward-coordinator study status small -o operator/operator.yaml --json"
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=reader.work, env=reader.env, capture_output=True, text=True, check=True
        )
        status = json.loads(done.stdout)[0]
        if status["state"] in ("finished", "ended", "aborted"):
            return status
        time.sleep(0.5)
    pytest.fail("the study does not end")


@pytest.mark.slow
@pytest.mark.as_installed
def test_every_command_of_the_handbook_works_from_an_empty_home(tmp_path):
    reader = Reader(tmp_path)
    data = write_sites(tmp_path / "data", silos=SILOS)
    privacy = {
        "delta": 1e-5,
        "mode": "distributed",
        "colluders": 1,
        "count_noise": 20.0,
        "max_patients": 1000,
        "smallest_domain": 20,
    }
    study = write_yaml(reader.work / "study.yaml", study_document(silos=list(SILOS), personal=None, privacy=privacy))
    try:
        reader.read("authority.md", "Make both", "Admit a party")
        reader.read("operator.md", "From nothing to a coordinator")
        for silo in SILOS[1:]:
            work = tmp_path / silo
            work.mkdir()
            shutil.copy(study, work)
            reader.do(reader.here(admit_of(silo), {}), reader.work)
            shutil.move(reader.work / f"{silo}.token", work)
            known = ("fedward-silo preflight", "fedward-silo policy explain", "fedward-silo data check")
            start(reader, silo, data, work=work, leaving_out=known)
        start(reader, "charite", data, work=reader.work)
        reader.read("operator.md", "A study")
        status = finished(reader)
        assert status["state"] == "finished", status["why"]
        reader.read("engineer.md", "Every day", "Approve a study", "A patient withdraws", "Back up and restore")
        reader.stop("fedward-silo run")
        (reader.work / "charite.token").unlink()  # it was redeemed, and `--out` replaces no file
        reader.do(reader.here(admit_of("charite"), {}), reader.work)
        reader.read("engineer.md", "Renew, revoke", "Leave")
        for page in ("officer.md", "ethics.md"):
            reader.read(page, "")
        reader.read("authority.md", "Keep it", "Revoke")
        reader.read("authority.md", "Change the root")
    finally:
        reader.stop()
    assert {block for page in sorted(path.name for path in BOOK.glob("*.md")) for block in blocks(page)} == reader.done


def start(reader, silo, data, *, work, leaving_out=()):
    """Read the engineer's way to a running agent."""
    section = "From nothing to a running agent"
    replaced = {"charite": silo, r"/data/lung\.csv": str(data[silo])}
    lines = [block for block in blocks("engineer.md") if block[1] == section]
    reader.done |= set(lines)
    for *_, text in lines:
        for line in reader.here(text, replaced).splitlines():
            if not line.startswith(tuple(leaving_out)):
                reader.do(line, work)
            if line.startswith("fedward-silo enrol"):
                config = work / "silo" / "agent.yaml"
                config.write_text(reader.here(config.read_text(), {}))  # three agents share this machine's ports


def test_the_engineers_way_is_short():
    words = len((BOOK / "engineer.md").read_text().split())
    assert words <= 1500
