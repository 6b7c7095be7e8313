import io
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crypto.errors import EnrolmentError
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.joining.enrol import Enrolled
from crypto.pki.joining.enrol_commands import lines, read_token


@pytest.fixture(scope="module")
def token(online):
    return online.admit("silo", "told")


def test_a_token_is_read_from_the_line_a_file_or_the_standard_input(token, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text(token.text() + "\n", encoding="ascii")
    monkeypatch.setattr(sys, "stdin", io.StringIO(token.text() + "\n"))
    found = [read_token(token.text(), None), read_token(None, file), read_token(None, Path("-"))]
    assert found == [token] * 3


def test_without_one_token_and_one_alone_it_is_said_how_to_give_it(token, tmp_path):
    for text, file in ((None, None), (token.text(), tmp_path / "token")):
        with pytest.raises(EnrolmentError, match="either with --token or with --token-file"):
            read_token(text, file)
    with pytest.raises(EnrolmentError, match=r"absent cannot be read \(No such file or directory\); fix --token-file"):
        read_token(None, tmp_path / "absent")
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(EnrolmentError, match=r"odd cannot be read \(no token\)"):
        read_token(None, tmp_path / "odd")


def test_what_became_of_a_token_is_said_in_sentences():
    ends = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    hub = Subject(Identity(Role.COORDINATOR, "hub"))
    told = lines(Enrolled(hub, ("a.example", "b.example"), "ab" * 32, ends, "https://c.example:8443"))
    assert told[0] == "certified as fedward://coordinator/hub, hosts a.example, b.example by https://c.example:8443"
    assert "ab" * 32 in told[1]
    assert "until 2026-11-30 08:00 UTC and is renewed by itself while the program runs" in told[2]
    ada = Subject(Identity(Role.OPERATOR, "ada"))
    assert "renewed by any command" in lines(Enrolled(ada, (), "ab", ends, "https://c.example:8443"))[2]
    assert "hosts" not in lines(Enrolled(hub, (), "ab", ends, "https://c.example:8443"))[0]
