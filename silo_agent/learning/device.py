"""Where training runs: on the GPU if there is one, unless the agent's configuration says otherwise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import torch
from threadpoolctl import threadpool_limits

from silo_agent.learning.errors import LearningError

_DRIVER: Final = Path("/proc/driver/nvidia/version")


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
    """Use at most `count` CPU threads, torch's as well as numpy's and scipy's. With None the libraries choose.

    Threads of two processes on the same cores wait for each other in a loop: two simulations side by side were five
    times slower each while numpy's were not limited.
    """
    if count is not None:
        torch.set_num_threads(count)
        threadpool_limits(count)


def describe_device(wanted: str) -> str:
    """The device that training would use, after a small computation on it: its name, memory, CUDA and driver.

    Raises `LearningError` if the device is absent or cannot compute.
    """
    device = choose_device(wanted)
    if device.type != "cuda":
        return f"CPU, {torch.get_num_threads()} threads"
    try:
        values = torch.ones(64, 64, device=device)
        if float((values @ values).sum()) != float(64**3):
            msg = "the CUDA device computes wrong sums; have its hardware and driver checked"
            raise LearningError(msg)
        about = torch.cuda.get_device_properties(device)
    except RuntimeError as error:
        msg = f"the CUDA device cannot compute ({str(error).splitlines()[0]}); update its driver, or write device: cpu"
        raise LearningError(msg) from None
    return f"{about.name}, {about.total_memory >> 20:,} MiB, CUDA {torch.version.cuda}, driver {_driver()}"


def _driver() -> str:
    """The NVIDIA driver's version, as the kernel tells it."""
    try:
        first = _DRIVER.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return "unknown"
    version = re.search(r"\d+(?:\.\d+)+", first)
    return version[0] if version else "unknown"
