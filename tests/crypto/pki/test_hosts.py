from __future__ import annotations

import pytest
from cryptography import x509

from crypto.errors import EnrolmentError
from crypto.pki.hosts import general_names, hosts_of


def test_names_and_addresses_read_back():
    hosts = ("localhost", "hub.example.org", "127.0.0.1", "::1")
    assert hosts_of(x509.SubjectAlternativeName(general_names(hosts))) == hosts
    assert hosts_of(None) == ()


@pytest.mark.parametrize("host", ["", "*.example.org", "a b", "-a", "Hub", "a..b", "a." * 127 + "aa", "1.2.3.0/24"])
def test_anything_else_is_refused(host):
    with pytest.raises(EnrolmentError, match="neither a lower-case DNS name nor an IP address"):
        general_names([host])
