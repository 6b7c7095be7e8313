"""A consortium's Monday: 206 studies at one coordinator, in the list, at the console, and in a browser.

A coordinator as a process of its own, with mutual TLS, on loopback. The first paint is what Chromium says of a page
that it opens for the first time (a new profile for each, so nothing is kept), by Paint Timing (W3C).
"""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Response, sync_playwright

from bench.places import DEMO, ROOT
from bench.table import Criterion, judge
from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.console.pages import SCREEN
from coordinator.core.filtering import StudyFilter
from crypto.authorship import sign_study
from deploy.local.parties import COORDINATOR, Enrolment, FederationPaths, configure_author, configure_coordinator
from deploy.local.processes import Parties, run
from policies.documents.study import Study, load_study

STUDIES: Final = 206
RUNS: Final = 9
WANTED_SECONDS: Final = 0.5
WANTED_PAINT: Final = 300.0
WANTED_BYTES: Final = 100_000
LINES: Final = 24
"""Of a terminal."""
_PAINTED: Final = "performance.getEntriesByName('first-contentful-paint').map(one => one.startTime)"


def prepare(folder: Path, parties: Parties) -> CoordinatorClient:
    """Start a coordinator with room for so many studies, and return its author's client."""
    place = FederationPaths(folder)
    Enrolment(place, "of a bench").enrol({})
    configure_coordinator(place)
    many = {"open_studies": 10 * STUDIES, "created_a_day": 10 * STUDIES, "actions_a_day": 100_000, "gigabytes": 1e6}
    config = json.loads(place.coordinator_file.read_text()) | {"console_port": 0, "quotas": many}
    place.coordinator_file.write_text(json.dumps(config))
    log = place.party(COORDINATOR) / "log.jsonl"
    parties.start(COORDINATOR, log, "fedward-coordinator", "serve", "-c", place.coordinator_file, threads=1)
    configure_author(place, int(parties.await_event(COORDINATOR, log, "serving")["port"]))
    return CoordinatorClient(OperatorConfig.load(place.author_file))


def create(client: CoordinatorClient, count: int) -> list[Study]:
    """Hand in so many studies, and start every second one."""
    first, made = load_study(DEMO / "exam" / "study.yaml"), []
    for number in range(count):
        study = first.model_copy(update={"name": f"exam-{number}"})
        client.create(study.canonical(), sign_study(client.credential, study.digest, study.purpose))
        if number % 2:
            client.start(study.digest)
        made.append(study)
    return made


def median(do: Callable[[], object]) -> float:
    """The median seconds of several runs, the first left out."""
    found = []
    for _ in range(RUNS + 1):
        begun = time.perf_counter()
        do()
        found.append(time.perf_counter() - begun)
    return statistics.median(found[1:])


def paints(client: CoordinatorClient, program: str, paths: dict[str, str]) -> tuple[dict[str, float], dict[str, int]]:
    """Median first paint in milliseconds, and bytes with all that it loads, of each page by its title."""
    shown: dict[str, list[float]] = {title: [] for title in paths}
    sizes: dict[str, int] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for title, path in paths.items():
            for _ in range(RUNS):
                context = browser.new_context(ignore_https_errors=True)
                page = context.new_page()
                link = client.link_console()
                page.goto(link)
                base = link.partition("/enter")[0]
                loaded: list[int] = []
                page.on("response", _counted(loaded))
                page.goto(base + path, wait_until="load")
                page.wait_for_timeout(200)
                shown[title] += page.evaluate(_PAINTED)
                sizes[title] = sum(loaded)
                context.close()
        browser.close()
    return {title: statistics.median(times) for title, times in shown.items()}, sizes


def _counted(into: list[int]) -> Callable[[Response], None]:
    return lambda reply: into.append(int(reply.headers.get("content-length", 0)))


def main() -> int:
    """Measure, and print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    program = shutil.which("chromium")
    if program is None:
        print("no chromium: apt-get install chromium", file=sys.stderr)
        return 2
    for package in ("coordinator", "crypto", "common", "policies", "protos"):
        compileall.compile_dir(ROOT / package, quiet=2)  # as pip does with what it installs
    with tempfile.TemporaryDirectory() as scratch:
        parties = Parties()
        try:
            client = prepare(Path(scratch), parties)
            begun = time.perf_counter()
            studies = create(client, STUDIES)
            print(f"{STUDIES} studies were created in {time.perf_counter() - begun:.1f} s")
            author = FederationPaths(Path(scratch)).author_file
            lines = run("fedward-coordinator", "study", "list", "-o", author).splitlines()
            listed = median(lambda: run("fedward-coordinator", "study", "list", "-o", author))
            asked = median(lambda: client.page(StudyFilter(most=SCREEN)))
            here = f"/studies/{studies[-1].digest}"
            paths = {"studies": "/studies", "one study": here, "its text": f"{here}/text", "silos": "/silos"}
            painted, sizes = paints(client, program, paths)
            client.close()
        finally:
            parties.stop()
    figures = [
        Criterion(
            f"`study list` of {STUDIES} studies, whole command",
            f"below {WANTED_SECONDS} s",
            f"{listed:.2f} s",
            listed < WANTED_SECONDS,
        ),
        Criterion("its call alone", f"below {WANTED_SECONDS} s", f"{asked:.3f} s", asked < WANTED_SECONDS),
        Criterion("its lines", f"{LINES} at most", str(len(lines)), len(lines) <= LINES),
        Criterion("studies on the console's first page", "one screen", str(SCREEN), SCREEN <= LINES),
    ]
    for title, paint in painted.items():
        figures.append(
            Criterion(f"first paint: {title}", f"below {WANTED_PAINT:.0f} ms", f"{paint:.0f} ms", paint < WANTED_PAINT)
        )
        figures.append(
            Criterion(f"its bytes: {title}", f"at most {WANTED_BYTES}", str(sizes[title]), sizes[title] <= WANTED_BYTES)
        )
    return judge("consoles", figures, {"first paint, ms": painted, "bytes": sizes, "list, s": listed})


if __name__ == "__main__":
    sys.exit(main())
