"""What `make gpu` says of tests that ran, skipped or failed, and that its study is trained where a GPU computes."""

from types import SimpleNamespace

import pytest

from bench.speed import gpu
from deploy.local.simulate.outcome import epsilons


@pytest.mark.parametrize(
    ("device", "code", "printed", "met"),
    [
        ("cuda", 0, "6 passed, 11994 deselected in 18.57s", True),
        ("cuda", 0, "5 passed, 1 skipped in 1s", False),
        ("cuda", 0, "6 skipped in 1s", False),
        ("cuda", 1, "5 passed, 1 failed in 1s", False),
        ("cuda", 5, "no tests ran in 1s", False),
        ("cpu", 0, "6 skipped in 1s", True),
        ("cpu", 1, "1 failed, 5 skipped in 1s", False),
    ],
)
def test_tests_count_only_if_all_of_them_ran_on_the_card(monkeypatch, device, code, printed, met):
    done = SimpleNamespace(returncode=code, stdout=printed)
    monkeypatch.setattr(gpu.subprocess, "run", lambda *_, **__: done)
    assert gpu.tests_of(device).met is met


def test_without_a_card_nothing_is_run_and_the_bench_says_why(monkeypatch):
    judged = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["gpu"])
    monkeypatch.setattr(gpu, "judge", lambda _, figures, __: judged.extend(figures) or 1)
    assert gpu.main() == 1
    (one,) = judged
    assert not one.met
    assert "no CUDA device is present" in one.measured


def test_the_study_trains_an_encoder_by_hospitals_own_steps_within_its_epsilon():
    study = gpu._study()
    assert not study.encoder.sealed_steps
    assert study.encoder_rounds == 3
    assert study.model.hidden == (32,)
    assert epsilons(study)["training"] <= gpu.EPSILON + 1e-6
