"""The commands of docs/install.md for a release, run as they stand there, from an empty home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from deploy.release.locks import ROOT

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


def test_a_passphrase_is_kept_as_a_credential_of_the_unit(tmp_path):
    """Below a folder, with a stub of the command that encrypts for this machine's TPM or host key."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "etc/fedward-silo").mkdir(parents=True)
    (tmp_path / "bin/systemd-creds").write_text('#!/bin/sh\ncp secret "$4"\n')
    (tmp_path / "bin/systemd-creds").chmod(0o755)
    (tmp_path / "secret").write_text("long and secret\n")
    _, (_, lines) = blocks("### As a service")
    text = re.sub(r"(?<![\w.-])/etc/", f"{tmp_path}/etc/", "\n".join(lines))
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(["bash", "-euc", text], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    assert (tmp_path / "etc/fedward-silo/key.cred").is_file()
    added = (tmp_path / "etc/systemd/system/fedward-silo.service.d/key.conf").read_text()
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
    # The install scripts take no Python that lies in a home, and so none of an environment that was made of one.
    without = ("/root/", "/home/", os.environ.get("VIRTUAL_ENV", "/root/"))
    path = os.pathsep.join(part for part in kept["PATH"].split(os.pathsep) if not part.startswith(without))
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
