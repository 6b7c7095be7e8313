from dataclasses import replace

import numpy as np
import pytest

from silo_agent.catching_up import CatchUpError, Current, pack, unpack
from silo_agent.learning.model import SharedModel
from support.studies import tiny_study

STUDY = tiny_study()
DIGEST = "ab" * 32


def current(**changes):
    model = SharedModel.start(STUDY)
    return replace(Current(model.with_heads(np.ones(model.heads.shape), 1), DIGEST, (12.5, -3.0)), **changes)


def test_what_is_packed_is_unpacked():
    got = unpack(STUDY, 1, pack(current()))
    assert (got.digest, got.counts) == (DIGEST, (12.5, -3.0))
    assert got.model.to_bytes() == current().model.to_bytes()


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (b"", "cannot be read"),
        (b"{}\n", "cannot be read"),
        (b"[]\n" + current().model.to_bytes(), "cannot be read"),
        (pack(current())[:-5], "cannot be read"),
        (pack(current(digest="x" * 64)), "does not hold"),
        (pack(current(counts=(1.0,))), "1 domain sizes"),
        (pack(current(model=SharedModel.start(STUDY))), "after round 1"),
        (pack(current(model=SharedModel.start(tiny_study(purpose="another")))), "does not hold"),
    ],
)
def test_anything_else_is_refused(blob, says):
    with pytest.raises(CatchUpError, match=says):
        unpack(STUDY, 1, blob)
