"""Man pages say what the programs' help says, and a reader of man pages finds no fault in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

from deploy.manual.__main__ import FOLDER
from deploy.manual.pages import EXIT_CODES, PROGRAMS, page

COMMANDS = Path(__file__).parents[3] / "docs" / "commands.md"
MAN = shutil.which("man") and shutil.which("groff")
by_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)


def leaves(command, path):
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, f"{path} {name}") if hasattr(each, "commands") else [(f"{path} {name}", each)]


@by_program
def test_every_command_and_every_option_stands_on_the_page(program):
    text = page(program).replace("\\-", "-").replace("\\&", "")
    found = list(leaves(get_command(import_module(program.module).app), program.name))
    assert found
    for path, command in found:
        (section,) = re.findall(
            rf"^\.SS {re.escape(path)}(?: [^\n]*)?\n(.*?)(?=^\.S[SH] )", text, re.MULTILINE | re.DOTALL
        )
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden and "--help" not in one.opts:
                assert re.search(rf"^\.B .*{re.escape(one.opts[0])}\b", section, re.MULTILINE), (path, one.opts)
    for code, meaning in EXIT_CODES:
        assert f".B {code}\n{meaning.replace('Ctrl-C', 'Ctrl-C')}" in text
    assert not re.search(r"^['.](?!TH|SH|SS|PP|TP|B |I |\\\")", page(program), re.MULTILINE), (
        "a line is no request by chance"
    )


@by_program
def test_the_pages_kept_are_those_of_the_commands(program):
    assert (FOLDER / f"{program.name}.1").read_text() == page(program)


@pytest.mark.skipif(not MAN, reason="no man or no groff: nobody else reads the pages")
@by_program
def test_man_reads_the_page_without_a_warning(program):
    done = subprocess.run(
        ["man", "--warnings", "-l", FOLDER / f"{program.name}.1"],
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert "EXIT STATUS" in done.stdout


@by_program
def test_a_shell_completes_the_commands(program):
    words = "_" + program.name.upper().replace("-", "_") + "_COMPLETE"
    done = subprocess.run(
        [Path(sys.executable).parent / program.name],
        env={**os.environ, words: "complete_bash", "COMP_WORDS": f"{program.name} ", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = {path.split()[1] for path, _ in leaves(get_command(import_module(program.module).app), program.name)}
    assert set(done.stdout.split()) == expected, done.stderr
