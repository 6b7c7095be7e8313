"""Reads a policy of an older version that is in force, so that it can be replaced.

Guarantees: its fields are returned as they were stated, with the digest that it had then. The fields of its data set
that its version did not have are taken from the policy that replaces it, since nothing bound them before. Nothing is
decided or charged under a policy of version 2: `load_policy` refuses it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from common.canonical_json import canonical_json
from policies.documents.document import Closed, parse_document, read_document
from policies.documents.policy import OLDEST, Policy, load_policy

_BEFORE: Final = 2


class _Whole(Closed, extra="allow"):
    """Any fields."""


def load_predecessor(path: Path, successor: Policy) -> tuple[Policy, str]:
    """Return a policy of this version or an older one, and the digest by which the ledger knows it.

    A policy of version 2 does not state `data_set.identified_by` and gets the successor's columns (only the first, if
    its unit is the patient). One of version 2 or 3 gets the successor's `data_set.file`. Raises `DocumentError`.
    """
    content = read_document(path, _Whole).model_extra or {}
    data_set = content.get("data_set")
    if content.get("version") != _BEFORE or not isinstance(data_set, dict) or "identified_by" in data_set:
        policy = load_policy(path)
        return (_with_file(policy, successor) if policy.version == OLDEST else policy), policy.digest
    columns = successor.data_set.identified_by[: 1 if data_set.get("unit") == "patient" else None]
    lifted = content | {"version": OLDEST, "data_set": data_set | {"identified_by": columns}}
    policy = parse_document(json.dumps(lifted), Policy, path)
    stated: dict[str, Any] = json.loads(policy.canonical()) | {"version": _BEFORE}
    del stated["data_set"]["identified_by"]
    return _with_file(policy, successor), hashlib.sha256(canonical_json(stated).encode()).hexdigest()


def _with_file(policy: Policy, successor: Policy) -> Policy:
    data_set = policy.data_set.model_copy(update={"file": successor.data_set.file})
    return policy.model_copy(update={"data_set": data_set})
