"""A Prometheus of Debian that scrapes what tests run, with the rules of the repository at a faster pace."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

PROGRAM = shutil.which("prometheus")
needed = pytest.mark.skipif(PROGRAM is None, reason="no prometheus: install Debian's package prometheus")
RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "rules"
START_SECONDS = 120.0
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """The seconds of a duration of Prometheus."""
    return float(text[:-1]) * _SECONDS[text[-1]]


def hurried(text: str, *, waits: float, ranges: float) -> str:
    """Rules whose `for` is shorter by `waits`, and whose ranges and offsets are shorter by `ranges`, 5 s at least.

    Nothing else of them changes: what they compare, and with what, is what operators have.
    """

    def shorter(found: re.Match[str]) -> str:
        return f"{found[1]}{max(5, round(seconds(found[2]) / ranges))}s{found[3]}"

    text = re.sub(
        r"^( *for: )(\w+)()$", lambda found: f"{found[1]}{seconds(found[2]) / waits:.0f}s", text, flags=re.MULTILINE
    )
    text = re.sub(r"(\[)(\d+[smhd])(\])", shorter, text)
    return re.sub(r"(offset )(\d+[smhd])()", shorter, text)


class Prometheus:
    """A running Prometheus. It scrapes and judges every second."""

    def __init__(self, folder: Path, targets: Mapping[str, list[str]], *, waits: float, ranges: float) -> None:
        """`targets`: addresses by the name of their job."""
        folder.mkdir()
        rules = []
        for path in sorted(RULES.glob("*.yml")):
            rules.append(folder / path.name)
            rules[-1].write_text(hurried(path.read_text(), waits=waits, ranges=ranges))
        self._config = folder / "prometheus.yml"
        self._document: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
        }
        self._write(targets)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        assert PROGRAM is not None
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={self._config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--web.enable-lifecycle",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def _write(self, targets: Mapping[str, list[str]]) -> None:
        jobs = [{"job_name": job, "static_configs": [{"targets": list(given)}]} for job, given in targets.items()]
        self._config.write_text(yaml.safe_dump({**self._document, "scrape_configs": jobs}))

    def retarget(self, targets: Mapping[str, list[str]]) -> None:
        """Scrape these addresses from now on."""
        self._write(targets)
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        asking.request("POST", "/-/reload")
        assert asking.getresponse().status == HTTPStatus.OK
        asking.close()

    def __enter__(self) -> Self:
        try:
            self._await_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _await_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=60).close()
            except OSError:  # it does not listen yet, or reads its data first
                assert self._process.poll() is None, Path(self._log.name).read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
            else:
                return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._log.close()

    def get(self, call: str, **words: str) -> Any:
        """Return what the HTTP API answers. A query that it refuses fails the test with its reason."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{call}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                answer = json.load(reply)
        except urllib.error.HTTPError as error:
            pytest.fail(f"{words}: {error.read().decode()}")
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression gives now."""
        return list(self.get("query", query=expression)["result"])

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}
