"""The rules by Prometheus' own tool: each alert fires at its fault, says so in a sentence, and is silent without it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from coordinator.metrics import CoordinatorMetrics
from coordinator.telemetry import current
from crypto.pki.authority.service.metrics import AuthorityMetrics
from deploy.monitoring.__main__ import path_of, written
from deploy.monitoring.dashboards import ALL
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight import asking_figures

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy" / "monitoring" / "rules"
FILES = sorted(RULES.glob("*.yml"), key=lambda path: (path.stem != "recording", path.name))
PAGES = ROOT / "docs" / "alerts"
PROMTOOL = shutil.which("promtool")
tool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool: install Debian's package prometheus")
HUB, SILO, KEEPER = 'job="fedward-coordinator", instance="a:1"', 'job="fedward-silo", instance="b:2"', 'instance="c:3"'
REFUSED = "fedward_coordinator_refused_calls_total"
STUDY = 'study="0123456789ab"'


def s(name, *labels):
    """A series."""
    return f"{name}{{{', '.join(labels)}}}"


# Alert, what is wrong, what is well, minutes until it fires, its own labels, its sentence.
CASES = [
    ("FedwardNobodyActive", (s("fedward_coordinator_active", HUB), "0x200"), "1x200", 3, "", "0 coordinators are"),
    ("FedwardTargetDown", (s("up", SILO), "0x200"), "1x200", 6, SILO, "fedward-silo at b:2 answers no scrape"),
    ("FedwardStudyWaits", (s("fedward_coordinator_phase_elapsed_seconds", STUDY, 'phase="wait"'), "0+60x200"), None, 61,
     f'{STUDY}, phase="wait"', "The study 0123456789ab waits"),
    ("FedwardSiloAway", (s("fedward_coordinator_member_state", STUDY, 'silo="west", state="away"'), "1x200"), "_", 31,
     f'{STUDY}, silo="west", state="away"', "Nothing is heard of west"),
    ("FedwardSiloWithoutData", (s("fedward_coordinator_member_state", STUDY, 'silo="west", state="no_data"'), "1x200"),
     "_", 61, f'{STUDY}, silo="west", state="no_data"', "west calls, and has no data for the study 0123"),
    ("FedwardAttemptsFail", (s("fedward_coordinator_attempts_total", HUB, 'outcome="aborted"'), "0x60 1 2 3x60"),
     "0x60 1x140", 70, f'{HUB}, outcome="aborted"', "Several attempts"),
    ("FedwardMachineShort", (s("fedward_coordinator_short", HUB), "1x200"), "0x200", 6, HUB, "The coordinator's mach"),
    ("FedwardDatabaseErrors", (s("fedward_coordinator_database_errors_total", HUB, 'kind="short"'), "0x5 1x200"),
     "3x200", 8, f'{HUB}, kind="short"', "The coordinator's database fails (short)"),
    ("FedwardSpoolFull", (s("fedward_coordinator_spool_free_bytes", HUB), "1073741824x200"), "3e9x200", 11, HUB,
     "1GiB are free"),
    ("FedwardCallsRefused", (s(REFUSED, HUB, 'code="PERMISSION_DENIED", caller="author/ann"'), "_x5 1x200"),
     None, 7, f'{HUB}, code="PERMISSION_DENIED", caller="author/ann"', "author/ann tried what it may not"),
    ("FedwardCallsRefused", (s(REFUSED, HUB, 'code="UNAUTHENTICATED", caller="silo/west"'), "1x40 2x100"), "1x200",
     42, f'{HUB}, code="UNAUTHENTICATED", caller="silo/west"', "silo/west tried"),
    ("FedwardHandshakesFail", (s("fedward_coordinator_failed_handshakes_total", HUB), "0+5x200"), "0+1x200", 16, HUB,
     "Many callers without"),
    ("FedwardDraining", (s("fedward_coordinator_draining", HUB), "1x300"), "0x300", 241, HUB, "The coordinator has"),
    ("FedwardCertificateEnds", (s("fedward_silo_certificate_expires_timestamp_seconds", SILO), "90060+60x300"),
     "400000x300", 61, SILO, "The certificate of fedward-silo at b:2 ends in 1d 1h 1m 0s"),
    ("FedwardListsStale", (s("fedward_coordinator_revocation_lists_stale_timestamp_seconds", HUB), "39660+60x300"),
     "0x300", 61, HUB, "The revocation lists of fedward-coordinator at a:1 are stale in 11h 1m 0s"),
    ("FedwardAuthorityConcerns", (s("fedward_authority_concerns", KEEPER), "2x200"), "0x200", 61, KEEPER,
     "The authority's keeper has 2 things"),
    ("FedwardAgentAlone", (s("fedward_silo_connected", SILO), "0x200"), "1x200", 16, SILO, "The agent at b:2 reaches"),
    ("FedwardAgentShort", (s("fedward_silo_short", SILO), "1x200"), "0x200", 6, SILO, "The agent at b:2 cannot"),
    ("FedwardStateDiskFull", (s("fedward_silo_state_free_bytes", SILO), "536870912x200"), "3e9x200", 11, SILO,
     "512MiB are free"),
    ("FedwardFault", (s("fedward_silo_fault", SILO), "1x200"), "0x200", 1, SILO, "A fault stands in the ledger at b:2"),
    ("FedwardAuditLogBroken", (s("fedward_silo_coordinator_audit_log_broken", SILO), "1x200"), "0x200", 1, SILO,
     "The coordinator's audit log is not the one that b:2 had"),
    ("FedwardApprovalWaits", (s("fedward_silo_studies_asking", SILO, 'verdict="waiting"'), "2x200"), "0x200", 61,
     f'{SILO}, verdict="waiting"', "2 studies wait for a decision at b:2"),
    ("FedwardDataMissing", (s("fedward_silo_studies_asking", SILO, 'verdict="no_data"'), "1x200"), "0x200", 61,
     f'{SILO}, verdict="no_data"', "1 approved studies find no data"),
    ("FedwardDisputes", (s("fedward_silo_disputes_total", SILO, 'task="open"'), "_x5 1x200"), None, 7,
     f'{SILO}, task="open"', "The silo at b:2 disputed a task (open)"),
]  # fmt: skip
SEVERAL = [
    ("FedwardClockStopped", {s("fedward_coordinator_clock_turns_total", HUB): "0+240x10 2400x100",
     s("fedward_coordinator_active", HUB): "1x200"}, 18, HUB, "No time passes for any study at a:1"),
    ("FedwardBudgetLow", {s("fedward_silo_epsilon_left", SILO): "0.2x100",
     s("fedward_silo_epsilon_spent", SILO): "3.8x100"}, 2, SILO, "5% of the data set's budget is left at b:2"),
]  # fmt: skip
QUIET = {
    s("fedward_coordinator_clock_turns_total", HUB): "0+240x100",
    'fedward_coordinator_clock_turns_total{job="fedward-coordinator", instance="standby:1"}': "0x100",
    s("fedward_coordinator_active", HUB): "1x100",
    'fedward_coordinator_active{job="fedward-coordinator", instance="standby:1"}': "0x100",
    s("fedward_silo_epsilon_left", SILO): "2x100",
    s("fedward_silo_epsilon_spent", SILO): "2x100",
    s("fedward_coordinator_phase_elapsed_seconds", STUDY, 'phase="gather"'): "0+60x100",
    s("fedward_coordinator_member_state", STUDY, 'silo="west", state="active"'): "1x100",
    s(REFUSED, HUB, 'code="FAILED_PRECONDITION", caller="silo/west"'): "0+9x100",
    s(REFUSED, HUB, 'code="PERMISSION_DENIED", caller="author/ann"'): "3x100",
    s("fedward_silo_disputes_total", SILO, 'task="open"'): "1x100",
}
RULE = {
    rule["alert"]: rule
    for path in FILES
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def labels_of(text):
    return dict(re.findall(r'(\w+)="([^"]*)"', text))


def case(alert, series, minutes, expected):
    """One test of promtool: these series, and what fires of an alert after so many minutes."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": expected}],
    }


def fired(alert, labels, summary):
    rule = RULE[alert]
    return [
        {
            "exp_labels": {**rule["labels"], **labels_of(labels)},
            "exp_annotations": {"runbook": rule["annotations"]["runbook"], "summary": summary},
        }
    ]


def promtool(*words):
    return subprocess.run([PROMTOOL, *map(str, words)], capture_output=True, text=True, check=False)


def whole(alert, labels, begins):
    """The sentence that begins so, as the template makes it with these labels; figures are taken from the beginning."""
    text = RULE[alert]["annotations"]["summary"]
    for name, value in labels_of(labels).items():
        text = text.replace("{{ $labels." + name + " }}", value)
    before, found, after = text.partition("{{ $value")
    if not found:
        assert text.startswith(begins)
        return text
    after = after.partition("}}")[2]
    assert begins.startswith(before)
    figure = begins[len(before) :]
    most = max(size for size in range(len(after) + 1) if figure.endswith(after[:size]))
    return before + figure + after[most:]


@tool
def test_each_alert_fires_at_its_fault_and_not_without_it(tmp_path):
    tests = []
    for alert, (series, wrong), well, minutes, labels, begins in CASES:
        tests.append(case(alert, {series: wrong}, minutes, fired(alert, labels, whole(alert, labels, begins))))
        early = RULE[alert].get("for")
        if early is not None:
            tests.append(case(alert, {series: wrong}, minutes - 2, []))
        if well is not None:
            tests.append(case(alert, {series: well}, minutes, []))
    for alert, series, minutes, labels, begins in SEVERAL:
        tests.append(case(alert, series, minutes, fired(alert, labels, whole(alert, labels, begins))))
    tests += [case(alert, QUIET, 90, []) for alert in RULE]
    document = {"rule_files": [str(path) for path in FILES], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yml").write_text(json.dumps(document))
    done = promtool("test", "rules", tmp_path / "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@tool
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_tool_finds_no_fault_in_the_rules(path):
    done = promtool("check", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@tool
def test_the_tool_finds_no_fault_in_the_sample_configuration():
    done = promtool("check", "config", RULES.parent / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried():
    assert {one[0] for one in (*CASES, *SEVERAL)} == set(RULE)


def test_every_alert_has_a_page_and_every_page_an_alert():
    index = (PAGES / "README.md").read_text()
    for name, rule in RULE.items():
        assert rule["annotations"]["runbook"] == f"docs/alerts/{name}.md"
        page = (PAGES / f"{name}.md").read_text()
        assert page.startswith(f"# {name}\n")
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == ["What it means", "What to look at", "What to do"]
        wait = rule.get("for", "at once")
        said = re.sub(r"{{[^}]*}}", "...", rule["annotations"]["summary"])
        assert f"| [{name}]({name}.md) | {wait} | {said} |" in index
    assert {path.stem for path in PAGES.glob("*.md")} == {*RULE, "README"}


def known_metrics():
    """Every series that the programs expose, and that recording rules make."""
    made = set()
    for registry in (CoordinatorMetrics().registry, AgentMetrics().registry, AuthorityMetrics().registry):
        for one in dict.fromkeys(registry._names_to_collectors.values()):
            made.add(one._name + {"counter": "_total"}.get(one._type, ""))
            if one._type == "histogram":
                made.add(f"{one._name}_bucket")
    for family in (*current.families(), *asking_figures.families()):
        made.add(family.name + {"counter": "_total"}.get(family.type, ""))
    recorded = {
        rule["record"]
        for path in FILES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    return made | recorded


def used(expression):
    """The series that an expression reads; a pattern of names stands for all that it matches."""
    patterns = re.findall(r'__name__=~"([^"]+)"', expression)
    plain = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\bfedward[a-z_:0-9]+\w", plain)), patterns


def expressions():
    for path in FILES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from (rule["expr"] for rule in group["rules"])
    for dashboard in ALL:
        yield from dashboard.queries


def test_rules_and_dashboards_read_series_that_there_are():
    known = known_metrics()
    for expression in expressions():
        names, patterns = used(expression)
        assert names <= known, expression
        for pattern in patterns:
            assert sum(re.fullmatch(pattern, one) is not None for one in known) >= 2, expression


@pytest.mark.parametrize("dashboard", ALL, ids=lambda one: one.uid)
def test_a_dashboard_is_as_its_source_says(dashboard):
    assert path_of(dashboard).read_text() == written(dashboard)
    made = dashboard.to_json()
    panels = [one for one in made["panels"] if one["type"] != "row"]
    assert len({one["id"] for one in made["panels"]}) == len(made["panels"])
    taken = {}
    for panel in panels:
        assert panel["title"]
        assert panel["description"].endswith(".")
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], "two panels lie on one another"
    assert {query["expr"] for panel in panels for query in panel["targets"]} <= set(dashboard.queries)
