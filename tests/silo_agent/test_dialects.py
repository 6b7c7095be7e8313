"""Which URLs are taken, and on which databases the hospital must say that its user may only read."""

import pytest
from pydantic import ValidationError
from sqlalchemy import make_url

from silo_agent import dialects
from silo_agent.config import SqlSource


def refusal(url, **fields):
    with pytest.raises(ValidationError) as caught:
        SqlSource(url=url, statement="SELECT 1", **fields)
    return str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///a?mode=rwc",
        "duckdb:///:memory:",
        "duckdb:///a?access_mode=READ_WRITE",
        "sqlite+pysqlcipher:///a",
        "postgresql+psycopg2://reader@db/ward",
        "no url",
    ],
)
def test_urls_that_are_not_taken(url):
    refusal(url)


@pytest.mark.parametrize("kind", ["postgresql", "mysql+pymysql", "mariadb", "oracle", "mssql+pyodbc", "snowflake"])
@pytest.mark.parametrize(
    "rest",
    [
        "reader:geheim@db/ward",
        "reader@db/ward?password=geheim",
        "reader@db/ward?PWD=geheim",
        "reader@db/ward?ssl_key_passphrase=geheim",
        "reader@db/ward?access_token=geheim",
        "reader@db/ward?apiKey=geheim",
        "reader@db/ward?access_key=geheim",
        "reader@db/ward?odbc_connect=PWD%3Dgeheim",
        "reader@db/ward?read_default_file=geheim",
    ],
)
def test_no_url_of_any_database_holds_a_password(kind, rest):
    said = refusal(f"{kind}://{rest}", user_may_only_read=None)
    assert "remove the password" in said
    assert not any("geheim" in fault for fault in dialects.faults(f"{kind}://{rest}", promised=None))


@pytest.mark.parametrize("option", ["autocommit=true", "init_command=DROP", "local_infile=1", "plugin=x"])
def test_an_option_that_could_write_or_load_is_refused(option):
    assert "remove options" in refusal(f"mysql+pymysql://reader@db/ward?{option}")


@pytest.mark.parametrize("url", ["mssql+pyodbc://reader@db/ward", "snowflake://reader@account/ward", "hana://r@db"])
def test_where_nothing_keeps_the_agent_from_writing_the_hospital_must_say_that_its_user_may_only_read(url):
    for fields in ({}, {"user_may_only_read": False}):
        assert "user_may_only_read: true" in refusal(url, **fields)
    both = refusal(url.replace("@", ":geheim@"))
    assert ("remove the password" in both, "user_may_only_read: true" in both) == (True, True)
    assert SqlSource(url=url, statement="SELECT 1", user_may_only_read=True).file is None


@pytest.mark.parametrize(
    "url", ["sqlite:///a", "duckdb:///a", "postgresql://r@db/a", "mysql://r@db/a", "oracle://r@db/a"]
)
def test_where_the_database_refuses_to_write_nobody_needs_to_say_so(url):
    assert SqlSource(url=url, statement="SELECT 1").parsed().get_backend_name() == url.partition(":")[0]
    for word in (True, False):
        assert "remove user_may_only_read" in refusal(url, user_may_only_read=word)


@pytest.mark.parametrize(
    ("url", "module", "package"),
    [
        ("mysql+pymysql://db/a", "pymysql", "PyMySQL"),
        ("mysql://db/a", "MySQLdb", "mysqlclient"),
        ("mysql+mysqlconnector://db/a", "mysql.connector", "mysql-connector-python"),
        ("mssql://db/a", "pyodbc", "pyodbc"),
        ("snowflake://db/a", None, "snowflake-sqlalchemy"),
        ("other://db/a", None, "other"),
    ],
)
def test_a_driver_that_is_not_there_is_named_as_pip_knows_it(url, module, package):
    error = None if module is None else ModuleNotFoundError("no", name=module)
    assert dialects.package(make_url(url), error) == package
