from __future__ import annotations

import pytest
from typer.testing import CliRunner

from crypto.pki.authority import asking, cli
from crypto.pki.authority.asking import PASSPHRASE_VARIABLE
from crypto.pki.authority.cli import app
from crypto.pki.certificates import Credential
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "")
    return lambda *arguments, **extra: CliRunner().invoke(app, arguments, **extra)


def silo(name):
    return Subject(Identity(Role.SILO, name), f"{name}-ward")


def test_a_consortium_is_made_from_the_command_line(run, tmp_path):
    made = run("init", "root", "--name", "Our consortium")
    assert made.exit_code == 0
    assert "Our consortium" in made.output
    assert "no passphrase" in made.output
    create_request(tmp_path / "site-1", silo("site-1"))
    party = ("--role", "silo", "--name", "site-1", "--data-set", "site-1-ward")
    arguments = ("sign", "root", "site-1/request.csr", *party, "--out", "site-1/c.pem")
    signed = run(*arguments)
    assert signed.exit_code == 0
    assert "the request is for fedward://silo/site-1 with the data set site-1-ward" in signed.output
    assert "certified fedward://silo/site-1 with the data set site-1-ward for 90 days" in signed.output
    credential = Credential.load(
        tmp_path / "site-1/c.pem", tmp_path / "site-1/key.pem", tmp_path / "root/authority.pem"
    )
    assert credential.identity.name == "site-1"
    again = run(*arguments)
    assert again.exit_code == 1
    assert "c.pem exists already" in again.output
    assert len((tmp_path / "root/issued.jsonl").read_text().splitlines()) == 1


def test_without_a_terminal_somebody_must_have_said_what_protects_the_key(run, tmp_path, monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    done = run("init", "root", "--name", "C")
    assert done.exit_code == 1
    assert f"refused: nobody can be asked for the new key's passphrase; set {PASSPHRASE_VARIABLE}" in done.output
    assert not (tmp_path / "root").exists()


def test_a_coordinator_gets_its_hosts(run, tmp_path):
    run("init", "root", "--name", "C")
    create_request(tmp_path / "hub", Subject(Identity(Role.COORDINATOR, "hub")), ("localhost", "127.0.0.1"))
    options = ("--role", "coordinator", "--name", "hub", "--out", "hub.pem")
    refused = run("sign", "root", "hub/request.csr", *options, "--host", "localhost")
    assert refused.exit_code == 1
    assert "asks for the hosts 127.0.0.1" in refused.output
    signed = run("sign", "root", "hub/request.csr", *options, "--host", "localhost", "--host", "127.0.0.1")
    assert "hosts: localhost, 127.0.0.1" in signed.output
    assert signed.exit_code == 0


def test_another_name_or_a_missing_file_is_refused(run, tmp_path):
    run("init", "root", "--name", "C")
    create_request(tmp_path / "a", silo("a"))
    for name, data_set in (("b", "a-ward"), ("a", "b-ward")):
        party = ("--role", "silo", "--name", name, "--data-set", data_set)
        wrong = run("sign", "root", "a/request.csr", *party, "--out", "b.pem")
        assert (wrong.exit_code, (tmp_path / "b.pem").exists()) == (1, False)
        assert f"not for fedward://silo/{name} with the data set {data_set}; fix --role, --name" in wrong.output
    missing = run("sign", "root", "none.csr", "--role", "silo", "--name", "b", "--data-set", "b", "--out", "b.pem")
    assert "none.csr cannot be read" in missing.output


@pytest.mark.parametrize(
    "party",
    [
        ("--role", "silo", "--name", "a"),
        ("--role", "silo", "--name", "a", "--data-set", "No Name"),
        ("--role", "operator", "--name", "a", "--data-set", "a-ward"),
    ],
)
def test_a_silo_and_nobody_else_has_a_data_set(run, tmp_path, party):
    run("init", "root", "--name", "C")
    create_request(tmp_path / "a", silo("a"))
    refused = run("sign", "root", "a/request.csr", *party, "--out", "a.pem")
    assert (refused.exit_code, (tmp_path / "a.pem").exists()) == (1, False)
    assert "data set" in refused.output


def test_a_reinstalled_hospital_gets_neither_a_new_name_nor_a_new_data_set(run, tmp_path):
    run("init", "root", "--name", "C")
    for number, (name, data_set) in enumerate([("a", "a-ward"), ("a", "a-ward"), ("a", "again"), ("again", "a-ward")]):
        create_request(tmp_path / str(number), Subject(Identity(Role.SILO, name), data_set))
        party = ("--role", "silo", "--name", name, "--data-set", data_set)
        done = run("sign", "root", f"{number}/request.csr", *party, "--out", f"{number}.pem")
        assert (done.exit_code, (tmp_path / f"{number}.pem").exists()) == ((0, True) if number < 2 else (1, False))
        assert ("refused: " in done.output and "was certified for" in done.output) == (number >= 2)


def test_the_passphrase_comes_from_the_environment_or_a_terminal(run, tmp_path, monkeypatch):
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "long and secret")
    assert "no passphrase" not in run("init", "root", "--name", "C").output
    assert b"ENCRYPTED" in (tmp_path / "root/authority.key").read_bytes()
    monkeypatch.delenv(PASSPHRASE_VARIABLE)
    create_request(tmp_path / "a", silo("a"))
    arguments = (
        "sign",
        "root",
        "a/request.csr",
        "--role",
        "silo",
        "--name",
        "a",
        "--data-set",
        "a-ward",
        "--out",
        "a.pem",
    )
    assert f"set it in {PASSPHRASE_VARIABLE}" in run(*arguments).output
    monkeypatch.setattr(asking.typer, "prompt", lambda *_, **__: "long and secret")
    monkeypatch.setattr(asking, "at_terminal", lambda: True)
    assert run(*arguments).exit_code == 0


def test_the_console_script_runs_it(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fedward-authority", "--help"])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    shown = capsys.readouterr().out
    assert "init" in shown
    assert "sign" in shown
