from dataclasses import replace

import numpy as np
import pytest

from policies.plan import shapes
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.learning.model.start import begin, find, require_bounded, require_sound
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
    for named, given in ((earlier.digest, None), ("0" * 64, earlier), ("f" * 64, earlier)):
        with pytest.raises(ModelFileError, match=rf"continues the model {named}, and that model was not given"):
            begin(going_on(earlier, continues=named), given)
    with pytest.raises(ModelFileError, match="was not given"):
        SharedModel.start(going_on(earlier))


def test_all_that_does_not_fit_is_said_at_once(earlier):
    study = going_on(earlier, model={"hidden": [4]}, data={"label": {"column": "dead"}})
    with pytest.raises(ModelFileError, match=r"data\.label is another one.*section model is another one"):
        begin(study, earlier)
    with pytest.raises(ModelFileError, match=r"section model is another one.*encoder\.cmi"):
        begin(going_on(earlier, encoder={"cmi": 0.1}, model={"hidden": [4]}), earlier)


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


def test_heads_stay_within_their_bound_wherever_they_began(earlier):
    high = earlier.with_heads(np.full(earlier.heads.shape, 0.9 * HEAD_BOUND), 2)
    start = begin(going_on(high), high)
    start.with_heads(np.full(start.heads.shape, -HEAD_BOUND), 1).require_reachable(start)
    with pytest.raises(ModelFileError, match="heads hold a weight"):
        start.with_heads(np.full(start.heads.shape, 1.01 * HEAD_BOUND), 1).require_reachable(start)
    kept = random_model(tiny_study(name="earlier", recipe="fedper"))
    own = begin(going_on(kept, recipe="fedper"), kept)
    own.require_reachable(own)
    with pytest.raises(ModelFileError, match="heads hold a weight"):
        own.with_heads(own.heads + 1.0, 1).require_reachable(own)


def test_a_model_of_a_study_that_went_on_is_measured_from_its_start_if_that_is_known(earlier, tmp_path):
    study, files = going_on(earlier), StateFolder(tmp_path)
    far = replace(begin(study, earlier), round=1, encoder=earlier.encoder + np.float32(1.5 * study.encoder.max_update))
    require_sound(far)
    require_sound(far, files)
    files.imported(earlier.digest).parent.mkdir()
    earlier.save(files.imported(earlier.digest))
    with pytest.raises(ModelFileError, match="encoder hold a weight"):
        require_sound(far, files)
    with pytest.raises(ModelFileError, match="beyond 1024"):
        require_sound(replace(far, encoder=np.full_like(far.encoder, 2000.0)))


def test_a_file_whose_digest_is_known_to_be_another_is_not_read(earlier, tmp_path, monkeypatch):
    files, read = StateFolder(tmp_path), []
    folder = files.study(earlier.study.digest)
    folder.path.mkdir(parents=True)
    for number in (1, 2):
        model = replace(earlier, round=number)
        model.save(folder.model(number))
        folder.model_digests(number).write_text(f"{'0' * 64} {model.digest}")
    load = SharedModel.load
    monkeypatch.setattr(SharedModel, "load", lambda path: (read.append(path), load(path))[1])
    assert find(files, replace(earlier, round=1).digest).round == 1
    assert read == [folder.model(1)]


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
