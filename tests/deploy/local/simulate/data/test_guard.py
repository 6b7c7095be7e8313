"""No file that an agent's configuration on this machine names gets into a simulation."""

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from crypto.entropy import SystemEntropy
from deploy.local.simulate.data import guard
from deploy.local.simulate.data.guard import require_no_agents_data
from deploy.local.simulate.errors import SimulationError
from silo_agent.config import AgentConfig
from silo_agent.data.sources.snapshot import read_begun
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.rows import rows_of
from support.certificates import make_authority
from support.studies import tiny_study

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


def test_every_configuration_that_an_agents_command_line_names_is_found_and_no_other_file(
    private, tmp_path, monkeypatch
):
    """Whatever else runs: programs of other kinds, and processes that end while they are looked at."""
    processes, silo = tmp_path / "proc", tmp_path / "silo"
    silo.mkdir()
    for name in ("one.yaml", "two.yaml", "three.yaml", "other.yaml"):
        write_agent(silo / name, private)
    lines = {
        "17": ["python", "-m", "silo_agent", "run", "--config=two.yaml"],
        "18": ["nginx", "-c", "other.yaml"],
        "19": ["fedward-silo", "run", "--config", str(silo / "three.yaml"), "other.yaml", "-c"],
        "20": ["/opt/fedward/bin/fedward-silo", "-c", "one.yaml", "run", "-c", "gone.yaml"],
    }
    for number, words in lines.items():
        (processes / number).mkdir(parents=True)
        (processes / number / "cmdline").write_text("".join(f"{word}\0" for word in words))
        (processes / number / "cwd").symlink_to(silo)
    (processes / "16").mkdir()
    (processes / "+").mkdir()
    monkeypatch.setattr(guard, "_PROCESSES", processes)
    found = [path.resolve().name for path in guard._of_running_agents()]
    assert found == ["two.yaml", "three.yaml", "one.yaml"]


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


def test_a_file_of_the_same_size_and_time_is_another_one_if_its_bytes_are(private, tmp_path):
    write_agent(tmp_path / "hospital" / "agent.yaml", "exam.csv")
    public = tmp_path / "public.csv"
    public.write_text(private.read_text().replace("61,1", "16,0"))
    for file in (private, public):
        os.utime(file, (1, 1))
    assert public.stat().st_size == private.stat().st_size
    require_no_agents_data([public])


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


# --- the same rows ----------------------------------------------------------------------------------------------------
HEADER = "patient,group,age,lactate,ill"


@pytest.fixture
def rows(tmp_path):
    """Of this test alone: agents of other tests' folders are found, too."""
    drawn = random.Random(str(tmp_path))  # noqa: S311  # made-up patients
    return [f"p{i},{'ab'[i % 2]},{40 + i % 30}.0,{drawn.uniform(0.5, 9):.4f},{i % 2}" for i in range(60)]


@pytest.fixture
def ward(private, rows):
    private.write_text("\n".join([HEADER, *rows]) + "\n")
    write_agent(private.parent / "agent.yaml", "exam.csv")
    return private


def rows_like(file):
    with pytest.raises(
        SimulationError, match=r"has most rows of .*which .*agent\.yaml names|has most rows of what a study"
    ):
        require_no_agents_data([file])


def crlf(text):
    return text.replace("\n", "\r\n")


def semicolons(text):
    return "\ufeff" + text.replace(",", ";")


def turned(text):
    head, *rows = text.splitlines()
    return "\n".join(",".join(reversed(row.split(","))) for row in [head, *reversed(rows)])


def renamed(text):
    return text.replace(HEADER, "a,b,c,d,e")


def headless(text):
    return text.partition("\n")[2]


def pseudonyms(text):
    return text.replace("p", "person-")


def half(text):
    return "\n".join(text.splitlines()[:31])


def among_others(text):
    return text + "".join(f"q{i},a,{i % 50},{i * 3.1},0\n" for i in range(1000))


@pytest.mark.parametrize("change", [crlf, semicolons, turned, renamed, headless, pseudonyms, half, among_others])
def test_a_copy_of_a_hospitals_rows_is_refused_however_it_is_written(ward, tmp_path, change):
    copy = tmp_path / "copy.csv"
    copy.write_text(change(ward.read_text()))
    assert copy.read_bytes() != ward.read_bytes()
    rows_like(copy)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_a_copy_in_parquet_is_refused(ward, rows, tmp_path, kind):
    cells = list(zip(*(row.split(",") for row in rows), strict=True))
    columns = dict(zip(HEADER.split(","), cells, strict=True))
    typed = {name: pa.array(list(map(float, columns[name])), kind) for name in ("age", "lactate")}
    pq.write_table(pa.table({**columns, **typed, "ill": pa.array(map(int, columns["ill"]))}), tmp_path / "copy.parquet")
    rows_like(tmp_path / "copy.parquet")


def test_a_folder_that_is_named_is_all_of_its_files_and_their_copies(ward, tmp_path):
    folder = ward.parent / "lung"
    (folder / "scans").mkdir(parents=True)
    ward.rename(folder / "one.csv")
    (folder / "scans" / "two.csv").write_text("of,a,folder\nbelow,it,1\n")
    write_agent(ward.parent / "agent.yaml", "lung")
    linked = tmp_path / "linked.csv"
    linked.hardlink_to(folder / "scans" / "two.csv")
    (tmp_path / "copy.csv").write_bytes((folder / "one.csv").read_bytes())
    for file in (folder / "one.csv", folder / "scans" / "two.csv", linked, tmp_path / "copy.csv"):
        refused(file)
    (tmp_path / "copy.csv").write_text(crlf((folder / "one.csv").read_text()))
    rows_like(tmp_path / "copy.csv")


def test_what_a_statement_gives_is_refused_and_a_server_is_told_as_not_compared(ward, rows, tmp_path):
    database = ward.parent / "ward.sqlite3"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"CREATE TABLE stay ({HEADER.replace('group', 'part')})")
        connection.executemany("INSERT INTO stay VALUES (?, ?, ?, ?, ?)", [row.split(",") for row in rows])
        connection.commit()
    statement = 'SELECT patient, part AS "group", CAST(age AS REAL) AS age, lactate, ill FROM stay'
    held = {"url": "sqlite:///ward.sqlite3", "statement": statement}
    server = {"url": "postgresql://reader@db.example.org/ward", "statement": "SELECT 1"}
    copy = tmp_path / "copy.csv"
    copy.write_text(crlf(ward.read_text()))
    ward.unlink()
    agent = write_agent(ward.parent / "agent.yaml", "gone.csv", databases={"heart": held})
    rows_like(copy)
    with pytest.raises(SimulationError, match="names under data"):
        require_no_agents_data([database])
    write_agent(agent, "gone.csv", databases={"lung": server})
    said = require_no_agents_data([copy], [agent])
    assert [one for one in said if str(agent) in one] == [
        f"not compared: {agent.parent}/gone.csv, which {agent} names under data",
        f"not compared: the database of lung, which {agent} names",
        f"not compared: the rows that studies of {agent} keep (DocumentError)",
    ], "a configuration without a state"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("authority")).credential("silo", "north")


@pytest.fixture
def kept(ward, home):
    """An agent whose study has begun, and whose file is gone since: the rows are only there sealed."""
    pems = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    agent = write_agent(ward.parent / "agent.yaml", "exam.csv", state="state", **pems)
    settings = AgentConfig.load(agent, whole=False)
    folder = StateFolder(settings.state).study("5" * 64)
    read_begun(ward, tiny_study().data, ["patient"], rows_of(folder, settings.credential(), SystemEntropy()))
    return agent


def test_rows_that_a_study_keeps_are_refused_though_the_file_is_gone(ward, rows, kept, tmp_path):
    before = {path: path.read_bytes() for path in kept.parent.rglob("*") if path.is_file() and path != ward}
    copy = tmp_path / "copy.csv"
    copy.write_text("".join(f"{row},{n}\n" for n, row in enumerate([HEADER, *rows])))
    ward.unlink()
    with pytest.raises(SimulationError, match="has most rows of what a study of"):
        require_no_agents_data([copy], [kept])
    assert {path: path.read_bytes() for path in before} == before
    (kept.parent / "state" / "studies" / ("5" * 64) / "rows.key").write_bytes(b"of another silo")
    said = require_no_agents_data([copy], [kept])
    assert f"not compared: the rows that studies of {kept} keep (SealError)" in said


def test_other_records_and_coarse_ones_are_let_in(ward, kept, tmp_path):
    public = tmp_path / "public.csv"
    public.write_text("\n".join([HEADER, *(f"p{i},a,{(i * 7) % 90},{i * 0.311:.2f},{i % 2}" for i in range(60))]))
    coarse = tmp_path / "coarse.csv"
    coarse.write_text("\n".join(["group,ill", *("ab"[i % 2] + f",{i % 2}" for i in range(60))]))
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    said = require_no_agents_data([public, coarse, empty], [kept])
    assert not [one for one in said if str(kept) in one]
