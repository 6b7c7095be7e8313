import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from silo_agent.learning.alone.mixing import Mix
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model import files
from silo_agent.learning.personal.choice import CANDIDATES, MIXED, REFITTED, CandidateGain, Choice
from support.models import random_model
from support.studies import tiny_study

MIX = Mix(np.array([0.25, 1.0]), np.array([-0.5]))


def _mixed(choice, **changes):
    return replace(choice, candidate=MIXED, heads=choice.heads[:0], mix=replace(MIX, **changes)).to_bytes()


@pytest.fixture
def choice():
    shared = random_model(tiny_study())
    compared = (CandidateGain("recalibrated", -0.001, 0.002), CandidateGain("own heads", 0.02, 0.008))
    return Choice(shared.study, 2, shared.digest, "own heads", 412, 5, compared, shared.heads + 1.0, "f" * 64)


def same(a, b):
    mixes = [None if one.mix is None else (one.mix.weights.tolist(), one.mix.shift.tolist()) for one in (a, b)]
    return (a.to_bytes(), a.why, a.alone, mixes[0]) == (b.to_bytes(), b.why, b.alone, mixes[1])


def test_a_choice_comes_back_as_it_was_and_only_its_owner_reads_it(choice, tmp_path):
    path = tmp_path / "choice.safetensors"
    choice.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert same(Choice.load(path), choice)
    assert repr(choice) == "Choice(<private>)"
    for candidate in CANDIDATES:
        heads = choice.heads if candidate in REFITTED else choice.heads[:0]
        mix = MIX if candidate == MIXED else None
        other = replace(choice, candidate=candidate, heads=heads, mix=mix, alone="a" * 64)
        assert same(Choice.from_bytes(other.to_bytes()), other)


def test_a_refitted_model_is_named_after_what_is_refitted():
    assert {name: ("recalibrated" in name, "own heads" in name) for name in REFITTED} == REFITTED
    assert sorted(REFITTED.values()) == [(False, True), (True, False), (True, True)]


def test_it_says_why(choice):
    cross = "in 5-fold cross-validation over 412 training patients"
    assert choice.why == f"{cross} it lowered the loss of a patient by +0.0200 +- 0.0080"
    assert replace(choice, candidate="shared").why == (
        f"{cross} no model of this hospital's own gained enough beyond its standard error; the best, own heads, lowered"
        " the loss of a patient by +0.0200 +- 0.0080"
    )
    few = replace(choice, candidate="shared", patients=12, compared=())
    assert few.why == "12 training patients are too few to compare models on (50 are needed)"


def test_a_choice_of_version_06_is_read(choice):
    facts = json.dumps(
        {
            "shared": choice.shared,
            "candidate": choice.candidate,
            "patients": choice.patients,
            "folds": choice.folds,
            "compared": [asdict(one) for one in choice.compared],
            "personal": choice.personal,
        }
    )
    old = files.encode("choice", choice.study, choice.round, {"heads": choice.heads}, facts=facts)
    assert same(Choice.from_bytes(old), choice)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda c: b"damaged",
        lambda c: c.to_bytes()[:-8],
        lambda c: random_model(c.study).to_bytes(),
        lambda c: files.encode("choice", c.study, 2, {"heads": c.heads}),
        lambda c: files.encode("choice", c.study, 2, {"heads": c.heads}, facts="[]"),
        lambda c: replace(c, candidate="best").to_bytes(),
        lambda c: replace(c, candidate="shared").to_bytes(),
        lambda c: replace(c, heads=c.heads[:1]).to_bytes(),
        lambda c: replace(c, heads=c.heads * np.nan).to_bytes(),
        lambda c: replace(c, compared=(CandidateGain("own heads", float("nan"), 1.0),)).to_bytes(),
        lambda c: replace(c, mix=MIX).to_bytes(),
        lambda c: replace(c, candidate=MIXED, heads=c.heads[:0]).to_bytes(),
        lambda c: _mixed(c, weights=np.array([0.5, 1.01])),
        lambda c: _mixed(c, weights=np.array([0.5, np.nan])),
        lambda c: _mixed(c, weights=np.array([0.5])),
        lambda c: _mixed(c, shift=np.array([np.inf])),
        lambda c: _mixed(c, shift=np.zeros(2)),
    ],
)
def test_what_is_no_choice_is_refused_with_the_file_and_the_fix(choice, tmp_path, spoil):
    path = tmp_path / "choice.safetensors"
    path.write_bytes(spoil(choice))
    with pytest.raises(ModelFileError, match=r"choice\.safetensors.*cannot be used.*--model\s+shared"):
        Choice.load(path)
