"""Whether numpy computes on one core alone: it reads how many threads it may start when it is loaded."""

from __future__ import annotations

import os


def several(name: str) -> str:
    """Why the bench of this name cannot be run; empty if nothing is in its way."""
    if os.environ.get("OPENBLAS_NUM_THREADS") == "1":
        return ""
    return f"numpy would use several threads: set OPENBLAS_NUM_THREADS=1, as `make bench-{name}` does"
