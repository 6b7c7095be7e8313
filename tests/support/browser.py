"""A real browser at a console: Debian's Chromium by Playwright, with axe-core, and pictures of every page."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 800}
MOST_BYTES = 100_000
"""Of a page with all that it loads."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a window. Skips by name if the machine has none."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # not where there is no browser

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """Somebody at one console, who looks at every page light and dark, wide and narrow."""

    def __init__(self, browser: Browser, link: str, pictures: Path, name: str) -> None:
        self.context: BrowserContext = browser.new_context(viewport=WIDE, ignore_https_errors=True)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        """What the browser's console says: any violation of the content policy, any error of a script."""
        self.page.on("console", lambda message: self._note(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self._bytes: dict[str, int] = {}
        self.page.on("response", self._count)
        self.requests: set[str] = set()
        self.page.on("request", lambda request: self.requests.add(re.match(r"\w+://[^/]+", request.url)[0]))
        self._pictures, self._name = pictures, name
        pictures.mkdir(parents=True, exist_ok=True)
        self.page.goto(link)
        self.base = re.match(r"\w+://[^/]+", link)[0]

    def _note(self, text: str) -> None:
        if "Failed to load resource" not in text:  # a page that is refused on purpose
            self.said.append(text)

    def _count(self, response: Any) -> None:
        if "/live" not in response.url.partition("?")[0] or response.url.endswith(".js"):
            try:
                self._bytes[response.url] = len(response.body())
            except Exception:  # noqa: BLE001  # a redirect has no body
                return

    def open(self, path: str) -> Page:
        """Go to a page."""
        self.page.goto(self.base + path)
        return self.page

    def look(self, title: str) -> list[str]:
        """Return what axe-core finds on the page that is open, in four looks, each kept as a picture."""
        from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415  # as above

        found = []
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            for width, size in (("wide", WIDE), ("narrow", NARROW)):
                self.page.set_viewport_size(size)
                self.page.screenshot(path=self._pictures / f"{self._name}-{title}-{scheme}-{width}.png", full_page=True)
                result = Axe().run(self.page).response["violations"]
                found += [f"{title} {scheme} {width}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in result]
                beyond = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                found += [f"{title} {scheme} {width}: {beyond} px too wide"] if beyond > 0 else []
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(WIDE)
        return found

    def size(self, path: str) -> int:
        """Bytes of a page with all that it loads."""
        self._bytes.clear()
        self.open(path)
        self.page.wait_for_load_state("load")
        static = {url: count for url, count in self._bytes.items() if "/static/" in url}
        here = self._bytes.get(self.base + path, 0)
        return here + sum(static.values())


def pictures(fallback: Path) -> Path:
    """Where pictures are kept: the folder that FEDWARD_PICTURES names, else one of the test."""
    return Path(os.environ.get("FEDWARD_PICTURES", fallback))
