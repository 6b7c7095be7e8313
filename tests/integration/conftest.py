"""Parties of the federations are real processes that fork from one, which has loaded their libraries."""

from __future__ import annotations

import subprocess

import pytest

from support.fork_server import ForkedPopen
from support.made_release import registries, release, release_key

__all__ = ["registries", "release", "release_key"]


@pytest.fixture(autouse=True)
def _forked_parties(request, monkeypatch) -> None:
    """But for tests marked `as_installed`, whose parties start as an operator starts them."""
    if request.node.get_closest_marker("as_installed") is None:
        monkeypatch.setattr(subprocess, "Popen", ForkedPopen)
