"""A finished round's model is used only as it was kept, with its sizes, and shared only if it was signed."""

import json

import pytest

from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel
from silo_agent.protocol.catching_up import Current
from silo_agent.protocol.kept_models import KeptModels
from silo_agent.storage.checked import write_checked
from silo_agent.storage.errors import LocalFileError
from silo_agent.storage.folders import StateFolder
from support.studies import tiny_study

STUDY = tiny_study()
COUNTS = (30.5, 12.0)
KEY = b"k" * 32


@pytest.fixture
def folder(tmp_path):
    return StateFolder(tmp_path / "state")


@pytest.fixture
def kept(folder):
    models, start = KeptModels(folder), SharedModel.start(STUDY)
    write_checked(folder.study(STUDY.digest).counts, json.dumps(COUNTS).encode())
    models.keep(Current(start.with_heads(start.heads + 0.5, 1), "d" * 64, COUNTS, KEY))
    return models


def test_a_kept_model_comes_back_with_what_was_signed(kept):
    model, digest = kept.held(STUDY, 1)
    current = kept.current(STUDY, 1)
    assert (digest, current.digest, current.counts, current.key) == ("d" * 64, "d" * 64, COUNTS, KEY)
    assert model.digest == current.model.digest
    assert kept.held(STUDY, 2) is None


@pytest.mark.parametrize("what", ["key", "content", "digest", "sizes", "model"])
def test_nothing_is_held_if_one_part_has_changed(kept, folder, what):
    home = folder.study(STUDY.digest)
    line = home.model_digests(1)
    words = line.read_text().split()
    if what == "sizes":
        write_checked(home.counts, json.dumps([30.5, 13.0]).encode())
    elif what == "model":
        start = SharedModel.start(STUDY)
        start.with_heads(start.heads + 0.25, 1).save(home.model(1))
    else:
        words[{"digest": 0, "key": 2, "content": 3}[what]] = "e" * 64
        line.write_text(" ".join(words))
    assert kept.held(STUDY, 1) is None
    with pytest.raises((LocalFileError, ModelFileError), match=r"model-1"):
        kept.current(STUDY, 1)


def test_a_model_of_the_version_before_can_be_used_and_not_shared(kept, folder):
    line = folder.study(STUDY.digest).model_digests(1)
    line.write_text(" ".join(line.read_text().split()[:2]))
    assert kept.held(STUDY, 1)[1] == "d" * 64
    with pytest.raises(LocalFileError, match="takes the model from a peer"):
        kept.current(STUDY, 1)


def test_sizes_that_are_no_sizes_are_told_by_their_file(kept, folder):
    counts = folder.study(STUDY.digest).counts
    for content in (b"[1.0]", b"[1.0, NaN]", b"{}", b"damaged"):
        write_checked(counts, content)
        with pytest.raises(LocalFileError, match=r"counts\.json is damaged"):
            kept.require_counts(STUDY)
