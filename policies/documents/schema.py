"""JSON Schemas for editors: the policy's, which `python -m policies.documents.schema` writes, and the study's.

`--check` compares the written one. Editors that use the YAML language server find it by the first line of the samples.
Schemas cover fields, types and ranges. Only `load_policy` and `load_study` check how fields depend on each other.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from policies.documents import fields, study
from policies.documents.about import described
from policies.documents.policy import Policy

SCHEMA_FILE: Final = Path(__file__).parents[1] / "policy.schema.json"


def policy_schema() -> str:
    """Return the schema as JSON text, with the description of every field."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


def study_schema() -> str:
    """Return the study's schema as JSON text. A field is described by what it does, and by the text below it.

    The texts are read from the source here, and not by pydantic, so that only whoever asks for the schema waits.
    """
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **study.Study.model_json_schema()}
    texts: dict[type[BaseModel], dict[str, str]] = {}
    for one in described(fields.StudyFields):
        below = texts.setdefault(one.owner, _texts_below(one.owner))
        part = schema if one.owner is fields.StudyFields else schema["$defs"][one.owner.__name__]
        effect = "" if one.about is None else one.about.effect
        part["properties"][one.name]["description"] = below.get(one.name, effect)
    return json.dumps(schema, indent=2) + "\n"


def _texts_below(section: type[BaseModel]) -> dict[str, str]:
    """The text that stands below a field in the code, by field."""
    (part,) = ast.parse(inspect.getsource(section)).body
    texts = {}
    for field, below in zip(part.body, part.body[1:], strict=False) if isinstance(part, ast.ClassDef) else ():
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts[field.target.id] = inspect.cleandoc(str(below.value.value))
    return texts


def main(arguments: list[str]) -> int:
    """Write the file. With `--check`, return 1 if the file is not what this version generates."""
    if "--check" not in arguments:
        SCHEMA_FILE.write_text(policy_schema(), encoding="utf-8")
        return 0
    if SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text(encoding="utf-8") == policy_schema():
        return 0
    sys.stderr.write(f"{SCHEMA_FILE.name} is out of date; run python -m policies.documents.schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
