"""Host names and addresses as certificates carry them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from cryptography import x509

from crypto.errors import EnrolmentError

_DNS = re.compile(r"(?=.{1,253}\Z)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def general_names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Turn DNS names and IP addresses into subject alternative names. Raises `EnrolmentError` for anything else."""
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _DNS.fullmatch(host):
                msg = (
                    f"{host!r} is neither a lower-case DNS name nor an IP address (wildcards are not certified);"
                    " fix the host"
                )
                raise EnrolmentError(msg) from None
            names.append(x509.DNSName(host))
    return names


def hosts_of(names: x509.SubjectAlternativeName | None) -> tuple[str, ...]:
    """List the DNS names and IP addresses among the names, as text."""
    if names is None:
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))
