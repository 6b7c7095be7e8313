"""The install scripts do what they say, without root, and the units that they install are tight."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).parents[3] / "deploy" / "install"
MOST_EXPOSED = 3.0
analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def script(release, role, *words):
    command = ["sh", f"install-{role}.sh", *words]
    return subprocess.run(command, cwd=release, capture_output=True, text=True, check=False)


@analyze
@pytest.mark.parametrize("role", ["silo", "coordinator"])
def test_a_unit_is_valid_and_little_exposed(role, tmp_path):
    unit = tmp_path / f"fedward-{role}.service"
    text = (UNITS / unit.name).read_text()
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={program}", text, flags=re.MULTILINE))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", str(unit)]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert float(re.search(r"Overall exposure level for .*: ([\d.]+)", told)[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("role", ["silo", "coordinator"])
def test_a_dry_run_tells_all_and_does_nothing(release, release_key, role):
    done = script(release, role, "--dry-run", "--fingerprint", release_key[1])
    assert done.returncode == 0, done.stderr
    for wanted in ("useradd --system", "--require-hashes", "systemctl enable", "chmod 0700", "nothing was done"):
        assert wanted in done.stdout
    assert not Path(f"/opt/fedward/{role}").exists()


def test_a_release_that_is_not_as_signed_is_not_installed(release, release_key, tmp_path):
    root = tmp_path / "root"
    assert "give --fingerprint" in script(release, "silo", "--root", str(root)).stderr
    wrong = script(release, "silo", "--root", str(root), "--fingerprint", "00" * 32)
    assert release_key[1] in wrong.stderr
    other = shutil.copytree(release, tmp_path / "other")
    with (other / "requirements-silo.txt").open("a") as file:
        file.write("evil==1.0\n")
    changed = script(other, "silo", "--root", str(root), "--fingerprint", release_key[1])
    assert "requirements-silo.txt: FAILED" in changed.stdout + changed.stderr
    assert [wrong.returncode, changed.returncode] == [1, 1]
    assert not root.exists()


@pytest.mark.slow
def test_an_installation_runs_is_idempotent_and_rolls_back_with_its_settings_and_state(release, tmp_path):
    root = tmp_path / "root"
    words = ("--root", str(root), "--unverified")
    first = script(release, "coordinator", *words)
    assert first.returncode == 0, first.stderr
    program = root / "opt/fedward/coordinator/current/bin/fedward-coordinator"
    version = next(release.glob("*.whl")).name.split("-")[1]
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert told == f"fedward-coordinator {version}\n"
    settings = root / "etc/fedward/coordinator/coordinator.yaml"
    state = root / "var/lib/fedward-coordinator"
    assert [path.stat().st_mode & 0o777 for path in (settings, settings.parent, state)] == [0o600, 0o700, 0o700]

    settings.write_text("mine")
    (state / "database").write_text("state")
    assert "is installed already" in script(release, "coordinator", *words).stdout
    assert "no version before" in script(release, "coordinator", *words, "--roll-back").stderr

    later = shutil.copytree(release, tmp_path / "later")
    requirements = later / "requirements-coordinator.txt"
    # A version that cannot be installed leaves the one that runs.
    requirements.write_text(f"--find-links .\nfedward[coordinator]==9.9 --hash=sha256:{'0' * 64}\n")
    failed = script(later, "coordinator", *words)
    assert failed.returncode != 0
    assert (root / "opt/fedward/coordinator/current").readlink() == Path(version)

    home = root / "opt/fedward/coordinator"
    shutil.copytree(home / version, home / "0.1", symlinks=True)
    (home / "previous").symlink_to("0.1")
    assert f"went back from {version} to 0.1" in script(release, "coordinator", *words, "--roll-back").stdout
    assert (home / "current").readlink() == Path("0.1")
    assert script(release, "coordinator", *words).returncode == 0
    assert [(home / name).readlink() for name in ("current", "previous")] == [Path(version), Path("0.1")]
    assert (settings.read_text(), (state / "database").read_text()) == ("mine", "state")
