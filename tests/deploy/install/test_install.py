"""The install scripts and their systemd units: what they refuse, what they would do, and what they do."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INSTALL = ROOT / "deploy" / "install"
ROLES = ("silo", "coordinator")
ANALYZE = shutil.which("systemd-analyze")
MOST_EXPOSED = 3.0
analyzed = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze: the units are not checked")


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def install(release, role, *words):
    return run("bash", release / f"install-{role}.sh", "--python", sys.executable, *words)


@pytest.fixture
def copy(release, tmp_path):
    """A release of one's own."""
    return shutil.copytree(release, tmp_path / "dist")


@analyzed
@pytest.mark.parametrize("role", [*ROLES, "authority"])
def test_a_unit_is_valid_and_little_exposed(role, tmp_path):
    unit = (INSTALL / f"fedward-{role}.service").read_text()
    here = tmp_path / f"fedward-{role}.service"
    here.write_text(re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={sys.executable}", unit))
    verified = run(ANALYZE, "verify", here)
    assert (verified.returncode, [line for line in verified.stderr.splitlines() if here.name in line]) == (0, [])
    said = run(ANALYZE, "security", "--offline=true", "--no-pager", here).stdout
    exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said)[1])
    assert exposure <= MOST_EXPOSED


@pytest.mark.parametrize("role", ROLES)
def test_all_that_is_wrong_is_told_at_once_and_nothing_is_changed(role, copy, tmp_path):
    (copy / f"requirements-{role}.txt").write_text("torch\n")
    root = tmp_path / "root"
    done = run("bash", copy / f"install-{role}.sh", "--python", "/bin/false", "--root", root)
    assert done.returncode == 1
    assert f"install-{role}.sh: nothing was changed:" in done.stderr
    for fault in (
        "not the one that SHA256SUMS names",
        "--fingerprint is missing",
        "names no version of fedward",
        "/bin/false is not Python 3.11",
    ):
        assert fault in done.stderr
    assert not root.exists()


def test_a_release_of_another_key_or_without_a_good_signature_is_not_installed(copy, release_key, tmp_path):
    root = tmp_path / "root"
    other = install(copy, "silo", "--root", root, "--fingerprint", "00" * 32)
    assert f"has the fingerprint {release_key[1]}" in other.stderr
    assert "is not signed" not in other.stderr
    (copy / "SHA256SUMS.sig").write_bytes((copy / "SHA256SUMS.sig").read_bytes()[:-1] + b"\0")
    unsigned = install(copy, "silo", "--root", root, "--fingerprint", release_key[1])
    assert "is not signed by the release key" in unsigned.stderr
    (copy / "SHA256SUMS").unlink()
    assert "SHA256SUMS is missing" in install(copy, "silo", "--root", root, "--unverified").stderr
    assert (other.returncode, unsigned.returncode, root.exists()) == (1, 1, False)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("cuda", [False, True])
def test_a_dry_run_says_what_it_would_do_and_does_nothing(role, cuda, release, release_key, tmp_path):
    words = ("--fingerprint", ":".join(re.findall("..", release_key[1].upper())), "--root", tmp_path / "root")
    done = install(release, role, *words, "--dry-run", *(["--cuda"] if cuda else []))
    if cuda and role == "coordinator":
        assert "requirements-coordinator-cuda.txt is missing" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert f"-r {release}/requirements-{role}{'-cuda' if cuda else ''}.txt" in done.stdout
    assert "--require-hashes" in done.stdout
    assert f"opt/fedward-{role}/current" in done.stdout
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
def test_the_coordinator_is_installed_into_an_empty_folder_again_and_back(release, copy, tmp_path):
    """From the registries, with pinned versions. An agent's way differs by its requirements alone."""
    root = tmp_path / "root"
    words = ("--unverified", "--root", root)
    first, again = install(release, "coordinator", *words), install(release, "coordinator", *words)
    assert first.returncode == 0, first.stderr
    assert "is there already" in again.stdout
    home = root / "opt/fedward-coordinator"
    program = home / "current/bin/fedward-coordinator"
    version = next(release.glob("*.whl")).name.split("-")[1]
    assert run(program, "--version").stdout == f"fedward-coordinator {version}\n"
    assert "Usage: fedward-coordinator serve" in run(program, "serve", "--help").stdout
    assert run(program.parent / "python", "-c", "import torch").returncode == 1, "a coordinator cannot learn"
    assert (root / "etc/systemd/system/fedward-coordinator.service").is_file()
    assert "no version before" in install(release, "coordinator", *words, "--roll-back").stderr

    # A version that cannot be installed leaves the one that runs.
    (copy / "requirements-coordinator.txt").write_text(f"fedward[coordinator]==9.9 --hash=sha256:{'0' * 64}\n")
    sums = [line for line in (copy / "SHA256SUMS").read_text().splitlines() if "requirements-coord" not in line]
    (copy / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    failed = install(copy, "coordinator", *words)
    assert (failed.returncode != 0, (home / "current").readlink()) == (True, Path(version))

    (home / "0.1").mkdir()
    (home / "previous").symlink_to("0.1")
    assert "0.1 is not complete" in install(release, "coordinator", *words, "--roll-back").stderr
    (home / "0.1" / ".complete").touch()
    assert f"goes from {version} back to 0.1" in install(release, "coordinator", *words, "--roll-back").stdout
    assert [(home / name).readlink() for name in ("current", "previous")] == [Path("0.1"), Path(version)]
    install(release, "coordinator", *words)
    assert [(home / name).readlink() for name in ("current", "previous")] == [Path(version), Path("0.1")]
