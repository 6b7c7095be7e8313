"""Every command, Makefile target and variable that the README and the pages name is one that the programs know."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
import typer.main

import coordinator.cli.main
import crypto.pki.authority.cli
import deploy.local.cli
import silo_agent.cli.main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEMPLATES = sorted(page for room in ("coordinator", "silo_agent", "policies") for page in (ROOT / room).rglob("*.html"))
PROGRAMS = {
    name: typer.main.get_command(module.app)
    for name, module in {
        "fedward": deploy.local.cli,
        "fedward-authority": crypto.pki.authority.cli,
        "fedward-coordinator": coordinator.cli.main,
        "fedward-silo": silo_agent.cli.main,
    }.items()
}
FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
USAGE_ERROR = typer.BadParameter.__base__
"""What a parser raises: typer brings its own click and exports only this subclass."""


def lines(page):
    """Every line of a page's blocks and every inline code, and whether it must be a whole command.

    Of a console's template every piece of code is a whole command, with words in place of what the template fills in.
    """
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".html":
        for code in re.findall(r"<code>([^<]*)</code>", text):
            yield re.sub(r"\{\{.*?\}\}", "word", code), True
        return
    for block in FENCED.findall(text):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            yield line, True
    for code in INLINE.findall(FENCED.sub("", text)):
        yield " ".join(code.split()), False


def words(line):
    """The words of a line as a shell splits it, without the signs of a usage line: `[--by entry|study]`."""
    plain = re.sub(r"(?<=\w)\|[\w|]+", "", re.sub(r"[\[\]]|\.\.\.", " ", line))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return plain.split()


def commands(line):
    """Each program of FedWard that a line calls, with its arguments."""
    simple = [[]]
    for word in words(line):
        if re.fullmatch(r"[|;&()]+", word):
            simple.append([])
        else:
            simple[-1].append(word)
    for called in simple:
        if called[:2] == ["sudo", "-u"]:
            del called[:3]
        while called and re.match(r"[A-Z_]+=", called[0]):
            del called[0]
        if called and Path(called[0]).name in PROGRAMS:
            redirected = (at for at, word in enumerate(called) if re.fullmatch(r"[<>]+", word))
            yield Path(called[0]).name, called[1 : next(redirected, len(called))]


def wrong(program, arguments, *, whole):
    """What is wrong with a command, or None: an unknown command or option, or what a whole one lacks."""
    command = PROGRAMS[program]
    context = typer.Context(command, info_name=program)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        named = command.get_command(context, arguments[0])
        if named is None:
            return f"{context.command_path} has no command {arguments[0]}"
        command, arguments = named, arguments[1:]
        context = typer.Context(named, info_name=named.name, parent=context)
    try:
        given, left, _ = command.make_parser(context).parse_args(list(arguments))
    except USAGE_ERROR as error:
        return error.format_message() if whole or "No such" in error.format_message() else None
    if hasattr(command, "commands") or not whole or {"help", "version"} & given.keys():
        return None
    if left:
        return f"{context.command_path} takes no {left[0]}"
    required = [one for one in command.params if one.required and not getattr(one, "prompt", None)]
    lacks = [one.name for one in required if not given.get(one.name)]
    return f"{context.command_path} lacks {', '.join(lacks)}" if lacks else None


def faults(page):
    """Every command of a page that the programs would refuse."""
    for line, whole in lines(page):
        for program, arguments in commands(line):
            fault = wrong(program, arguments, whole=whole)
            if fault is not None:
                yield f"{line.strip()}: {fault}"


@pytest.mark.parametrize("page", [*PAGES, *TEMPLATES], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_programs_know_every_command_of_a_page(page):
    assert list(faults(page)) == []


def test_the_pages_hold_many_commands():
    assert sum(1 for page in PAGES for line, _ in lines(page) for _ in commands(line)) > 150
    assert sum(1 for page in TEMPLATES for line, _ in lines(page) for _ in commands(line)) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_makefile_has_every_target_of_a_page(page):
    targets = [target for line, _ in lines(page) for target in re.findall(r"^\s*make ([\w-]+)", line)]
    assert [target for target in targets if target not in TARGETS] == []


def test_the_sources_read_every_variable_of_the_pages():
    named = {one for page in PAGES for one in re.findall(r"\bFEDWARD_[A-Z_]+", page.read_text(encoding="utf-8"))}
    folders = ("common", "coordinator", "crypto", "deploy", "silo_agent")
    sources = "".join(path.read_text(encoding="utf-8") for one in folders for path in (ROOT / one).rglob("*.py"))
    assert named, "the pages name no variable"
    assert [one for one in sorted(named) if one not in sources] == []


@pytest.mark.parametrize(
    "text",
    [
        "```\nfedward-silo studys -c silo/agent.yaml\n```\n",
        "```\nfedward-silo studies --konfig silo/agent.yaml\n```\n",
        "```\nfedward-silo study show\n```\n",
        "see `fedward-silo ledger shown`\n",
        "see `fedward-authority serve --nonsense`\n",
    ],
)
def test_a_wrong_command_is_seen(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert len(list(faults(page))) == 1
