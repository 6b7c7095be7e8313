"""The bill of materials of a role: CycloneDX 1.6, JSON (ECMA-424)."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from deploy.release.locks import PinnedPackage


def bill(role: str, version: str, wheel_hash: str, packages: Sequence[PinnedPackage], when: int) -> str:
    """Return the bill of one role. `wheel_hash` is FedWard's own, SHA-256 in hex; `when` in seconds since 1970."""
    itself = _component("fedward", version, ComponentType.APPLICATION)
    itself.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=wheel_hash))
    itself.licenses.add(DisjunctiveLicense(id="Apache-2.0"))
    # A version has a file for each platform; whoever installs gets one of them.
    parts = [_component(pin.name, pin.version, ComponentType.LIBRARY, pin.hashes) for pin in packages]
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"fedward/{role}/{version}/{wheel_hash}"), components=parts)
    bom.metadata.timestamp = datetime.fromtimestamp(when, UTC)
    bom.metadata.component = itself
    bom.metadata.properties.add(Property(name="fedward:role", value=role))
    bom.register_dependency(itself, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(name: str, version: str, kind: ComponentType, hashes: Iterable[str] = ()) -> Component:
    plain = re.sub(r"[-_.]+", "-", name).lower()
    where = PackageURL("pypi", name=plain, version=version)
    named = [Property(name="fedward:sha256", value=one) for one in hashes]
    return Component(type=kind, name=plain, version=version, purl=where, bom_ref=str(where), properties=named)
