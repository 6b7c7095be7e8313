from __future__ import annotations

import pytest

from coordinator.config import CoordinatorConfig
from coordinator.console.serving import CoordinatorConsole
from coordinator.errors import NoConsoleError
from coordinator.people.silo_book import SiloBook
from support.certificates import load
from support.people import OPS


@pytest.fixture(scope="module")
def hub(authority):
    return authority.credential("coordinator", "console-hub", ["hub.example.org", "127.0.0.1"])


@pytest.fixture
def serve(hub, tmp_path):
    opened = []

    def make(**changes):
        files = {name: hub / f"{name}.pem" for name in ("certificate", "key", "authority")}
        config = CoordinatorConfig(port=0, metrics_port=0, data=tmp_path, **{**files, **changes})
        made = CoordinatorConsole(config, load(hub), None, SiloBook(), broken=lambda _: None, active=lambda: None)
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.close()


def test_without_a_port_there_is_no_console_and_no_link(serve):
    console = serve()
    console.start()
    assert console.port == 0
    with pytest.raises(NoConsoleError, match="its operator sets console_port"):
        console.link(OPS, b"")


def test_a_link_names_the_certificates_first_host_or_the_configured_address(serve):
    console = serve(console_port=0)
    assert console.link(OPS, b"").startswith(f"https://hub.example.org:{console.port}/enter?link=")
    assert console._hosts() == {f"hub.example.org:{console.port}", f"127.0.0.1:{console.port}"}
    named = serve(console_port=0, console_url="https://console.example.org:443")
    assert named.link(OPS, b"").startswith("https://console.example.org:443/enter?link=")
    assert {"console.example.org:443", "console.example.org"} < named._hosts()
