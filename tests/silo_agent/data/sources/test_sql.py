"""SQLite, and a real PostgreSQL that the test starts as an unprivileged user on a Unix socket."""

import getpass
import json
import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
import psycopg
import pytest
from pydantic import ValidationError

from silo_agent.config import SqlSource
from silo_agent.data.errors import DataError
from silo_agent.data.reader import check_records, read_records
from silo_agent.data.sources.sql import RecordError, SqlError, columns, is_missing, rows
from support.studies import tiny_study

SCHEMA = tiny_study().data
COLUMNS = 'patient, "group", age, lactate, ill'
PASSWORD = "a long secret"  # of the test's own cluster


@pytest.fixture
def ward(tmp_path):
    path = tmp_path / "ward.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE stay ({COLUMNS})")
        rows = [("p1", "a", 60, 4.5, 0), ("p2", "b", 70.5, "5", 1), ("p3", "a", None, 4, 1)]
        database.executemany("INSERT INTO stay VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


def sqlite(path, statement="SELECT * FROM stay"):
    return SqlSource(url=f"sqlite:///{path}", statement=statement)


def test_a_statement_gives_records_and_faults_have_their_row(ward):
    check = check_records(sqlite(ward), SCHEMA, 5)
    assert (check.kept, check.left_out) == (2, 1)
    assert [(fault.file, fault.row, fault.column) for fault in check.faults] == [("database ward.sqlite3", 3, "age")]
    records = read_records(sqlite(ward, "SELECT * FROM stay WHERE age IS NOT NULL AND patient LIKE 'p%';"), SCHEMA)
    assert records.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM stay", "INSERT INTO stay VALUES (1, 2, 3, 4, 5)", "DROP TABLE stay"]
)
def test_a_statement_cannot_write(ward, statement):
    before = ward.read_bytes()
    with pytest.raises(SqlError):
        columns(sqlite(ward, statement))
    with pytest.raises(RecordError):
        rows(sqlite(ward, statement))
    assert ward.read_bytes() == before


@pytest.fixture
def duck(tmp_path):
    path = tmp_path / "ward.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            'CREATE TABLE stay (patient VARCHAR, "group" VARCHAR, age INTEGER, lactate DECIMAL(4, 2), ill INTEGER)'
        )
        database.execute("INSERT INTO stay VALUES ('p1%', 'a', 60, 4.5, 0), ('p2', 'b', 70, 5, 1)")
    return path


def duckdb_source(path, statement="SELECT * FROM stay"):
    return SqlSource(url=f"duckdb:///{path}", statement=statement)


def test_a_duckdb_file_is_read_as_the_others_are(duck, tmp_path):
    records = read_records(duckdb_source(duck, "SELECT * FROM stay WHERE patient LIKE 'p%';"), SCHEMA)
    assert (records.labels.tolist(), records.identities) == ([0, 1], ("p1%", "p2"))
    assert is_missing(duckdb_source(tmp_path / "gone")) == tmp_path / "gone"
    with pytest.raises(SqlError):
        columns(duckdb_source(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


def test_a_statement_on_duckdb_reads_its_own_file_alone_and_writes_none(duck, tmp_path):
    before = duck.read_bytes()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for statement in (
        "DELETE FROM stay",
        f"COPY stay TO '{tmp_path}/out.csv'",
        f"SELECT * FROM read_csv('{tmp_path}/other.csv')",  # noqa: S608  # the test's own file
        f"ATTACH '{tmp_path}/new.duckdb'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(RecordError):
            rows(duckdb_source(duck, statement))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "ward.duckdb"]
    assert duck.read_bytes() == before


def test_a_text_that_is_no_utf_8_leaves_out_its_own_row(ward):
    with closing(sqlite3.connect(ward)) as database:
        database.execute("INSERT INTO stay VALUES (CAST(x'ff' AS TEXT), 'a', 60, 4, 0)")
        database.commit()
    check = check_records(sqlite(ward), SCHEMA, 5)
    assert (check.kept, check.left_out) == (2, 2)


def test_what_a_database_says_is_not_in_the_summary(ward):
    with pytest.raises(DataError) as caught:
        read_records(sqlite(ward, "SELECT * FROM secret_name"), SCHEMA)
    assert "secret_name" in str(caught.value)
    assert "secret_name" not in caught.value.summary + repr(caught.value)


def test_columns_that_are_absent_are_all_named(ward):
    with pytest.raises(DataError) as caught:
        read_records(sqlite(ward, "SELECT patient, age FROM stay"), SCHEMA)
    assert {fault.column for fault in caught.value.faults} == {"group", "lactate", "ill"}


def test_a_missing_file_is_told_before_it_is_read(ward, tmp_path):
    assert is_missing(sqlite(ward)) is None
    assert is_missing(sqlite(tmp_path / "gone")) == tmp_path / "gone"
    with pytest.raises(SqlError):
        columns(sqlite(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    "url",
    [
        "mysql://reader@db/ward",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///a?mode=rwc",
        "duckdb:///:memory:",
        "duckdb:///a?access_mode=READ_WRITE",
        "postgresql://reader:word@db/ward",
        "postgresql://reader@db/ward?password=word",
        "no url",
    ],
)
def test_urls_that_are_not_taken(url):
    with pytest.raises(ValidationError):
        SqlSource(url=url, statement="SELECT 1")


def test_a_password_file_has_all_its_faults_told(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\nmore\n", encoding="utf-8")
    secret.chmod(0o644)
    source = SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1", credentials=secret)
    with pytest.raises(SqlError) as caught:
        columns(source)
    assert caught.value.found == "a credentials file with mode 0644, 2 lines"
    assert PASSWORD not in caught.value.expected


# --- PostgreSQL ---------------------------------------------------------------------------------------------------
def binaries():
    """The folder of Debian's newest PostgreSQL; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def unprivileged():
    """PostgreSQL refuses to run as root; then Debian's own user of it runs the cluster."""
    if os.getuid() != 0:
        return getpass.getuser(), {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL: no user postgres to run it as")
    return "postgres", {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@pytest.fixture(scope="module")
def cluster():
    """The folder of the Unix socket of a new cluster with the table `stay`, and the file with its password."""
    tools = binaries()
    if tools is None:
        pytest.skip("PostgreSQL: no /usr/lib/postgresql; apt-get install postgresql")
    user, as_user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="fw-pg-"))
    secret = folder / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    if as_user:
        os.chown(folder, as_user["user"], as_user["group"])
        os.chown(secret, as_user["user"], as_user["group"])
    data = folder / "data"

    def tool(name, *arguments):
        command = [tools / name, *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60, **as_user)

    try:
        tool("initdb", "-D", data, "-U", user, "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "-N")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        tool("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            _fill(folder, user)
            yield f"postgresql://{user}@/postgres?host={folder}", secret
        finally:
            tool("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _fill(folder, user):
    with psycopg.connect(host=str(folder), user=user, password=PASSWORD, dbname="postgres") as connection:
        connection.execute(
            'CREATE TABLE stay (patient text, "group" char, age numeric, lactate real, ill bool, day date)'
        )
        connection.execute(
            "INSERT INTO stay VALUES ('p1', 'a', 60.25, 4.5, false, '2020-02-03'), ('p2', 'b', 70, 5, true, 'infinity')"
        )


def postgres(cluster, statement):
    url, secret = cluster
    return SqlSource(url=url, statement=statement, credentials=secret)


def test_postgresql_types_become_the_cells_that_a_file_would_have(cluster):
    source = postgres(cluster, "SELECT * FROM stay WHERE patient LIKE 'p%' ORDER BY patient")
    assert columns(source) == ["patient", "group", "age", "lactate", "ill", "day"]
    assert [row[-1] for row in rows(source)] == ["2020-02-03", "infinity"]
    numbers = 'SELECT patient, "group", age, lactate, ill::int AS ill FROM stay ORDER BY patient'
    records = read_records(postgres(cluster, numbers), SCHEMA)
    assert records.labels.tolist() == [0, 1]
    assert records.domains.tolist() == [0, 1]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM stay", "WITH gone AS (DELETE FROM stay RETURNING *) SELECT * FROM gone"]
)
def test_postgresql_itself_refuses_to_write(cluster, statement):
    with pytest.raises(RecordError) as caught:
        rows(postgres(cluster, statement))
    assert caught.value.found.startswith("ReadOnlySqlTransaction")
    assert len(rows(postgres(cluster, "SELECT * FROM stay"))) == 2


def test_a_statement_that_fails_on_a_record_is_no_reason_that_others_hear(cluster, ward):
    """Its columns are checked first, so a refusal says the same whatever the records are."""
    failing = 'SELECT patient, "group", 10 / (age - age) AS age, lactate, ill FROM stay -- all of them'
    source = postgres(cluster, failing)
    assert columns(source) == ["patient", "group", "age", "lactate", "ill"]
    with pytest.raises(RecordError) as caught:
        read_records(source, SCHEMA)
    assert "division by zero" in caught.value.found
    assert "zero" not in str(caught.value)
    with pytest.raises(DataError):
        read_records(postgres(cluster, failing.replace(" AS age", " AS years")), SCHEMA)
    with pytest.raises(RecordError):
        read_records(
            sqlite(ward, 'SELECT patient, "group", age, lactate, abs(-9223372036854775807 - 1) AS ill FROM stay'),
            SCHEMA,
        )


def test_a_wrong_password_is_refused_and_not_shown(cluster, tmp_path):
    url, _ = cluster
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong word", encoding="utf-8")
    wrong.chmod(0o600)
    with pytest.raises(SqlError) as caught:
        columns(SqlSource(url=url, statement="SELECT 1", credentials=wrong))
    assert "password authentication failed" in caught.value.found
    assert "wrong word" not in caught.value.found


def test_the_statement_for_omop_runs_on_synthetic_persons(cluster):
    """Two persons with several measurements, and one without any, whose record is left out."""
    page = (Path(__file__).parents[4] / "docs/data.md").read_text(encoding="utf-8")
    statement = page.split("```sql\n")[1].split("```")[0]
    url, secret = cluster
    user = SqlSource(url=url, statement="SELECT 1").parsed().username
    tables = """
        CREATE TABLE person (person_id int, gender_concept_id int, year_of_birth int);
        CREATE TABLE measurement (measurement_id int, person_id int, measurement_concept_id int,
            measurement_date date, value_as_number numeric);
        CREATE TABLE condition_occurrence (person_id int, condition_concept_id int);
        INSERT INTO person VALUES (1, 8507, 1960), (2, 8532, 1950), (3, 8532, 1955);
        INSERT INTO measurement VALUES (1, 1, 3047181, '2020-01-01', 9), (2, 1, 3047181, '2020-01-02', 4.5),
            (3, 1, 1, '2020-01-03', 99), (4, 2, 3047181, '2020-01-01', 6), (5, 2, 3047181, '2020-01-01', 7);
        INSERT INTO condition_occurrence VALUES (2, 132797), (2, 132797), (1, 1)
    """
    host = str(secret.parent)
    with psycopg.connect(host=host, user=user, password=PASSWORD, dbname="postgres") as connection:
        connection.execute(tables)
    found = rows(SqlSource(url=url, statement=statement + " ORDER BY 1", credentials=secret))
    assert [(row[0], row[1], row[2], row[4]) for row in found] == [(1, "a", 60, 0), (2, "b", 70, 1), (3, "b", 65, 0)]
    assert [None if row[3] is None else float(row[3]) for row in found] == [4.5, 7.0, None]
    check = check_records(SqlSource(url=url, statement=statement, credentials=secret), SCHEMA, 5)
    assert (check.kept, check.left_out) == (2, 1)


def test_the_example_for_a_fhir_bulk_export_runs_on_synthetic_resources(tmp_path):
    """Two patients with observations and conditions of several codings, and one without, whose record is left out."""
    page = (Path(__file__).parents[4] / "docs/data.md").read_text(encoding="utf-8")
    script, statement = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "sqlite"))
    export = {
        "Patient": [
            {"id": "p1", "gender": "male", "birthDate": "1960-05-04"},
            {"id": "p2", "gender": "female", "birthDate": "1950"},
            {"id": "p3", "gender": "female", "birthDate": "1955-01-01"},
        ],
        "Observation": [
            lactate("o1", "p1", 9, "2020-01-01"),
            lactate("o2", "p1", 4.5, "2020-01-02", "other-code", "2524-7"),
            lactate("o3", "p1", 99, "2020-01-03", "718-7"),
            lactate("o4", "p2", 7, "2020-01-01T08:00:00Z"),
        ],
        "Condition": [
            {"id": "c1", "subject": {"reference": "Patient/p2"}, "code": {"coding": [{"code": "91302008"}]}},
            {"id": "c2", "subject": {"reference": "Patient/p1"}, "code": {"coding": [{"code": "38341003"}]}},
            {"id": "c3", "subject": {"reference": "Patient/p1"}, "code": {"text": "no coding"}},
        ],
    }
    (tmp_path / "export").mkdir()
    for kind, resources in export.items():
        lines = [json.dumps({"resourceType": kind, **one}) for one in resources]
        (tmp_path / "export" / f"{kind}.ndjson").write_text("\n".join(lines) + "\n\n")
    (tmp_path / "load.py").write_text(script)
    subprocess.run([sys.executable, "load.py", "export", "ward.sqlite3"], cwd=tmp_path, check=True)
    source = sqlite(tmp_path / "ward.sqlite3", statement)
    assert sorted(map(tuple, rows(source))) == [
        ("p1", "a", 60, 4.5, 0),
        ("p2", "b", 70, 7, 1),
        ("p3", "b", 65, None, 0),
    ]
    check = check_records(source, SCHEMA, 5)
    assert (check.kept, check.left_out) == (2, 1)


def lactate(name, patient, value, at, *codes):
    coding = [{"system": "http://loinc.org", "code": code} for code in codes or ("2524-7",)]
    quantity = {"value": value, "unit": "mmol/L"}
    subject = {"reference": f"Patient/{patient}"}
    return {
        "id": name,
        "subject": subject,
        "code": {"coding": coding},
        "effectiveDateTime": at,
        "valueQuantity": quantity,
    }
