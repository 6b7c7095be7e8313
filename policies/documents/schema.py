"""The policy's JSON Schema, for editors: `python -m policies.documents.schema` writes it, `--check` compares.

Editors that use the YAML language server find the schema by the first line of the samples. It covers fields, types and
ranges. Only `load_policy` checks how fields depend on each other.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from policies.documents.policy import Policy

SCHEMA_FILE: Final = Path(__file__).parents[1] / "policy.schema.json"


def policy_schema() -> str:
    """Return the schema as JSON text, with the description of every field."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Policy.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"


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
