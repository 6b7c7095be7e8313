"""Results of seeds that are done, so that a run that was stopped goes on where it was.

A result's file is named by all that the result follows from: FedWard's version, study, records, what is measured, and
seed. So nothing is ever taken for the result of something else, and one folder serves many studies. A model lies beside
the figures and is written before them: figures without their model are never there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from dacite import DaciteError

from common.canonical_json import canonical_json
from common.durable import write_whole
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.expected_patients import ExpectedPatients
from deploy.local.simulate.outcome import Exact, Outcome, RunMetrics
from deploy.local.simulate.silos import HeldRecords
from policies.documents.study import Study
from protos import record
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.model.shared import SharedModel

_DIGITS: Final = 40
"""Of a file's name: 160 bits, and short enough for every file system."""


@dataclass(frozen=True, repr=False, eq=False)
class _Figures:
    exact: tuple[Exact, ...]
    together: Exact


@dataclass(frozen=True, repr=False, eq=False)
class _KeptRun:
    """A run, as its file has it. Only an `Outcome` has published results, and a model in a file of its own."""

    figures: _Figures
    published: Results | None = None
    own: _Figures | None = None
    ensemble: _Figures | None = None


class KeptResults:
    """The results in a folder of one study's seeds, measured in one way on the same records.

    `measured` says what was measured, and `records` which records the seeds draw from. Both are part of the names.
    """

    def __init__(self, folder: Path, study: Study, *, measured: str, records: str) -> None:
        self._folder, self._study = folder, study
        self._facts = {"version": version("fedward"), "study": study.digest, "measured": measured, "records": records}

    def of_all(self, seeds: Sequence[int]) -> dict[int, RunMetrics]:
        """The results of the seeds that have one. Raises `SimulationError`, which names the file, if one is damaged."""
        return {seed: self._of(seed) for seed in seeds if self._files(seed)[0].exists()}

    def _of(self, seed: int) -> RunMetrics:
        file, model = self._files(seed)
        study = self._study
        try:
            found = record.load(_KeptRun, file.read_text(encoding="utf-8"))
            exact, together = found.figures.exact, found.figures.together
            if found.published is None:
                return RunMetrics(study, seed, exact, together)
            own, ensemble = (
                None if part is None else RunMetrics(study, seed, part.exact, part.together)
                for part in (found.own, found.ensemble)
            )
            shared = SharedModel.load(model)
        except (DaciteError, ModelFileError, OSError, ValueError) as error:
            msg = f"{file} is no result that was kept ({str(error).splitlines()[0]}); remove it, and run again"
            raise SimulationError(msg) from None
        return Outcome(
            study, seed, exact, together, model=shared, published=found.published, own=own, ensemble=ensemble
        )

    def keep(self, seed: int, result: RunMetrics) -> None:
        """Keep a result. Raises OSError."""
        file, model = self._files(seed)
        kept = _KeptRun(_figures(result))
        if isinstance(result, Outcome):
            result.model.save(model)
            own, ensemble = (None if part is None else _figures(part) for part in (result.own, result.ensemble))
            kept = _KeptRun(kept.figures, result.published, own, ensemble)
        write_whole(file, record.dump(kept).encode())

    def _files(self, seed: int) -> tuple[Path, Path]:
        name = hashlib.sha256(canonical_json({**self._facts, "seed": seed}).encode()).hexdigest()[:_DIGITS]
        return self._folder / f"{name}.json", self._folder / f"{name}.safetensors"


def keeper(
    folder: Path | None, study: Study, records: ExpectedPatients | HeldRecords, measured: str
) -> KeptResults | None:
    """The results in this folder; None if there is no folder."""
    return None if folder is None else KeptResults(folder, study, measured=measured, records=records.digest)


def _figures(run: RunMetrics) -> _Figures:
    return _Figures(run.exact, run.together)
