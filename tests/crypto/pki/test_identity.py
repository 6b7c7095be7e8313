from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import CertificateError
from crypto.pki.identity import Identity, Role, Subject


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
        "silo/a",
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


NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


@given(st.sampled_from(Role), NAMES, NAMES)
def test_a_subject_reads_back_in_any_order(role, name, data_set):
    subject = Subject(Identity(role, name), data_set if role is Role.SILO else None)
    assert Subject.parse(subject.uris) == Subject.parse(subject.uris[::-1]) == subject
    assert all(text in str(subject) for text in (name, subject.data_set or name))


@pytest.mark.parametrize(
    "uris",
    [
        (),
        ("fedward://silo/a",),
        ("fedward://data-set/a",),
        ("fedward://silo/a", "fedward://silo/b", "fedward://data-set/a"),
        ("fedward://silo/a", "fedward://data-set/a", "fedward://data-set/a"),
        ("fedward://silo/a", "fedward://data-set/"),
        ("fedward://silo/a", "fedward://data-set/a/b"),
        ("fedward://silo/a", "fedward://DATA-SET/a"),
        ("fedward://silo/a", "fedward://data-set/a\n"),
        ("fedward://operator/a", "fedward://data-set/a"),
    ],
)
def test_no_other_subject_is_accepted(uris):
    with pytest.raises(CertificateError):
        Subject.parse(uris)


@pytest.mark.parametrize(("role", "data_set"), [(Role.SILO, None), (Role.COORDINATOR, "a"), (Role.OPERATOR, "a")])
def test_a_silo_and_nobody_else_has_a_data_set(role, data_set):
    with pytest.raises(CertificateError, match="fix --data-set"):
        Subject(Identity(role, "a"), data_set)


def test_a_silo_may_name_its_institution_and_nobody_else_may():
    run_by = Subject(Identity(Role.SILO, "lung"), "lung-ward", "charite")
    assert Subject.parse(run_by.uris) == run_by
    assert run_by.uris[2] == "fedward://institution/charite"
    assert str(run_by) == "fedward://silo/lung with the data set lung-ward of charite"
    assert run_by.keeps_budget_of(Subject(Identity(Role.SILO, "lung"), "lung-ward"))
    assert not run_by.keeps_budget_of(Subject(Identity(Role.SILO, "lung"), "heart-ward", "charite"))
    for wrong in ("Charité", "", "a_b"):
        with pytest.raises(CertificateError, match="fix --institution"):
            Subject(Identity(Role.SILO, "lung"), "lung-ward", wrong)
    with pytest.raises(CertificateError, match="only silos have one"):
        Subject(Identity(Role.OPERATOR, "ada"), None, "charite")
    with pytest.raises(CertificateError, match="does not name one FedWard identity"):
        Subject.parse([*run_by.uris, "fedward://institution/other"])
