"""The limit of open files is raised as far as it may be, and is a clear error if that is too little."""

from __future__ import annotations

import resource

import pytest

from coordinator.door import files

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [
        (1024, UNLIMITED, files.WANTED),
        (1024, 1 << 20, files.WANTED),
        (1024, 5000, 5000),
        (files.NEEDED, files.NEEDED, files.NEEDED),
        (1 << 20, 1 << 20, 1 << 20),
    ],
)
def test_the_limit_is_raised(monkeypatch, soft, hard, wanted):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    assert files.raise_limit() == wanted
    assert limits[-1] == (max(soft, wanted), hard)


def test_a_system_that_allows_too_few_is_told_what_to_do(monkeypatch):
    limits = [(1024, 2048)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    with pytest.raises(files.FewFilesError, match=r"needs 4096 open files, but this system allows 2048; raise the"):
        files.raise_limit()


def test_no_limit_is_enough(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (UNLIMITED, UNLIMITED))
    assert files.raise_limit() == files.WANTED
