import errno
import signal

import pytest

from common.command_line import run, version_teller


def raising(error):
    def commands():
        raise error

    return commands


def test_an_error_is_one_sentence_and_exit_code_1(capsys):
    with pytest.raises(SystemExit) as ended:
        run("fedward-x", raising(OSError(errno.ENOSPC, "No space left on device", "/x")), (KeyError, OSError))
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "fedward-x: [Errno 28] No space left on device: '/x'; make room there, or choose another folder\n"
    )


def test_an_error_that_nobody_listed_is_raised_as_it_is():
    with pytest.raises(ValueError, match="mistake"):
        run("fedward-x", raising(ValueError("mistake")), (OSError,))


def test_a_package_that_is_not_installed_is_told_by_who_knows_what_to_do(capsys):
    missing = ModuleNotFoundError("No module named 'y'", name="y")
    with pytest.raises(SystemExit) as ended:
        run("fedward-x", raising(missing), fix="install it")
    assert (ended.value.code, capsys.readouterr().err) == (1, "fedward-x: y is not installed here; install it\n")
    with pytest.raises(ModuleNotFoundError):
        run("fedward-x", raising(missing), (OSError,))


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(130)])
def test_whoever_presses_ctrl_c_may_press_it_again(ended, monkeypatch, capsys):
    """While threads end, Python would show a traceback of each wait."""
    set_, own = [], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "signal", lambda *given: set_.append(given))
    with pytest.raises(SystemExit) as caught:
        run("fedward-x", raising(ended))
    assert (caught.value.code, capsys.readouterr()) == (130, ("", ""))
    assert set_ == [(signal.SIGINT, signal.SIG_DFL)]
    with pytest.raises(SystemExit) as caught:
        run("fedward-x", raising(SystemExit(3)))
    assert (caught.value.code, len(set_)) == (3, 1)
    assert signal.getsignal(signal.SIGINT) is own


def test_what_ends_well_says_nothing(capsys):
    run("fedward-x", lambda: None)
    assert capsys.readouterr() == ("", "")


def test_the_version_is_told_if_it_is_asked_for_and_ends_the_program(capsys, monkeypatch):
    monkeypatch.setattr("common.command_line.version", lambda name: f"{name} 1.2")
    version_teller("fedward-x")(False)
    with pytest.raises(SystemExit) as ended:
        version_teller("fedward-x")(True)
    assert (ended.value.code, capsys.readouterr()) == (0, ("fedward-x fedward 1.2\n", ""))
