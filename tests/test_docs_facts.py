"""Fields, numbers and bare commands that pages name are those of the code."""

import inspect
import math
import re
from typing import get_args

import pytest
from pydantic import BaseModel
from test_docs import PLAIN, ROOT, name
from test_docs_commands import PROGRAMS, lines

from coordinator.config import CoordinatorConfig
from coordinator.core import missed
from crypto.pki.authority.cli_online import admit
from policies.documents import consistency, policy
from policies.documents.about import described
from policies.documents.document import MAX_BYTES
from policies.documents.draft import Draft
from policies.documents.policy import Policy
from policies.documents.sections import data
from policies.documents.sections.spelling import Encoding
from policies.documents.study import Study
from policies.documents.words.explain import guess
from policies.plan import quorum
from silo_agent.cli import policy as policy_module
from silo_agent.cli.policy import policy_new
from silo_agent.config import AgentConfig
from silo_agent.data import cells
from silo_agent.data.profiling import proposing
from silo_agent.learning.figures import calibration_curve, calibration_line

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
    (usual,) = re.findall(r"\(([\d.]+) is usual\)", inspect.getsource(policy_module))
    shown["what policy new calls usual"] = float(usual)
    assert [page for page, epsilon in shown.items() if epsilon >= float(large)] == []


def parameter(command, name):
    """The default of a command's option."""
    return inspect.signature(command).parameters[name].default


def _rounded_up(percent, digits):
    """As a ceiling is told."""
    return f"{math.ceil(percent * 10**digits) / 10**digits:.{digits}f}"


def facts():
    """What several pages state, by name: the code's value, and on each page the words around it."""
    prompts = sum("prompt=" in str(one.annotation) for one in inspect.signature(policy_new).parameters.values())
    encodings = ", ".join(f"`{one}`" for one in get_args(Encoding)[:1])
    threshold = "`evaluation.threshold`, else `expected.prevalence`, else one half"
    return {
        "questions of policy new": (
            WORDS[prompts],
            {
                "policy.md": r"`fedward-silo policy new` writes it with (\w+) answers",
                "handbook/engineer.md": r"not start\. (\w+) questions make one",
            },
        ),
        "silos of a federation": (
            str(quorum.MOST),
            {
                "policy.md": r"\| `min_silos` \| silos, 2 to (\d+) \|",
                "studies.md": r"at most (\d+) silos, and a study with more is refused",
                "study-fields.md": r"a federation has (\d+) at most, a simulation 1,000",
            },
        ),
        "days to use a token": (
            str(parameter(admit, "redeem_days")),
            {"handbook/authority.md": r"within (\d+) days \(`--redeem-days`\)"},
        ),
        "patients before a text is shown": (
            WORDS[proposing.FEWEST],
            {"../CHANGELOG.md": r"from what (\w+) patients or\s+more have, for a person to confirm"},
        ),
        "patients of a group of like risks": (
            WORDS[calibration_curve.FEWEST],
            {"operating.md": r"groups of like risks, of (\w+) patients or more"},
        ),
        "patients for a calibration line": (
            WORDS[calibration_line.FEWEST_OF_A_CLASS],
            {"operating.md": r"With fewer than (\w+) patients who have the outcome"},
        ),
        "the threshold": (
            threshold,
            {
                "operating.md": r"from the study's threshold on\s+\((.*?)\)",
                "../CHANGELOG.md": r"an edge of the\s+published bins: (.*?)\. At a rate",
                "design/evaluation.md": r"threshold\*\* of two classes is (.*?); never",
            },
        ),
        "the encoding of a file": (encodings, {"policy.md": r"CSV file stand for: (`[a-z0-9-]+`) if it is left out"}),
        **{
            f"odds at epsilon {epsilon}": (_rounded_up(100 * guess(epsilon, 0.0), digits), {"policy.md": pattern})
            for epsilon, digits, pattern in (
                (1, 1, r"With an epsilon of 1 that becomes at most ([\d.]+) %"),
                (2, 1, r"with 2 at most\s+([\d.]+) %"),
                (4, 1, r"with 4 at most ([\d.]+) %"),
                (8, 2, r"with 8 at most ([\d.]+) %"),
            )
        },
    }


WORDS = {5: "five", 10: "ten", 20: "twenty"}


@pytest.mark.parametrize("fact", facts())
def test_what_several_pages_state_is_what_the_code_does(fact):
    value, pages = facts()[fact]
    for page, pattern in pages.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        found = [" ".join(one.split()) for one in re.findall(pattern, text, re.DOTALL)]
        assert found, f"{page} does not say it: {pattern}"
        assert {one.lower() for one in found} == {value.lower()}, page


def test_every_encoding_stands_on_the_page():
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    assert [one for one in get_args(Encoding) if f"`{one}`" not in text] == []


def test_every_file_of_tests_that_a_page_names_is_there():
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = {one for page in PLAIN for code in codes(page) for one in re.findall(r"\btest_\w+\.py\b", code)}
    assert len(named) > 50
    assert named <= there
