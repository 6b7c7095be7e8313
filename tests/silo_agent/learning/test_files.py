import os

import numpy as np
import pytest
from safetensors.numpy import save

from silo_agent.learning import files
from silo_agent.learning.errors import ModelFileError


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
