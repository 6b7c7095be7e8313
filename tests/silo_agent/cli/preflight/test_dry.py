import subprocess
import sys
from types import SimpleNamespace

from silo_agent.cli.preflight import dry


def test_what_the_command_prints_and_its_code_come_back():
    code, said, failed = dry._run([sys.executable, "-c", "import sys; print('a'); sys.exit('b')"], 60)
    assert (code, said, failed) == (1, "a\n", "b\n")


def test_a_command_that_takes_too_long_is_asked_to_end(tmp_path):
    ended = tmp_path / "ended"
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(ended)!r}).touch(), sys.exit(3)))\n"
        "time.sleep(600)"
    )
    code, _, failed = dry._run([sys.executable, "-c", program], 2.0)
    assert (code, failed) == (1, "it was not done within 2 s")
    assert ended.exists()


def test_the_command_that_is_called_is_there_whatever_lies_in_the_working_folder(tmp_path, monkeypatch):
    """Without -P a file of the folder that a person works in would stand in for a module."""
    asked = []
    monkeypatch.setattr(dry, "_run", lambda command, _: (asked.append(command), (0, "", ""))[1])
    study, settings = SimpleNamespace(canonical=lambda: b""), SimpleNamespace(device="cpu")
    dry.dry_round(SimpleNamespace(study=study, silo="north", settings=settings), 1.0)
    (tmp_path / "random.py").write_text("raise SystemExit('the file of the working folder ran')")
    command = [*asked[0][: asked[0].index("dry-round") + 1], "--help"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    for option in (b"--silo", b"--device", b"--limit"):
        assert option in done.stdout
