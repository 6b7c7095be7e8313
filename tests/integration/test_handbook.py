"""Every command of the handbook, as it stands there, from an empty home: authorities, three hospitals, a study.

Only what a test machine cannot have is replaced: host names, ports, the root of the file system, other users, systemd,
and the place of the records. One hospital installs a release and runs its agent as the service's unit says.
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

from silo_agent.config import AgentConfig
from support.small_cohort import study_document, write_sites, write_yaml

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs" / "handbook"
SERVICES = ("fedward-authority serve", "fedward-coordinator serve")
BEGIN = "From nothing to a running agent"
SILOS = ("charite", "lund", "porto")
SUDO = '#!/bin/sh\nshift 2\n[ "$1" = -s ] && exec sh\nexec "$@"\n'
"""Other users: whoever runs the test is all of them."""
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
    """Somebody who does what the handbook says, in folders of their own below one that stands for a machine's root."""

    def __init__(self, folder, release, fingerprint):
        self.work, self.home, self.root, self.programs = (
            folder / name for name in ("work", "home", "root", "programs")
        )
        for place in (self.work, self.home, self.root, self.programs):
            place.mkdir()
        (self.programs / "sudo").write_text(SUDO)
        (self.programs / "sudo").chmod(0o755)
        self.ports = {"8443": str(free_port()), "7443": str(free_port())}
        self.install = f"bash {release}/install-silo.sh --python {sys.executable} --root {self.root}"
        self.fingerprint = fingerprint
        self.done, self.running, self.commands = set(), {}, {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FEDWARD")}
        path = [self.programs, self.root / "usr/local/bin", Path(sys.executable).parent, kept["PATH"]]
        # This machine has PyTorch's build for CPUs in a registry of its own; it does not reach PyTorch's.
        said = {"FEDWARD_AUTHORITY_PASSPHRASE": "", "PIP_EXTRA_INDEX_URL": ""}
        self.env = {**kept, "PATH": os.pathsep.join(map(str, path)), "HOME": str(self.home), **said}

    def read(self, page, *wanted, work=None, leaving_out=(), only=None, **replaced):
        """Do what stands under these headings; `only` the blocks of these numbers."""
        found = [block for block in blocks(page) if block[1] in wanted]
        assert {block[1] for block in found} == set(wanted)
        for block in found if only is None else [found[number] for number in only]:
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
            r"bash install-silo\.sh": self.install,
            r"install -o fedward-silo": "install",
            "FINGERPRINT": self.fingerprint,
            r"(?<![\w.])/(opt|etc|var/lib)/fedward-silo": rf"{self.root}/\1/fedward-silo",
            **{rf"\b{port}\b": mine for port, mine in self.ports.items()},
            **replaced,
        }.items():
            text = re.sub(name, value, text)
        return text

    def do(self, line, work):
        if line.startswith(SERVICES):
            return self.start(line, line, work)
        if line.startswith("systemctl"):
            return self.systemctl(*line.split()[1:])
        done = subprocess.run(
            ["bash", "-euc", line], cwd=work, env=self.env, capture_output=True, text=True, check=False, input=""
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def systemctl(self, verb, *words):
        """What systemd would do with the unit that was installed."""
        name = words[-1]
        unit = (self.root / "etc/systemd/system" / f"{name}.service").read_text()
        self.stop(name)
        if verb != "stop":
            assert (verb, words[:-1]) in {("enable", ("--now",)), ("restart", ())}
            command = self.here(re.search(r"(?m)^ExecStart=(.*)$", unit)[1], {})
            self.start(name, command, self.root / "var/lib" / name)

    def start(self, name, command, work):
        log = (work / f"{len(self.running)}-{len(self.commands)}.log").open("w+")
        self.commands[name] = command
        process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=work, env=self.env, stderr=log, stdout=log)
        self.running[name] = (process, log, work)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            said = Path(log.name).read_text()
            assert process.poll() is None, said
            if '"event": "serving"' in said or '"event": "joined"' in said:
                return
            time.sleep(0.1)
        pytest.fail(Path(log.name).read_text())

    def stop(self, beginning=""):
        for name, (process, log, _) in list(self.running.items()):
            if name.startswith(beginning):
                process.terminate()
                process.wait(60)
                log.close()
                del self.running[name]

    def restart(self, beginning):
        """The service that the page says to restart."""
        ((name, (*_, work)),) = [item for item in self.running.items() if item[0].startswith(beginning)]
        self.stop(name)
        self.start(name, self.commands[name], work)


def admit_of(silo):
    """The line that admits a silo."""
    lines = [line for *_, text in blocks("authority.md") for line in text.splitlines() if "--role silo" in line]
    return lines[0].replace("charite", silo)


def finished(reader):
    command = "fedward-coordinator study status small -o operator/operator.yaml --format json"
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        status = json.loads(reader.do(command, reader.work))[0]
        if status["state"] in ("finished", "ended", "aborted"):
            return status
        time.sleep(0.5)
    pytest.fail("the study does not end")


def noted(reader, work, verdict):
    """Wait until the agent has written a decision into its ledger: a backup from before it would be too old."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        if verdict in reader.do("fedward-silo ledger show --format json -c silo/agent.yaml", work):
            return
        time.sleep(0.5)
    pytest.fail("the agent does not note what was decided")


@pytest.mark.slow
@pytest.mark.as_installed
@pytest.mark.usefixtures("registries")
def test_every_command_of_the_handbook_works_from_an_empty_home(  # noqa: PLR0915  # one story, in the pages' order
    tmp_path, release, release_key
):
    reader = Reader(tmp_path, release, release_key[1])
    data = write_sites(tmp_path / "data", silos=SILOS)
    privacy = {
        "delta": 1e-5,
        "mode": "distributed",
        "colluders": 1,
        "count_noise": 20.0,
        "max_patients": 1000,
        "smallest_domain": 20,
    }
    document = study_document(silos=list(SILOS), personal=None, privacy=privacy, publish=["auc"])
    study = write_yaml(reader.work / "study.yaml", document)
    places = {silo: tmp_path / silo for silo in SILOS} | {"charite": reader.root / "var/lib/fedward-silo"}
    charite = places["charite"]

    def token(silo, name, at="root"):
        """A token, given to the hospital."""
        if not (reader.work / f"{silo}.token").exists():  # the page itself admits one hospital
            reader.do(reader.here(admit_of(silo), {r"admit root": f"admit {at}"}), reader.work)
        shutil.move(reader.work / f"{silo}.token", places[silo] / name)

    try:
        reader.read("authority.md", "Make both")
        reader.read("authority.md", "Admit a party", only=[0])
        reader.read("operator.md", "From nothing to a coordinator")
        reader.read("authority.md", "Name the keys")
        reader.restart("fedward-coordinator serve")
        reader.read("authority.md", "Admit a party", only=[1])
        for silo, place in places.items():
            place.mkdir(parents=True)
            shutil.copy(study, place)
            token(silo, f"{silo}.token")
        for silo in SILOS[1:]:
            start(reader, silo, data, places[silo])
        start_as_service(reader, data, tmp_path / "received", charite)
        reader.read("authority.md", "Name the keys", named="named-2")
        for silo in SILOS[1:]:
            reader.restart(silo)
        reader.do("systemctl restart fedward-silo", charite)
        reader.read("operator.md", "A study")
        status = finished(reader)
        assert status["state"] == "finished", status["why"]
        reader.read("operator.md", "Who may do what")
        reader.read("operator.md", "Its figures")
        reader.read("engineer.md", "Every day", "Approve a study", "A patient withdraws", work=charite)
        noted(reader, charite, "withdrawn")
        reader.read("engineer.md", "Back up", work=charite)
        (version,) = [path for path in (reader.root / "opt/fedward-silo").iterdir() if not path.is_symlink()]
        shutil.copytree(version, version.with_name("0.5.9"), symlinks=True)  # a version before
        (version.parent / "previous").symlink_to("0.5.9")
        reader.read("engineer.md", "Upgrade and back", work=charite)
        assert (version.parent / "current").readlink() == Path("0.5.9")
        reader.do("systemctl stop fedward-silo", charite)
        reader.read("engineer.md", "Restore", work=charite)
        reader.do("fedward-silo ledger export -c silo/agent.yaml --format json --out lund.json", places["lund"])
        for name in ("lund.json", "lund.json.sig"):
            shutil.copy(places["lund"] / name, charite)
        reader.read("officer.md", "", work=charite)
        token("charite", "again.token")
        reader.read("engineer.md", "Renew, revoke", work=charite, only=[0, 1])
        der = "openssl req -in new-silo/request.csr -noout -pubkey | openssl pkey -pubin -outform DER"
        key = reader.do(f"{der} | sha256sum | cut -d' ' -f1", charite).strip()
        reader.read("authority.md", "Revoke", only=[-1], KEY=key)
        shutil.move(reader.work / "charite-again.token", charite / "charite.token")
        reader.read("engineer.md", "Renew, revoke", work=charite, only=[2])
        reader.read("engineer.md", "Leave", work=charite)
        reader.read("ethics.md", "", work=charite)

        again = {r"readmit (\S+) ": r"readmit \1 --days 740 "}
        reader.read("authority.md", "Keep it", **again)
        reader.restart("fedward-authority serve")
        reader.read("authority.md", "Revoke", only=[0, 1])
        change_root(reader, [reader.work / "coordinator", reader.work / "operator", places["lund"] / "silo"], token)
        reader.read("authority.md", "If the issuing key was stolen")
    finally:
        reader.stop()
    pages = sorted(path.name for path in BOOK.glob("*.md"))
    assert {block for page in pages for block in blocks(page)} == reader.done


def start_as_service(reader, data, received, charite):
    """The engineer's way at the hospital that installs a release; `received` is where release, token and study came."""
    received.mkdir()
    for name in ("charite.token", "study.yaml"):
        shutil.move(charite / name, received)
    reader.read("engineer.md", BEGIN, work=received, only=[0])
    rest = range(1, sum(section == BEGIN for _, section, *_ in blocks("engineer.md")))
    reader.read("engineer.md", BEGIN, work=charite, only=rest, **at_charite(data))


def at_charite(data):
    """Where the records are, and a configuration whose metrics take any free port."""
    free = r"\g<0>\nsed -i 's/^metrics_port: .*/metrics_port: 0/' silo/agent.yaml"
    return {r"/data/lung\.csv": str(data["charite"]), r"(?m)^fedward-silo enrol silo .*$": free}


def start(reader, silo, data, work):
    """The engineer's way to a running agent at another hospital of this machine, from its enrolment on."""
    lines = [line for _, section, _, text in blocks("engineer.md") if section == BEGIN for line in text.splitlines()]
    wanted = (
        "fedward-silo enrol silo",
        "fedward-silo policy new",
        "fedward-silo ledger create",
        "sed ",
        "fedward-silo study approve study",
    )
    for line in lines:
        if line.startswith(wanted):
            reader.do(reader.here(line, {"charite": silo, r"/data/lung\.csv": str(data[silo])}), work)
            if line.startswith("fedward-silo enrol"):
                reader.do("sed -i 's/^metrics_port: .*/metrics_port: 0/' silo/agent.yaml", work)
    reader.start(silo, "fedward-silo run -c silo/agent.yaml", work)


def change_root(reader, parties, token):
    """Both roots, then the second alone; a party that enrols anew goes on under it."""
    parts = [block for block in blocks("authority.md") if block[1] == "Change the root"]
    for number, (*_, text) in enumerate(parts):
        for party in parties if "PARTY" in text else parties[:1]:
            reader.read(
                "authority.md",
                "Change the root",
                only=[number],
                PARTY=str(party),
                **{r"readmit (\S+) ": r"readmit \1 --days 750 "},
            )
        if "issuing/" in text:
            reader.restart("fedward-authority serve")
        if "readmit" in text:  # what a renewal would do within the week
            (lund,) = parties[2:]
            token("lund", "again.token", at="root-2")
            reader.read("engineer.md", "Renew, revoke", only=[0], work=lund.parent)
    credential = AgentConfig.load(lund / "agent.yaml").credential()
    assert [root.name for root in credential.trust.bundle.roots] == ["Lung consortium, second"]
    assert "are of a root that" in reader.do("fedward-silo ledger verify -c silo/agent.yaml", lund.parent)


def test_the_engineers_way_is_short():
    words = len((BOOK / "engineer.md").read_text().split())
    assert words <= 1500
