"""The install scripts and their systemd units: what they refuse, what they would do, and what they do."""

import hashlib
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


@pytest.fixture
def release(tmp_path):
    """A release whose wheel nobody could install."""
    folder = tmp_path / "dist"
    folder.mkdir()
    sums = []
    for name, content in (("fedward-0.7.0-py3-none-any.whl", b"no wheel"), ("constraints.txt", b"torch==2.13.0\n")):
        (folder / name).write_bytes(content)
        sums.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


@analyzed
@pytest.mark.parametrize("role", ROLES)
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
def test_all_that_is_wrong_is_told_at_once_and_nothing_is_changed(role, release, tmp_path):
    (release / "constraints.txt").write_text("torch\n")
    (release / "fedward-0.8.0-py3-none-any.whl").touch()
    root = tmp_path / "root"
    done = run(INSTALL / f"install-{role}.sh", "--release", release, "--python", "/bin/false", "--root", root)
    assert done.returncode == 1
    assert f"install-{role}.sh: nothing was changed:" in done.stderr
    for fault in ("exactly one fedward-*.whl", "not the one that SHA256SUMS names", "/bin/false is not Python 3.11"):
        assert fault in done.stderr
    assert not root.exists()


@pytest.mark.parametrize("role", ROLES)
def test_a_dry_run_says_what_it_would_do_and_does_nothing(role, release, tmp_path):
    given = ("--release", release, "--python", sys.executable, "--root", tmp_path / "root", "--dry-run")
    done = run(INSTALL / f"install-{role}.sh", *given, *(("--extras", "dicom") if role == "silo" else ()))
    assert done.returncode == 0, done.stderr
    extras = "silo,dicom" if role == "silo" else "coordinator"
    assert (
        f"pip install --quiet --disable-pip-version-check -c {release}/constraints.txt fedward[{extras}]" in done.stdout
    )
    assert f"opt/fedward-{role}/current" in done.stdout
    assert not (tmp_path / "root").exists()


@pytest.mark.slow
def test_the_coordinator_is_installed_from_a_wheel_into_an_empty_folder_and_again(tmp_path):
    """From the registries, with pinned versions. An agent's way differs by its extra alone, and takes gigabytes."""
    asked = run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", tmp_path, "setuptools")
    if asked.returncode != 0:
        pytest.skip("the package registries cannot be reached: nothing is installed from them")
    dist, root = tmp_path / "dist", tmp_path / "root"
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", dist, ROOT)
    assert built.returncode == 0, built.stderr
    shutil.copy(ROOT / "constraints.txt", dist)
    names = sorted(path.name for path in dist.iterdir())
    sums = [f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (dist / "SHA256SUMS").write_text("".join(sums))
    command = (INSTALL / "install-coordinator.sh", "--release", dist, "--python", sys.executable, "--root", root)
    first, again = run(*command), run(*command)
    assert first.returncode == 0, first.stderr
    assert "is there already" in again.stdout
    program = root / "opt/fedward-coordinator/current/bin/fedward-coordinator"
    version = names[-1].split("-")[1]
    assert run(program, "--version").stdout == f"fedward-coordinator {version}\n"
    assert "Usage: fedward-coordinator serve" in run(program, "serve", "--help").stdout
    assert run(program.parent / "python", "-c", "import torch").returncode == 1, "a coordinator cannot learn"
    assert (root / "etc/systemd/system/fedward-coordinator.service").is_file()
