import json
import os

import numpy as np
import pytest
from safetensors.numpy import save

from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel


def test_content_comes_back_and_equal_content_gives_equal_bytes(make_study):
    study = make_study()
    tensors = {"b": np.arange(3.0), "a": np.zeros((2, 0), np.float32)}
    blob = files.encode("shared", study, 7, tensors)
    assert blob == files.encode("shared", study, 7, dict(reversed(tensors.items())))
    again, round_number, content = files.decode("shared", blob)
    assert (again, round_number) == (study, 7)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(content[name], tensor)


def test_facts_come_back_and_are_missed_where_there_are_none(make_study):
    study, tensors = make_study(), {"a": np.zeros(1)}
    assert files.facts(files.encode("choice", study, 1, tensors, facts="why")) == "why"
    with pytest.raises(KeyError):
        files.facts(files.encode("choice", study, 1, tensors))


def test_another_kind_and_other_files_are_refused(make_study):
    blob = files.encode("personal", make_study(), 1, {"a": np.zeros(1)})
    with pytest.raises(ModelFileError, match="a personal model, not a shared one"):
        files.decode("shared", blob)
    for note in (None, {"fedward": "no json"}, {"fedward": "[]"}, {"fedward": '{"kind": "shared"}'}):
        with pytest.raises(ModelFileError, match="damaged"):
            files.decode("shared", save({"a": np.zeros(1)}, note))


def test_a_study_that_is_not_its_digest_is_refused(make_study):
    study = make_study()
    blob = files.encode("shared", study, 1, {"a": np.zeros(1)})
    other = study.digest[::-1]
    with pytest.raises(ModelFileError, match="damaged"):
        files.decode("shared", blob.replace(study.digest.encode(), other.encode()))


def test_a_bit_that_changed_anywhere_is_found(make_study):
    study = make_study()
    tensors = {"heads": np.arange(6.0).reshape(2, 3), "encoder": np.linspace(-1, 1, 9, dtype=np.float32)}
    blob = files.encode("shared", study, 3, tensors, facts="why")
    for place in range(len(blob)):
        damaged = bytearray(blob)
        damaged[place] ^= 1 << (place % 8)
        with pytest.raises(ModelFileError):
            files.decode("shared", bytes(damaged))


def test_a_file_of_a_version_that_wrote_no_digest_is_read(make_study):
    study, tensors = make_study(), {"a": np.arange(3.0)}
    files.decode("shared", without_digest("shared", study, 1, tensors))


def without_digest(kind, study, number, tensors):
    """The bytes that version 0.6 wrote."""
    note = {"kind": kind, "study": study.canonical().decode(), "digest": study.digest, "round": str(number)}
    return save(tensors, {"fedward": json.dumps(note)})


def test_a_model_that_is_not_what_the_line_beside_it_says_is_refused_by_name(make_study, tmp_path):
    path, line = tmp_path / "model-3.safetensors", tmp_path / "model-3.digest"
    model = SharedModel.start(make_study())
    model.save(path)
    assert SharedModel.load(path).digest == model.digest
    line.write_text(f"{'0' * 64} {model.digest}")
    assert SharedModel.load(path).digest == model.digest
    for text in (f"{'0' * 64} {'1' * 64}", "", "\x80"):
        line.write_text(text)
        with pytest.raises(ModelFileError, match=r"model-3.safetensors is not the model that was kept there.*restore"):
            SharedModel.load(path)


@pytest.mark.parametrize("model", [SharedModel, PersonalModel])
def test_what_cannot_be_read_is_named(make_study, tmp_path, model):
    path = tmp_path / "some.safetensors"
    for content in (b"", b"damaged"):
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"some.safetensors"):
            model.load(path)


def test_a_file_is_private_and_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "model"
    files.write(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    files.write(path, b"two")
    assert files.read(path) == b"two"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write(path, b"three")
    assert files.read(path) == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
