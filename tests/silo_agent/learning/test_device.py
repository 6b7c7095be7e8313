import types

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from silo_agent.learning import device
from silo_agent.learning.errors import LearningError


def test_a_cpu_is_described_by_its_threads():
    assert device.describe_device("cpu") == f"CPU, {torch.get_num_threads()} threads"


def test_threads_are_limited_of_every_library_that_has_some():
    """Numpy's are its own: two processes of which each had several waited for each other most of the time."""

    def counts():
        return {one["internal_api"]: one["num_threads"] for one in threadpool_info()}

    before = counts()
    assert "openblas" in before
    try:
        for count in (2, 1):
            device.limit_threads(count)
            assert set(counts().values()) == {count}
            assert torch.get_num_threads() == count
        device.limit_threads(None)
        assert set(counts().values()) == {1}
    finally:
        torch.set_num_threads(before["openmp"])
        threadpool_limits(before)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_cuda_device_that_is_not_there_is_an_error():
    assert device.describe_device("auto").startswith("CPU")
    with pytest.raises(LearningError, match="no CUDA device is present"):
        device.describe_device("cuda")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_a_cuda_device_is_described_after_it_has_computed():
    assert "MiB, CUDA" in device.describe_device("cuda")


def test_a_device_that_cannot_compute_is_an_error_of_one_line(monkeypatch):
    def broken(*_, **__):
        msg = "no kernel image\nis available"
        raise RuntimeError(msg)

    monkeypatch.setattr(device, "choose_device", lambda _: types.SimpleNamespace(type="cuda"))
    monkeypatch.setattr(device.torch, "ones", broken)
    with pytest.raises(LearningError, match=r"cannot compute \(no kernel image\); update its driver"):
        device.describe_device("cuda")


def test_the_drivers_version_is_the_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "_DRIVER", tmp_path / "version")
    assert device._driver() == "unknown"
    (tmp_path / "version").touch()
    assert device._driver() == "unknown"
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5\n")
    assert device._driver() == "550.54.15"
