"""A release is whole, the same every time, and refuses a folder that holds anything else."""

import hashlib
import json
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from deploy.release.errors import ReleaseError
from deploy.release.locks import ROLES, pins
from deploy.release.making import BESIDE, make
from deploy.release.signing import verify


def test_a_release_has_what_each_role_installs_and_is_signed(release, release_key):
    wheel = next(release.glob("*.whl"))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    version = wheel.name.split("-")[1]
    for role in ROLES:
        text = (release / f"requirements-{role.name}.txt").read_text()
        assert f"fedward[{','.join(role.extras)}]=={version} --hash=sha256:{digest}\n" in text
        named = re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
        bill = json.loads((release / f"fedward-{role.name}.cdx.json").read_text())
        assert len(named) == len(bill["components"]) == len(pins(role))
        assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
        itself = bill["metadata"]["component"]
        assert itself["hashes"] == [{"alg": "SHA-256", "content": digest}]
        assert itself["licenses"] == [{"license": {"id": "Apache-2.0"}}]
        assert bill["metadata"]["properties"] == [{"name": "fedward:role", "value": role.name}]
        listed = {
            part["name"]: (part["version"], [one["value"] for one in part["properties"]]) for part in bill["components"]
        }
        assert {name: (version, sorted(hashes)) for name, (version, hashes) in listed.items()} == {
            re.sub(r"[-_.]+", "-", pin.name).lower(): (pin.version, sorted(pin.hashes)) for pin in pins(role)
        }
        (own,) = [one for one in bill["dependencies"] if one["ref"] == itself["bom-ref"]]
        assert len(own["dependsOn"]) == len(named)
    assert all((release / name).read_bytes() for name in BESIDE)
    verify(release, release_key[1])


def test_the_wheel_has_the_programs_and_neither_tests_nor_demo(release):
    with zipfile.ZipFile(next(release.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {"silo_agent/cli/main.py", "deploy/local/cli.py", "policies/policy.schema.json"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "bench/", "deploy/demo", "deploy/release"))]


def test_the_sources_hold_the_documentation(release):
    with tarfile.open(next(release.glob("*.tar.gz"))) as packed:
        assert {"install.md", "engineer.md"} <= {Path(name).name for name in packed.getnames() if "/docs/" in name}


@pytest.mark.slow
def test_the_same_files_and_key_give_the_same_bytes(release, release_key, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    usual = os.umask(0o077)
    try:
        make(tmp_path / "again", release_key[0], committed=False)
    finally:
        os.umask(usual)
    once, again = ({one.name: one.read_bytes() for one in place.iterdir()} for place in (release, tmp_path / "again"))
    assert once == again


def test_a_folder_that_holds_something_is_refused(release_key, tmp_path):
    (tmp_path / "old.whl").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        make(tmp_path, release_key[0], committed=False)
