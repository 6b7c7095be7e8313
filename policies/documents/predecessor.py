"""Reads a policy of the previous version that is in force, only so that it can be replaced.

Guarantees: its fields are returned as they were stated, with the digest that it had then. Fields that its version did
not have are taken from the policy that replaces it. Nothing is decided or charged under it: `load_policy` refuses it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from policies.canonical import canonical_json
from policies.documents.document import Closed, parse_document, read_document
from policies.documents.policy import VERSION, Policy, load_policy

_BEFORE: Final = 2


class _Whole(Closed, extra="allow"):
    """Any fields."""


def load_predecessor(path: Path, successor: Policy) -> tuple[Policy, str]:
    """Return a policy of this version or the previous one, and the digest by which the ledger knows it.

    A policy of version 2 does not state `data_set.identified_by` and gets the successor's columns (only the first, if
    its unit is the patient). Raises `DocumentError`.
    """
    content = read_document(path, _Whole).model_extra or {}
    data_set = content.get("data_set")
    if content.get("version") != _BEFORE or not isinstance(data_set, dict) or "identified_by" in data_set:
        policy = load_policy(path)
        return policy, policy.digest
    columns = successor.data_set.identified_by[: 1 if data_set.get("unit") == "patient" else None]
    lifted = content | {"version": VERSION, "data_set": data_set | {"identified_by": columns}}
    policy = parse_document(json.dumps(lifted), Policy, path)
    stated = policy.model_dump(mode="json") | {"version": _BEFORE}
    del stated["data_set"]["identified_by"]
    return policy, hashlib.sha256(canonical_json(stated).encode()).hexdigest()
