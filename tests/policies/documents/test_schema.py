from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import policies
from policies.documents import schema
from policies.documents.schema import SCHEMA_FILE, main, policy_schema

SAMPLES = sorted((Path(policies.__file__).parent / "samples").glob("*.yaml"))


def test_the_schema_in_the_package_is_what_the_code_says():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == policy_schema(), "run python -m policies.documents.schema"
    assert main(["--check"]) == 0


def test_a_schema_out_of_date_is_found_and_mended(tmp_path, monkeypatch, capsys):
    path = tmp_path / "policy.schema.json"
    monkeypatch.setattr(schema, "SCHEMA_FILE", path)
    assert main(["--check"]) == 1
    path.write_text("{}")
    assert main(["--check"]) == 1
    assert "run python -m policies.documents.schema" in capsys.readouterr().err
    assert main([]) == 0
    assert main(["--check"]) == 0


def test_every_field_has_a_description_and_no_part_is_open():
    document = json.loads(policy_schema())
    for part in (document, *document["$defs"].values()):
        assert part["additionalProperties"] is False
        for name, field in part["properties"].items():
            assert field.get("description") or "$ref" in field, name


def test_all_fields_but_public_are_required():
    document = json.loads(policy_schema())
    left_out = {
        name
        for part in (document, *document["$defs"].values())
        for name in set(part["properties"]) - set(part["required"])
    }
    assert left_out == {"public"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_name_the_schema_and_state_what_it_requires(path):
    document = json.loads(policy_schema())
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../policy.schema.json"
    assert (path.parent / first.partition("=")[2]).resolve() == SCHEMA_FILE.resolve()
    sample = yaml.safe_load(path.read_text())
    assert set(document["required"]) == set(sample)
