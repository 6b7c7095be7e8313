"""A dry round: the first rounds of a study on this machine alone, among throw-away parties with made-up records.

Guarantees: it reads the study's document and nothing else of a hospital. Certificates, ledgers, records and models are
made in a temporary folder, which only this user may read and which is removed at the end, so nothing is charged. All
parties listen and call on loopback. The records are made up and declared public, so no budget bounds the round. What is
different from the study: it has only as many silos as its sums need, begins at the public start, and keeps no pace.
"""

from __future__ import annotations

import csv
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from deploy.local.federation import Federation
from deploy.local.processes import FederationError
from policies.documents.policy import Architecture
from policies.documents.study import Code, DataSchema, Study
from policies.plan import quorum
from policies.plan.release import plan

ROUNDS: Final = 2
"""Rounds that are run: the counts, and the first round of training with the heads' sum."""
RECORDS: Final = 64
"""Made-up records of each silo."""
_OVER: Final = ("ended", "aborted")
_PAUSE: Final = 0.2


@dataclass(frozen=True)
class DryRoundResult:
    """A dry round that succeeded: how many silos it had, how many rounds they finished, and how long that took."""

    silos: int
    rounds: int
    seconds: float


def dry_round(study: Study, silo: str, *, device: str, limit: float) -> DryRoundResult:
    """Start throw-away parties on loopback and let them finish the study's first rounds.

    Args:
        study: the study whose rounds are run.
        silo: the name of this hospital's silo; it takes part if the study lists it.
        device: of every agent, as in agent.yaml.
        limit: seconds, from the parties' start to the last round.

    Raises `FederationError` if a party fails, refuses, or is not done in time; the text shows what it logged, which
    follows from the study and this machine alone.
    """
    dry = smaller(study, silo)
    rounds = min(ROUNDS, plan(dry).last + 1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fedward-dry-round-") as name:
        folder = Path(name)
        file = folder / "study.yaml"
        file.write_bytes(dry.canonical())
        data = {one: write_records(folder / f"{one}.csv", dry.data) for one in dry.silos}
        policies = {one: json.dumps(policy_for(dry, one)) for one in dry.silos}
        federation = Federation(folder / "parties", file, data, policies, device=device)
        federation.prepare()
        with federation:
            federation.begin()
            _await(federation, rounds, time.monotonic() + limit)
    return DryRoundResult(len(dry.silos), rounds, time.monotonic() - began)


def smaller(study: Study, silo: str) -> Study:
    """The study with as few silos as its sums need, without an earlier model and without a pace."""
    count = max(study.min_silos, quorum.needed(study))
    first = [silo] if silo in study.silos else []
    silos = [*first, *(other for other in study.silos if other != silo)][:count]
    changes = {"silos": silos, "continues": None, "pace": "prompt"}
    document = {**json.loads(study.canonical()), **changes}
    return Study.model_validate_json(json.dumps({name: value for name, value in document.items() if value is not None}))


def policy_for(study: Study, silo: str) -> dict[str, Any]:
    """A policy for made-up records that allows the study whatever it asks for."""
    patient = study.data.patient
    identified = [patient] if patient is not None else [study.data.label.column]
    return {
        "version": 4,
        "contact": "a dry round",
        "data_set": {
            "id": silo,
            "unit": "record" if patient is None else "patient",
            "identified_by": identified,
            "holdout": 0.2,
            "file": {"delimiter": study.data.delimiter, "columns": list(study.data.columns)},
            "public": True,
        },
        "budget": {"epsilon": 32.0, "delta": 9e-3, "relation": "add_remove", "expires": "9999-12-31"},
        "min_silos": 2,
        "noise_modes": ["local", "distributed"],
        "colluders": 0,
        "encoder_sealing": "ring",
        "smallest_domain": 0,
        "limits": {
            "study_epsilon": 32.0,
            "round_epsilon": 32.0,
            "rounds": 400,
            "charged_attempts": 100,
            "architectures": list(get_args(Architecture)),
            "encoder_weights": 1 << 40,
            "representation": 256,
            "sampling_rate": 1.0,
            "clip": 1e12,
            "memory_mib": 16_777_216,
        },
        "split": dict.fromkeys(("encoder", "heads", "counts", "metrics"), 1.0),
        "publish": list(study.publish),
        "retention_days": 1,
        "studies": None,
        "approvers": None,
    }


def write_records(path: Path, schema: DataSchema) -> Path:
    """Write made-up records of the schema: public, always the same ones. A study with images gets the header alone.

    A row whose cells do not fit, because two parts of the schema read one column differently, is left out by the agent.
    """
    columns = _columns(schema)
    names = list(schema.columns) or list(columns)
    rows = 0 if schema.image is not None else RECORDS
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=schema.delimiter)
        if not schema.columns:
            writer.writerow(names)
        for row in range(rows):
            writer.writerow([_cell(columns.get(name, ("",)), row, place) for place, name in enumerate(names)])
    return path


def _columns(schema: DataSchema) -> Mapping[str, tuple[Code | float, ...]]:
    """Cells of every column that the schema reads, to be taken in turn. The patient's has none: rows have a number."""
    found: dict[str, tuple[Code | float, ...]] = {}
    label = schema.label
    found[label.column] = tuple(codes[0] for codes in label.codes) or _between(label.minimum, label.maximum)
    factors = (*schema.domain, *schema.protected, *(() if schema.environment is None else (schema.environment,)))
    # A column that has codes in one place and a range in another gets the codes, which are mostly in the range.
    found |= {factor.column: factor.values for factor in factors if factor.values}
    for feature in schema.features:
        cells = feature.values if feature.kind == "category" else _between(feature.minimum, feature.maximum)
        found.setdefault(feature.column, cells)
    for factor in factors:
        if factor.edges:
            found.setdefault(factor.column, (factor.edges[0] - 1.0, *factor.edges))
    if schema.image is not None:
        found.setdefault(schema.image.column, ("",))
    if schema.patient is not None:
        found[schema.patient] = ()
    return found


def _between(minimum: float | None, maximum: float | None) -> tuple[float, ...]:
    low, high = minimum or 0.0, maximum or 0.0
    return tuple(low + (high - low) * part / 4 for part in range(5))


def _cell(cells: tuple[Code | float, ...], row: int, place: int) -> str:
    """The cell of a row. Columns take their cells at different speeds, so that they are not all alike."""
    if not cells:
        return f"made-up-{row}"
    cell = cells[row // (1 + place % 3) % len(cells)]
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _await(federation: Federation, rounds: int, until: float) -> None:
    """Wait until the rounds are finished. Raises `FederationError` if the study ends or lasts too long."""
    digest = federation.study.digest
    with federation.author() as author:
        while True:
            federation.check()
            status = author.status(digest)
            if status.state == "finished" or status.round >= rounds:
                return
            refused = [f"{one.silo}: {one.why}" for one in status.members if one.state == "left"]
            if status.state in _OVER or refused:
                msg = f"the dry round failed: {'; '.join(refused) or status.why or status.state}"
                raise FederationError(msg)
            if time.monotonic() > until:
                place = f"it is in round {status.round}, {status.phase}"
                msg = f"the dry round was not finished in time; {place}. Give more seconds with --dry-limit"
                raise FederationError(msg)
            time.sleep(_PAUSE)
