"""Links that work once, sessions that end, and nobody who drives others out."""

from __future__ import annotations

import pytest

from policies.web import sessions as parts
from policies.web.sessions import IDLE_SECONDS, LIFE_SECONDS, LINK_SECONDS, LINKS, SESSIONS, Sessions


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def sessions(clock):
    return Sessions(lambda: clock[0])


def test_a_link_works_once_and_the_cookie_is_its_holders(sessions):
    secret = sessions.link("ada")
    cookie = sessions.enter(secret)
    found = sessions.find(cookie)
    assert found.who == "ada"
    assert len({secret, cookie, found.form_token}) == 3
    assert sessions.enter(secret) is None
    assert sessions.find(secret) is None
    assert sessions.enter("") is None
    assert sessions.enter("a made up one \udcff") is None


def test_a_link_is_over_after_five_minutes(sessions, clock):
    late, last = sessions.link("ada"), None
    clock[0] += LINK_SECONDS - 1
    last = sessions.enter(sessions.link("ada"))
    assert last is not None
    clock[0] += 1
    assert sessions.enter(late) is None
    assert sessions.find(last) is not None


@pytest.mark.parametrize("heard", [True, False])
def test_a_session_ends_when_nobody_calls_and_a_page_that_follows_changes_is_nobody(sessions, clock, heard):
    cookie = sessions.begin("ada")
    clock[0] += IDLE_SECONDS - 1
    assert sessions.find(cookie, heard=heard) is not None
    clock[0] += 1
    assert (sessions.find(cookie) is not None) is heard


def test_a_session_ends_after_its_life_however_often_its_holder_calls(sessions, clock):
    cookie, began = sessions.begin("ada"), clock[0]
    while clock[0] - began < LIFE_SECONDS - IDLE_SECONDS / 2:
        clock[0] += IDLE_SECONDS / 2
        assert (sessions.find(cookie) is not None) is (clock[0] - began < LIFE_SECONDS)
    clock[0] = began + LIFE_SECONDS
    assert sessions.find(cookie) is None


def test_leaving_ends_one_session_alone(sessions):
    first, other = sessions.begin("ada"), sessions.begin("ada")
    sessions.leave(first)
    sessions.leave("made up")
    assert sessions.find(first) is None
    assert sessions.find(other) is not None


def test_a_person_has_a_few_links_and_sessions_and_takes_nobody_elses(sessions):
    others = sessions.link("grace"), sessions.begin("grace")
    links = [sessions.link("ada") for _ in range(LINKS + 2)]
    cookies = [sessions.begin("ada") for _ in range(SESSIONS + 2)]
    assert [sessions.find(one) is not None for one in cookies] == [False] * 2 + [True] * SESSIONS
    assert [sessions.enter(one) is not None for one in links] == [False] * 2 + [True] * LINKS
    assert sessions.find(others[1]) is not None
    assert sessions.enter(others[0]) is not None


def test_what_is_kept_is_no_link_and_no_cookie(sessions):
    secret, cookie = sessions.link("ada"), sessions.begin("ada")
    kept = repr(sessions.__dict__)
    assert secret not in kept
    assert cookie not in kept


def test_a_note_is_said_once(sessions):
    session = sessions.find(sessions.begin("ada"))
    session.note = "done"
    assert [session.take_note(), session.take_note()] == ["done", ""]


def test_secrets_have_256_bits(monkeypatch, sessions):
    asked = []
    monkeypatch.setattr(parts.secrets, "token_urlsafe", lambda count: asked.append(count) or f"s{len(asked)}")
    sessions.begin(sessions.link("ada"))
    assert set(asked) == {32}
