"""The install scripts and their systemd units: what they refuse, what they would do, and what they do."""

import hashlib
import os
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
    assert "useradd" not in done.stdout, "a folder gets no users of this machine"
    assert not (tmp_path / "root").exists()


PYTHON = """#!/bin/sh
case "$1 $2" in
  "-m venv")
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
    for program in silo coordinator authority; do
      program=$3/bin/fedward-$program
      printf '#!/bin/sh\\necho "$0" "$@"; exit ${PROGRAM_EXITS-0}\\n' > "$program"; chmod +x "$program"
    done ;;
  "-m pip")
    if [ "$3" = config ]; then
      printf '%s\n' "${PIP_CONFIGURED-}"
    else
      shift 2
      printf '%s\n' "$*" "${PIP_EXTRA_INDEX_URL-}" "${PIP_NO_INDEX-}" "${PIP_FIND_LINKS-}" > "$(dirname "$0")/../pip"
    fi ;;
  *base_prefix*) echo /root/.local/python ;;
esac
"""


@pytest.fixture
def python(tmp_path):
    """A Python in root's home that installs nothing, and writes down what it was asked to install, and from where."""
    path = tmp_path / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("role", ROLES)
def test_the_services_user_reads_what_root_installs_and_a_roll_back_brings_back_the_unit(
    role, release, copy, python, tmp_path
):
    """With the umask 077, which many hospitals give to root."""
    root, unit = tmp_path / "root", f"etc/systemd/system/fedward-{role}.service"

    def installed(folder, *words):
        command = ["bash", folder / f"install-{role}.sh", "--unverified", "--root", root, "--python", python, *words]
        return subprocess.run(command, umask=0o077, capture_output=True, text=True, check=False)

    def current():
        return (root / f"opt/fedward-{role}/current").readlink().name

    first = installed(release)
    assert first.returncode == 0, first.stderr
    assert {path.stat().st_mode & 0o055 for path in root.rglob("*") if path.is_dir()} == {0o055}
    assert {path.stat().st_mode & 0o044 for path in root.rglob("*")} == {0o044}
    limit = (root / f"{unit}.d" / "10-cpu.conf").read_text()
    assert int(re.search(r"^CPUQuota=(\d+)%$", limit, re.MULTILINE)[1]) == 80 * os.cpu_count()

    version, requirements = current(), copy / f"requirements-{role}.txt"
    requirements.write_text(requirements.read_text().replace(f"=={version} ", "==99.0 "))
    (copy / f"fedward-{role}.service").write_text("newer")
    sums = hashlib.sha256(requirements.read_bytes()).hexdigest()
    (copy / "SHA256SUMS").write_text(f"{sums}  {requirements.name}\n")
    assert installed(copy).returncode == 0
    assert ((root / unit).read_text(), current()) == ("newer", "99.0")
    requirements.write_text(requirements.read_text() + "# other packages\n")
    sums = hashlib.sha256(requirements.read_bytes()).hexdigest()
    (copy / "SHA256SUMS").write_text(f"{sums}  {requirements.name}\n")
    assert "99.0 holds this version with other packages" in installed(copy).stderr
    assert current() == "99.0"
    assert installed(copy, "--roll-back").returncode == 0
    assert ((root / unit).read_bytes(), current()) == ((release / f"fedward-{role}.service").read_bytes(), version)


@pytest.mark.parametrize("role", ROLES)
def test_a_roll_back_goes_to_the_whole_version_before_and_there_alone(role, release, copy, python, tmp_path):
    root = tmp_path / "root"
    home, unit = root / f"opt/fedward-{role}", root / f"etc/systemd/system/fedward-{role}.service"

    def installed(folder, *words):
        return run(
            "bash", folder / f"install-{role}.sh", "--unverified", "--root", root, "--python", python, *words
        )  # fmt: skip

    def links():
        return [(home / name).readlink().name for name in ("current", "previous") if (home / name).is_symlink()]

    assert installed(release).returncode == 0
    (first,) = links()
    assert installed(release).returncode == 0
    assert links() == [first], "the version that runs is never the one before it"
    assert "no version before" in installed(release, "--roll-back").stderr
    requirements = copy / f"requirements-{role}.txt"
    requirements.write_text(requirements.read_text().replace(f"=={first} ", "==99.0 "))
    (copy / f"fedward-{role}.service").write_text("newer")
    (copy / "SHA256SUMS").write_text(f"{hashlib.sha256(requirements.read_bytes()).hexdigest()}  {requirements.name}\n")
    for _ in range(2):  # the second time it is there already
        assert installed(copy).returncode == 0
        assert links() == ["99.0", first]
    for lacks in (".complete", f"fedward-{role}.service"):
        kept = (home / first / lacks).read_bytes()
        (home / first / lacks).unlink()
        refused = installed(copy, "--roll-back")
        assert (refused.returncode, f"{first} is not complete" in refused.stderr) == (1, True)
        assert (links(), unit.read_text()) == (["99.0", first], "newer"), "nothing was changed"
        (home / first / lacks).write_bytes(kept)
    dry = installed(copy, "--roll-back", "--dry-run")
    assert (dry.returncode, links()) == (0, ["99.0", first])
    for current, previous in ((first, "99.0"), ("99.0", first)):
        assert installed(copy, "--roll-back").returncode == 0
        assert links() == [current, previous]
        assert (unit.read_text() == "newer") is (current == "99.0")


@pytest.mark.parametrize("role", ROLES)
def test_what_is_installed_is_named_checked_and_in_its_place(role, release, copy, python, tmp_path):
    name, root = f"fedward-{role}", tmp_path / "root"
    home = root / "opt" / name
    words = ("--unverified", "--root", f"{root}/", "--python", python)
    version = next(release.glob("*.whl")).name.split("-")[1]
    half = home / version / "half"
    half.parent.mkdir(parents=True)
    half.touch()
    # Another release's script installs the release that it is given.
    (copy / "SHA256SUMS").unlink()
    given = ("bash", copy / f"install-{role}.sh", *words, "--release", release)
    dry = run(*given, "--dry-run")
    assert dry.stdout.endswith(f"nothing was changed: without --dry-run, {name} {version} would be installed now\n")
    assert half.exists()
    done = run(*given)
    assert (done.returncode, half.exists()) == (0, False), done.stderr
    assert f"{name} {version} is installed. " in done.stdout
    config = "agent" if role == "silo" else "coordinator"
    assert f"starts with /etc/{name}/{config}.yaml: systemctl enable" in done.stdout
    asked = (home / version / "pip").read_text().splitlines()[0]
    assert asked == (
        "install --quiet --disable-pip-version-check --require-hashes --only-binary :all: "
        f"-r {release}/requirements-{role}.txt"
    )
    assert f"/{version}/bin/{name} --version\n" in done.stdout
    assert (root / "etc" / name).is_dir()
    assert (root / f"etc/systemd/system/{name}.service").stat().st_mode & 0o777 == 0o644
    assert (root / "usr/local/bin" / name).resolve() == home / version / "bin" / name


def test_a_program_that_does_not_start_is_not_made_the_current_one(release, python, monkeypatch, tmp_path):
    root = tmp_path / "root"
    words = ("bash", release / "install-silo.sh", "--unverified", "--root", root, "--python", python)
    monkeypatch.setenv("PROGRAM_EXITS", "3")
    assert run(*words).returncode == 3
    home = root / "opt/fedward-silo"
    assert not list(home.glob("*/.complete"))
    assert not (home / "current").is_symlink()
    monkeypatch.delenv("PROGRAM_EXITS")
    assert run(*words).returncode == 0


TORCH = "https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize(
    ("role", "words", "environment", "source"),
    [
        ("silo", (), {}, (TORCH, "", "")),
        ("silo", (), {"PIP_EXTRA_INDEX_URL": "https://here"}, ("https://here", "", "")),
        ("silo", (), {"PIP_EXTRA_INDEX_URL": ""}, ("", "", "")),
        ("silo", (), {"PIP_CONFIGURED": "global.extra-index-url='https://here'"}, ("", "", "")),
        ("silo", ("--cuda",), {}, ("", "", "")),
        ("silo", ("--packages", "{folder}"), {}, ("", "1", "{folder}")),
        ("coordinator", (), {}, ("", "", "")),
    ],
)
def test_pip_asks_where_the_hospital_says_and_else_one_index_more_for_torch(
    role, words, environment, source, *, release, python, monkeypatch, tmp_path
):
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = [word.format(folder=tmp_path) for word in words]
    command = ("bash", release / f"install-{role}.sh", "--unverified", "--root", tmp_path / "root", "--python", python)
    done = run(*command, *words)
    assert done.returncode == 0, done.stderr
    asked = next((tmp_path / f"root/opt/fedward-{role}").glob("*/pip")).read_text().splitlines()
    assert asked[1:] == [each.format(folder=tmp_path) for each in source]


def test_options_that_cannot_be_understood_change_nothing(release, copy, python, tmp_path):
    root = tmp_path / "root"
    words = ("bash", release / "install-silo.sh", "--unverified", "--root", root, "--python", python)
    (copy / "SHA256SUMS").write_text((copy / "SHA256SUMS").read_text() + "a line that names no file\n")
    for more, told in (
        (("--packages", tmp_path / "none"), f"--packages {tmp_path}/none is no folder"),
        (("--packages",), "install-silo.sh: --packages needs a value"),
        (("--fast",), "install-silo.sh: unknown option --fast"),
        (("--release", copy), f"{copy}: a file is not the one that SHA256SUMS names"),
    ):
        refused = subprocess.run(
            [str(word) for word in (*words, *more)], capture_output=True, text=True, check=False, timeout=60
        )
        assert (refused.returncode, told in refused.stderr) == (1, True), refused.stderr
    assert ("usage: " in run(*words, "--fast").stderr, root.exists()) == (True, False)
    for option in ("--help", "-h"):
        helped = run(*words, option)
        assert (helped.returncode, "usage: install-silo.sh" in helped.stdout, root.exists()) == (0, True, False)


def test_a_python_that_a_service_may_not_read_is_refused(release, python):
    words = ("--unverified", "--dry-run", "--python", python)
    refused = run("bash", release / "install-silo.sh", *words)
    assert (refused.returncode, "lies in /root/.local/python, where a service" in refused.stderr) == (1, True)
    assert run("bash", release / "install-silo.sh", *words, "--root", "/nowhere").returncode == 0


@pytest.mark.parametrize("role", ROLES)
def test_a_dry_run_for_the_machine_itself_says_whom_its_folders_would_belong_to(role, release, python):
    python.write_text(PYTHON.replace("/root/.local/python", "/usr"))
    done = run("bash", release / f"install-{role}.sh", "--unverified", "--dry-run", "--python", python)
    assert done.returncode == 0, done.stderr
    name = f"fedward-{role}"
    for command in (
        f"useradd --system --home-dir /var/lib/{name} --shell /usr/sbin/nologin {name}",
        f"chown root:{name} /etc/{name}",
        f"chmod 0750 /etc/{name}",
        f"install -d -m 0700 -o {name} -g {name} /var/lib/{name}",
        "systemctl daemon-reload",
    ):
        assert f"would run: {command}\n" in done.stdout


def test_only_root_installs_for_the_machine_itself_and_anybody_tries_it(release, python, monkeypatch, tmp_path):
    python.write_text(PYTHON.replace("/root/.local/python", "/usr"))
    (tmp_path / "bin").mkdir()
    user = tmp_path / "bin" / "id"
    user.write_text("#!/bin/sh\necho 1000\n")
    user.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    words = ("bash", release / "install-silo.sh", "--unverified", "--python", python)
    assert run(*words, "--dry-run").returncode == 0
    # A Python that is none, so that nothing is installed here if the question is not asked.
    refused = run(*words, "--python", "/bin/false")
    assert "this needs root; run it with sudo, or give --root" in refused.stderr
    assert "needs root" not in run(*words, "--python", "/bin/false", "--root", tmp_path / "root").stderr
    user.write_text("#!/bin/sh\necho 0\n")
    assert "needs root" not in run(*words, "--python", "/bin/false").stderr


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
    for name in (".complete", "fedward-coordinator.service"):
        (home / "0.1" / name).touch()
    assert f"goes from {version} back to 0.1" in install(release, "coordinator", *words, "--roll-back").stdout
    assert [(home / name).readlink() for name in ("current", "previous")] == [Path("0.1"), Path(version)]
    install(release, "coordinator", *words)
    assert [(home / name).readlink() for name in ("current", "previous")] == [Path(version), Path("0.1")]
