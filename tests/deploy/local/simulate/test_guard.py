"""No file that an agent's configuration on this machine names gets into a simulation."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from deploy.local.simulate import guard
from deploy.local.simulate.errors import SimulationError
from deploy.local.simulate.guard import require_no_agents_data

SHOWN = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="this system shows no command lines")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """A working folder without any agent, and no agent's variable."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path / "work"))
    monkeypatch.delenv(guard.VARIABLE, raising=False)


@pytest.fixture
def private(tmp_path):
    """The hospital's file; no agent names it yet."""
    (tmp_path / "hospital").mkdir()
    path = tmp_path / "hospital" / "exam.csv"
    path.write_text(f"age,ill\n61,1\n{tmp_path.name},1\n")
    return path


def write_agent(path, data, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"coordinator": "hub:7443", "policy": "policy.yaml", "data": {"exam": str(data)}, **more}
    path.write_text(yaml.safe_dump(document))
    return path


def refused(file, *configurations):
    with pytest.raises(SimulationError, match=r"exam\.csv|names under data") as error:
        require_no_agents_data([file], configurations)
    return str(error.value)


def test_a_file_that_no_agent_names_is_let_in(private, tmp_path):
    write_agent(tmp_path / "hospital" / "agent.yaml", "another.csv")
    require_no_agents_data([private])


@pytest.mark.parametrize("place", ["hospital/agent.yaml", "hospital/silo/agent.yml", "agent.yaml", "work/here.yaml"])
def test_configurations_are_found_beside_above_and_in_the_working_folder(private, tmp_path, place):
    write_agent(tmp_path / place, private)
    assert place in refused(private)


def test_a_configuration_far_away_is_found_if_it_is_given_or_in_the_environment(private, tmp_path, monkeypatch):
    far = write_agent(tmp_path / "far" / "away" / "agent.yaml", private)
    require_no_agents_data([private])
    refused(private, far)
    monkeypatch.setenv(guard.VARIABLE, str(far))
    refused(private)


@contextmanager
def running(folder):
    """A process that looks like an agent whose configuration is `agent.yaml` in this folder."""
    wait = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", wait, "fedward-silo", "run", "-c", "agent.yaml"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder) as agent:
        agent.stdout.readline()
        yield
        agent.stdin.close()


@SHOWN
def test_the_configuration_of_a_running_agent_is_found(private, tmp_path):
    config = write_agent(tmp_path / "far" / "away" / "agent.yaml", private)
    with running(config.parent):
        refused(private)
    require_no_agents_data([private])


@SHOWN
def test_a_running_agent_whose_configuration_may_not_be_read_refuses_every_file(private, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(guard, "_readable", refuse)
    with running(tmp_path), pytest.raises(SimulationError, match="may not be read"):
        require_no_agents_data([private])


@pytest.mark.parametrize("kind", ["symlink", "folder", "hardlink", "copy"])
def test_links_and_copies_are_the_same_file(private, tmp_path, kind):
    write_agent(tmp_path / "hospital" / "agent.yaml", "exam.csv")
    (tmp_path / "public").mkdir()
    file = tmp_path / "public" / "data.csv"
    if kind == "symlink":
        file.symlink_to(private)
    elif kind == "folder":
        (tmp_path / "linked").symlink_to(tmp_path / "hospital")
        file = tmp_path / "linked" / "exam.csv"
    elif kind == "hardlink":
        file.hardlink_to(private)
    else:
        file.write_bytes(private.read_bytes())
    refused(file)


def test_a_link_that_the_agent_names_leads_to_the_file(private, tmp_path):
    (tmp_path / "current.csv").symlink_to(private)
    write_agent(tmp_path / "agent.yaml", "current.csv")
    refused(private)


def test_a_configuration_of_another_version_counts_and_other_documents_do_not(private, tmp_path):
    write_agent(tmp_path / "hospital" / "agent.yaml", "exam.csv", field_of_tomorrow=1)
    refused(private)
    (tmp_path / "hospital" / "agent.yaml").write_text("data: {exam: exam.csv}\nname: a study\n")
    require_no_agents_data([private])
    with pytest.raises(SimulationError, match="no agent's configuration"):
        require_no_agents_data([private], [tmp_path / "hospital" / "agent.yaml"])
