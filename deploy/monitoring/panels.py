"""Panels of a Grafana dashboard in a few words, and the JSON that Grafana reads (dashboard schema 39, Grafana 10 on).

A dashboard is rows of panels; each row is 24 units wide, and its panels share it evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SCHEMA: Final = 39
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
_GREEN, _ORANGE, _RED = "green", "orange", "red"
Steps = Sequence[tuple[float | None, str]]
"""From which figure on a colour counts; None is the beginning."""
GOOD_IF_ZERO: Final[Steps] = ((None, _GREEN), (1, _RED))
GOOD_IF_ONE: Final[Steps] = ((None, _RED), (1, _GREEN), (2, _RED))
PLAIN: Final[Steps] = ((None, "blue"),)


@dataclass(frozen=True)
class Query:
    """A query of Prometheus, and what its series are called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One panel. `kind` is Grafana's: stat, timeseries, table, bargauge, state-timeline."""

    title: str
    kind: str
    queries: tuple[Query, ...]
    about: str
    """What the reader learns from it."""
    unit: str = "short"
    steps: Steps = PLAIN

    def to_json(self, number: int, *, x: int, y: int, width: int, height: int) -> dict[str, object]:
        """Return the panel as Grafana reads it, at a place of the grid."""
        table = self.kind == "table"
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.about,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": height},
            "targets": [
                {
                    "refId": chr(ord("A") + at),
                    "datasource": _SOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                    **({"format": "table", "instant": True} if table else {}),
                }
                for at, query in enumerate(self.queries)
            ],
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit,
                    "thresholds": {
                        "mode": "absolute",
                        "steps": [{"value": value, "color": colour} for value, colour in self.steps],
                    },
                },
                "overrides": [],
            },
            "options": _OPTIONS.get(self.kind, {}),
            "transformations": [_NO_TIME] if table else [],
        }


_OPTIONS: Final[dict[str, dict[str, object]]] = {
    "stat": {"colorMode": "background", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "bargauge": {"displayMode": "basic", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    "table": {"cellHeight": "sm"},
}
_NO_TIME: Final = {
    "id": "organize",
    "options": {"excludeByName": dict.fromkeys(("Time", "__name__", "instance", "job"), True)},
}


@dataclass(frozen=True)
class PanelRow:
    """Panels beside each other, under a heading."""

    title: str
    panels: tuple[Panel, ...]
    height: int = 6


@dataclass(frozen=True)
class Dashboard:
    """One dashboard. `choices`: variables with the query that lists their values."""

    uid: str
    title: str
    about: str
    rows: tuple[PanelRow, ...]
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def queries(self) -> list[str]:
        """All queries, of panels and of variables."""
        listed = [query for _, query in self.choices]
        return listed + [query.expr for row in self.rows for panel in row.panels for query in panel.queries]

    def to_json(self) -> dict[str, object]:
        """Return the dashboard as Grafana reads it."""
        made: list[dict[str, object]] = []
        y = 0
        for row in self.rows:
            place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
            made.append({"id": len(made) + 1, "type": "row", "title": row.title, "gridPos": place, "panels": []})
            width = _WIDTH // len(row.panels)
            for at, panel in enumerate(row.panels):
                made.append(panel.to_json(len(made) + 1, x=at * width, y=y + 1, width=width, height=row.height))
            y += 1 + row.height
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": ["fedward"],
            "schemaVersion": SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [_CHOOSE_SOURCE, *(_choose(name, query) for name, query in self.choices)]},
            "panels": made,
        }


_CHOOSE_SOURCE: Final = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _choose(name: str, query: str) -> dict[str, object]:
    """A variable whose values are those of the label of its own name in the series of a query."""
    return {
        "name": name,
        "label": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({query}, {name})",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
