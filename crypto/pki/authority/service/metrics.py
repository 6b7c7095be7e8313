"""All metrics of the issuing authority, by name. Labels are bounded: a path that nobody serves is `other`."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from http import HTTPStatus
from importlib.metadata import version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

OTHER: Final = "other"


class AuthorityMetrics:
    """The authority's metrics on their own registry."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        """`paths` are those that are served."""
        self._paths = frozenset(paths)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.build = Gauge(
            "fedward_authority_build_info",
            "1 for the version of FedWard and of Python that runs.",
            ["version", "python"],
            registry=self.registry,
        )
        self.build.labels(version("fedward"), platform.python_version()).set(1)
        self.requests = Counter(
            "fedward_authority_requests_total",
            "Requests answered, by path and HTTP status.",
            ["path", "status"],
            registry=self.registry,
        )
        self.certified = Counter(
            "fedward_authority_certified_total",
            "Certificates handed out, first ones and renewed.",
            registry=self.registry,
        )
        self.concerns = Gauge(
            "fedward_authority_concerns",
            "What the authority's keeper must do soon, as a number; the log has a sentence for each.",
            registry=self.registry,
        )
        self.ends = Gauge(
            "fedward_authority_certificate_expires_timestamp_seconds",
            "When the issuing authority's certificate expires (Unix time).",
            registry=self.registry,
        )

    def answered(self, path: str, status: HTTPStatus) -> None:
        """Count an answer."""
        self.requests.labels(path if path in self._paths else OTHER, str(status.value)).inc()
