"""The bill of materials of a role: CycloneDX 1.6, JSON (ECMA-424)."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from deploy.release.locks import Pin


def bill(role: str, version: str, wheel_hash: str, packages: Sequence[Pin], when: int) -> str:
    """Return the bill of one role. `wheel_hash` is FedWard's own, SHA-256 in hex; `when` in seconds since 1970."""
    itself = _component("fedward", version, "application")
    itself["hashes"] = [{"alg": "SHA-256", "content": wheel_hash}]
    itself["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    parts = [_component(pin.name, pin.version, "library") for pin in packages]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"fedward/{role}/{version}/{wheel_hash}").urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": itself,
            "properties": [{"name": "fedward:role", "value": role}],
        },
        "components": [
            # A version has a file for each platform; whoever installs gets one of them.
            part | {"properties": [{"name": "fedward:sha256", "value": found} for found in pin.hashes]}
            for part, pin in zip(parts, packages, strict=True)
        ],
        "dependencies": [{"ref": itself["bom-ref"], "dependsOn": sorted(str(part["bom-ref"]) for part in parts)}],
    }
    return json.dumps(document, indent=1) + "\n"


def _component(name: str, version: str, kind: str) -> dict[str, object]:
    plain = re.sub(r"[-_.]+", "-", name).lower()
    where = f"pkg:pypi/{plain}@{version.replace('+', '%2B')}"
    return {"type": kind, "bom-ref": where, "name": plain, "version": version, "purl": where}
