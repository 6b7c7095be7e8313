"""A study as it would be with other silos, or without noise. The variant has a digest of its own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from deploy.local.simulate.errors import SimulationError
from policies.accounting.accountant import with_fields
from policies.documents.study import Study
from policies.plan import quorum
from policies.plan.cost import COHORTS
from policies.plan.release import noise_fields


def renamed(study: Study, silos: Sequence[str]) -> Study:
    """The study with these silos in place of its own, and the least `min_silos` that they need.

    Noise and clips stay as they are, and each silo is expected to have as many patients as the mean one. Raises
    `SimulationError` if the study cannot have these silos.
    """
    if tuple(silos) == study.silos:
        return study
    needed = quorum.least(len(silos), study.privacy.colluders)
    if study.privacy.mode == "distributed":
        needed = max(needed, study.privacy.colluders + 2)
    document = study.model_dump(mode="json") | {"silos": list(silos), "min_silos": max(needed, 2)}
    if study.expected is not None:
        # Of these silos nobody has said how many patients each has, and nothing that is computed depends on it.
        document["expected"] |= {"patients": [round(mean(study.expected.patients))]}
    try:
        return Study.model_validate(document)
    except ValueError as error:
        reason = str(error).splitlines()
        msg = f"the study cannot have {len(silos)} silos: {' '.join(part.strip() for part in reason[1:3])}"
        raise SimulationError(msg) from None


def without_noise(study: Study) -> Study:
    """The study as it would be on public data: no noise, all else as it was."""
    changed: dict[str, object] = dict.fromkeys(noise_fields(COHORTS, study), 0.0)
    return with_fields(study, {**changed, "privacy.mode": "none"})
