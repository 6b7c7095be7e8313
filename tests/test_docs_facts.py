"""Fields, numbers and bare commands that pages name are those of the code."""

import re

import pytest
from pydantic import BaseModel
from test_docs import PLAIN, ROOT, name
from test_docs_commands import PROGRAMS, lines

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

FILE = re.compile(r"\.(log|taken|wanted|json|yaml|py|sqlite3|sealed|safetensors)$")


def codes(page):
    """Every inline code of a page."""
    return [code for code, whole in lines(page) if not whole]


@pytest.mark.parametrize("page", PLAIN, ids=name)
def test_a_command_without_its_program_is_one_of_some_program(page):
    inner = {}
    for program in PROGRAMS.values():
        for group, command in program.commands.items():
            inner.setdefault(group, set()).update(getattr(command, "commands", ()))
    pairs = [code.split()[:2] for code in codes(page) if re.match(r"[a-z]+ [a-z][a-z-]+( |$)", code)]
    assert [pair for pair in pairs if inner.get(pair[0]) and pair[1] not in inner[pair[0]]] == []


def fields_of(document: type[BaseModel]) -> set[str]:
    return {re.sub(r"\[.*?\]", "", one.path) for one in described(document)}


def test_documents_have_every_field_that_a_page_names_by_its_section():
    known = set().union(*map(fields_of, (Study, Draft, Policy, AgentConfig, CoordinatorConfig)))
    sections = {path.partition(".")[0] for path in known if "." in path}
    assert {"data", "heads", "encoder", "limits", "budget"} <= sections
    named = [
        (name(page), code) for page in PLAIN for code in codes(page) if re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", code)
    ]
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


def test_no_page_shows_a_hospitals_budget_that_another_page_calls_too_large():
    (large,) = re.findall(r"budget of (\d+) or more bounds little", (ROOT / "docs" / "privacy.md").read_text())
    shown = {
        name(page): float(found)
        for page in PLAIN
        for found in re.findall(r"policy new [^\n]*--epsilon ([\d.]+)", page.read_text())
    }
    assert "engineer.md" in {page.rpartition("/")[2] for page in shown}
    assert [page for page, epsilon in shown.items() if epsilon >= float(large)] == []
