"""Who a party is: a role and a name, written into its certificate as the URI `fedward://<role>/<name>`.

Guarantees: an `Identity` that exists is well formed, and `parse(i.uri) == i`; no other spelling of a URI is accepted.
Leaves it to `certificates` to say whether a party really has that identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from crypto.errors import CertificateError

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SCHEME = "fedward://"


class Role(StrEnum):
    """What a certificate entitles its holder to be."""

    SILO = "silo"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"


@dataclass(frozen=True, order=True)
class Identity:
    """A role and a name of 1 to 63 lower-case letters, digits and inner hyphens."""

    role: Role
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.role, Role):
            msg = f"a role is one of {', '.join(Role)}"
            raise CertificateError(msg)
        if not _NAME.fullmatch(self.name):
            msg = "a name has 1 to 63 lower-case letters, digits and inner hyphens; choose another"
            raise CertificateError(msg)

    @property
    def uri(self) -> str:
        """The identity as it stands in a certificate's subject alternative name."""
        return f"{_SCHEME}{self.role.value}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read `fedward://<role>/<name>`. Raises `CertificateError` for every other text."""
        role, slash, name = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or not slash or role not in set(Role):
            msg = f"an identity is written {_SCHEME}<role>/<name>, with a role of {', '.join(Role)}"
            raise CertificateError(msg)
        return cls(Role(role), name)

    def __str__(self) -> str:
        return self.uri
