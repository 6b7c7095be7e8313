"""What a browser, or who pretends to be one, gets from any console: who is let in, and what is refused."""

from __future__ import annotations

import json
import threading

import anyio
import pytest
from starlette.testclient import TestClient

from policies.web import console as consoles
from policies.web.calls import BadCallError, Download, Moved, NotHereError, Page
from policies.web.console import COOKIE, HEADERS, MAX_BODY, Console, Face
from policies.web.sessions import Sessions

HOST = "console.test:8443"
ORIGIN = f"https://{HOST}"


class OddError(Exception):
    """What a handler refuses with."""


class Stage:
    """A console with a page, an action, a stream, and what goes wrong."""

    def __init__(self, folder):
        (folder / "page.html").write_text(
            "{% extends 'layout.html' %}{% block title %}T{% endblock %}{% block content %}<i>{{ said }}</i>"
            "{{ 2048|size }}<form method='post' action='/do'><input name='form_token' value='{{ form_token }}'>"
            "</form>{% endblock %}"
        )
        (folder / "part.html").write_text("<b>{{ said }}</b>")
        face = Face("Test", "nobody", (("/", "First"), ("/secret", "Secret")), folder, "make a link")
        self.sessions, self.said, self.done, self.broken, self.stands = Sessions(), ["<script>x"], [], [], True
        self.by_certificate = {}
        console = Console(
            face,
            self.sessions,
            lambda: {HOST},
            known=self.by_certificate.get,
            stands=lambda _: self.stands,
            refusals=(OddError,),
            broken=self.broken.append,
            shows=lambda _, path: path != "/secret",
        )
        self.queries = []
        console.page("/", lambda call: self.queries.append(call.query) or Page("page.html", {"said": self.said[0]}))
        console.live("/live", lambda _: Page("part.html", {"said": self.said[0]}))
        console.live("/live/{what}", self._goes_wrong)
        console.page("/file", lambda _: Download("a.json", b"{}", "application/json"))
        console.page("/{what}", self._goes_wrong)
        console.action("/do", self._do)
        self.app = console.app

    def _do(self, call):
        self.done.append((call.form, call.files))
        return Moved("/", "It is done.")

    @staticmethod
    def _goes_wrong(call):
        wrong = {
            "absent": NotHereError("none"),
            "bad": BadCallError("ill"),
            "odd": OddError("odd"),
            "own": KeyError("k"),
        }
        raise wrong.get(call.path["what"]) or NotHereError("nothing")

    def client(self, cookie=None, **more):
        client = TestClient(self.app, base_url=ORIGIN, follow_redirects=False, raise_server_exceptions=False, **more)
        if cookie:
            client.cookies.set(COOKIE, cookie)
        return client


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.fixture
def ada(stage):
    return stage.client(stage.sessions.begin("ada"))


def form(stage, client, **fields):
    token = stage.sessions.find(client.cookies[COOKIE]).form_token
    return {"form_token": token, **fields}


# --- who is let in ----------------------------------------------------------------------------------------------------
def test_without_a_session_there_is_the_way_to_sign_in_and_the_style(stage):
    client = stage.client()
    for path in ("/", "/live", "/file", "/absent", "/do"):
        reply = client.get(path)
        assert reply.status_code == 401, path
        assert stage.said[0] not in reply.text
    assert "make a link" in client.get("/").text
    assert "Secret" not in client.get("/").text
    assert client.post("/do", data={"form_token": "x"}, headers={"origin": ORIGIN}).status_code == 401
    assert client.get("/static/console.css").headers["content-type"].startswith("text/css")
    assert client.get("/static/..%2fconsole.py").status_code == 404
    assert client.get("/static/other").status_code == 404


def test_a_link_signs_in_once_and_its_cookie_has_all_flags(stage):
    secret, client = stage.sessions.link("ada"), stage.client()
    reply = client.get(f"/enter?link={secret}")
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    flags = reply.headers["set-cookie"].lower().split("; ")
    assert flags[0].startswith("__host-")
    assert {"httponly", "secure", "samesite=strict", "path=/"} <= set(flags)
    assert not [flag for flag in flags if flag.startswith(("domain", "expires", "max-age"))]
    assert client.get("/").status_code == 200
    again = stage.client().get(f"/enter?link={secret}")
    assert again.status_code == 403
    assert "set-cookie" not in again.headers


def test_a_page_elsewhere_signs_nobody_in(stage):
    secret = stage.sessions.link("ada")
    for site in ("cross-site", "same-site"):
        reply = stage.client().get(f"/enter?link={secret}", headers={"sec-fetch-site": site})
        assert (reply.status_code, "set-cookie" in reply.headers) == (403, False)
    assert stage.client().get(f"/enter?link={secret}", headers={"sec-fetch-site": "none"}).status_code == 303


def test_a_certificate_signs_in_and_one_that_nobody_knows_does_not(stage):
    stage.by_certificate[b"ada's"] = "ada"
    for shown, code in ((b"ada's", 200), (b"a stranger's", 401), (None, 401)):

        async def app(scope, receive, send, shown=shown):
            await stage.app({**scope, "state": {"certificate": shown}}, receive, send)

        reply = TestClient(app, base_url=ORIGIN).get("/")
        assert reply.status_code == code
        assert ("set-cookie" in reply.headers) is (code == 200)
        assert TestClient(app, base_url=ORIGIN).post("/do", headers={"origin": ORIGIN}).status_code == 401


def test_whoever_counts_no_more_is_out_at_once_and_for_good(stage, ada):
    assert ada.get("/").status_code == 200
    stage.stands = False
    assert ada.get("/").status_code == 401
    stage.stands = True
    assert ada.get("/").status_code == 401


def test_signing_out_takes_the_forms_token_and_ends_the_session(stage, ada):
    cookie = ada.cookies[COOKIE]
    assert ada.post("/leave", headers={"origin": ORIGIN}).status_code == 403
    reply = ada.post("/leave", data=form(stage, ada), headers={"origin": ORIGIN})
    assert reply.status_code == 200
    flags = set(reply.headers["set-cookie"].lower().split("; "))
    assert {"httponly", "secure", "samesite=strict", "path=/", "max-age=0"} <= flags
    assert stage.sessions.find(cookie) is None


# --- headers and text -------------------------------------------------------------------------------------------------
def test_every_answer_has_the_policy_and_is_not_kept(stage, ada):
    replies = [
        ada.get("/"),
        ada.get("/file"),
        ada.get("/absent"),
        ada.get("/odd"),
        ada.get("/own"),
        ada.get("/nowhere/at/all"),
        ada.put("/"),
        ada.post("/do", data=form(stage, ada), headers={"origin": ORIGIN}),
        stage.client().get("/"),
        stage.client().get("/enter?link=x"),
        ada.get("/", headers={"host": "elsewhere"}),
    ]
    for reply in replies:
        for name, value in HEADERS.items():
            assert reply.headers[name] == value, (reply.status_code, name)
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in str(policy)
    assert set(policy.values()) == {"'none'", "'self'"}
    style = ada.get("/static/console.css")
    assert style.headers["content-security-policy"] == HEADERS["content-security-policy"]
    assert "http" not in style.text


def test_what_is_stored_is_text_on_a_page_and_in_a_stream(stage, ada):
    assert "<i>&lt;script&gt;x</i>" in ada.get("/").text
    assert "secret" not in ada.get("/").text.lower()
    event = next(lines(stage, ada.cookies[COOKIE]))
    assert json.loads(event.removeprefix("data: ")) == "<b>&lt;script&gt;x</b>"


def test_templates_have_the_words_of_all_consoles_and_handlers_a_name_once(stage, ada):
    assert "2.0 kB" in ada.get("/?a=1&b=").text
    assert stage.queries == [{"a": "1", "b": ""}]


def test_an_address_that_is_none_keeps_no_session_alive(stage, ada):
    session = stage.sessions.find(ada.cookies[COOKIE], heard=False)
    session.heard -= 100.0
    before = session.heard
    assert ada.get("/nothing/here").status_code == 404
    assert session.heard == before
    assert ada.get("/").status_code == 200
    assert session.heard > before


def test_what_nobody_foresaw_is_told_to_the_program_and_not_to_the_browser(stage, ada):
    reply = ada.get("/own")
    assert reply.status_code == 500
    assert "KeyError" not in reply.text
    assert [type(one) for one in stage.broken] == [KeyError]


@pytest.mark.parametrize(
    ("path", "code", "told"), [("/absent", 404, "none"), ("/bad", 400, "ill"), ("/odd", 409, "odd")]
)
def test_a_refusal_is_a_sentence(ada, path, code, told):
    reply = ada.get(path)
    assert (reply.status_code, f"<p>{told}</p>" in reply.text) == (code, True)


# --- forms ------------------------------------------------------------------------------------------------------------
def test_an_action_is_done_once_and_its_note_stands_on_the_next_page_alone(stage, ada):
    fields = form(stage, ada, name="x")
    reply = ada.post("/do", data=fields, files={"file": ("f", b"content")}, headers={"origin": ORIGIN})
    assert (reply.status_code, reply.headers["location"]) == (303, "/")
    assert stage.done == [({**fields}, {"file": b"content"})]
    assert "It is done." in ada.get("/").text
    assert "It is done." not in ada.get("/").text


@pytest.mark.parametrize("origin", [None, "null", "https://evil.test", f"http://{HOST}", "https://console.test"])
def test_a_form_from_elsewhere_does_nothing(stage, ada, origin):
    headers = {} if origin is None else {"origin": origin}
    assert ada.post("/do", data=form(stage, ada), headers=headers).status_code == 403
    assert stage.done == []


def test_a_form_with_another_sessions_token_does_nothing(stage, ada):
    other = stage.sessions.find(stage.sessions.begin("ada")).form_token
    for token in (other, "", "\N{SNOWMAN}", other[:-1]):
        reply = ada.post("/do", data={"form_token": token}, headers={"origin": ORIGIN})
        assert reply.status_code == 403
    assert ada.post("/do", files={"form_token": ("t", b"x")}, headers={"origin": ORIGIN}).status_code == 403
    assert stage.done == []


MULTIPART = "multipart/form-data"
BAD = {
    "another host": ("GET", "/", {"headers": {"host": "evil.test"}}, 421),
    "no host": ("GET", "/", {"headers": {"host": ""}}, 421),
    "host without port": ("GET", "/", {"headers": {"host": "console.test"}}, 421),
    "no page": ("GET", "/nothing/here", {}, 404),
    "a page that is not there": ("GET", "/absent", {}, 404),
    "a bad value": ("GET", "/bad", {}, 400),
    "a name twice": ("GET", "/?a=1&a=2", {}, 400),
    "PUT": ("PUT", "/", {}, 405),
    "DELETE": ("DELETE", "/do", {}, 405),
    "POST of a page": ("POST", "/", {}, 405),
    "GET of an action": ("GET", "/do", {}, 404),
    "no form": ("POST", "/do", {"headers": {"origin": ORIGIN}}, 403),
    "no origin": ("POST", "/do", {}, 403),
    "JSON": ("POST", "/do", {"json": {}, "headers": {"origin": ORIGIN}}, 403),
    "broken multipart": (
        "POST", "/do",
        {"content": b"--y\r\n\r\n", "headers": {"origin": ORIGIN, "content-type": f"{MULTIPART}; boundary=x"}},
        400,
    ),
    "multipart without a boundary": (
        "POST", "/do", {"content": b"x", "headers": {"origin": ORIGIN, "content-type": MULTIPART}}, 400,
    ),
    "too large": ("POST", "/do", {"content": b"a=" + b"x" * MAX_BODY, "headers": {
        "origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}}, 413),
    "too many fields": ("POST", "/do", {"data": {f"f{n}": "" for n in range(100)}, "headers": {"origin": ORIGIN}}, 400),
    "a static file that is none": ("GET", "/static/x", {}, 404),
    "a made up link": ("GET", "/enter?link=abc", {}, 403),
    "a link without a secret": ("GET", "/enter", {}, 403),
    "a broken path": ("GET", "/%ff%00", {}, 404),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_call_is_refused_and_does_nothing(stage, ada, name):
    method, path, more, code = BAD[name]
    if "data" in more:
        more = {**more, "data": {**more["data"], **form(stage, ada)}}
    reply = ada.request(method, path, **more)
    assert reply.status_code == code
    assert stage.done == []
    assert not stage.broken


def test_a_field_that_stands_there_twice_is_refused(stage, ada):
    token = form(stage, ada)["form_token"]
    content = f"form_token={token}&a=1&a=2".encode()
    headers = {"origin": ORIGIN, "content-type": "application/x-www-form-urlencoded"}
    assert ada.post("/do", content=content, headers=headers).status_code == 400
    assert stage.done == []


def half_sent(stage, receive):
    """The status of the answer to a form whose body comes from `receive`."""
    cookie, sent = stage.sessions.begin("ada"), []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/do", "query_string": b"", "root_path": "", "scheme": "https",
        "headers": [(b"host", HOST.encode()), (b"origin", ORIGIN.encode()), (b"cookie", f"{COOKIE}={cookie}".encode()),
                    (b"content-type", b"application/x-www-form-urlencoded"), (b"content-length", b"50")],
        "server": ("console.test", 8443), "client": ("127.0.0.1", 1), "state": {}, "http_version": "1.1",
    }  # fmt: skip
    anyio.run(stage.app, scope, receive, send)
    return sent[0]["status"]


def test_a_form_that_does_not_come_is_not_waited_for(stage, monkeypatch):
    monkeypatch.setattr(consoles, "BODY_SECONDS", 0.05)

    async def receive():
        await anyio.sleep(30)

    assert half_sent(stage, receive) == 408


def test_a_form_that_breaks_off_is_nobodys_fault(stage):
    parts = iter([{"type": "http.request", "body": b"form_", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(parts)

    assert (half_sent(stage, receive), stage.done, stage.broken) == (400, [], [])


# --- pages that follow changes ----------------------------------------------------------------------------------------
def lines(stage, cookie):
    """The events of a stream, as they come."""
    found, over = [], threading.Event()
    ready = threading.Condition()

    async def follow():
        gone = anyio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            text = message.get("body", b"").decode()
            with ready:
                found.extend(line for line in text.split("\n\n") if line.startswith("data:"))
                found.extend([None] if message["type"] == "http.response.body" and not message.get("more_body") else [])
                ready.notify()
            if over.is_set():
                gone.set()

        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"", "root_path": "", "scheme": "https",
            "headers": [(b"host", HOST.encode()), (b"cookie", f"{COOKIE}={cookie}".encode())],
            "server": ("console.test", 8443), "client": ("127.0.0.1", 1), "state": {}, "http_version": "1.1",
        }  # fmt: skip
        await stage.app(scope, receive, send)

    thread = threading.Thread(target=lambda: anyio.run(follow), daemon=True)
    thread.start()
    try:
        at = 0
        while True:
            with ready:
                assert ready.wait_for(lambda at=at: len(found) > at, timeout=60)
                one = found[at]
            if one is None:
                return
            at += 1
            yield one
    finally:
        over.set()
        stage.said[0] += "."
        stage.stands = False


def test_a_stream_says_changes_alone_and_ends_with_the_session(stage, monkeypatch):
    monkeypatch.setattr(consoles, "LOOK_SECONDS", 0.02)
    cookie = stage.sessions.begin("ada")
    events = lines(stage, cookie)
    assert "script" in next(events)
    stage.said[0] = "second"
    assert "second" in next(events)
    stage.sessions.leave(cookie)
    assert list(events) == []


def test_a_stream_in_which_nothing_changes_shows_now_and_then_that_it_lives(stage, ada, monkeypatch):
    monkeypatch.setattr(consoles, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(consoles, "STREAM_SECONDS", 0.01)
    monkeypatch.setattr(consoles, "_BEATS", 4)
    parts = ada.get("/live").text.split("\n\n")
    assert (parts[0].startswith("data:"), parts[1:]) == (True, [": still here", ": still here", ""])


def test_a_stream_ends_when_its_reader_counts_no_more(stage, monkeypatch):
    monkeypatch.setattr(consoles, "LOOK_SECONDS", 0.02)
    events = lines(stage, stage.sessions.begin("ada"))
    next(events)
    stage.stands = False
    assert list(events) == []


@pytest.mark.parametrize("what", ["absent", "bad", "odd"])
def test_a_stream_of_what_is_not_there_any_more_ends(stage, ada, what):
    reply = ada.get(f"/live/{what}")
    assert (reply.status_code, reply.text, stage.broken) == (200, "", [])


def test_a_session_follows_few_pages_at_once_and_a_stream_that_ends_makes_room(stage, monkeypatch):
    monkeypatch.setattr(consoles, "LOOK_SECONDS", 0.02)
    cookie = stage.sessions.begin("ada")
    session = stage.sessions.find(cookie)
    session.streams = consoles.STREAMS
    assert stage.client(cookie).get("/live").status_code == 429
    session.streams = consoles.STREAMS - 1
    events = lines(stage, cookie)
    next(events)
    assert session.streams == consoles.STREAMS
    stage.stands = False
    list(events)
    assert session.streams == consoles.STREAMS - 1
