from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CertificateError
from crypto.identity import Identity, Role


@given(st.sampled_from(Role), st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True))
def test_a_uri_reads_back(role, name):
    identity = Identity(role, name)
    assert Identity.parse(identity.uri) == identity
    assert str(identity) == f"fedward://{role.value}/{name}"


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "fedward://silo",
        "fedward://silo/",
        "fedward://silo/A",
        "fedward://silo/a/b",
        "fedward://silo/a\n",
        "fedward://silo/a-",
        "fedward://root/a",
        "FEDWARD://silo/a",
        "https://silo/a",
        "fedward://fedward://silo/a",
        "fedward://silo/" + "a" * 64,
    ],
)
def test_no_other_spelling_is_accepted(uri):
    with pytest.raises(CertificateError):
        Identity.parse(uri)


def test_an_identity_cannot_be_built_from_other_things():
    with pytest.raises(CertificateError, match="role"):
        Identity("silo", "a")  # type: ignore[arg-type]
    with pytest.raises(CertificateError, match="lower-case"):
        Identity(Role.SILO, "North")
