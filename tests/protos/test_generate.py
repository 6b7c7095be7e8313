"""The generated code that is committed is what protoc makes of the `.proto` files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protos import generate


def test_the_committed_code_is_fresh():
    command = [sys.executable, "-m", "protos.generate", "--check"]
    done = subprocess.run(command, cwd=generate.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.fixture
def fake_protoc(monkeypatch):
    """Stands in for protoc, which takes seconds: writes one file."""

    def write(target):
        name = "protos/v1/common_pb2.py"
        (target / "protos" / "v1").mkdir(parents=True, exist_ok=True)
        (target / name).write_text("# other code\n")
        return [generate.Path(name)]

    monkeypatch.setattr(generate, "generate", write)


def test_stale_code_is_named(fake_protoc, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert generate.main() == 1
    assert capsys.readouterr().out == "protos/v1/common_pb2.py is stale: run python -m protos.generate\n"


def test_without_check_the_code_is_written_in_place(fake_protoc, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["generate"])
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main() == 0
    assert (tmp_path / "protos" / "v1" / "common_pb2.py").read_text() == "# other code\n"
