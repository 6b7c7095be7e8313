"""A console as an ASGI application: every call is judged here before a handler runs.

Guarantees: a call that is not for this host is refused (a page elsewhere that resolves a name to this address reads
nothing). Every answer has the content policy and is not kept by the browser. Without a session there is nothing but
the style and the page that says how to sign in. A change is made by a POST whose origin is this console and whose form
has the session's token. Bodies, headers and waiting are bounded. What is wrong with a call is a 4xx with a sentence.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Generic

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from policies.web import words
from policies.web.calls import BadCallError, ConsoleCall, Download, Moved, NotHereError, Page, Reply
from policies.web.sessions import ConsoleSession, Sessions, Who

HERE: Final = Path(__file__).parent
COOKIE: Final = "__Host-fedward"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
MAX_BODY: Final = 4 << 20
BODY_SECONDS: Final = 20.0
STREAMS: Final = 4
"""Pages of one session that follow changes at once."""
LOOK_SECONDS: Final = 0.5
_BEATS: Final = 30
"""After so many looks without news, a line says that the stream lives."""
STREAM_SECONDS: Final = 600
"""After so long the browser asks anew, so that a stream never outlives its session for long."""
_STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "mark.svg": "image/svg+xml",
}

Handler = Callable[[ConsoleCall[Who]], Reply]


@dataclass(frozen=True)
class Face:
    """How a console looks: its name, whose it is, and its places by path, in the order of the menu."""

    title: str
    owner: str
    places: Sequence[tuple[str, str]]
    templates: Path
    sign_in: str
    """The command that prints a one-time link."""


class Console(Generic[Who]):
    """Collects handlers, and is an application then (`app`)."""

    def __init__(
        self,
        face: Face,
        sessions: Sessions[Who],
        hosts: Callable[[], Collection[str]],
        *,
        secure: bool = True,
        known: Callable[[bytes], Who | None] = lambda _: None,
        stands: Callable[[Who], bool] = lambda _: True,
        refusals: tuple[type[Exception], ...] = (),
        called: Callable[[Who], str] = str,
        shows: Callable[[Who, str], bool] = lambda _who, _path: True,
        broken: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        """`hosts`: the authorities (host:port) under which this console is reached.

        `known` says who shows a certificate (DER), if anybody who may come in. `stands` says at each call whether the
        person still counts. What a handler raises of `refusals` is shown as a sentence. `secure`: over TLS. `broken`
        hears of what nobody foresaw. `shows`: whether somebody's menu has a place.
        """
        self._face, self._sessions, self._hosts, self._secure = face, sessions, hosts, secure
        self._known, self._stands, self._refusals, self._called = known, stands, refusals, called
        self._shows = shows
        self._tell_broken, self._routes = broken, list[Route]()
        self._static = {name: (HERE / "static" / name).read_bytes() for name in _STATIC}
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([face.templates, HERE / "templates"]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= words.FILTERS
        release = hashlib.sha256(b"".join(self._static.values())).hexdigest()[:12]
        self._environment.globals |= {"face": face, "release": release, "version": version("fedward")}

    # --- what a console is made of ----------------------------------------------------------------------------------
    def page(self, path: str, handler: Handler[Who]) -> None:
        """Show what `handler` gives at a path."""
        self._routes.append(Route(path, self._guarded(lambda request, session: self._shown(request, session, handler))))

    def action(self, path: str, handler: Handler[Who]) -> None:
        """Have a form at a path do what `handler` does."""

        async def act(request: Request, session: ConsoleSession[Who]) -> Response:
            form = await self._form(request, session)
            texts = {name: value for name, value in form.items() if isinstance(value, str)}
            files = {name: await value.read() for name, value in form.items() if isinstance(value, UploadFile)}
            call = ConsoleCall(session.who, request.path_params, _single(request), texts, files)
            return self._answer(request, session, await run_in_threadpool(handler, call))

        self._routes.append(Route(path, self._guarded(act), methods=["POST"]))

    def live(self, path: str, handler: Handler[Who]) -> None:
        """Send what `handler` gives at a path whenever it changes, as server-sent events of one part of a page."""

        async def follow(request: Request, session: ConsoleSession[Who]) -> Response:
            if session.streams >= STREAMS:
                raise HTTPException(429, f"{STREAMS} pages follow changes already; close one")
            call = ConsoleCall(session.who, request.path_params, _single(request))
            return StreamingResponse(
                self._changes(request, session, handler, call), headers=HEADERS, media_type="text/event-stream"
            )

        self._routes.append(Route(path, self._guarded(follow, heard=False)))

    @property
    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/static/{name}", self._static_file),
            Route("/enter", self._enter),
            Route("/leave", self._guarded(self._leave), methods=["POST"]),
            *self._routes,
        ]
        handlers: Mapping[Any, Any] = {HTTPException: self._failed, Exception: self._broken}
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- a call -----------------------------------------------------------------------------------------------------
    def _guarded(
        self, inner: Callable[[Request, ConsoleSession[Who]], Awaitable[Response]], *, heard: bool = True
    ) -> Callable[[Request], Awaitable[Response]]:
        async def outer(request: Request) -> Response:
            self._require_host(request)
            cookie, fresh = request.cookies.get(COOKIE, ""), ""
            session = self._sessions.find(cookie, heard=heard) if cookie else None
            if session is None and request.method == "GET":
                fresh = await run_in_threadpool(self._by_certificate, request)
                session = self._sessions.find(fresh) if fresh else None
            if session is None:
                raise HTTPException(401, "You are not signed in.")
            try:
                if not await run_in_threadpool(self._stands, session.who):
                    self._sessions.leave(fresh or cookie)
                    raise HTTPException(401, "Your certificate does not count any more. Renew it, and sign in again.")
                response = await inner(request, session)
            except NotHereError as error:
                raise HTTPException(404, str(error)) from None
            except BadCallError as error:
                raise HTTPException(400, str(error)) from None
            except ClientDisconnect:
                raise HTTPException(400, "The call ended before its body was whole.") from None
            except self._refusals as error:
                raise HTTPException(409, str(error)) from None
            return _with_cookie(response, fresh) if fresh else response

        return outer

    def _require_host(self, request: Request) -> None:
        if request.headers.get("host", "") not in self._hosts():
            raise HTTPException(421, "This console is not reached under that name.")

    def _by_certificate(self, request: Request) -> str:
        shown: bytes | None = getattr(request.state, "certificate", None)
        who = self._known(shown) if shown else None
        return "" if who is None else self._sessions.begin(who)

    async def _shown(self, request: Request, session: ConsoleSession[Who], handler: Handler[Who]) -> Response:
        call = ConsoleCall(session.who, request.path_params, _single(request))
        return self._answer(request, session, await run_in_threadpool(handler, call))

    async def _form(self, request: Request, session: ConsoleSession[Who]) -> Mapping[str, Any]:
        """Return the form of a POST, if it comes from a page of this session."""
        origin = request.headers.get("origin", "")
        scheme = "https" if self._secure else "http"
        if origin not in {f"{scheme}://{host}" for host in self._hosts()}:
            raise HTTPException(403, "The form was not sent by a page of this console.")
        try:
            async with asyncio.timeout(BODY_SECONDS):
                form = await _bounded(request).form(max_files=4, max_fields=64, max_part_size=MAX_BODY)
        except TimeoutError:
            raise HTTPException(408, "The form did not come in time.") from None
        given = form.get("form_token", "")
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), session.form_token.encode()):
            raise HTTPException(403, "The form is not of this session. Load the page again, and send it from there.")
        if len(form.multi_items()) != len(form.keys()):
            raise HTTPException(400, "A field of the form stands there twice.")
        return dict(form)

    def _answer(self, request: Request, session: ConsoleSession[Who], reply: Reply) -> Response:
        if isinstance(reply, Moved):
            session.note = reply.note
            return RedirectResponse(reply.to, 303, HEADERS)
        if isinstance(reply, Download):
            named = {"content-disposition": f'attachment; filename="{reply.name}"'}
            return Response(reply.content, headers={**HEADERS, **named}, media_type=reply.kind)
        return self._html(reply, session, request.url.path)

    def _html(self, page: Page, session: ConsoleSession[Who] | None, path: str) -> Response:
        text = self._text(page, session, path, note=session.take_note() if session else "")
        return Response(text, page.status, HEADERS, "text/html; charset=utf-8")

    def _text(self, page: Page, session: ConsoleSession[Who] | None, path: str, note: str = "") -> str:
        about = {
            "path": path,
            "note": note,
            "form_token": session.form_token if session else "",
            "signed_in": self._called(session.who) if session else "",
            "places": [one for one in self._face.places if session and self._shows(session.who, one[0])],
        }
        return self._environment.get_template(page.template).render({**about, **page.values})

    async def _changes(
        self, request: Request, session: ConsoleSession[Who], handler: Handler[Who], call: ConsoleCall[Who]
    ) -> AsyncIterator[bytes]:
        cookie, said = request.cookies.get(COOKIE, ""), ""
        session.streams += 1  # here, and not before: who goes before the first event leaves nothing behind
        try:
            for beat in range(int(STREAM_SECONDS / LOOK_SECONDS)):
                if self._sessions.find(cookie, heard=False) is not session:
                    return
                reply = await run_in_threadpool(self._once_more, handler, call)
                if reply is None:
                    return
                text = self._text(reply, session, request.url.path)
                if text != said:
                    said = text
                    yield f"data: {json.dumps(text)}\n\n".encode()
                elif beat % _BEATS == 0:
                    yield b": still here\n\n"
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            session.streams -= 1

    def _once_more(self, handler: Handler[Who], call: ConsoleCall[Who]) -> Page | None:
        """What a page that follows changes shows now; None if it is to stop."""
        ends: tuple[type[Exception], ...] = (NotHereError, BadCallError, *self._refusals)
        try:
            reply = handler(call) if self._stands(call.who) else None
        except ends:
            return None
        return reply if isinstance(reply, Page) else None

    # --- what every console has -------------------------------------------------------------------------------------
    async def _static_file(self, request: Request) -> Response:
        self._require_host(request)
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, "There is no such file.")
        kept = {"cache-control": "private, max-age=86400, immutable"}
        return Response(self._static[name], headers={**HEADERS, **kept}, media_type=_STATIC[name])

    async def _enter(self, request: Request) -> Response:
        self._require_host(request)
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            # Else a page elsewhere could sign somebody in under another person's link.
            raise HTTPException(403, "A page elsewhere led here. Paste the link into the browser's address line.")
        cookie = self._sessions.enter(request.query_params.get("link", ""))
        if cookie is None:
            raise HTTPException(403, "This link was used already, or is older than five minutes.")
        return _with_cookie(RedirectResponse("/", 303, HEADERS), cookie)

    async def _leave(self, request: Request, session: ConsoleSession[Who]) -> Response:
        await self._form(request, session)
        self._sessions.leave(request.cookies.get(COOKIE, ""))
        response = self._html(Page("message.html", {"code": 200, "told": "You are signed out."}), None, "/leave")
        response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
        return response

    async def _failed(self, request: Request, error: Exception) -> Response:
        code, told = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
        session = self._sessions.find(request.cookies.get(COOKIE, ""), heard=False)
        page = Page("message.html", {"code": code, "told": words.MEANINGS.get(told, told)}, code)
        return self._html(page, session, request.url.path)

    async def _broken(self, request: Request, error: Exception) -> Response:
        """What nobody foresaw: the program's log has it, the page has no word of it."""
        self._tell_broken(error)
        told = "This page cannot be made now. The program's log says why."
        return self._html(Page("message.html", {"code": 500, "told": told}, 500), None, request.url.path)


def _with_cookie(response: Response, cookie: str) -> Response:
    # A browser takes loopback for a secure place, also without TLS.
    response.set_cookie(COOKIE, cookie, path="/", secure=True, httponly=True, samesite="strict")
    return response


def _single(request: Request) -> dict[str, str]:
    given = request.query_params.multi_items()
    if len({name for name, _ in given}) != len(given):
        raise HTTPException(400, "A name stands twice in the address.")
    return dict(given)


def _bounded(request: Request) -> Request:
    """The request with a body of `MAX_BODY` bytes at most."""
    left = MAX_BODY

    async def receive() -> Any:
        nonlocal left
        message = await request.receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, f"The form has more than {MAX_BODY >> 20} MiB.")
        return message

    return Request(request.scope, receive)
