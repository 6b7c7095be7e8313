"""What a silo's process leaves out of torch and Opacus: training is the same without it, to the bit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LEAN = "from silo_agent.learning.light_imports import load_lean; load_lean(); load_lean()\n"
TRAIN = """
import json, sys
from dataclasses import replace
import numpy as np
from policies.plan.release import encoder_release
from silo_agent.data.records import Records
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.dpsgd.training import Training, require_accountable, train_encoder
from support.entropy import SeededEntropy
from support.studies import tiny_study

study = tiny_study()
rng = np.random.default_rng(1)
records = Records(
    rng.normal(size=(40, study.data.inputs)).astype(np.float32), rng.integers(0, 2, 40), rng.integers(0, 2, 40),
    np.arange(40), tuple(map(str, range(40))),
)
require_accountable(study)
model = SharedModel.start(study)
training = Training(
    encoder=model.build_encoder(), heads=model.heads, records=records, plan=study.encoder,
    release=replace(encoder_release(study), count=2), family=model.family, domain_weights=np.ones(2),
    prior=model.build_prior(),
)
update = train_encoder(training, mode="local", entropy=SeededEntropy(1))
names = ("opacus.privacy_engine", "scipy.stats", "torch._dynamo", "torch.distributed.tensor", "sympy")
loaded = [name for name in names if name in sys.modules]
print(json.dumps([loaded, update.vector.tolist()]))
"""
CONVOLVE = """
from policies.documents.study import Study
from silo_agent.learning.dpsgd.training import require_accountable
from support.images import study_document

study = Study.model_validate(study_document())
require_accountable(study)
import torch
print(hasattr(torch.distributed, "no_such_name"), isinstance(torch.distributed.fsdp.FSDPModule, type))
"""
ASK = """
import opacus, torch.distributed.tensor
from opacus import GradSampleModule, PrivacyEngine
from opacus.privacy_engine import PrivacyEngine as real
print(PrivacyEngine is real, hasattr(opacus, "no_such_name"), isinstance(torch.distributed.tensor.DTensor, type))
"""

HANDLERS = "import logging; print(logging.root.handlers)\n"


def said(code):
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=path, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_training_is_the_same_without_what_is_left_out():
    loaded, lean = json.loads(said(LEAN + TRAIN))
    assert loaded == []
    everything, full = json.loads(said(TRAIN))
    assert len(everything) == 5
    assert lean == full


@pytest.mark.slow
def test_an_agent_examines_a_network_of_convolutions():
    assert said(LEAN + CONVOLVE) == "False True\n"


@pytest.mark.slow
def test_whoever_asks_for_what_was_left_out_gets_it():
    assert said(LEAN + ASK + HANDLERS) == "True False True\n[]\n", "and no other library is heard on the console"


@pytest.mark.slow
def test_an_opacus_that_is_loaded_already_stays_as_it_is():
    assert said("import opacus\n" + LEAN + ASK) == "True False True\n"


@pytest.mark.slow
def test_an_opacus_that_wants_more_than_was_left_in_is_loaded_whole():
    short = "from silo_agent.learning import light_imports\nlight_imports._UNUSED['torch.distributed.tensor'] = ()\n"
    assert said(short + LEAN + ASK + HANDLERS) == "True False True\n[]\n"
