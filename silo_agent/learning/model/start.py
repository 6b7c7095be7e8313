"""Where a study begins: at the public start, or at the shared model of an earlier study that it continues.

Guarantees: the start follows from the study and from the model that its digest names, so it is the same at every silo.
The earlier model is public to all silos of the new study, like the start that it replaces: the new study charges what
its own rounds release, and nothing else changes. The model may come from anybody who knows its digest, so each of its
weights is bounded, as those of solved heads are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study
from policies.plan import terms
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.storage.folders import StateFolder

_SAME: Final = ("features", "image", "label")
"""Parts of `data` that must be equal in both studies: a weight means a column, and a row of a head a class."""


def begin(study: Study, earlier: SharedModel | None) -> SharedModel:
    """The model before the first round of `study`, which continues `earlier` if it says so.

    Encoder and averaged tables are those of `earlier`. All heads start at the mean of its heads, because every study
    begins with pooled rounds, which need one head for all. What the solver gathers from rounds, and the momentum, begin
    empty, because they are about the earlier study's patients.

    Raises `ModelFileError` if `earlier` is not the model that the study continues, with all that does not fit.
    """
    if study.continues is None:
        return SharedModel.start(study)
    if earlier is None or earlier.digest != study.continues:
        msg = f"study {study.name} continues the model {study.continues}, and that model was not given"
        raise ModelFileError(msg)
    faults = _faults(study, earlier)
    if faults:
        msg = f"study.continues names a model of study {earlier.study.name} that does not fit: {'; '.join(faults)}"
        raise ModelFileError(msg)
    fresh = SharedModel.fresh(study)
    return replace(
        fresh,
        encoder=earlier.encoder.copy(),
        prior=earlier.prior.copy() if earlier.prior.shape == fresh.prior.shape else fresh.prior,
        heads=np.tile(earlier.heads.mean(axis=0), (len(study.data.domains), 1)),
    )


def require_bounded(model: SharedModel) -> None:
    """Raise `ModelFileError` if a weight of a model from elsewhere lies beyond `HEAD_BOUND`."""
    parts: tuple[NDArray[np.floating[Any]], ...] = (model.encoder, model.prior, model.heads)
    if any(np.abs(part).max(initial=0.0) > HEAD_BOUND for part in parts):
        msg = f"the model has a weight beyond {HEAD_BOUND:g}, which no training gives; ask where it comes from"
        raise ModelFileError(msg)


def require_sound(model: SharedModel, files: StateFolder | None = None) -> None:
    """Raise `ModelFileError` if a model from elsewhere cannot be what its rounds give, as far as this silo can tell.

    Where a study began that continues another one is known only if `files` hold the model that it continues. If not,
    only the bound of `require_bounded` holds.
    """
    require_bounded(model)
    study = model.study
    earlier = None if study.continues is None or files is None else find(files, study.continues)
    if study.continues is None or earlier is not None:
        model.require_reachable(begin(study, earlier))


def find(files: StateFolder, digest: str) -> SharedModel | None:
    """The shared model of this digest that this silo holds: handed over to it, or of a study that it took part in.

    A file that is damaged is passed over.
    """
    paths = [files.imported(digest)]
    for folder in files.studies():
        numbers = sorted(folder.model_rounds(), reverse=True)
        paths += [folder.model(number) for number in numbers if _may_be(folder.model_digests(number), digest)]
    for path in paths:
        if path.exists():
            try:
                model = SharedModel.load(path)
            except ModelFileError:
                continue
            if model.digest == digest:
                return model
    return None


def _may_be(digests: Path, digest: str) -> bool:
    """Whether a model can have this digest, by the file beside it. Models are large, and a study has many."""
    try:
        content = digests.read_text(encoding="ascii").split()[1]
    except (OSError, ValueError, IndexError):
        return True
    return content == digest


def _faults(study: Study, earlier: SharedModel) -> list[str]:
    """All reasons why the study cannot start from the model."""
    before = earlier.study
    faults = [
        f"its data.{part} is another one; use the same"
        for part in _SAME
        if getattr(study.data, part) != getattr(before.data, part)
    ]
    if study.model != before.model:
        faults.append("its section model is another one; use the same")
    if terms.is_stochastic(study.encoder) != terms.is_stochastic(before.encoder):
        faults.append("only one of the two studies has encoder.cmi, which gives the encoder twice as many outputs")
    try:
        require_bounded(earlier)
    except ModelFileError as fault:
        faults.append(str(fault))
    return faults
