"""One run of a study in this process, round by round as the study's plan says.

Guarantees: contributions, noise, solutions and models come from the learner that agents run, through its public
interface (`silo_agent.learning.learner`), and the sums are the integers that sealed sums open. So a run with the same
records and draws gives the very model that a federation gives (tests/deploy/local/simulate/test_engine.py). Nothing is
charged, sealed or kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from deploy.local.simulate.ensemble import mean_of, measured_ensemble, personal_models, require_local_models
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.groups import Founding, Groups, Hosts, in_this_process
from deploy.local.simulate.outcome import Outcome, RunMetrics, measure
from deploy.local.simulate.silos import Cohorts
from policies.documents.study import Study, require_bounds
from policies.plan import grids
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.records import Records
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import begin


def simulate(
    study: Study,
    cohorts: Cohorts,
    *,
    seed: int,
    device: str = "cpu",
    after_round: Callable[[SharedModel], None] | None = None,
    earlier: SharedModel | None = None,
    ensemble: bool = False,
    hosts: Hosts = in_this_process,
) -> Outcome:
    """Run a whole study on these silos; the same seed draws the same noise.

    `after_round` is called with the model of each finished training round, as a silo's personal model reads it.
    With `ensemble` the outcome has the mean of all silos' own models too: with the parts that the recipe keeps, or else
    their personal models. `earlier` is the model that the study continues, if it continues one. The silos are named as
    in the study. Some of its silos may be absent, as in a federation that goes on without them. `hosts` says where they
    are: by default in this process, one after the other.
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
    with hosts(Founding(study, cohorts.silos, seed, device, len(cohorts.silos))) as groups:
        model, published = _walk(start, groups, note)
        complete = _complete(groups, model, cohorts.silos) if study.composition.keeps else []
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
    start: SharedModel, groups: Groups, after_round: Callable[[SharedModel], None]
) -> tuple[SharedModel, Results]:
    """All rounds; gives the last model and the metrics that follow from the noised sums."""
    study, model, results = start.study, start, None
    planned = plan(study)
    for number in range(planned.last + 1):
        place = Place(study.digest, number, 1)
        for release in planned.round(number):
            total = np.sum(groups.ask(methodcaller("contributed", release, place, model)), axis=0, dtype=np.int64)
            said = groups.ask(methodcaller("opened", Tensor(release.tensor), total, place, model))
            [(model, found)] = [answer for answer in said if answer is not None]
            results = found or results
        if 0 < number < planned.last:
            after_round(model)
    if results is None:
        msg = "the study's plan has no metrics; ask the developers"
        raise SimulationError(msg)
    return model, results


def _complete(groups: Groups, model: SharedModel, names: Iterable[str]) -> list[SharedModel]:
    """Each silo's complete model, in the order of the names."""
    found = {name: own for part in groups.ask(methodcaller("completed", model)) for name, own in part.items()}
    return [found[name] for name in names]
