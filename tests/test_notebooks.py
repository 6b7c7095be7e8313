"""Every notebook runs from its first cell to its last, in a Python of its own, and leaves what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
FIGURE = b"\x89PNG"


def cells(notebook, kind):
    document = json.loads(notebook.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in document["cells"] if cell["cell_type"] == kind]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs_from_top_to_bottom(notebook, tmp_path):
    program = "\n\n".join(cells(notebook, "code"))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "without noise: " in done.stdout
    assert (tmp_path / "figures.png").read_bytes().startswith(FIGURE)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_what_somebodys_run_has_left(notebook):
    document = json.loads(notebook.read_text(encoding="utf-8"))
    assert NOTEBOOKS
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in document["cells"] if "outputs" in cell
    )
    assert cells(notebook, "markdown")[0].startswith("# ")
