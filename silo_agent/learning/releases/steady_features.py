"""Features for the sums of heads and metrics: a record's bits follow from this record alone.

Guarantees: records pass the encoder in chunks of one public shape, filled up with zeros. The first time that a process
sees an encoder's shape, on made-up records and before any charge (`Learner.rehearse`), `dpsgd.steady` examines
whether a record has equal bits in every place of a chunk and beside any others. If not, records pass one by one. So
leaving a record out, or evaluating it alone, moves no other record's features (docs/design/total.md, "Sums of terms").
"""

from __future__ import annotations

import copy
import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs
from silo_agent.learning.dpsgd.batches import make_up_weights
from silo_agent.learning.dpsgd.chunk_independence import HOSTILE, is_steady, steady_kernels
from silo_agent.learning.encoder.encoder import Encoder, features, most_rows

_USUAL_ROWS: Final = 64
"""Few made-up rows for a small cohort, and few calls of the network for a large one."""
_PERIOD: Final = 4
"""Chunks of whole fours, where memory allows: kernels take rows in groups, and what is left over in another way."""
_EXAMINED: dict[tuple[object, ...], bool] = {}
"""Whether chunks of an encoder, a shape and a device were found steady in this process."""


def steady_features(
    encoder: Encoder,
    inputs: NDArray[np.float32] | Inputs,
    images: Images | None = None,
    device: torch.device | str = "cpu",
    *,
    to_predict: bool = False,
) -> torch.Tensor:
    """Return what heads read of all rows, float32 (n, width), as `encoder.features`. The encoder is moved.

    With `to_predict` it is (n, S, width) if a prediction is averaged over S draws.
    """
    device = torch.device(device)
    with steady_kernels(device):
        rows = _rows(encoder, inputs.shape[1], None if images is None else images.shape, device)
        return features(encoder, inputs, images, device, rows=rows, to_predict=to_predict)


def _rows(encoder: Encoder, inputs: int, image: tuple[int, ...] | None, device: torch.device) -> int:
    """Rows of a chunk, from public constants; one if the rows of a chunk were not steady."""
    most = min(_USUAL_ROWS, most_rows(encoder))
    rows = most if most < _PERIOD else most // _PERIOD * _PERIOD
    examined = (repr(encoder), inputs, image, rows, str(device), torch.get_num_threads())
    if examined not in _EXAMINED:
        _EXAMINED[examined] = _is_steady(copy.deepcopy(encoder).to(device), inputs, image, rows)
    return rows if _EXAMINED[examined] else 1


def _is_steady(encoder: Encoder, inputs: int, image: tuple[int, ...] | None, rows: int) -> bool:
    """Examine a copy of the encoder with made-up weights."""
    rng = np.random.default_rng(1)
    make_up_weights(encoder, rng)
    like = next(encoder.parameters(), torch.zeros(()))
    x = torch.from_numpy(rng.uniform(-1, 1, (HOSTILE + 1, inputs))).to(like)
    pixels = None if image is None else torch.from_numpy(rng.uniform(-1, 1, (HOSTILE + 1, *image))).to(like)
    for values in (x, pixels):
        if values is not None:
            values[HOSTILE] = math.nan
    ways = (encoder, encoder.to_predict) if len(encoder.draws) else (encoder,)
    with torch.no_grad():
        return is_steady(
            lambda numbers: [read(x[numbers], None if pixels is None else pixels[numbers]) for read in ways],
            lambda parts: parts,
            rows,
        )
