"""The commands of docs/install.md for a release, run as they stand there, from an empty home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deploy.release.locks import ROOT
from support.online import Online, serving

PAGES = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md")))
CPU_INDEX = "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLS = re.compile(
    r"\bpip (?:install|download)\b|-m venv\b|\b(?:podman|docker|helm|sudo|systemd-creds encrypt|apt|dnf) \w"
)


def blocks(heading):
    """The blocks below a heading, up to the next heading: kind and lines."""
    page = (ROOT / "docs" / "install.md").read_text()
    section = page[page.index(f"{heading}\n") + len(heading) :]
    section = section[: re.search(r"^#+ \w+.*\n(?!.*```)", section, re.MULTILINE).start()]
    return [(found["kind"], found["text"].splitlines()) for found in BLOCK.finditer(section)]


def commands():
    """What anybody runs in the release's folder, in order: all of the release, and the service's dry runs."""
    return [line for _, lines in (*blocks("## From a release"), blocks("### As a service")[0]) for line in lines]


def images():
    return [line for _, lines in blocks("### In containers") for line in lines]


def test_every_install_command_stands_where_a_test_runs_it():
    service = [line for _, lines in blocks("### As a service")[1:] for line in lines]
    for page in PAGES:
        text = page.read_text()
        told = [line for found in BLOCK.finditer(text) for line in found["text"].splitlines()]
        told += re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
        assert {line for line in told if INSTALLS.search(line)} <= {*commands(), *service, *images()}, page.name


def test_images_are_built_by_the_commands_that_their_definitions_name(release):
    """What the definitions run, tests/deploy/images runs."""
    assert len(images()) == 2
    for line in images():
        definition = re.match(r"podman build -f (Containerfile-\w+) ", line)[1]
        assert f"\n#   {line}\n" in (release / definition).read_text()


STUB = """#!/bin/sh
case $(basename "$0") in
  sudo) shift 2; exec "$@" ;;
  systemd-creds) cp secret "$4" ;;
  systemctl) echo "$@" ;;
esac
"""


@pytest.mark.slow
def test_what_root_does_for_a_service_gives_an_agent_that_may_start(tmp_path):
    """Below a folder, without another user and without systemd; preflight runs in the test of the handbook."""
    work, stubs, program = tmp_path / "work", tmp_path / "stubs", Path(sys.executable).parent / "fedward-silo"
    folders = [tmp_path / name for name in ("etc/fedward-silo", "etc/systemd/system", "var/lib/fedward-silo")]
    for folder in (work, stubs, *folders):
        folder.mkdir(parents=True)
    for name in ("sudo", "systemctl", "systemd-creds"):
        (stubs / name).write_text(STUB)
        (stubs / name).chmod(0o755)
    config = folders[0] / "agent.yaml"

    def here(line):
        line = re.sub(r"^install -[og] fedward-silo", "install", line)
        line = line.replace("/opt/fedward-silo/current/bin/fedward-silo", str(program))
        return re.sub(r"(?<![\w.-])/(etc|var)/", rf"{tmp_path}/\1/", line)

    def bash(line):
        environment = {**os.environ, "PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-euc", line], cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    online = Online(tmp_path / "consortium")
    with serving(online) as url:
        token = online.admit("silo", "charite", data_set="charite-lung")
        (work / "charite.token").write_text(replace(token, url=url).text())
        (work / "secret").write_text("long and secret\n")
        policy = "--data-set charite-lung --contact a@b.example --patient id --hospitals 3 --epsilon 8"
        bash(f"{program} policy new {policy} --out policy.yaml")
        for kind, lines in blocks("### As a service")[1:]:
            if kind == "yaml":
                written = yaml.safe_load(config.read_text()) | yaml.safe_load(here("\n".join(lines)))
                config.write_text(yaml.safe_dump(written))
                continue
            said = [bash(here(line)) for line in lines if " preflight " not in line]
            if any(line.startswith("systemctl") for line in lines):
                assert said[-1] == "enable --now fedward-silo\n"
                assert "the chain holds" in bash(f"{program} ledger verify -c {config}")
    assert (folders[0] / "key.cred").is_file()
    added = (folders[1] / "fedward-silo.service.d" / "key.conf").read_text()
    assert added == f"[Service]\nLoadCredentialEncrypted=key:{tmp_path}/etc/fedward-silo/key.cred\n"


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_every_install_command_works_from_an_empty_home(release, release_key, tmp_path):
    lines = commands()
    assert lines.count(CPU_INDEX) == 1
    # This machine has PyTorch's build for CPUs in a registry of its own; it does not reach PyTorch's.
    lines.remove(CPU_INDEX)
    folder, home = shutil.copytree(release, tmp_path / "dist"), tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    # The install scripts take no Python that lies in a home.
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if not part.startswith(("/root/", "/home/")))
    text = "\n".join(lines).replace("FINGERPRINT", release_key[1])
    done = subprocess.run(
        ["bash", "-eu"],
        input=text,
        cwd=folder,
        env={**kept, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version = next(release.glob("*.whl")).name.split("-")[1]
    told = [line for line in done.stdout.splitlines() if line.startswith("fedward-")]
    assert told == [f"fedward-{role} {version}" for role in ("authority", "coordinator", "silo")]
    assert f"{release_key[1]}  -" in done.stdout
    offline = home / "fedward-offline" / "bin" / "fedward-coordinator"
    assert subprocess.run([offline, "--version"], check=True, capture_output=True, text=True).stdout.endswith(
        f"{version}\n"
    )
