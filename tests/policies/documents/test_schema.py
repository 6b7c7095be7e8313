from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import policies
from policies.documents import schema
from policies.documents.schema import SCHEMA_FILE, main, policy_schema, study_schema

STUDIES_PAGE = Path(policies.__file__).parents[1] / "docs" / "study-fields.md"
REQUIRED = "-"
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


def test_all_fields_but_those_that_allow_nothing_by_omission_are_required():
    document = json.loads(policy_schema())
    left_out = {
        name
        for part in (document, *document["$defs"].values())
        for name in set(part["properties"]) - set(part.get("required", ()))
    }
    spelling = {"missing", "codes", "decimal", "absent", "dates", "between", "units", "into", "offset"}
    assert left_out == {"public", "encoding", "hand_over", "spelling", "approved_data", "polls"} | spelling


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_name_the_schema_and_state_what_it_requires(path):
    document = json.loads(policy_schema())
    first = path.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=../policy.schema.json"
    assert (path.parent / first.partition("=")[2]).resolve() == SCHEMA_FILE.resolve()
    sample = yaml.safe_load(path.read_text())
    assert set(document["required"]) == set(sample)


def fields_of(schema, part, path=""):
    """Every field of a study that holds a value or a list: its path, and its default or `REQUIRED`."""
    for name, field in part.get("properties", {}).items():
        if "$ref" not in field or path:
            yield path + name, field.get("default", REQUIRED)
        yield from inner(schema, field, f"{path}{name}")


def inner(schema, field, path):
    """The fields below a field: of a part, of a part that may be left out, of a list's entries."""
    for one in (field, *field.get("anyOf", ())):
        if "$ref" in one:
            yield from fields_of(schema, schema["$defs"][one["$ref"].rpartition("/")[2]], f"{path}.")
    items = field.get("items", {})
    if "$ref" in items:
        yield from inner(schema, items, f"{path}[]")
    for kind, where in items.get("discriminator", {}).get("mapping", {}).items():
        yield from inner(schema, {"$ref": where}, f"{path}[{kind}]")


def test_the_page_on_studies_explains_every_field_with_its_default():
    schema = json.loads(study_schema())
    wanted = dict(fields_of(schema, schema))
    _, _, section = STUDIES_PAGE.read_text(encoding="utf-8").partition("## The study\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row) != 6] == []
    stated = {row[0].strip("`"): row[2] for row in rows}
    assert len(stated) == len(rows), "a field stands twice"
    assert stated.keys() == wanted.keys()
    for field, default in stated.items():
        found = default if default == REQUIRED else yaml.safe_load(default.strip("`"))
        assert found == wanted[field], field
        assert type(found) is type(wanted[field]), field


def test_the_schema_of_a_study_has_the_texts_of_its_fields_and_no_part_is_open():
    document = json.loads(study_schema())
    for part in (document, *document["$defs"].values()):
        assert part["additionalProperties"] is False
    heads = document["$defs"]["HeadPlan"]["properties"]
    assert heads["clip"]["description"].startswith("tau: a record's joint term")
    assert document["properties"]["publish"]["description"].startswith("Metrics of the last round's sums")
