"""A consortium of silos and a coordinator, enrolled once for all tests of the agent."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import structlog

from crypto.entropy import SystemEntropy
from silo_agent.cli import options
from silo_agent.protocol.session import Session
from support.certificates import load, make_authority
from support.cosigners import cosigned
from support.local_coordinator import LocalCoordinator
from support.local_silos import LocalSilo
from support.proxy import proxying
from support.sessions import STUDY, fresh
from support.studies import tiny_study

SILOS = ("north", "south", "west")
FIVE = ["east", "north", "polar", "south", "west"]


@pytest.fixture(autouse=True)
def _default_logging():
    """A command configures the log for its process; the next test has a process of its own, so to speak."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def told(monkeypatch):
    """What commands say on a terminal while they last, and a 1 for each step that they count."""
    lines = []

    class Line:
        def add_task(self, what, total):
            assert total is None
            lines.append(what)

        def update(self, _, description):
            lines.append(description)

        def advance(self, _, more):
            lines.append(more)

    monkeypatch.setattr(options, "_line", lambda _: nullcontext(Line()))
    return lines


@pytest.fixture(scope="session")
def quick_folders(tmp_path_factory):
    """Gives new folders with short names."""
    return partial(tmp_path_factory.mktemp, "s")


@pytest.fixture
def quick_path(quick_folders):
    return quick_folders()


@pytest.fixture
def proxy():
    with proxying() as server:
        yield server


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("consortium"))


@pytest.fixture(scope="session")
def foreign_authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="session")
def homes(authority):
    """Folder of every silo's certificate, key and authority."""
    return {name: authority.credential("silo", name) for name in SILOS}


@pytest.fixture(scope="session")
def credentials(homes):
    return {name: load(home) for name, home in homes.items()}


@pytest.fixture(scope="session")
def coordinator(authority):
    return load(authority.credential("coordinator", "hub"))


@pytest.fixture(scope="session")
def hub(coordinator):
    """The coordinator's credential, where a test means another thing by `coordinator`."""
    return coordinator


@pytest.fixture(scope="session")
def enrolled(authority, credentials):
    """Credential of a silo of any name, enrolled when it is asked for first."""
    known = dict(credentials)

    def give(name):
        if name not in known:
            known[name] = load(authority.credential("silo", name))
        return known[name]

    return give


@pytest.fixture
def federate(quick_path, quick_folders, enrolled, hub):
    """Gives the coordinator and the silos of a study, with the policy's rules replaced where named."""
    opened = []

    def gather(study=None, **policy):
        folder = quick_folders() if opened else quick_path
        coordinator = LocalCoordinator(study or tiny_study(personal={"epochs": 1}), hub)
        silos = {n: LocalSilo(folder / n, enrolled(n), coordinator, **policy) for n in coordinator.study.silos}
        opened.extend(silos.values())
        return coordinator, silos

    yield gather
    for silo in opened:
        silo.die()


@pytest.fixture
def federation(federate):
    return federate()


@pytest.fixture
def sessions(credentials):
    return {name: fresh(credential) for name, credential in credentials.items()}


@pytest.fixture
def stored(credentials, tmp_path):
    """Sessions that lie in folders, and how to begin them again."""

    def begin():
        folders = {name: tmp_path / name for name in credentials}
        for folder in folders.values():
            folder.mkdir(exist_ok=True)
        return {
            name: Session.open(STUDY, credentials[name], SystemEntropy(), folders[name], begun=False)
            for name in folders
        }

    return begin


@pytest.fixture
def five(federate):
    """Five silos of which four suffice: two rounds of pooled heads and encoder, a last one by domain."""

    def gather(**changes):
        heads = {"pooled_rounds": 2}
        return federate(tiny_study(**{"silos": FIVE, "min_silos": 4, "heads": heads, **changes}), min_silos=3)

    return gather


@pytest.fixture
def by_hub(coordinator, credentials):
    """The coordinator's cosignature of a statement of north's."""

    def give(said):
        return replace(cosigned(said, coordinator, credentials["north"]), signer=coordinator.identity.uri)

    return give
