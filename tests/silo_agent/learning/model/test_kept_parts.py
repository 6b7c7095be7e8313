from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from policies.plan import shapes
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import kept_parts
from silo_agent.learning.model.shared import HEAD_BOUND, SharedModel
from silo_agent.storage.folders import StudyFolder
from support.studies import tiny_study


def made(recipe, **changes):
    return tiny_study(recipe=recipe, **changes)


def vector(study, round_number):
    """A change whose values say where they stand."""
    joint = shapes.joint_heads(study, round_number) * shapes.head_width(study)
    return np.arange(1.0, 1 + shapes.encoder_values(study) + shapes.prior_values(study) + joint) / 16


@pytest.mark.parametrize("recipe", ["fedavg", "lg-fedavg", "fedper", "local"])
@pytest.mark.parametrize("round_number", [1, 2])
def test_what_is_uploaded_and_what_is_kept_are_all_of_a_change_and_nothing_twice(recipe, round_number):
    study = made(recipe, heads={"pooled_rounds": 2, "domain_rounds": 0} if recipe == "fedavg" else {})
    whole = vector(study, round_number)
    change = kept_parts.PartsChange.of(whole, study, round_number)
    joint = shapes.joint_heads(study, round_number)
    assert len(change.uploaded) == shapes.encoder_sum_values(study, joint)
    parts = [part.ravel() for part in (change.encoder, change.heads) if part is not None]
    uploaded = change.uploaded if change.uploaded.any() else []
    assert np.array_equal(np.sort(np.concatenate([*parts, uploaded])), whole)
    assert change != replace(change), "a comparison of arrays has no one answer"
    assert "uploaded" not in repr(change)
    with pytest.raises(FrozenInstanceError):
        change.uploaded = whole


def test_a_round_starts_from_the_parts_of_an_earlier_one_and_never_from_its_own(tmp_path):
    study, folder = made("fedper"), StudyFolder(tmp_path)
    model = SharedModel.start(study)
    for number in (1, 2):
        kept_parts.keep(kept_parts.PartsChange.of(vector(study, number), study, number), model, folder, number)
    assert kept_parts.completed(model, folder, 1) is model
    first, second = (kept_parts.completed(model, folder, before).heads for before in (2, 3))
    assert np.array_equal(first[0], first[1])
    assert not np.array_equal(second[0], second[1])
    assert np.array_equal(kept_parts.completed(model, folder, 2).encoder, model.encoder)


def kept_after(folder, study, *rounds):
    for number in rounds:
        kept_parts.keep(
            kept_parts.PartsChange.of(vector(study, number), study, number), SharedModel.start(study), folder, number
        )
    return sorted(folder.kept_rounds())


def test_a_recipe_that_keeps_nothing_has_nothing_to_complete(tmp_path):
    model = SharedModel.start(tiny_study())
    assert kept_parts.completed(model, StudyFolder(tmp_path), 9) is model


@pytest.mark.parametrize("fault", ["absent", "short"])
def test_nobody_predicts_with_a_part_that_is_not_there(tmp_path, fault):
    study, folder = made("lg-fedavg"), StudyFolder(tmp_path)
    model = SharedModel.start(study).with_heads(np.zeros((2, 3)), 2)
    model.save(folder.model(2))
    if fault == "short":
        folder.kept(1).write_bytes(b"12345678")
    with pytest.raises(ModelFileError, match="restore"):
        kept_parts.load(folder.model(2))


def test_the_model_that_predicts_is_the_shared_one_with_the_silos_own_parts(tmp_path):
    study, folder = made("lg-fedavg"), StudyFolder(tmp_path)
    start = SharedModel.start(study)
    kept_parts.keep(kept_parts.PartsChange.of(vector(study, 2), study, 2), start, folder, 2)
    start.with_heads(np.ones((2, 3)), 2).save(folder.model(2))
    own = kept_parts.load(folder.model(2))
    assert np.array_equal(own.heads, np.ones((2, 3)))
    np.testing.assert_allclose(own.encoder, start.encoder + vector(study, 2)[: len(start.encoder)], rtol=1e-6)


def test_a_study_that_goes_on_starts_from_the_parts_that_both_keep(tmp_path):
    earlier, old = made("lg-fedavg"), StudyFolder(tmp_path / "old")
    later = made("lg-fedavg", name="later", continues="0" * 64)
    old.path.mkdir()
    kept_after(old, earlier, 1, 2)
    model = replace(SharedModel.start(earlier), round=2)
    for number, study in enumerate([later, made("fedper", continues="0" * 64)]):
        new = StudyFolder(tmp_path / str(number))
        new.path.mkdir()
        kept_parts.carry_over(model, old, study, new)
        assert sorted(new.kept_rounds()) == ([0] if study is later else [])
    new = StudyFolder(tmp_path / "0")
    start = SharedModel.fresh(later)
    own = kept_parts.completed(start, new, 1)
    assert own.encoder.tobytes() == kept_parts.completed(SharedModel.start(earlier), old, 3).encoder.tobytes()
    kept_parts.keep(kept_parts.PartsChange.of(vector(later, 1), later, 1), own, new, 1)
    kept_parts.carry_over(model, old, later, new)
    assert sorted(new.kept_rounds()) == [0, 1], "a restart does not bring the old parts back over new ones"
    middle = StudyFolder(tmp_path / "middle")
    middle.path.mkdir()
    kept_parts.carry_over(replace(model, round=1), old, later, middle)
    assert middle.kept(0).read_bytes() == old.kept(1).read_bytes(), "a model of the middle has the parts of its round"


def test_heads_are_carried_over_only_between_the_same_domains(tmp_path):
    earlier, old = made("fedper"), StudyFolder(tmp_path / "old")
    old.path.mkdir()
    kept_after(old, earlier, 1)
    model = replace(SharedModel.start(earlier), round=1)
    turned = [{"column": "group", "values": ["b", "a"], "names": ["b", "a"]}]
    for name, changes, carried in (("same", {}, {0}), ("other", {"data": {"domain": turned}}, set())):
        new = StudyFolder(tmp_path / name)
        new.path.mkdir()
        kept_parts.carry_over(model, old, made("fedper", continues="0" * 64, **changes), new)
        assert new.kept_rounds() == carried


def test_heads_that_are_kept_stay_within_the_bound_of_a_model(tmp_path):
    study, folder = made("fedper"), StudyFolder(tmp_path)
    model = SharedModel.start(study)
    far = np.array([[3.0, -3.0, 0.25], [-0.25, 3.0, -3.0]]) * HEAD_BOUND
    kept_parts.keep(kept_parts.PartsChange(np.zeros(1), None, far), model, folder, 1)
    kept = kept_parts.completed(model, folder, 2).heads / HEAD_BOUND
    np.testing.assert_array_equal(kept, [[1.0, -1.0, 0.25], [-0.25, 1.0, -1.0]])


def test_parts_are_on_the_disk_before_anything_goes_on(tmp_path, monkeypatch):
    """Written whole and flushed: a round's parts, and those that another study starts from."""
    written = []
    monkeypatch.setattr(kept_parts, "write_checked", lambda path, content: written.append((path, content)))
    study, folder = made("lg-fedavg"), StudyFolder(tmp_path)
    model = replace(SharedModel.start(study), round=1)
    kept_parts.keep(kept_parts.PartsChange.of(vector(study, 1), study, 1), model, folder, 1)
    assert [path for path, _ in written] == [folder.kept(1)]
    assert not folder.kept_rounds()
    folder.kept(1).write_bytes(written[0][1])
    new = StudyFolder(tmp_path / "new")
    new.path.mkdir()
    kept_parts.carry_over(model, folder, made("lg-fedavg", name="later", continues="0" * 64), new)
    assert written[1:] == [(new.kept(0), written[0][1])]


def test_a_model_of_an_earlier_round_predicts_with_the_parts_of_that_round(tmp_path):
    study, folder = made("lg-fedavg"), StudyFolder(tmp_path)
    start = SharedModel.start(study)
    for number in (1, 2):
        change = kept_parts.PartsChange.of(vector(study, number) * number, study, number)
        kept_parts.keep(change, start, folder, number)
        replace(start, round=number).save(folder.model(number))
    first, second = (kept_parts.load(folder.model(number)).encoder for number in (1, 2))
    own = vector(study, 1)[: len(start.encoder)]
    np.testing.assert_allclose(first, start.encoder + own, rtol=1e-6)
    np.testing.assert_allclose(second, start.encoder + 2 * own, rtol=1e-6)
