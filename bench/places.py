"""Where benches find what they read, and leave what they measured."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The repository."""
OUT: Final = ROOT / "bench" / "out"
"""What was measured. It is not in the repository."""
DEMO: Final = ROOT / "deploy" / "demo"
DATA: Final = ROOT.parent / "shared" / "data"
"""Published data sets, beside the repository: a folder for each."""
MNIST: Final = DATA / "mnist"
HEART_DISEASE: Final = DATA / "heart_disease"
