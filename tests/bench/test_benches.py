"""`make bench NAME=...`: every bench has a row, a name and a module that is there."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from bench import __main__ as runner
from bench.benches import BENCHES, listed
from bench.places import ROOT

BY_NAME = {bench.name: bench for bench in BENCHES}


def script(bench):
    """The file that runs a bench."""
    path = ROOT / bench.module.replace(".", "/")
    return path / "__main__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_a_bench_is_a_script_that_takes_the_options_it_is_given(bench):
    assert importlib.util.find_spec(bench.module)
    source = script(bench).read_text()
    assert '__name__ == "__main__"' in source
    for option in (*bench.options, *(["--data"] if bench.reads else [])):
        assert f'"{option}"' in source
    assert bench.reads == ('"--data"' in source)
    assert ("threads.several" in source) <= (bench.environment.get("OPENBLAS_NUM_THREADS") == "1")


def test_names_are_different_and_each_has_a_line():
    assert len(BY_NAME) == len(BENCHES)
    assert [line.split()[0] for line in listed().splitlines()] == list(BY_NAME)


def test_without_a_name_they_are_listed(capsys):
    assert runner.main([]) == ""
    assert listed() in capsys.readouterr().out


def test_an_unknown_name_starts_nothing(monkeypatch):
    monkeypatch.setattr("os.execve", None)
    assert "no bench 'exams'" in runner.main(["exams"])


def test_a_bench_gets_its_options_its_environment_and_what_is_asked_for(monkeypatch):
    began = []
    monkeypatch.setattr("os.execve", lambda *words: began.append(words))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    runner.main(["mnist", "--seeds", "2"])
    [(python, words, environment)] = began
    assert words == [sys.executable, "-m", "bench.accuracy.mnist", "--processes", "--seeds", "2"]
    assert python == sys.executable
    assert environment["OPENBLAS_NUM_THREADS"] == environment["OMP_NUM_THREADS"] == "1"
    assert environment["PATH"]


def test_every_bench_that_a_page_names_is_there():
    pages = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
    named = {
        (str(page.relative_to(ROOT)), name)
        for page in pages
        for name in re.findall(r"make bench NAME=([a-z][a-z-]*)", Path(page).read_text(encoding="utf-8"))
    }
    assert named
    assert not [(page, name) for page, name in named if name not in BY_NAME]
