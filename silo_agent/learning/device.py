"""Where training runs: on the GPU if there is one, unless the agent's configuration says otherwise."""

from __future__ import annotations

import torch

from silo_agent.learning.errors import LearningError


def choose_device(wanted: str) -> torch.device:
    """The device to train on; `auto` takes CUDA if it is present.

    Raises `LearningError` if `cuda` is asked for and absent.
    """
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        msg = "device: cuda was asked for, but no CUDA device is present; write auto or cpu, or fix the driver"
        raise LearningError(msg)
    return torch.device(wanted)


def limit_threads(count: int | None) -> None:
    """Use at most `count` CPU threads. With None the library chooses."""
    if count is not None:
        torch.set_num_threads(count)
