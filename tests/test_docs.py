"""The README and the pages under docs/ say what is true: sizes, links, metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from coordinator.metrics import CoordinatorMetrics
from coordinator.telemetry import current
from crypto.pki.authority.service.metrics import AuthorityMetrics
from silo_agent.metrics import AgentMetrics as SiloMetrics
from silo_agent.oversight import asking_figures

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MOST_WORDS = 900
MOST_IN_A_SENTENCE = 30
MOST_MINUTES, WORDS_A_MINUTE = 20, 230
PLAIN = [README, ROOT / "SECURITY.md", *PAGES]
"""Pages of short sentences: all of them. A proof is read one step at a time, too."""
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def name(page):
    return str(page.relative_to(ROOT))


def sections(page):
    """A page's headings, in order."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def anchor(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def row(name, kind, labels, meaning):
    """A metric's row of the page's table."""
    metric = name + ("_total" if kind == "counter" else "")
    return f"| `{metric}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '-'} | {meaning} |"


def rows(registry: CollectorRegistry) -> list[str]:
    """The rows of the metrics of a registry."""
    collectors = dict.fromkeys(registry._names_to_collectors.values())
    return [row(one._name, one._type, one._labelnames, one._documentation) for one in collectors]


def rows_of(families) -> list[str]:
    """The rows of metrics that are made at each scrape."""
    return [row(one.name, one.type, one._labelnames, one.documentation) for one in families]


def test_every_metric_stands_in_the_docs_as_it_is():
    expected = [
        *rows(CoordinatorMetrics().registry),
        *rows_of(current.families()),
        *rows(SiloMetrics().registry),
        *rows_of(asking_figures.families()),
        *rows(AuthorityMetrics().registry),
    ]
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `fedward_")] == expected


def test_the_readme_is_one_page():
    assert len(README.read_text(encoding="utf-8").split()) <= MOST_WORDS


def reading():
    """What the README tells each role to read first: the pages by role."""
    rows = re.findall(r"^\| (an? [^|]+) \| ([^|]+) \|", README.read_text(encoding="utf-8"), re.MULTILINE)
    return {role: [ROOT / page for page in LINK.findall(first)] for role, first in rows}


@pytest.mark.parametrize(("role", "pages"), reading().items())
def test_a_role_reads_no_longer_than_twenty_minutes_first(role, pages):
    assert pages, role
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    assert words <= MOST_MINUTES * WORDS_A_MINUTE, f"{role}: {words / WORDS_A_MINUTE:.0f} minutes"


def test_every_role_has_a_row():
    assert len(reading()) == 7


def sentences(page):
    """A page's sentences outside of code, tables and headings."""
    lines = FENCED.sub("", page.read_text(encoding="utf-8")).splitlines()
    text = "\n".join("" if line.startswith(("| ", "#")) else line for line in lines)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])", " ".join(block.split()))


@pytest.mark.parametrize("page", PLAIN, ids=name)
def test_every_page_has_short_sentences(page):
    assert [one for one in sentences(page) if len(one.split()) > MOST_IN_A_SENTENCE] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_begins_with_who_it_is_for(page):
    title, empty, first, *_ = page.read_text(encoding="utf-8").splitlines()
    assert title.startswith("# ")
    assert not empty
    assert first.startswith("For ")


@pytest.mark.parametrize("page", [README, *PAGES], ids=name)
def test_every_relative_link_of_a_page_leads_somewhere(page):
    broken = []
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith(("http://", "https://")):
            continue
        path, _, wanted = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (wanted and wanted not in {anchor(heading) for heading in sections(there)}):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", [README, *PAGES], ids=name)
def test_every_module_page_and_folder_that_a_page_names_is_there(page):
    named = re.findall(
        r"`((?:common|protos|crypto|policies|coordinator|silo_agent|deploy|bench|tests|docs)/(?:[\w./-]*(?:/|\.py|\.md))?)`",
        FENCED.sub("", page.read_text(encoding="utf-8")),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def sources():
    """Every Python file and every .proto of the repository, but what is generated."""
    folders = ("common", "protos", "crypto", "policies", "coordinator", "silo_agent", "deploy", "bench", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".proto"}]
    return [path for path in files if "_pb2" not in path.name and path != Path(__file__)]


def in_one_line(path):
    """A source without its line breaks, so that a citation may be wrapped, in a comment too."""
    return re.sub(r"\s*\n\s*(?:#|//)?\s*", " ", path.read_text(encoding="utf-8"))


def test_every_page_and_section_that_a_source_cites_exists():
    r"""A citation is `docs/PAGE.md`, or `docs/PAGE.md, "SECTION"` with further sections after `and`."""
    found, broken = 0, []
    for path in sources():
        for page, cited in re.findall(r'(docs/[\w/-]+\.md)((?:(?:,|,? and) "[^"]+")*)', in_one_line(path)):
            there = ROOT / page
            wanted = re.findall(r'"([^"]+)"', cited)
            found += 1
            if not there.exists() or not set(wanted) <= set(sections(there)):
                broken.append(f"{name(path)}: {page} {', '.join(wanted)}")
    assert found > 20, "the pattern of a citation finds hardly any"
    assert not broken


def test_a_source_cites_no_page_that_lies_outside_the_repository():
    known = {"README.md", "CHANGELOG.md", "model-card.md"}
    strangers = [
        f"{name(path)}: {page}"
        for path in sources()
        for page in re.findall(r"(?<![\w/\"'}.-])[\w-]+\.md\b", path.read_text(encoding="utf-8"))
        if page not in known
    ]
    assert not strangers
