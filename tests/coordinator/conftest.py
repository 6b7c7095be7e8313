"""A coordinator that serves for all tests of a file, and studies of their own for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import structlog

from coordinator.config import CoordinatorConfig
from coordinator.server import Server
from support.certificates import Authority, make_authority
from support.databases import server_of
from support.moving_clock import MovingClock
from support.silos import Caller, Scene
from support.studies import tiny_study

numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def quiet() -> Iterator[None]:
    """The server's log would get between what a command prints; it goes nowhere."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def authority(tmp_path_factory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="session")
def make_server(authority) -> Callable[[Path], Server]:
    """Builds a server on free ports that keeps its data in the given folder; the caller closes it."""
    home, clock = authority.credential("coordinator", "hub"), MovingClock()

    def make(data: Path) -> Server:
        files = {name: home / f"{name}.pem" for name in ("certificate", "key", "authority")}
        server = server_of(CoordinatorConfig(port=0, metrics_port=0, console_port=0, data=data, **files))
        server.engine._clock = clock
        server.start()
        return server

    return make


@pytest.fixture(scope="module")
def server(make_server, tmp_path_factory) -> Iterator[Server]:
    made = make_server(tmp_path_factory.mktemp("hub"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def operator_folder(authority) -> Path:
    return authority.credential("operator", "ops")


@pytest.fixture(scope="module")
def operator(server, operator_folder) -> Iterator[Caller]:
    caller = Caller(server.port, operator_folder)
    yield caller
    caller.close()


@pytest.fixture
def make_scene(server, authority, operator) -> Iterator[Callable[..., Scene]]:
    """A study with silos that no other test knows; it is stopped when the test ends."""
    made: list[Scene] = []

    def make(*, silos: int = 3, begin: bool = True, **changes) -> Scene:
        number = next(numbers)
        names = tuple(f"silo-{number}-{letter}" for letter in "abcdefgh"[:silos])
        study = tiny_study(**{"name": f"study-{number}", "silos": names, "min_silos": silos, **changes})
        scene = Scene(server, authority, study, operator)
        made.append(scene)
        if begin:
            scene.start()
        return scene

    yield make
    for scene in made:
        try:
            scene.abort("the test is over")
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION  # noqa: PT017  # it was over already
        scene.close()


@pytest.fixture
def scene(make_scene) -> Scene:
    return make_scene()
