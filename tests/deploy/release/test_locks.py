"""What a release pins is what the tests run with, and is all that pyproject.toml asks for."""

import re
import subprocess
import sys
import tomllib

import pytest

from deploy.release.errors import ReleaseError
from deploy.release.locks import ROLES, ROOT, InstalledRole, pins


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


CONSTRAINTS = {
    plain(line.split("==")[0]): line.split("==")[1].strip()
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if "==" in line
}
OF_CUDA = ("nvidia-", "cuda-", "triton")


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_installs_the_versions_that_are_tested(role):
    found = {plain(pin.name): pin.version.split("+")[0] for pin in pins(role) if not pin.name.startswith(OF_CUDA)}
    assert {name: version for name, version in found.items() if CONSTRAINTS.get(name) != version} == {}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in role.extras for one in project["optional-dependencies"][extra]),
    ]
    names = {plain(re.match(r"[\w.-]+", one)[0]) for one in wanted}
    assert names <= found.keys()


def test_only_the_build_for_gpus_brings_cuda_and_a_coordinator_cannot_learn():
    by_role = {role.name: {pin.name for pin in pins(role)} for role in ROLES}
    assert not [name for name in by_role["silo"] if name.startswith(OF_CUDA)]
    assert [name for name in by_role["silo-cuda"] if name.startswith(OF_CUDA)]
    assert not {"torch", "opacus", "tenseal"} & by_role["coordinator"]


def test_a_silo_installs_what_authority_and_coordinator_of_a_dry_round_need():
    absent = {pin.name for pin in pins(ROLES[0])} - {pin.name for pin in pins(ROLES[1])}
    assert "asn1crypto" in absent
    programs = "crypto.pki.authority.cli, coordinator.cli.main, coordinator.server"
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(absent)})); import {programs}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_package_without_a_hash_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("deploy.release.locks.LOCKED", tmp_path)
    (tmp_path / "silo.txt").write_text("numpy==2.4.6\n")
    with pytest.raises(ReleaseError, match=r"numpy==2\.4\.6 is not pinned"):
        pins(InstalledRole("silo", (), cpu=True))
