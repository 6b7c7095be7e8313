"""The hospital's console as a server: on loopback, by links that work once each."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from structlog.testing import capture_logs

from silo_agent.console import serving
from silo_agent.console.serving import HOST, HospitalConsole
from support.asked import asked_hospital
from support.studies import tiny_study


@pytest.fixture
def served(quick_path, homes):
    console, stop = HospitalConsole(asked_hospital(quick_path, homes["north"], tiny_study()), 0), threading.Event()
    running = threading.Thread(target=console.run, args=(stop,))
    running.start()
    yield console
    stop.set()
    running.join(60)
    assert not running.is_alive()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{HOST}:{console.port}/", timeout=60)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def code(url):
    try:
        return urllib.request.build_opener(NoRedirect()).open(url, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def test_each_link_works_once_and_under_loopbacks_name_alone(served):
    first, second = served.link(), served.link()
    assert first != second
    assert first.startswith(f"http://127.0.0.1:{served.port}/enter?link=")
    assert [code(first), code(first), code(second)] == [303, 403, 303]
    assert code(served.link().replace("127.0.0.1", "localhost")) == 421


def test_what_nobody_foresaw_is_a_kind_in_the_log_and_no_text():
    with capture_logs() as logs:
        serving._failed(ValueError("a patient's name"))
    assert logs == [{"event": "a page of the console failed", "kind": "ValueError", "log_level": "error"}]
