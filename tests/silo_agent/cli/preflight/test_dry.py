import subprocess
import sys

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


def test_the_command_that_is_called_is_there():
    done = subprocess.run(
        [sys.executable, "-m", "deploy.local", "dry-round", "--help"], capture_output=True, check=True
    )
    for option in (b"--silo", b"--device", b"--limit"):
        assert option in done.stdout
