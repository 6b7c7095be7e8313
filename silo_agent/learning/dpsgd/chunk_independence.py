"""Examines whether a record's gradient has the same bits whatever else is in its chunk. Then no other record moves it.

Guarantees: if `is_steady` says so, made-up records had equal bits in every place of a chunk, beside equal, different
and hostile others. That this holds for real records too rests on kernels whose order of operations follows from shapes
and the number of threads and never from values (docs/design/noise.md, "Integers in a step"). `steady_kernels` asks a
GPU for such kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray

# In its usual mode Intel's MKL chooses the order of additions by a row's address in memory, so a record's gradient
# would depend on its place in a chunk. MKL reads this at its first computation. A mode that is set already stays.
# Without STRICT the place decides all the same on some processors (an Intel of model 207): chunks of one row were left.
_MODE = "COMPATIBLE" if torch.backends.cpu.get_cpu_capability() == "DEFAULT" else "AVX2,STRICT"
os.environ.setdefault("MKL_CBWR", _MODE)

Parts = Sequence[torch.Tensor]
"""Values (rows, n) by record, for each trained tensor."""
HOSTILE = 2
"""Number of the made-up record whose values are no numbers. Records 0 and 1 are ordinary ones."""


def is_steady(gradients: Callable[[NDArray[np.int64]], Parts], integers: Callable[[Parts], Parts], rows: int) -> bool:
    """Whether each ordinary record has equal bits in all places, before and after it becomes integers.

    `gradients` is given the numbers of the made-up records in a chunk, (rows,); `integers` may overwrite what it gets.
    """
    places = np.arange(rows)
    # Each place holds each record once, then hostile ones stand between.
    chunks = [places % HOSTILE, (places + 1) % HOSTILE, np.where(places % 3 == 1, HOSTILE, 0)]
    seen: dict[tuple[int, int], list[torch.Tensor]] = {}
    for numbers in chunks:
        parts = gradients(numbers)
        for stage in (0, 1):
            parts = integers(parts) if stage else parts
            for place, record in enumerate(numbers.tolist()):
                own = [part[place] for part in parts]
                if record != HOSTILE and (record, stage) not in seen:
                    seen[record, stage] = [one.clone() for one in own]
                if record != HOSTILE and not all(map(torch.equal, own, seen[record, stage])):
                    return False
    return True


@contextmanager
def steady_kernels(device: torch.device) -> Iterator[None]:
    """On a GPU: kernels without races, in full float32, that are not chosen by trial. On a CPU nothing changes."""
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = False, False, False, True
    # An operation without such a kernel only warns: whether records stay apart is what `is_steady` finds out.
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
        torch.use_deterministic_algorithms(mode=strict[0], warn_only=strict[1])
