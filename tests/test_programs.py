"""Each program is the same by its module as by its console script."""

import re
import runpy
import sys

import pytest

MODULES = (
    "silo_agent.cli",
    "silo_agent.cli.main",
    "coordinator.cli",
    "coordinator.cli.main",
    "crypto.pki.authority.cli",
    "deploy.local.cli",
)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("module", MODULES)
def test_a_program_runs_by_its_module(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module, "--no-such-option"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 2
    assert "--no-such-option" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("module", MODULES)
def test_a_program_says_its_name_and_version(module, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [module, "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert re.fullmatch(r"fedward(-silo|-coordinator|-authority)? \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)
