"""The commands of docs/install.md for a release, run as they stand there, from an empty home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from deploy.release.locks import ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
CPU_INDEX = "export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"


def commands():
    """The lines of the blocks of the section, in order."""
    page = (ROOT / "docs" / "install.md").read_text()
    section = page[page.index("## From a release\n") : page.index("## The authority")]
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_no_page_installs_from_an_index_that_has_no_fedward():
    wrong = {page.name: found for page in PAGES if (found := re.findall(r"pip install '?fedward", page.read_text()))}
    assert not wrong


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
    text = "\n".join(lines).replace("FINGERPRINT", release_key[1])
    done = subprocess.run(
        ["bash", "-eu"],
        input=text,
        cwd=folder,
        env={**kept, "HOME": str(home)},
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
