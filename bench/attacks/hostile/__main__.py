"""Runs all attacks in turns until it is stopped, and writes how often each was tried and what was refused.

`python -m bench.attacks.hostile PLAN`, as `bench.attacks.abuse` calls it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from bench.attacks.hostile import calls, frames
from bench.attacks.hostile.target import ATTACKS, Target

LISTED = (calls, frames)
"""The modules whose attacks are listed, which importing them has done."""


def run(target: Target, name: str, seconds: float) -> None:
    """Run one attack for some seconds, and count its tries."""
    target.until = time.monotonic() + seconds
    tries = ATTACKS[name](target)
    try:
        for _ in tries:
            target.tried[name] += 1
            if not target.on:
                break
    finally:
        tries.close()  # type: ignore[attr-defined]  # all of them are generators


def main() -> None:
    """Run all attacks in turns until stopped."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.sched_setaffinity(0, {plan["core"]})
    folder, other, stranger = (Path(plan[name]) for name in ("folder", "other", "stranger"))
    target = Target(plan["port"], folder, other, stranger, plan["study"])
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    seconds, faults = Counter[str](), Counter[str]()
    while not over.is_set():
        for name in ATTACKS:
            began = time.monotonic()
            try:
                run(target, name, plan["seconds"])
            except Exception as error:  # noqa: BLE001  # an attack that fails is told of, the others go on
                faults[f"{name}: {type(error).__name__}: {str(error)[:200]}"] += 1
            seconds[name] += time.monotonic() - began  # type: ignore[assignment]  # seconds are floats
            rates = {name: round(target.tried[name] / seconds[name], 1) for name in seconds}
            said = {"tried": target.tried, "rates": rates, "refused": target.refused, "faults": faults}
            Path(plan["out"]).write_text(json.dumps(said, indent=1), encoding="utf-8")
            if over.is_set():
                break


if __name__ == "__main__":
    main()
