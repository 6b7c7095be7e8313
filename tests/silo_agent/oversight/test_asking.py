"""Studies that ask: kept for people whoever offers them, and going on only if an author has signed them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from crypto.authorship import author_message, sign_study
from crypto.pki.certificates import Trust
from policies.refusals import Refused
from protos.messages import AuthorSignature
from silo_agent.oversight.asking import UNSIGNED, Asking
from silo_agent.storage import offered
from support.certificates import load, make_authority
from support.states import keyed
from support.studies import tiny_study

EXAM, TWIN = tiny_study(name="exam"), tiny_study(name="exam", purpose="Another one.")


@pytest.fixture
def consortium(tmp_path):
    made = make_authority(tmp_path / "consortium")
    (tmp_path / "authority.pem").write_bytes(made.pem)
    return made


@pytest.fixture
def trust(consortium, tmp_path):
    return Trust.load(tmp_path / "authority.pem")


@pytest.fixture
def state(tmp_path):
    opened = keyed(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def asking(state, trust):
    told = []
    made = Asking(state, trust, lambda: told.append(1))
    made.told = told
    return made


def by(credential, study):
    made = sign_study(credential, study.digest, study.purpose)
    return AuthorSignature(made.certificate, made.signature)


@pytest.fixture
def ann(consortium):
    return load(consortium.credential("author", "ann"))


def test_a_signed_study_is_kept_with_its_author(asking, state, ann):
    asking.keep(EXAM, by(ann, EXAM))
    (found,) = offered.offered(state.files)
    assert (found.digest, found.author) == (EXAM.digest, "fedward://author/ann")
    asking.begin(EXAM)
    assert offered.author_uri(state.files, EXAM.digest) == "fedward://author/ann"


def test_what_no_author_has_signed_is_kept_for_people_and_refused(asking, state, ann, consortium):
    with pytest.raises(Refused) as refused:
        asking.keep(EXAM, None)
    assert (str(refused.value.reason), refused.value.text) == ("unsigned", UNSIGNED)
    hub = load(consortium.credential("coordinator", "hub"))
    for forged in (
        by(ann, TWIN),
        AuthorSignature(ann.certificate_pem, b"s"),
        AuthorSignature(b"pem", b"s"),
        AuthorSignature(hub.certificate_pem, hub.sign(author_message(EXAM.digest, EXAM.purpose))),
    ):
        with pytest.raises(Refused, match="unsigned: the author's signature does not count"):
            asking.keep(EXAM, forged)
    (found,) = offered.offered(state.files)
    assert (found.digest, found.author) == (EXAM.digest, "")


def test_a_study_may_wait_longer_than_a_certificate_and_not_than_a_revocation(
    asking, ann, consortium, tmp_path: Path, monkeypatch
):
    signed = by(ann, EXAM)
    asking.keep(EXAM, signed)

    def expired(*_, **__):
        msg = "expired"
        raise AssertionError(msg)

    monkeypatch.setattr("silo_agent.oversight.asking.author_of", expired)
    asking.keep(EXAM, signed)
    monkeypatch.undo()
    (tmp_path / "crls.pem").write_bytes(consortium.revoke("fedward://author/ann", datetime.now(UTC)))
    with pytest.raises(Refused, match=r"unsigned: the certificate of the study's author was revoked as of 2"):
        asking.keep(EXAM, signed)


def test_what_is_decided_is_noted_and_told(asking, state, ann):
    asking.keep(EXAM, by(ann, EXAM))
    asking.judged(EXAM.digest, (("delta", "too large"),))
    assert offered.offered(state.files)[0].said == (("delta", "too large"),)
    assert asking.told == [1]
