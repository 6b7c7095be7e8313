"""What pages name is there: every command and option of the programs, every target of make, every field and metric."""

import re
import shlex
from functools import cache
from importlib import import_module
from pathlib import PurePath

import pytest
import typer
from pydantic import BaseModel
from test_docs import PLAIN, ROOT, name

from coordinator.config import CoordinatorConfig
from coordinator.core import missed
from policies.documents import consistency, policy
from policies.documents.about import described
from policies.documents.document import MAX_BYTES
from policies.documents.draft import Draft
from policies.documents.policy import Policy
from policies.documents.sections import data
from policies.documents.study import Study
from silo_agent.config import AgentConfig
from silo_agent.data import cells

PROGRAMS = {
    "fedward": "deploy.local.cli",
    "fedward-authority": "crypto.pki.authority.cli",
    "fedward-coordinator": "coordinator.cli",
    "fedward-silo": "silo_agent.cli.main",
}
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1", "...", "and", "or"}
"""Words after which a line is no longer this command's."""
FENCED = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")


FILE = re.compile(r"\.(log|taken|wanted|json|yaml|py|sqlite3|sealed|safetensors)$")


@cache
def command_of(program):
    return typer.main.get_command(import_module(PROGRAMS[program]).app)


def lines_of(text: str) -> list[str]:
    """Lines of code of a page, and code within its sentences."""
    fenced = [line for block in FENCED.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    return fenced + [" ".join(code.split()) for code in INLINE.findall(FENCED.sub("", text))]


def commands_in(text: str) -> list[list[str]]:
    """The words of each command, from the program on."""
    found = []
    for line in lines_of(text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation mark of a sentence
            words = line.split()
        for place, word in enumerate(words):
            program = PurePath(word).name
            begins = place == 0 or not words[place - 1].startswith("-")
            if program in PROGRAMS and begins and (place + 1 < len(words)):
                end = next((at for at in range(place, len(words)) if words[at].rstrip(";") in ENDS), len(words))
                found.append([program, *words[place + 1 : end]])
                break
    return found


def fault_of(words: list[str]) -> str | None:
    """What the programs do not have of a command; None if they have all of it."""
    command, rest = command_of(words[0]), list(words[1:])
    while hasattr(command, "commands") and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    asked = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    unknown = asked - known - {"--help", "--install-completion"}
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", PLAIN, ids=name)
def test_the_programs_have_every_command_and_option_that_a_page_names(page):
    commands = commands_in(page.read_text(encoding="utf-8"))
    assert [f"{' '.join(words)}: {fault}" for words in commands if (fault := fault_of(words))] == []


def test_the_commands_are_found():
    assert sum(len(commands_in(page.read_text(encoding="utf-8"))) for page in PLAIN) > 200
    text = (
        "```\nsudo /opt/bin/fedward-silo plan study.yaml \\\n  --quick | less\n```\n`fedward-coordinator study lost ID`"
    )
    assert commands_in(text) == [
        ["fedward-silo", "plan", "study.yaml", "--quick"],
        ["fedward-coordinator", "study", "lost", "ID"],
    ]
    assert list(map(fault_of, commands_in(text))) == ["no option --quick", "no command lost"]


@pytest.mark.parametrize("page", PLAIN, ids=name)
def test_a_command_without_its_program_is_one_of_some_program(page):
    inner = {}
    for program in PROGRAMS:
        for group, command in command_of(program).commands.items():
            inner.setdefault(group, set()).update(getattr(command, "commands", ()))
    codes = INLINE.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    words = [code.split()[:2] for code in codes if re.match(r"[a-z]+ [a-z][a-z-]+( |$)", code)]
    assert [pair for pair in words if inner.get(pair[0]) and pair[1] not in inner[pair[0]]] == []


def test_make_has_every_target_that_a_page_names():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    codes = [code for page in PLAIN for code in lines_of(page.read_text(encoding="utf-8"))]
    named = {target for code in codes for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", code)}
    assert {"demo", "test", "bench"} <= named
    assert named <= targets


def fields_of(document: type[BaseModel]) -> set[str]:
    return {re.sub(r"\[.*?\]", "", one.path) for one in described(document)}


def test_documents_have_every_field_that_a_page_names_by_its_section():
    known = set().union(*map(fields_of, (Study, Draft, Policy, AgentConfig, CoordinatorConfig)))
    sections = {path.partition(".")[0] for path in known if "." in path}
    assert {"data", "heads", "encoder", "limits", "budget"} <= sections
    codes = [
        (page, code) for page in PLAIN for code in INLINE.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    ]
    named = [(name(page), code) for page, code in codes if re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", code)]
    asked = [(page, code) for page, code in named if code.partition(".")[0] in sections and not FILE.search(code)]
    assert len(asked) > 100
    assert [(page, code) for page, code in asked if code not in known] == []


def numbers():
    """Sentences of pages with a number that the code knows."""
    return {
        "data.md": [f"A cell has at most {cells.MAX_TEXT:,} characters"],
        "operating.md": [
            f"Who has been missing for {missed.LISTED_DAYS} days in that round",
            f"Each silo has its own {missed.LISTED_DAYS} days",
        ],
        "policy.md": [
            f"files above {MAX_BYTES >> 20} MiB",
            f"| `version` | {policy.VERSION}. A policy of version {policy.OLDEST} stays in force",
        ],
        "studies.md": [
            f"-{data.MOST:.0e} to {data.MOST:.0e}, in the column's unit".replace("e+", "e"),
            f"at least {data.LEAST:g}, and at least a millionth",
            f"| domains, the product of the factors' names | {data.MOST_DOMAINS:,} |",
            f"| inputs, the sum of the features' widths | {data.MOST_INPUTS:,} |",
            f"with `skip` | {consistency._MOST_READ} together |",
        ],
    }


@pytest.mark.parametrize(("page", "sentences"), numbers().items())
def test_numbers_of_a_page_are_those_of_the_code(page, sentences):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [sentence for sentence in sentences if sentence not in text] == []
