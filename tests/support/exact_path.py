"""From opened integer sums to models, as every silo walks it by itself: run in processes with other arithmetic below.

`python -m support.exact_path FILE` reads what `write` has written and prints, as JSON, the model's digest after every
step, this machine's own solutions and the figures that it would sign.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crypto.entropy import SystemEntropy
from crypto.secagg.packages import GroupKeys, model_digest
from policies.documents.study import Study
from policies.plan.release import plan
from protos.messages import Place, Tensor
from silo_agent.data.sources.data_set import DataSet, Division
from silo_agent.learning.device import limit_threads
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.noise.draws import FreshDraws
from silo_agent.learning.releases.contribution import Integers
from silo_agent.protocol import publishing

KEYS = GroupKeys(b"ckks", b"g" * 32, b"c" * 32)
Sums = Mapping[tuple[int, str], Integers]
Solutions = Mapping[int, Integers]


def walk(study: Study, sums: Sums, solutions: Solutions, silos: int) -> dict[str, Any]:
    """Open every sum, adopt every round's given solution (its own where none is given); nothing private is read."""
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(
            study,
            DataSet(Path(folder) / "none.csv", Division("ward", 0.25, ("patient",))),
            Path(folder),
            draws=FreshDraws(SystemEntropy()),
            device="cpu",
        )
        model, digest = SharedModel.start(study), ""
        found: dict[str, Any] = {"digests": {"start": model.digest}, "solutions": {}, "published": ""}
        for number in range(plan(study).last + 1):
            place = Place(study.digest, number, 1)
            for tensor in map(Tensor, plan(study).tensors(number)):
                total = sums[number, str(tensor)]
                learner.check_sum(tensor, total, place, silos)
                opened = total.astype("<i8").tobytes()
                means = learner.open(tensor, total, place, model, silos)
                model = means.model
                if means.results is not None:
                    found["published"] = publishing.publication(study, means.results).canonical().decode()
                if means.unsolved is not None:
                    own = learner.solve(total, place, model, silos)
                    found["solutions"][str(number)] = own.tolist()
                    model = learner.adopt(solutions.get(number, own), total, place, model, silos)
                content = [sha256(opened).digest(), bytes.fromhex(model.digest)]
                digest = model_digest(KEYS, digest, study.digest, content)
                found["digests"][f"{number} {tensor}"] = [model.digest, digest, sha256(model.to_bytes()).hexdigest()]
    return found


def write(path: Path, study: Study, sums: Sums, solutions: Solutions, silos: int) -> Path:
    """All that a walk needs, as JSON."""
    content = {
        "study": study.canonical().decode(),
        "silos": silos,
        "sums": [[number, tensor, total.tolist()] for (number, tensor), total in sums.items()],
        "solutions": [[number, solution.tolist()] for number, solution in solutions.items()],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def arithmetic() -> dict[str, Any]:
    """What computes below numpy and torch in this process."""
    blas = next(iter(Path(np.__file__).parent.parent.glob("numpy.libs/libscipy_openblas*")), None)
    core = "unknown"
    if blas is not None:
        name = ctypes.CDLL(str(blas)).scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        core = name().decode()
    return {"blas": core, "torch": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads()}


def main(path: Path) -> None:
    """Walk with as many threads as the environment says, and print what was found."""
    limit_threads(int(os.environ["OMP_NUM_THREADS"]))
    content = json.loads(path.read_text(encoding="utf-8"))
    sums = {(number, tensor): np.array(total, np.int64) for number, tensor, total in content["sums"]}
    solutions = {number: np.array(solution, np.int64) for number, solution in content["solutions"]}
    study = Study.model_validate_json(content["study"], strict=False)
    print(json.dumps({**walk(study, sums, solutions, content["silos"]), "arithmetic": arithmetic()}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
