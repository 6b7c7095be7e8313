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
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crypto.secagg.packages import GroupKeys, model_digest
from policies.documents.study import Study
from policies.plan.release import Release, plan
from protos.messages import Place, Tensor
from silo_agent.learning.device import limit_threads
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.contribution import Integers
from silo_agent.protocol import publishing
from support.local_federation import LocalFederation

KEYS = GroupKeys(b"ckks", b"g" * 32, b"c" * 32)
Sums = Mapping[tuple[int, str], Integers]
Solutions = Mapping[int, Integers]


@dataclass
class _GivenSums(LocalFederation):
    """One silo that is given every sum, and nothing private."""

    sums: Sums = field(kw_only=True)
    solutions: Solutions = field(kw_only=True)
    given: int = field(kw_only=True)
    """How many silos are in the sums."""
    digest: str = ""
    found: dict[str, Any] = field(default_factory=lambda: {"digests": {}, "solutions": {}, "published": ""})

    @property
    def silos(self) -> int:
        return self.given

    def _sum(self, place: Place, release: Release) -> Integers:
        return self.sums[place.round, release.tensor]

    def _solution(self, place: Place, total: Integers) -> Integers:
        own = super()._solution(place, total)
        self.found["solutions"][str(place.round)] = own.tolist()
        return self.solutions.get(place.round, own)

    def _open(self, place: Place, tensor: Tensor, total: Integers) -> None:
        super()._open(place, tensor, total)
        (model,) = self.models.values()
        content = [sha256(total.astype("<i8").tobytes()).digest(), bytes.fromhex(model.digest)]
        self.digest = model_digest(KEYS, self.digest, self.study.digest, content)
        whole = sha256(model.to_bytes()).hexdigest()
        self.found["digests"][f"{place.round} {tensor}"] = [model.digest, self.digest, whole]


def walk(study: Study, sums: Sums, solutions: Solutions, silos: int) -> dict[str, Any]:
    """Open every sum, adopt every round's given solution (its own where none is given); nothing private is read."""
    with tempfile.TemporaryDirectory() as folder:
        none = {"silo": Path(folder) / "none.csv"}
        walked = _GivenSums.gather(study, none, Path(folder), sums=sums, solutions=solutions, given=silos)
        walked.found["digests"]["start"] = SharedModel.start(study).digest
        for number in range(plan(study).last + 1):
            walked.run_round(number)
        for results in walked.results.values():
            walked.found["published"] = publishing.publication(study, results).canonical().decode()
        return walked.found


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
