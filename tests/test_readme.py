"""The README says what is true: its table of metrics is the programs' own."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry

from coordinator.metrics import Metrics as CoordinatorMetrics
from silo_agent.metrics import Metrics as SiloMetrics

README = Path(__file__).parent.parent / "README.md"


def rows(registry: CollectorRegistry) -> list[str]:
    """One row of the README's table per metric."""
    found = []
    for collector in dict.fromkeys(registry._names_to_collectors.values()):
        labels = ", ".join(f"`{label}`" for label in collector._labelnames) or "-"
        kind = collector._type
        name = collector._name + ("_total" if kind == "counter" else "")
        found.append(f"| `{name}` | {kind} | {labels} | {collector._documentation} |")
    return found


def test_every_metric_stands_in_the_readme_as_it_is():
    expected = [*rows(CoordinatorMetrics().registry), *rows(SiloMetrics().registry)]
    stated = [line for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| `fedward_")]
    assert stated == expected
