"""Opacus without its privacy engine: what is loaded, and that the engine is still there for who asks."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = """
import json, sys
from silo_agent.learning.lean_opacus import load_opacus
load_opacus()
load_opacus()
import silo_agent.assembly
loaded = [name for name in ("opacus.privacy_engine", "opacus.accountants", "scipy.stats") if name in sys.modules]
import opacus
from opacus import GradSampleModule, PrivacyEngine
from opacus.privacy_engine import PrivacyEngine as real
missing = hasattr(opacus, "no_such_name")
print(json.dumps([loaded, PrivacyEngine is real, missing]))
"""


def test_an_agents_opacus_has_no_privacy_engine_until_somebody_asks_for_it():
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], True, False]


def test_an_opacus_that_is_loaded_already_stays_as_it_is():
    code = "import opacus; from silo_agent.learning.lean_opacus import load_opacus; load_opacus(); opacus.PrivacyEngine"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
