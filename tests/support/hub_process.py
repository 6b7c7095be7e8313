"""A coordinator as a process of its own, from the console command, with limits that a test chooses."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = """
import resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft} or hard, hard))
from coordinator.cli.main import main
main()
"""


@dataclass
class Hub:
    """A running coordinator."""

    port: int
    metrics_port: int
    process: subprocess.Popen[str]
    said: list[str]
    """The lines of its log, after the first."""

    def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels, as Prometheus writes them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as reply:
            lines = reply.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}

    def files(self) -> int:
        """Open files of the process."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def memory(self) -> int:
        """Resident bytes of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()


def hub_file(folder: Path, credential: Path, **changes: object) -> Path:
    """Write `coordinator.yaml`; returns its path."""
    files = {name: str(credential / f"{name}.pem") for name in ("certificate", "key", "authority")}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "coordinator.yaml"
    path.write_text(yaml.safe_dump({"port": 0, "metrics_port": 0, "data": "data", **files, **changes}))
    return path


@contextmanager
def running(path: Path, *, open_files: int | None = None) -> Iterator[Hub]:
    """Serve with this configuration; `open_files` is the limit that the process begins with."""

    command = [sys.executable, "-c", _PROGRAM.format(soft=open_files), "serve", "-c", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            entry = json.loads(line)
            if entry["event"] == "serving":
                break
        else:
            raise AssertionError(process.wait(60))
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
        reader.start()
        yield Hub(entry["port"], entry["metrics_port"], process, said)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
