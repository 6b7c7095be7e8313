"""Writes the ledgers of ten studies as they would be charged, one JSON file each.

Run `python tests/policies/recorded/generate.py`.

From study documents alone: costs follow from public constants, so no private record is behind any of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from policies.accounting import accountant
from policies.documents.study import Study
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.events import Debit, EntryRef, costs_of
from policies.plan.cost import Cost
from policies.plan.release import plan as plan_of

HERE = Path(__file__).parent
AT = "2026-01-31T08:00:00+00:00"
BASE: dict[str, Any] = {
    "version": 1,
    "purpose": "Show what a study of this kind costs.",
    "silos": ["a", "b", "c", "d"],
    "min_silos": 3,
    "data": {
        "patient": "pid",
        "label": {"column": "y", "positive": [1], "negative": [0]},
        "domain": [{"column": "group", "values": ["a", "b"], "names": ["group a", "group b"]}],
        "features": [{"kind": "number", "column": "age", "minimum": 0, "maximum": 120}],
    },
    "model": {"hidden": [8], "representation": 4, "seed": 1},
    "encoder": {"batch_size": 32, "learning_rate": 0.1},
}
# name: pooled rounds, domain rounds, pooled noise, domain noise, steps, rate, encoder noise, evaluation, counts, delta
PLANS: dict[str, tuple[int, int, float, float, int, float, float, float, float, float]] = {
    "short": (1, 1, 15.0, 20.0, 5, 0.1, 4.0, 8.0, 30.0, 1e-5),
    "design": (2, 18, 20.0, 20.0, 50, 0.02, 1.0, 10.0, 40.0, 1e-5),
    "heads-first": (2, 3, 5.0, 8.0, 20, 0.02, 1.5, 8.0, 30.0, 1e-5),
    "encoder-first": (1, 9, 60.0, 60.0, 100, 0.01, 0.9, 20.0, 80.0, 1e-6),
    "strict": (1, 4, 40.0, 60.0, 40, 0.005, 2.0, 30.0, 90.0, 1e-6),
    "large-steps": (1, 5, 12.0, 12.0, 10, 0.2, 3.0, 6.0, 25.0, 1e-5),
    "every-patient": (1, 3, 12.0, 12.0, 4, 1.0, 12.0, 6.0, 25.0, 1e-5),
    "evaluation": (1, 2, 30.0, 30.0, 10, 0.05, 4.0, 1.5, 40.0, 1e-5),
    "rare-events": (1, 7, 25.0, 25.0, 30, 0.03, 1.2, 12.0, 50.0, 1e-8),
    "repeated": (1, 4, 14.0, 18.0, 20, 0.05, 2.0, 9.0, 30.0, 1e-5),
}
REPEATED = {"repeated": {1: 3, 4: 2}}
"""Rounds that were charged more than once, for their distributed noise was drawn anew."""


def study(name: str) -> Study:
    """The document of a plan."""
    pooled, domain, pooled_noise, domain_noise, steps, rate, noise, evaluation, counts, delta = PLANS[name]
    heads = {
        "pooled_rounds": pooled,
        "domain_rounds": domain,
        "pooled_noise": pooled_noise,
        "domain_noise": domain_noise,
    }
    return Study.model_validate(
        BASE
        | {
            "name": name,
            "heads": heads,
            "encoder": BASE["encoder"] | {"steps": steps, "sampling_rate": rate, "noise": noise},
            "evaluation": {"noise": evaluation},
            "privacy": {"delta": delta, "mode": "distributed", "colluders": 1, "count_noise": counts},
        }
    )


def recorded(name: str) -> dict[str, object]:
    """The ledger after an undisturbed or repeated run, as an export's chain."""
    plan = study(name)
    genesis = Genesis("ward", 0.2, plan.privacy.delta)
    rows, held = [genesis_row(genesis)], list[Cost]()
    for number in range(plan_of(plan).last + 1):
        for attempt in range(1, 1 + REPEATED.get(name, {}).get(number, 1)):
            costs = plan_of(plan).round_costs(number)
            if attempt > 1:
                costs.pop("encoder", None)
            debit = Debit(plan.digest, "p" * 64, number, attempt, costs)
            held += costs_of(debit)
            entry = next_entry(EntryRef(rows[-1][0], rows[-1][2]), debit, AT, accountant.epsilon(held, genesis.delta))
            rows.append(entry.row)
    return {"study": name, "chain": [list(row) for row in rows]}


if __name__ == "__main__":
    for chosen in PLANS:
        (HERE / f"{chosen}.json").write_text(json.dumps(recorded(chosen), indent=0) + "\n")
