"""SQLite, DuckDB, a real PostgreSQL and MariaDB that the tests start on Unix sockets, and made-up drivers."""

import getpass
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from unittest.mock import MagicMock

import duckdb
import psycopg
import pytest

from silo_agent.config import SqlSource
from silo_agent.data.cells import plain
from silo_agent.data.errors import DataAbsentError, DataError, Faults, RecordError
from silo_agent.data.reader import read_records
from silo_agent.data.sources import sql
from silo_agent.data.sources.sql import AwayError, SqlError, _open_sqlite, columns, is_missing
from support.postgres import PASSWORD
from support.studies import tiny_study

SCHEMA = tiny_study().data
COLUMNS = 'patient, "group", age, lactate, ill'


@pytest.fixture
def ward(tmp_path):
    path = tmp_path / "ward.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE stay ({COLUMNS})")
        rows = [("p1", "a", 60, 4.5, 0), ("p2", "b", 70.5, "5", 1), ("p3", "a", None, 4, 1)]
        database.executemany("INSERT INTO stay VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


def rows(source):
    return [row for part in sql.rows(source) for row in part.tuples()]


def sqlite(path, statement="SELECT * FROM stay"):
    return SqlSource(url=f"sqlite:///{path}", statement=statement)


def test_a_statement_gives_records_and_faults_have_their_row(ward):
    check = read_records(sqlite(ward), SCHEMA, faults=Faults(5))
    assert (check.kept, check.left_out) == (2, 1)
    assert [(fault.file, fault.row, fault.column) for fault in check.faults] == [("database ward.sqlite3", 3, "age")]
    records = read_records(
        sqlite(ward, "SELECT * FROM stay WHERE age IS NOT NULL AND patient LIKE 'p%';"), SCHEMA
    ).whole()
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


def test_a_sqlite_file_is_opened_for_reading_twice_over(ward):
    """Neither the file's mode nor the pragma stands alone: a statement may turn the pragma off, or fill memory."""
    with closing(_open_sqlite(ward)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("CREATE TEMP TABLE other (a)")
        connection.execute("PRAGMA query_only = OFF")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM stay")


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
    records = read_records(duckdb_source(duck, "SELECT * FROM stay WHERE patient LIKE 'p%';"), SCHEMA).whole()
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
    with pytest.raises(RecordError) as locked:
        rows(duckdb_source(duck, "SET threads = 1"))
    assert "locked" in locked.value.found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "ward.duckdb"]
    assert duck.read_bytes() == before


def test_a_text_that_is_no_utf_8_leaves_out_its_own_row(ward):
    with closing(sqlite3.connect(ward)) as database:
        database.execute("INSERT INTO stay VALUES (CAST(x'ff' AS TEXT), 'a', 60, 4, 0)")
        database.commit()
    check = read_records(sqlite(ward), SCHEMA, faults=Faults(5))
    assert (check.kept, check.left_out) == (2, 2)


FAILING = 'SELECT patient, "group", age, json(patient) AS lactate, ill FROM stay'
TABLES_TWICE = f"WITH one AS ({FAILING}) SELECT a.* FROM one a JOIN one b ON a.lactate = b.lactate"  # noqa: S608  # ours


@pytest.mark.parametrize("statement", [FAILING, TABLES_TWICE, f"{FAILING} UNION {FAILING} ORDER BY 4"])
def test_sqlite_names_columns_without_looking_at_a_record(ward, statement):
    """A table that a statement uses twice is computed even if no row is wanted of it."""
    source = sqlite(ward, statement)
    assert columns(source) == ["patient", "group", "age", "lactate", "ill"]
    with pytest.raises(RecordError) as caught:
        rows(source)
    assert "malformed JSON" in caught.value.found


def test_what_a_database_says_is_not_in_the_summary(ward):
    with pytest.raises(DataError) as caught:
        read_records(sqlite(ward, "SELECT * FROM secret_name"), SCHEMA).whole()
    assert "secret_name" in str(caught.value)
    assert "secret_name" not in caught.value.summary + repr(caught.value)


def test_columns_that_are_absent_are_all_named(ward):
    with pytest.raises(DataError) as caught:
        read_records(sqlite(ward, "SELECT patient, age FROM stay"), SCHEMA).whole()
    assert {fault.column for fault in caught.value.faults} == {"group", "lactate", "ill"}


def test_a_missing_file_is_told_before_it_is_read(ward, tmp_path):
    assert is_missing(sqlite(ward)) is None
    assert is_missing(sqlite(tmp_path / "gone")) == tmp_path / "gone"
    with pytest.raises(SqlError):
        columns(sqlite(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()


def test_a_driver_that_is_not_there_is_told_with_the_package_that_has_it(monkeypatch):
    """And a database that nobody answers for: the study waits for both."""
    monkeypatch.setitem(sys.modules, "pymysql", None)
    for url, package in (("mysql+pymysql://reader@db/ward", "PyMySQL"), ("oracle+nope://reader@db/ward", "oracle")):
        with pytest.raises(AwayError) as caught:
            columns(SqlSource(url=url, statement="SELECT 1"))
        assert f"pip install {package} " in caught.value.expected
    with pytest.raises(DataAbsentError) as absent:
        read_records(SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1"), SCHEMA).whole()
    assert "127.0.0.1" not in absent.value.summary


def test_a_password_file_has_all_its_faults_told(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\nmore\n", encoding="utf-8")
    secret.chmod(0o644)
    source = SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1", credentials=secret)
    with pytest.raises(SqlError) as caught:
        columns(source)
    assert caught.value.found == "a credentials file with mode 0644, 2 lines"
    assert PASSWORD not in caught.value.expected


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o660, 0o777])
def test_a_password_file_that_anybody_else_may_open_gives_no_password(tmp_path, monkeypatch, mode):
    """Group and others, for reading, writing or anything else; and nobody is asked for a connection."""
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(mode)
    monkeypatch.setattr(psycopg, "connect", lambda *_, **__: pytest.fail("a connection was asked for"))
    source = SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1", credentials=secret)
    with pytest.raises(AwayError) as caught:
        columns(source)
    assert caught.value.found == f"a credentials file with mode {mode:04o}"
    assert caught.value.expected.startswith("secret: a file with the password alone, for its owner only")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "0 lines"),
        (b"\n", "1 lines"),
        (b"a\nb", "2 lines"),
        (b"x" * 4097, "too long"),
        (b"\xff", "not UTF-8"),
        (b"\xff\nb", "not UTF-8"),
    ],
)
def test_a_password_file_that_holds_anything_else_gives_no_password(tmp_path, content, fault):
    secret = tmp_path / "secret"
    secret.write_bytes(content)
    secret.chmod(0o600)
    source = SqlSource(url="postgresql://reader@127.0.0.1:1/ward", statement="SELECT 1", credentials=secret)
    with pytest.raises(AwayError) as caught:
        columns(source)
    assert fault in caught.value.found
    for gone in (tmp_path / "none", tmp_path):
        with pytest.raises(AwayError):
            columns(source.model_copy(update={"credentials": gone}))


# --- PostgreSQL ---------------------------------------------------------------------------------------------------
def postgres(cluster, statement):
    url, secret = cluster
    return SqlSource(url=url, statement=statement, credentials=secret)


def test_postgresql_types_become_the_cells_that_a_file_would_have(cluster):
    source = postgres(cluster, "SELECT * FROM stay WHERE patient LIKE 'p%' ORDER BY patient")
    assert columns(source) == ["patient", "group", "age", "lactate", "ill", "day"]
    assert [row[-1] for row in rows(source)] == ["2020-02-03", "infinity"]
    numbers = 'SELECT patient, "group", age, lactate, ill::int AS ill FROM stay ORDER BY patient'
    records = read_records(postgres(cluster, numbers), SCHEMA).whole()
    assert records.labels.tolist() == [0, 1]
    assert records.domains.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM stay", "SyntaxError"),
        ("WITH gone AS (DELETE FROM stay RETURNING *) SELECT * FROM gone", "FeatureNotSupported"),
        ("SELECT nextval('number')", "ReadOnlySqlTransaction"),
    ],
)
def test_postgresql_itself_refuses_to_write(cluster, statement, found):
    """What writes is no statement for a cursor, and what writes by the way finds a transaction that only reads."""
    with pytest.raises(RecordError) as caught:
        rows(postgres(cluster, statement))
    assert caught.value.found.startswith(found)
    assert len(rows(postgres(cluster, "SELECT * FROM stay"))) == 2


def test_a_statement_that_fails_on_a_record_is_no_reason_that_others_hear(cluster, ward):
    """Its columns are checked first, so a refusal says the same whatever the records are."""
    failing = 'SELECT patient, "group", 10 / (age - age) AS age, lactate, ill FROM stay -- all of them'
    source = postgres(cluster, failing)
    assert columns(source) == ["patient", "group", "age", "lactate", "ill"]
    with pytest.raises(RecordError) as caught:
        read_records(source, SCHEMA).whole()
    assert "division by zero" in caught.value.found
    assert "zero" not in str(caught.value)
    with pytest.raises(DataError):
        read_records(postgres(cluster, failing.replace(" AS age", " AS years")), SCHEMA).whole()
    with pytest.raises(RecordError):
        read_records(
            sqlite(ward, 'SELECT patient, "group", age, lactate, abs(-9223372036854775807 - 1) AS ill FROM stay'),
            SCHEMA,
        ).whole()


def test_a_wrong_password_is_refused_and_not_shown(cluster, tmp_path):
    url, _ = cluster
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong word", encoding="utf-8")
    wrong.chmod(0o600)
    with pytest.raises(SqlError) as caught:
        columns(SqlSource(url=url, statement="SELECT 1", credentials=wrong))
    assert "password authentication failed" in caught.value.found
    assert "wrong word" not in caught.value.found


def test_a_connection_that_is_lost_while_rows_come_is_told_as_such(cluster):
    with pytest.raises(RecordError) as caught:
        rows(postgres(cluster, "SELECT pg_terminate_backend(pg_backend_pid())"))
    # Which of the two is read first is the network's affair.
    said = caught.value.found
    assert any(words in said for words in ("closed the connection", "terminating connection", "connection is lost"))


@pytest.mark.parametrize("condition", ["EXISTS (SELECT FROM stay WHERE failing(age) > 0)", "(SELECT failing(age)) > 0"])
def test_postgresql_names_columns_without_looking_at_a_record(cluster, condition):
    """A subquery that reads no outer row is computed beside a condition that is never true, but not under LIMIT 0."""
    url, secret = cluster
    user = SqlSource(url=url, statement="SELECT 1").parsed().username
    with psycopg.connect(host=str(secret.parent), user=user, password=PASSWORD, dbname="postgres") as connection:
        body = "$$BEGIN RAISE 'looked at %', x; END$$"
        connection.execute(f"CREATE OR REPLACE FUNCTION failing(x numeric) RETURNS int LANGUAGE plpgsql AS {body}")
    source = postgres(cluster, f"SELECT patient FROM stay WHERE {condition}")  # noqa: S608  # ours
    assert columns(source) == ["patient"]
    with pytest.raises(RecordError) as caught:
        rows(source)
    assert "looked at" in caught.value.found


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
    check = read_records(SqlSource(url=url, statement=statement, credentials=secret), SCHEMA, faults=Faults(5))
    assert (check.kept, check.left_out) == (2, 1)


# --- MariaDB ------------------------------------------------------------------------------------------------------
SERVER = Path("/usr/sbin/mariadbd")
FILL = """
    CREATE DATABASE ward;
    USE ward;
    CREATE USER reader@localhost IDENTIFIED BY 'a long secret';
    GRANT ALL ON *.* TO reader@localhost;
    CREATE TABLE stay (patient VARCHAR(9), `group` CHAR(1), age DECIMAL(5, 2), lactate DOUBLE, ill BOOLEAN, day DATE,
        seen TIMESTAMP(6), at TIME, raw VARBINARY(4), flag BIT(1)) ENGINE=InnoDB;
    SET time_zone = '+00:00';
    INSERT INTO stay VALUES ('p1', 'a', 60.25, 4.5, 0, '2020-02-03', '2020-02-03 04:05:06.5', '01:02:03', 'ab', 1);
    INSERT INTO stay VALUES ('p2', 'b', 70, 710, 1, '0000-00-00', '2020-02-03 04:05:06', NULL, x'ff', 0);
    CREATE TABLE old (patient VARCHAR(9)) ENGINE=MyISAM;
    CREATE SEQUENCE count;
    CREATE FUNCTION written() RETURNS INT BEGIN INSERT INTO old VALUES ('p'); RETURN 1; END
"""


@pytest.fixture(scope="module")
def mariadb():
    """URL of a new server with the table `stay`, and the file with the password of a user who may do everything."""
    if not SERVER.exists():
        pytest.skip("MariaDB: no /usr/sbin/mariadbd; apt-get install mariadb-server-core")
    pymysql = pytest.importorskip("pymysql", reason="MariaDB: no driver; pip install PyMySQL")
    folder = Path(tempfile.mkdtemp(prefix="fw-my-"))
    secret = folder / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    (folder / "data").mkdir()
    small = ("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=8M", "--innodb-flush-method=nosync")
    own = ("--no-defaults", f"--user={getpass.getuser()}", f"--datadir={folder}/data", *small)
    tables = next(Path("/usr/share").glob("m*/m*_system_tables.sql")).read_text(encoding="utf-8")
    fill = " ".join(FILL.split()).replace("; ", ";\n").replace("('p');\nRETURN 1;\n", "('p'); RETURN 1; ")
    script = f"CREATE DATABASE mysql;\nUSE mysql;\n{tables}\nFLUSH PRIVILEGES;\n{fill};\n"
    subprocess.run([SERVER, *own, "--bootstrap"], input=script, text=True, check=True, capture_output=True, timeout=60)
    with (folder / "log").open("w") as log:
        command = [SERVER, *own, "--skip-networking", f"--socket={folder}/socket"]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                pymysql.connect(unix_socket=f"{folder}/socket", user="reader", password=PASSWORD).close()
                break
            except pymysql.OperationalError:
                assert time.monotonic() < end, (folder / "log").read_text()
                time.sleep(0.05)
        yield f"mysql+pymysql://reader@/ward?unix_socket={folder}/socket", secret
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder)


def maria(mariadb, statement):
    url, secret = mariadb
    return SqlSource(url=url, statement=statement, credentials=secret)


def test_mariadb_gives_records_and_its_types_become_the_cells_that_a_file_would_have(mariadb):
    source = maria(mariadb, "SELECT *, '50%' AS `per%cent` FROM stay WHERE patient LIKE 'p%' ORDER BY patient")
    assert columns(source) == [
        "patient",
        "group",
        "age",
        "lactate",
        "ill",
        "day",
        "seen",
        "at",
        "raw",
        "flag",
        "per%cent",
    ]
    first, second = ([plain(value) for value in row] for row in rows(source))
    assert first[2:] == [
        "60.25",
        4.5,
        0,
        "2020-02-03",
        "2020-02-03 04:05:06.500000",
        "1:02:03",
        "b'ab'",
        "b'\\x01'",
        "50%",
    ]
    assert second[5:9] == ["0000-00-00", "2020-02-03 04:05:06", None, "b'\\xff'"]
    records = read_records(maria(mariadb, "SELECT * FROM stay WHERE lactate < 9"), SCHEMA).whole()
    assert (records.labels.tolist(), records.identities) == ([0], ("p1",))


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM stay",
        "INSERT INTO old VALUES ('p')",
        "DROP TABLE stay",
        "CREATE TABLE new (a INT)",
        "SELECT NEXT VALUE FOR count",
        "SELECT written()",
        "SELECT * FROM stay FOR UPDATE",
    ],
)
def test_mariadb_itself_refuses_to_write(mariadb, statement):
    with pytest.raises(RecordError) as caught:
        rows(maria(mariadb, statement))
    assert "READ ONLY transaction" in caught.value.found
    assert rows(maria(mariadb, "SELECT (SELECT count(*) FROM stay), (SELECT count(*) FROM old)")) == [(2, 0)]


@pytest.mark.parametrize(
    "statement", ["DELETE FROM stay", "SELECT * INTO OUTFILE '/tmp/x' FROM stay", "SELECT wrong", "FLUSH TABLES"]
)
def test_mariadb_is_asked_for_nothing_but_one_select(mariadb, statement):
    with pytest.raises(DataError):
        read_records(maria(mariadb, statement), SCHEMA).whole()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT patient, exp(lactate) AS x FROM stay",
        "WITH one AS (SELECT patient, exp(lactate) AS x FROM stay) SELECT a.* FROM one a JOIN one b ON a.x = b.x",
        "SELECT patient, x FROM stay, (SELECT exp(max(lactate)) AS x FROM stay) one",
        "SELECT patient, 1 AS x FROM stay WHERE (SELECT exp(max(lactate)) FROM stay) IS NULL",
        "SELECT patient, sum(exp(lactate)) OVER () AS x FROM stay ORDER BY x",
    ],
)
def test_mariadb_names_columns_without_looking_at_a_record(mariadb, statement):
    source = maria(mariadb, statement)
    assert columns(source) == ["patient", "x"]
    with pytest.raises(RecordError) as caught:
        rows(source)
    assert "out of range" in caught.value.found


def test_what_mariadb_computes_while_it_plans_is_no_reason_that_others_hear(mariadb):
    with pytest.raises(RecordError) as caught:
        columns(maria(mariadb, "SELECT (SELECT patient FROM stay) AS patient"))
    assert "more than 1 row" in caught.value.found
    with pytest.raises(SqlError):
        columns(maria(mariadb, "SELECT (SELECT patients FROM stay) AS patient"))


def test_a_wrong_password_for_mariadb_is_refused_and_not_shown(mariadb, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong word", encoding="utf-8")
    wrong.chmod(0o600)
    with pytest.raises(AwayError) as caught:
        columns(SqlSource(url=mariadb[0], statement="SELECT 1", credentials=wrong))
    assert "Access denied" in caught.value.found
    assert "wrong word" not in caught.value.found


# --- databases that no test can have ------------------------------------------------------------------------------
def test_an_asynchronous_driver_is_told_by_its_name(monkeypatch):
    for module in ("aiomysql", "pymysql", "pymysql.constants"):
        monkeypatch.setitem(sys.modules, module, MagicMock())
    with pytest.raises(SqlError) as caught:
        columns(SqlSource(url="mysql+aiomysql://reader@db/ward", statement="SELECT 1"))
    assert caught.value.found == "the driver aiomysql, which is asynchronous"
    assert caught.value.expected.startswith("another driver of this database")


class MadeUpDriver(MagicMock):
    """A driver that writes down what it is asked, and whose every result has one column."""

    paramstyle, version, __version__ = "named", "9.9.9", "9.9.9"
    Error = DatabaseError = InterfaceError = type("Error", (Exception,), {})


@pytest.mark.parametrize(
    ("url", "base", "first"),
    [
        ("mssql+pymssql://reader@db/ward", "sqlalchemy.dialects.mssql.base.MSDialect", []),
        (
            "oracle+oracledb://reader@db/?service_name=ward",
            "sqlalchemy.dialects.oracle.cx_oracle.OracleDialect_cx_oracle",
            ["SET TRANSACTION READ ONLY"],
        ),
    ],
)
def test_other_databases_are_asked_in_words_that_they_know_and_never_commit(monkeypatch, tmp_path, url, base, first):
    driver = MadeUpDriver()
    connection = driver.connect.return_value
    cursor = connection.cursor.return_value
    cursor.description, cursor.fetchmany.side_effect = [("PATIENT", None)], [[("p1",)], []]
    monkeypatch.setitem(sys.modules, url.partition("+")[2].partition(":")[0], driver)
    monkeypatch.setattr(f"{base}.initialize", lambda *_: None)
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    promise = None if first else True
    statement = "SELECT patient FROM stay WHERE patient LIKE 'p%'"
    source = SqlSource(url=url, statement=statement, credentials=secret, user_may_only_read=promise)
    assert columns(source) == ["PATIENT"]
    assert rows(source) == [("p1",)]
    probe = f"SELECT * FROM (\n{statement}\n) fedward WHERE 1 = 0"  # noqa: S608  # the test's own
    assert [call.args[0] for call in cursor.execute.call_args_list] == [*first, probe, *first, statement]
    assert driver.connect.call_args.kwargs["password"] == PASSWORD
    assert connection.rollback.called
    assert not connection.commit.called
    assert connection.autocommit is not True


NEEDED = {columns: {"connect", "cursor", "execute"}, rows: {"connect", "cursor", "execute", "fetchmany"}}
"""What asks of the driver, so that its loss must be told."""


def outcome(ask, source):
    """What a question gives, or raises."""
    try:
        return ask(source)
    except Exception as error:  # noqa: BLE001  # whatever escapes is looked at
        return error


@pytest.mark.parametrize("place", ["connect", "cursor", "execute", "fetchmany", "rollback", "close"])
@pytest.mark.parametrize(
    "raised", [OSError("the secret word"), KeyError("the secret word"), MadeUpDriver.Error("secret")]
)
@pytest.mark.parametrize("first", [True, False], ids=["at once", "after the transaction began"])
def test_a_connection_that_is_lost_anywhere_never_escapes_as_the_drivers_own_error(monkeypatch, place, raised, first):
    """Its text may quote a record, and where it came up may follow from one."""
    driver = MadeUpDriver()
    connection = driver.connect.return_value
    cursor = connection.cursor.return_value
    cursor.description, cursor.fetchmany.side_effect = [("PATIENT", None)], [[("p1",)], []]
    owner = {"connect": driver, "execute": cursor, "fetchmany": cursor}.get(place, connection)
    effects = (
        [raised] * 9 if first or place in {"connect", "fetchmany", "rollback", "close"} else [cursor, raised, raised]
    )
    getattr(owner, place).side_effect = effects
    monkeypatch.setitem(sys.modules, "oracledb", driver)
    monkeypatch.setattr("sqlalchemy.dialects.oracle.cx_oracle.OracleDialect_cx_oracle.initialize", lambda *_: None)
    source = SqlSource(url="oracle+oracledb://reader@db/?service_name=ward", statement="SELECT patient FROM stay")
    for ask, allowed in ((columns, (SqlError, RecordError)), (rows, RecordError)):
        getattr(owner, place).side_effect = list(effects)
        found = outcome(ask, source)
        assert "secret" not in str(found)
        assert isinstance(found, allowed) or (place not in NEEDED[ask] and isinstance(found, list)), repr(found)


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
    check = read_records(source, SCHEMA, faults=Faults(5))
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
