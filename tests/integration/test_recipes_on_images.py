"""Every recipe learns from scans and table together, with and without noise, with every personal term that fits it."""

import numpy as np
import pytest

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.silos import Cohorts, Silo
from policies.documents.recipes import RECIPES
from policies.documents.study import Study
from silo_agent.data.reader import read_records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from support import images

GROUP = {"column": "group", "values": ["a", "b"], "names": ["a", "b"]}
PERSONAL = {"epochs": 1, "ditto": 0.1, "mmd": 0.1, "mmd_d": 0.1, "cosine": 0.1, "irm": 0.1, "adversary": 0.1}
NEEDS = {
    "fedsr": {"encoder": {"l2r": 0.01, "cmi": 0.01}},
    "fedprox": {"encoder": {"proximal": 0.5}},
    "fedrep": {"encoder": {"head_steps": 1}},
}
ENCODER = {"steps": 2, "sampling_rate": 0.5, "batch_size": 12, "learning_rate": 0.5, "clip": 1.0}
FEW = {"pooled_rounds": 1, "domain_rounds": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Scans of three sites, and a ward for every row."""
    files = images.write_sites(tmp_path_factory.mktemp("sites"), patients=40)
    for file in files.values():
        head, *rows = file.read_text().splitlines()
        file.write_text("\n".join([f"{head},ward", *(f"{row},{number % 2}" for number, row in enumerate(rows))]) + "\n")
    return files


def study_of(recipe, *, private):
    noise = 1.0 if private else 0.0
    document = images.study_document(
        recipe=recipe,
        heads=FEW
        | {"pooled_noise": noise, "domain_noise": noise}
        | ({"domain_rounds": 0} if recipe == "fedavg" else {}),
        encoder=ENCODER | {"noise": noise} | NEEDS.get(recipe, {}).get("encoder", {}),
        evaluation={"noise": noise, "bins": 4},
        privacy={"mode": "local" if private else "none", "count_noise": noise, "delta": 1e-5, "max_patients": 100},
        personal=PERSONAL,
        publish=["accuracy"],
    )
    document["data"] |= {"environment": {"column": "ward", "values": [0, 1]}, "protected": [GROUP]}
    return Study.model_validate(document)


@pytest.mark.slow
@pytest.mark.parametrize("private", [True, False], ids=["private", "public"])
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "feddar-linear"])
def test_a_recipe_learns_from_scans_and_table(files, recipe, private):
    """Algorithm 2 is a matrix over table columns, so it alone has no images."""
    if private and RECIPES[recipe].public:
        with pytest.raises(ValueError, match="public"):
            study_of(recipe, private=True)
        return
    study = study_of(recipe, private=private)
    cohorts = Cohorts(
        {
            name: Silo.split(read_records(file, study.data, ["patient"]).records, f"{name}-ward", 0.3)
            for name, file in files.items()
        }
    )
    north, own = cohorts.silos["north"], []

    def train(shared):
        known = own[-1] if own else PersonalModel.start(shared)
        own.append(known.train(shared, north.training, study.personal, entropy=RepeatableEntropy(3, str(shared.round))))

    found = simulate(study, cohorts, seed=3, after_round=train)
    start, kept = SharedModel.start(study), RECIPES[recipe].kept
    assert ("encoder" in kept) == np.array_equal(found.model.encoder, start.encoder)
    assert ("heads" in kept) == (not found.model.heads.any())
    assert found.published is not None
    assert len(own) == study.rounds
    # Where heads are kept, those of the shared model are zero, and it says 1/2 of everybody.
    for model in (own[-1], *([] if "heads" in kept else [found.model])):
        said = model.predict(north.held_out.inputs, north.held_out.domains, north.held_out.images)
        assert np.isfinite(said).all()
        assert len(np.unique(said[:, 1])) > 1
