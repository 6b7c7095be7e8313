"""`python -m deploy.manual` writes the man pages; with `--check` it says whether they are as they would be."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.manual.pages import PROGRAMS, page

FOLDER = Path(__file__).parent / "man1"


def main() -> int:
    """Write or check all pages. Return 1 if one is not as it would be written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page differs")
    check = parser.parse_args().check
    FOLDER.mkdir(exist_ok=True)
    stale = 0
    for program in PROGRAMS:
        path, text = FOLDER / f"{program.name}.1", page(program)
        if path.is_file() and path.read_text("utf-8") == text:
            continue
        stale += 1
        if check:
            sys.stderr.write(f"{path.name} is not what its commands say; run python -m deploy.manual\n")
        else:
            path.write_text(text, encoding="utf-8")
    return int(check and stale > 0)


if __name__ == "__main__":
    sys.exit(main())
