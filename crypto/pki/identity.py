"""Who a party is: a role and a name, written into its certificate as the URI `fedward://<role>/<name>`.

A silo's certificate has a second URI, `fedward://data-set/<id>`, for the one data set whose privacy budget it keeps. It
may have a third, `fedward://institution/<id>`, for the institution that runs it.

Guarantees: every `Identity` and every `Subject` is well formed. `parse` is the inverse of `uri` and of `uris`, and
accepts no other spelling of a URI. `certificates` checks whether a party really is that subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from common.names import is_name
from crypto.errors import CertificateError

_SCHEME = "fedward://"
_DATA_SET = f"{_SCHEME}data-set/"
_INSTITUTION = f"{_SCHEME}institution/"


class Role(StrEnum):
    """What a certificate entitles its holder to be. A person may hold several certificates, each for one role."""

    SILO = "silo"
    COORDINATOR = "coordinator"
    OPERATOR = "operator"
    """Runs the service, and may touch everybody's studies."""
    AUTHOR = "author"
    """Creates studies, and starts, pauses, resumes and aborts these."""
    VIEWER = "viewer"
    """Reads what the coordinator knows, and changes nothing."""
    APPROVER = "approver"
    """Signs policies and approvals for a hospital. Has no right at the coordinator."""


PEOPLE: Final = frozenset({Role.OPERATOR, Role.AUTHOR, Role.VIEWER, Role.APPROVER})
"""The roles of people, none of whom runs a program all the time."""


@dataclass(frozen=True, order=True)
class Identity:
    """A role and a name of 1 to 63 lower-case letters, digits and inner hyphens."""

    role: Role
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.role, Role):
            msg = f"a role is one of {', '.join(Role)}; choose one of them"
            raise CertificateError(msg)
        if not is_name(self.name):
            msg = "a name must have 1 to 63 lower-case letters, digits and inner hyphens; choose another name"
            raise CertificateError(msg)

    @property
    def uri(self) -> str:
        """The identity as it stands in a certificate's subject alternative name."""
        return f"{_SCHEME}{self.role.value}/{self.name}"

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Read `fedward://<role>/<name>`. Raises `CertificateError` for any other text."""
        role, slash, name = uri.removeprefix(_SCHEME).partition("/")
        if not uri.startswith(_SCHEME) or not slash or role not in set(Role):
            msg = f"an identity is written {_SCHEME}<role>/<name>, with a role of {', '.join(Role)}"
            raise CertificateError(msg)
        return cls(Role(role), name)

    def __str__(self) -> str:
        return self.uri


def role_of(uri: str) -> Role:
    """Return the role in an identity's URI. Raises `CertificateError`."""
    return Identity.parse(uri).role


@dataclass(frozen=True)
class Subject:
    """What a certificate, or a request for one, says about its holder."""

    identity: Identity
    data_set: str | None = None
    """`data_set.id` of the silo's policy, spelt like a name; None for all other roles."""
    institution: str | None = None
    """Who runs the silo, spelt like a name: two silos of one institution never join one study. None if nobody said."""

    def __post_init__(self) -> None:
        if (self.data_set is None) == (self.identity.role is Role.SILO):
            msg = (
                f"a silo needs one data set and no other role may have one: this is not so for {self.identity};"
                " fix --data-set"
            )
            raise CertificateError(msg)
        if self.data_set is not None and not is_name(self.data_set):
            msg = "a data set's id has 1 to 63 lower-case letters, digits and inner hyphens; fix it in the policy"
            raise CertificateError(msg)
        if self.institution is not None and (self.data_set is None or not is_name(self.institution)):
            msg = (
                "an institution has 1 to 63 lower-case letters, digits and inner hyphens, and only silos have one; fix"
                " --institution"
            )
            raise CertificateError(msg)

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of the subject as they stand in a certificate's subject alternative name."""
        more = ((_DATA_SET, self.data_set), (_INSTITUTION, self.institution))
        return (self.identity.uri, *(f"{kind}{name}" for kind, name in more if name is not None))

    def keeps_budget_of(self, other: Subject) -> bool:
        """Whether both are the same silo with the same data set. Who runs it may change."""
        return (self.identity, self.data_set) == (other.identity, other.data_set)

    @classmethod
    def parse(cls, uris: Sequence[str]) -> Self:
        """Read the URIs of a subject alternative name. Raises `CertificateError` unless they are what `uris` gives."""
        sets = [uri.removeprefix(_DATA_SET) for uri in uris if uri.startswith(_DATA_SET)]
        run_by = [uri.removeprefix(_INSTITUTION) for uri in uris if uri.startswith(_INSTITUTION)]
        names = [uri for uri in uris if not uri.startswith((_DATA_SET, _INSTITUTION))]
        if len(names) != 1 or len(sets) > 1 or len(run_by) > 1:
            msg = (
                "the certificate does not name one FedWard identity (one fedward:// URI, and for a silo one more for"
                " its data set, and one for its institution if it has one); make the request with FedWard's enrolment"
            )
            raise CertificateError(msg)
        identity = Identity.parse(names[0])
        if not sets and identity.role is Role.SILO:
            msg = f"the certificate of {identity} names no data set; make a new request with `enrol --data-set`"
            raise CertificateError(msg)
        return cls(identity, sets[0] if sets else None, run_by[0] if run_by else None)

    def __str__(self) -> str:
        data_set = "" if self.data_set is None else f" with the data set {self.data_set}"
        return f"{self.identity}{data_set}{'' if self.institution is None else f' of {self.institution}'}"
