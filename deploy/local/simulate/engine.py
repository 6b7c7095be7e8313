"""One run of a study in this process, round by round as the study's plan says.

Guarantees: contributions, noise, solutions and models come from the learner that agents run, through its public
interface (`silo_agent.learning.learner`), and the sums are the integers that sealed sums open. So a run with the same
records and draws gives the very model that a federation gives (tests/deploy/local/simulate/test_engine.py). Nothing is
charged, sealed or kept: a learner's files lie in a folder that is removed, in memory where there are such folders.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crypto.entropy import Entropy
from deploy.local.simulate.ensemble import mean_of, measured_ensemble, personal_models, require_local_models
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.outcome import Outcome, RunMetrics, measure
from deploy.local.simulate.silos import Cohorts, Silo
from policies.documents.study import Study, require_bounds
from policies.plan import grids
from policies.plan.cost import Cohort
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.learner import Learner
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import begin
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.contribution import Integers
from silo_agent.storage.folders import StudyFolder

_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # a folder with a name of its own is made below it


class VirtualSilo(Learner):
    """The learner of one virtual silo. Its records are handed in, and no file is read."""

    def __init__(self, study: Study, silo: Silo, folder: Path, entropy: Entropy, device: str) -> None:
        nowhere = DataSet(folder / "none", Division("simulated", 0.5, ()))
        super().__init__(study, nowhere, folder, draws=FreshDraws(entropy), device=device)
        self._silo = silo

    def cohort(self, name: Cohort) -> Records:
        """The records that were handed in."""
        return self._silo.training if name == "training" else self._silo.held_out


def simulate(
    study: Study,
    cohorts: Cohorts,
    *,
    seed: int,
    device: str = "cpu",
    after_round: Callable[[SharedModel], None] | None = None,
    earlier: SharedModel | None = None,
    ensemble: bool = False,
) -> Outcome:
    """Run a whole study on these silos; the same seed draws the same noise.

    `after_round` is called with the model of each finished training round, as a silo's personal model reads it.
    With `ensemble` the outcome has the mean of all silos' own models too: with the parts that the recipe keeps, or else
    their personal models. `earlier` is the model that the study continues, if it continues one. The silos are named as
    in the study. Some of its silos may be absent, as in a federation that goes on without them.
    Raises `SimulationError` for a silo that the study does not name or for no silo, and for an ensemble of a study
    whose silos have no models of their own; `Refused` for a study that no agent would train; `ModelFileError` if
    `earlier` is not the model that the study continues.
    """
    require_bounds(study)
    grids.require(study)
    start = begin(study, earlier)
    if ensemble:
        require_local_models(study)
    rounds = {0: start}

    def note(model: SharedModel) -> None:
        if ensemble:
            rounds[model.round] = model
        if after_round is not None:
            after_round(model)

    strangers = sorted(set(cohorts.silos).difference(study.silos))
    if strangers or not cohorts.silos:
        msg = f"the study names the silos {', '.join(study.silos)}, not {', '.join(strangers) or 'none'}; use `renamed`"
        raise SimulationError(msg)
    with tempfile.TemporaryDirectory(prefix="fedward-simulate-", dir=_MEMORY if _MEMORY.is_dir() else None) as root:
        learners = {}
        for name, silo in cohorts.silos.items():
            folder = Path(root) / name
            folder.mkdir()
            learners[name] = VirtualSilo(study, silo, folder, RepeatableEntropy(seed, name), device)
        model, published = _walk(start, learners, note)
        complete = [kept_parts.completed(model, StudyFolder(Path(root) / name), study.rounds + 1) for name in learners]
    parts = cohorts.measured
    said = _said(complete, cohorts) if study.composition.keeps else [_predicted(model, records) for records in parts]
    own = None
    if study.composition.keeps and cohorts.test is not None:
        mine = Cohorts(cohorts.silos)
        own = RunMetrics(study, seed, *measure(study, mine.measured, _said(complete, mine)))
    together = None
    if ensemble:
        keeps = study.composition.keeps
        models = complete if keeps else personal_models(study, rounds, cohorts, seed=seed, device=device)
        together = measured_ensemble(study, models, cohorts, seed=seed)
    return Outcome(
        study, seed, *measure(study, parts, said), model=model, published=published, own=own, ensemble=together
    )


def _predicted(model: SharedModel, records: Records) -> NDArray[np.float64]:
    return model.predict(records.inputs, records.domains, records.images)


def _said(complete: Sequence[SharedModel], cohorts: Cohorts) -> list[NDArray[np.float64]]:
    """Predictions where silos keep parts: each silo's own of its patients, the mean of all of those of unknown origin.

    Only a simulation, or whoever holds public data, can have the silos' models together (docs/design/recipes.md,
    "Patients of unknown origin").
    """
    if cohorts.test is not None:
        return [mean_of(complete, cohorts.test)]
    return [_predicted(model, records) for model, records in zip(complete, cohorts.measured, strict=True)]


def _walk(
    start: SharedModel, learners: Mapping[str, Learner], after_round: Callable[[SharedModel], None]
) -> tuple[SharedModel, Results]:
    """All rounds; gives the last model and the metrics that follow from the noised sums."""
    study, model, results = start.study, start, None
    planned = plan(study)
    for number in range(planned.last + 1):
        place = Place(study.digest, number, 1)
        for release in planned.round(number):
            total = _sum(release, place, model, learners)
            model, found = _open(Tensor(release.tensor), total, place, model, learners)
            results = found or results
        if 0 < number < planned.last:
            after_round(model)
    if results is None:
        msg = "the study's plan has no metrics; ask the developers"
        raise SimulationError(msg)
    return model, results


def _sum(release: Release, place: Place, model: SharedModel, learners: Mapping[str, Learner]) -> Integers:
    total = np.zeros(release.values, np.int64)
    for learner in learners.values():
        total += learner.contribution(release, place, model, len(learners))
    return total


def _open(
    tensor: Tensor, total: Integers, place: Place, model: SharedModel, learners: Mapping[str, Learner]
) -> tuple[SharedModel, Results | None]:
    """What every silo makes of an opened sum; all make the same, so one solves and its model is the others'.

    The others open too, because a silo keeps what it has opened for later rounds. The metrics come last and are opened
    once: computing their intervals takes longer than anything else here.
    """
    first, *others = learners.values()
    silos = len(learners)
    first.check_sum(tensor, total, place, silos)
    opened = first.open(tensor, total, place, model, silos)
    if tensor is not Tensor.METRICS:
        for learner in others:
            learner.open(tensor, total, place, model, silos)
    model = opened.model
    if opened.unsolved is not None:
        solution = first.solve(opened.unsolved, place, model, silos)
        model = first.adopt(solution, opened.unsolved, place, model, silos)
    return model, opened.results
