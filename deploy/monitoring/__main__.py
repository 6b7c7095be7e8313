"""`python -m deploy.monitoring` writes the dashboards; with `--check` it says whether they are as they would be."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from deploy.monitoring.dashboards import ALL
from deploy.monitoring.panels import Dashboard

FOLDER = Path(__file__).parent / "dashboards"


def written(dashboard: Dashboard) -> str:
    """Return a dashboard's file."""
    return json.dumps(dashboard.to_json(), indent=1) + "\n"


def path_of(dashboard: Dashboard) -> Path:
    """Return where a dashboard's file lies."""
    return FOLDER / f"{dashboard.uid}.json"


def main() -> int:
    """Write or check all dashboards. Return 1 if one is not as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a file differs")
    check = parser.parse_args().check
    stale = [one for one in ALL if not path_of(one).is_file() or path_of(one).read_text("utf-8") != written(one)]
    for one in stale:
        if check:
            sys.stderr.write(f"{path_of(one).name} is not what dashboards.py says; run python -m deploy.monitoring\n")
        else:
            FOLDER.mkdir(exist_ok=True)
            path_of(one).write_text(written(one), encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
