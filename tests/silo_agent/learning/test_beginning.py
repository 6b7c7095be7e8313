from dataclasses import replace

import numpy as np
import pytest

from policies.plan import shapes
from silo_agent.learning.beginning import begin, find, require_bounded
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import HEAD_BOUND, SharedModel
from silo_agent.storage.folders import StateFolder
from support.models import random_model
from support.studies import tiny_study


@pytest.fixture
def earlier():
    return random_model(tiny_study(name="earlier"))


def going_on(earlier, **changes):
    return tiny_study(
        **{"name": "later", "continues": earlier.digest, "silos": ["north", "south", "west", "east"]} | changes
    )


def test_the_start_is_the_earlier_model_without_its_rounds(earlier):
    study = going_on(earlier)
    start = begin(study, earlier)
    assert (start.study, start.round) == (study, 0)
    assert start.encoder.tobytes() == earlier.encoder.tobytes()
    assert np.array_equal(start.heads, np.tile(earlier.heads.mean(axis=0), (2, 1)))
    assert start.digest != earlier.digest
    hierarchical = going_on(earlier, heads={"solver": "hierarchical"})
    empty = SharedModel.fresh(hierarchical)
    begun = begin(hierarchical, earlier)
    assert begun.evidence.tobytes() == empty.evidence.tobytes()
    assert begun.encoder.tobytes() == earlier.encoder.tobytes() != empty.encoder.tobytes()
    groups = [{"column": "group", "values": ["b", "c", "a"], "names": ["b", "c", "a"]}]
    assert len(begin(going_on(earlier, data={"domain": groups}), earlier).heads) == 3
    assert begin(tiny_study(), None).digest == SharedModel.start(tiny_study()).digest


def test_tables_go_on_if_both_studies_average_them(earlier):
    cmi = {"cmi": 0.1, "prior": "averaged"}
    model = random_model(tiny_study(name="earlier", encoder=cmi))
    assert begin(going_on(model, encoder=cmi), model).prior.tobytes() == model.prior.tobytes()
    local = going_on(model, encoder={"cmi": 0.1, "prior": "local"})
    assert begin(local, model).prior.size == shapes.prior_values(local) == 0


def test_a_study_never_begins_with_another_model_than_it_names(earlier):
    study = going_on(earlier)
    for given in (None, random_model(tiny_study(name="earlier"), seed=9)):
        with pytest.raises(
            ModelFileError, match=rf"continues the model {earlier.digest}, and that model was not given"
        ):
            begin(study, given)
    with pytest.raises(ModelFileError, match="was not given"):
        SharedModel.start(study)


def test_all_that_does_not_fit_is_said_at_once(earlier):
    study = going_on(earlier, model={"hidden": [4]}, data={"label": {"column": "dead"}})
    with pytest.raises(ModelFileError, match=r"data\.label is another one.*section model is another one"):
        begin(study, earlier)
    with pytest.raises(ModelFileError, match=r"encoder\.cmi"):
        begin(going_on(earlier, encoder={"cmi": 0.1}), earlier)


@pytest.mark.parametrize("part", ["encoder", "heads"])
def test_a_weight_that_no_training_gives_is_refused(earlier, part):
    values = getattr(earlier, part).copy()
    values.flat[0] = 1.01 * HEAD_BOUND
    grown = replace(earlier, **{part: values})
    with pytest.raises(ModelFileError, match="beyond 1024"):
        require_bounded(grown)
    with pytest.raises(ModelFileError, match="beyond 1024"):
        begin(going_on(grown), grown)


def test_reach_is_measured_from_where_the_study_began(earlier):
    study = going_on(earlier)
    start = begin(study, earlier)
    start.require_reachable(start)
    moved = replace(start, round=1, encoder=start.encoder + np.float32(1.5 * study.encoder.max_update))
    with pytest.raises(ModelFileError, match="encoder hold a weight"):
        moved.require_reachable(start)
    with pytest.raises(ModelFileError, match="was not given"):
        start.require_reachable()


def test_a_model_is_found_by_its_digest_wherever_it_lies(earlier, tmp_path):
    files = StateFolder(tmp_path)
    assert find(files, earlier.digest) is None
    folder = files.study(earlier.study.digest)
    folder.path.mkdir(parents=True)
    folder.model(1).write_bytes(b"damaged")
    earlier.save(folder.model(2))
    other = random_model(tiny_study(name="other"))
    files.imported(other.digest).parent.mkdir()
    other.save(files.imported(other.digest))
    assert find(files, earlier.digest).digest == earlier.digest
    assert find(files, other.digest).digest == other.digest
    files.imported(other.digest).replace(files.imported("0" * 64))
    assert find(files, "0" * 64) is None
