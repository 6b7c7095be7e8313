from dataclasses import replace

import numpy as np
import pytest

from silo_agent.learning.model.shared import SharedModel
from silo_agent.protocol.catching_up import CatchUpError, Current, pack, unpack
from support.studies import tiny_study

STUDY = tiny_study()
DIGEST = "ab" * 32


def current(**changes):
    model = SharedModel.start(STUDY)
    return replace(Current(model.with_heads(np.ones(model.heads.shape), 1), DIGEST, (12.5, -3.0), bytes(32)), **changes)


def changed(part, value):
    """The model after round 1, with one weight of a part set to a value."""
    model = current().model
    array = getattr(model, part).copy()
    array.flat[-1] = value
    return pack(current(model=replace(model, **{part: array})))


HIERARCHICAL = tiny_study(heads={"solver": "hierarchical"})


def gathered(value=1.0, at=-1):
    """A model with evidence, one value of which is set."""
    model = SharedModel.start(HIERARCHICAL).with_heads(np.ones((2, 3)), 1)
    evidence = model.evidence.copy()
    evidence[at] = value
    return replace(model, evidence=evidence)


@pytest.mark.parametrize("model", [current().model, gathered()], ids=["newton", "hierarchical"])
def test_what_is_packed_is_unpacked(model):
    got = unpack(model.study, 1, pack(current(model=model)))
    assert (got.digest, got.counts) == (DIGEST, (12.5, -3.0))
    assert got.model.to_bytes() == model.to_bytes()


@pytest.mark.parametrize(("at", "value"), [(0, 1024.1), (6, 1.0), (6, -0.1), (7, -1.0), (32, -1.0)])
def test_evidence_that_no_round_gives_is_refused(at, value):
    """The frame's first value, the share, the two weights."""
    with pytest.raises(CatchUpError, match="the evidence of the heads"):
        unpack(HIERARCHICAL, 1, pack(current(model=gathered(value, at))))


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (b"", "cannot be read"),
        (b"{}\n", "cannot be read"),
        (b"[]\n" + current().model.to_bytes(), "cannot be read"),
        (pack(current())[:-5], "cannot be read"),
        (pack(current(digest="x" * 64)), "does not hold"),
        (pack(current(counts=(1.0,))), "1 domain sizes"),
        (pack(current(counts=(1.0, float("nan")))), "not a finite number"),
        (pack(current(counts=(float("-inf"), 1.0))), "not a finite number"),
        (b'{"digest": "%s", "counts": [1, 1%s]}\n' % (DIGEST.encode(), b"0" * 400), "cannot be read"),
        (changed("heads", 1.7e308), "the model's heads hold a weight that 1 rounds"),
        (changed("heads", -1024.001), "the model's heads hold a weight that 1 rounds"),
        (changed("encoder", 3e38), "the model's encoder hold a weight that 1 rounds"),
        (changed("encoder", 2.001), "the model's encoder hold a weight that 1 rounds"),
        (pack(current(model=SharedModel.start(STUDY))), "after round 1"),
        (pack(current(model=SharedModel.start(tiny_study(purpose="another")))), "does not hold"),
    ],
)
def test_anything_else_is_refused(blob, says):
    with pytest.raises(CatchUpError, match=says):
        unpack(STUDY, 1, blob)


@pytest.mark.parametrize("value", [-1024.0, 1024.0])
def test_the_largest_heads_of_a_solver_are_taken(value):
    assert unpack(STUDY, 1, changed("heads", value)).model.heads.flat[-1] == value


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_model_as_far_away_as_its_rounds_can_bring_it_is_taken(sign):
    """Every weight moved by the largest update in each of many rounds, each rounded to float32."""
    study = tiny_study(heads={"pooled_rounds": 100}, encoder={"max_update": 0.1, "cmi": 0.1})
    model = SharedModel.start(study)
    most = np.full(len(model.encoder) + len(model.prior), 3 * sign * study.encoder.max_update)
    for number in range(1, 41):
        model = model.with_update(most, 3).with_heads(model.heads, number)
    assert unpack(study, 40, pack(current(model=model))).model.digest == model.digest
    beyond = replace(model.with_update(most * 0.01, 3), round=40)
    with pytest.raises(CatchUpError, match="the model's encoder hold"):
        unpack(study, 40, pack(current(model=beyond)))
    with pytest.raises(CatchUpError, match="the model's prior hold"):
        unpack(study, 40, pack(current(model=replace(beyond, encoder=model.encoder))))
