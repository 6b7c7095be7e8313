"""`fedward-coordinator`: what people type, what they read, and that a fault is one sentence and exit code 1."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from common.figure_words import MOVED
from coordinator.cli import main as cli
from coordinator.cli import studies
from crypto.pki.certificates import Trust
from protos.messages import AgreedFigure, Figure, Publication, StudyResults
from protos.status import MemberStatus
from support.online import Online, serving
from support.people import author_in
from support.studies import tiny_document, tiny_study

COMMAND = [sys.executable, "-c", "from coordinator.cli.main import main; main()"]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs `main` as the console script does; returns exit code, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedward-coordinator", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capfd.readouterr()
        return caught.value.code or 0, out, err

    return run


@pytest.fixture
def operator_file(server, operator_folder, tmp_path):
    files = {name: str(operator_folder / f"{name}.pem") for name in ("certificate", "key", "authority")}
    path = tmp_path / "operator.yaml"
    path.write_text(yaml.safe_dump({"coordinator": f"127.0.0.1:{server.port}", **files}))
    return path


def coordinator_file(folder, home, **changes):
    files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    path = folder / "coordinator.yaml"
    path.write_text(yaml.safe_dump({"port": 0, "metrics_port": 0, "data": "data", **files, **changes}))
    return path


@pytest.fixture(scope="module")
def coordinator_home(authority):
    return authority.credential("coordinator", "typed-hub")


@pytest.fixture
def hub_file(coordinator_home, tmp_path):
    return lambda **changes: coordinator_file(tmp_path, coordinator_home, **changes)


@pytest.fixture
def log_stays(monkeypatch):
    """`serve` sets up the log of the whole process, which here is the tests'."""
    monkeypatch.setattr("structlog.configure", lambda **_: None)


@pytest.fixture
def author_file(server, authority, tmp_path):
    """An author's own configuration."""
    author_in(authority)
    home = authority._folder / "author-ann"
    files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    path = tmp_path / "author.yaml"
    path.write_text(yaml.safe_dump({"coordinator": f"127.0.0.1:{server.port}", **files}))
    return path


def test_a_study_without_its_authors_signature_is_refused(run, operator_file, author_file, tmp_path):
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="signed-by-hand")))
    create = ("study", "create", study_file, "-o", operator_file)
    code, _, err = run(*create)
    assert (code, "no author has signed the study 'signed-by-hand'; sign it with" in err) == (1, True)
    code, out, _ = run("study", "sign", study_file, "-o", author_file)
    digest = tiny_study(name="signed-by-hand").digest
    assert (code, out) == (0, f"{study_file}.ann.sig: fedward://author/ann signed study {digest}\n")
    changed = yaml.safe_dump(tiny_document(name="signed-by-hand", purpose="Something else."))
    study_file.write_text(changed)
    code, _, err = run(*create)
    assert (code, "the author's signature of the study 'signed-by-hand' does not count" in err) == (1, True)
    (tmp_path / "study.yaml.eve.sig").write_text("{}")
    code, _, err = run(*create)
    assert (code, "a study has one author, and beside" in err, "study.yaml.ann.sig, study.yaml.eve.sig" in err) == (
        1,
        True,
        True,
    )
    (tmp_path / "study.yaml.ann.sig").unlink()
    code, _, err = run(*create)
    assert (code, "study.yaml.eve.sig: cannot be read; sign again" in err) == (1, True)
    (tmp_path / "study.yaml.eve.sig").unlink()
    code, _, err = run("study", "sign", study_file, "-o", operator_file)
    assert (code, "fedward://operator/ops signs no study; an author does" in err) == (1, True)


def test_a_study_is_validated_before_it_has_a_name(run, author_file, operator_file, tmp_path):
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="validated")))
    digest = tiny_study(name="validated").digest
    assert run("study", "validate", study_file, "--local") == (0, f"validated {digest} is whole\n", "")
    ask = ("study", "validate", study_file, "--seconds", "0", "-o")
    code, out, _ = run(*ask, author_file, "--format", "json")
    assert (code, json.loads(out)) == (0, {"study": digest, "answers": dict.fromkeys(("north", "south", "west"), "")})
    code, out, _ = run(*ask, author_file)
    assert code == 0
    assert "has not answered: its agent may not run" in " ".join(out.split())
    code, _, err = run(*ask, operator_file)
    assert (code, "no author has signed the study 'validated'" in err) == (1, True)
    study_file.write_text(yaml.safe_dump(tiny_document(name="validated") | {"min_silos": 9}))
    assert run("study", "validate", study_file, "--local")[0] == 1


def test_studies_are_listed_in_pages_deleted_archived_and_watched(run, author_file, tmp_path):
    study_file = tmp_path / "study.yaml"
    for number in range(3):
        study_file.write_text(yaml.safe_dump(tiny_document(name=f"listed-{number}")))
        assert run("study", "create", study_file, "-o", author_file)[0] == 0
    listed = ("study", "list", "--name", "listed-*", "-o", author_file)
    code, out, _ = run(*listed, "--most", "2")
    assert (code, [line.split()[0] for line in out.splitlines()[:3]]) == (0, ["study", "listed-0", "listed-1"])
    after = out.split()[-1]
    assert "1 more: --after" in out
    assert [one["name"] for one in json.loads(run(*listed, "--after", after, "--format=json")[1])["studies"]] == [
        "listed-2"
    ]
    assert run("study", "delete", "listed-2", "--yes", "-o", author_file) == (0, "", "")
    assert run("study", "abort", "listed-1", "--reason", "so", "--yes", "-o", author_file)[0] == 0
    assert run("study", "archive", "listed-1", "-o", author_file) == (0, "", "")
    assert [one["name"] for one in json.loads(run(*listed, "--format", "json")[1])["studies"]] == ["listed-0"]
    assert [one["name"] for one in json.loads(run(*listed, "--format", "json", "--archived")[1])["studies"]] == [
        "listed-0",
        "listed-1",
    ]
    assert run(*listed, "--state", "finished")[1] == "No study fits.\n"
    code, out, _ = run("study", "watch", "listed-1", "-o", author_file)
    assert (code, out.startswith("listed-1 aborted, 0 %, round 0/3, attempt 0; 0.0 MB received; stopped by")) == (
        0,
        True,
    )


def test_a_study_from_the_command_line(run, operator_file, author_file, tmp_path):
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="typed")))
    digest = tiny_study(name="typed").digest
    run("study", "sign", study_file, "-o", author_file)
    assert run("study", "create", study_file, "-o", operator_file) == (0, f"{digest}\n", "")
    assert run("study", "start", "typed", "-o", operator_file) == (0, "", "")
    code, out, _ = run("study", "status", "typed", "--format", "json", "-o", operator_file)
    (status,) = json.loads(out)
    assert (code, status["study"], status["phase"]) == (0, digest, "offer")
    code, out, _ = run("study", "status", "-o", operator_file)
    assert code == 0
    assert "typed running round 0/3, attempt 1, offer" in " ".join(out.split())
    assert re.search(r"north\W+invited\W+yes", out)
    assert run("study", "abort", "typed", "--reason", "enough", "--yes", "-o", operator_file)[0] == 0
    assert "stopped by operator ops: enough" in run("study", "status", "typed", "-o", operator_file)[1]


def test_a_pause_from_the_command_line(run, author_file, operator_file, tmp_path):
    forgive = ("study", "forgive", "typed-pause", "--reason", "we know why", "-o", operator_file)
    operator_file = author_file
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="typed-pause")))
    for command in (("create", study_file), ("start", "typed-pause"), ("pause", "typed-pause")):
        assert run("study", *command, "-o", operator_file)[0] == 0
    _, out, _ = run("study", "status", "typed-pause", "-o", operator_file)
    assert "typed-pause paused round 0/3" in " ".join(out.split())
    assert "paused by author ann" in out
    assert run("study", "resume", "typed-pause", "-o", operator_file) == (0, "", "")
    code, _, err = run("study", "resume", "typed-pause", "-o", operator_file)
    assert (code, "only a paused or waiting study can be resumed" in err) == (1, True)
    assert run(*forgive, "north") == (0, "", "")
    code, _, err = run(*forgive, "elsewhere")
    assert (code, "no silo elsewhere takes part in the study" in err) == (1, True)


def test_who_is_away_is_shown_with_the_time(run, operator_file, make_scene):
    scene = make_scene()
    silent, heard, *_ = scene.silos.values()
    heard.join()
    status = scene.play(lambda status: status.state == "waiting", silent=(silent.name, heard.name))
    assert [member.state for member in status.members] == ["away", "away", "active"]
    _, out, _ = run("study", "status", scene.study.name, "-o", operator_file)
    assert f"{scene.study.name} waiting round 0/3, attempt 1, wait" in " ".join(out.split())
    assert f"the study needs 3; the round waits for {silent.name}, {heard.name}" in " ".join(out.split())
    assert re.search(rf"{silent.name}\W+away\W+yes", out)
    assert re.search(rf"{heard.name}\W+away since 2\d\d\d-\d\d-\d\d \d\d:\d\d UTC\W+yes", out)


@pytest.mark.parametrize(
    ("state", "seconds", "waited", "shown"),
    [
        ("active", 50, True, "active"),
        ("active", 70, False, "active"),
        ("active", 70, True, "active, silent since 2026-11-06 15:04 UTC"),
        ("away", 70, True, "away since 2026-11-06 15:04 UTC"),
    ],
)
def test_who_is_waited_for_and_does_not_call_is_shown(state, seconds, waited, shown):
    heard = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
    member = MemberStatus("north", state, "", heard.timestamp())
    assert studies._member_state(member, waited, heard + timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("seconds", "lost", "shown"),
    [(0.4, 0, ""), (1.0, 0, "1 of 60 s"), (7.2, 2, "7 of 60 s, 2 attempts"), (0.0, 3, "3 attempts")],
)
def test_what_waiting_for_a_silo_has_cost_is_shown(seconds, lost, shown):
    member = MemberStatus("north", "active", "", 0.0, slow_seconds=seconds, slow_budget=60.0, lost_attempts=lost)
    assert studies._slow(member) == shown


def test_results_from_the_command_line(run, operator_file, make_scene, authority):
    scene = make_scene(publish=["patients"])
    code, out, err = run("study", "results", scene.study.name, "-o", operator_file)
    assert (code, out, "only a finished study has results" in err) == (1, "", True)
    scene.play(lambda status: status.state == "finished")
    code, out, _ = run("study", "results", scene.study.name, "-o", operator_file)
    assert code == 0
    assert re.search(r"a\W+patients\W+0.5\W+0.25 to 0.75\W+3", out)
    assert f"signed by {', '.join(sorted(scene.silos))}; the table shows figures on which at least 3" in " ".join(
        out.split()
    )
    code, out, _ = run("study", "results", scene.study.name, "--format", "json", "-o", operator_file)
    found = json.loads(out)
    assert found["agreed"][0]["figure"] == {
        "domain": "a",
        "metric": "patients",
        "value": 0.5,
        "low": 0.25,
        "high": 0.75,
    }
    for one in found["publications"]:
        blob, signature, certificate = (base64.b64decode(one[k]) for k in ("blob", "signature", "certificate_pem"))
        signer = Trust(authority.pem).verify(certificate, Publication.to_sign(blob), signature)
        assert signer.name == one["silo"]


@pytest.mark.parametrize("announced", [True, False])
def test_how_far_a_hospital_may_move_a_figure_stands_beside_it(announced):
    figures = [Figure("a", "auc", 0.81234, 0.7, 0.9), Figure("a", "patients", 40.0, 30.0, 50.0)]
    moved = [Figure("a", f"auc{MOVED}", 0.0512, 0.0, 0.0512)] if announced else []
    agreed = tuple(AgreedFigure(one, 3) for one in (*figures, *moved))
    table = studies._figures(StudyResults("d" * 64, "ward", 3, agreed, ()))
    shown = {column.header: list(column.cells) for column in table.columns}
    assert shown["metric"] == ["auc", "patients"]
    assert shown["value"] == ["0.8123", "40"]
    assert shown.get("one hospital may move it by") == (["0.0512", "-"] if announced else None)


def test_a_report_from_the_command_line(run, operator_file, make_scene, tmp_path, monkeypatch):
    scene = make_scene(publish=["patients"])
    path, out = tmp_path / "study.yaml", tmp_path / "made"
    path.write_text(yaml.safe_dump(json.loads(scene.study.canonical())))
    code, said, err = run("report", path, "-o", operator_file, "--out", out)
    assert (code, said, "a report is of a finished study" in err) == (1, "", True)
    assert not out.exists()
    scene.play(lambda status: status.state == "finished")
    code, said, _ = run("report", path, "-o", operator_file, "--out", out)
    name = scene.study.name
    assert (code, said.splitlines()) == (0, [str(out / f"{name}.html"), str(out / f"{name}.pdf")])
    page = (out / f"{name}.html").read_text()
    assert "0.250 to 0.750" not in page, "a count has no more digits than people have"
    assert page.count("took part to the end") == 3
    assert run("report", path, "-o", operator_file, "--out", out)[0] == 1
    monkeypatch.chdir(tmp_path)
    assert run("report", path, "-o", operator_file)[1].startswith(f"{name}-report/")


def test_an_error_is_not_shown_as_nothing_and_too_few_patients_are_counted():
    figures = [("patients", 12.3, 2.0, 22.0), ("auc", None, 0.0, 1.0), ("calibration", 0.0, 0.0, 0.051)]
    found = SimpleNamespace(
        name="small",
        needed=2,
        publications=(),
        agreed=[
            SimpleNamespace(figure=SimpleNamespace(domain="a", metric=metric, value=value, low=low, high=high), silos=3)
            for metric, value, low, high in figures
        ],
    )
    cells = list(studies._figures(found).columns[2].cells)
    assert cells == ["12.3", "too few (about 12 patients)", "below 0.051"]


def test_a_study_is_aborted_only_if_a_person_says_so(run, author_file, tmp_path, monkeypatch):
    operator_file = author_file
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="asked-about")))
    run("study", "create", study_file, "-o", operator_file)
    abort = ("study", "abort", "asked-about", "--reason", "enough", "-o", operator_file)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    code, _, err = run(*abort)
    digest = tiny_study(name="asked-about").digest[:12]
    question = f"Abort asked-about ({digest}, created, round 0/3) for good?"
    assert (code, err) == (1, f"fedward-coordinator: {question} Nobody can be asked here: give --yes\n")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked, answer = [], [False, True]
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or answer.pop(0))
    assert run(*abort)[::2] == (1, "fedward-coordinator: nothing was done\n")
    assert (
        json.loads(run("study", "status", "asked-about", "--format", "json", "-o", operator_file)[1])[0]["state"]
        == "created"
    )
    assert run(*abort) == (0, "", "")
    assert asked == [question] * 2
    assert (
        json.loads(run("study", "status", "asked-about", "--format", "json", "-o", operator_file)[1])[0]["state"]
        == "aborted"
    )


@pytest.mark.parametrize("command", ["start", "pause", "resume", "forgive"])
def test_a_reason_reaches_the_audit_log(run, operator_file, tmp_path, command):
    silo = ["north"] if command == "forgive" else []
    run("study", command, "nobody-s-study", *silo, "--reason", f"to {command}", "-o", operator_file)
    last = json.loads(run("audit", "show", "--format", "json", "-o", operator_file)[1])[-1]
    assert (last["action"], last["name"], last["reason"], last["outcome"], last["silo"]) == (
        command,
        "nobody-s-study",
        f"to {command}",
        "refused",
        "".join(silo),
    )


def test_an_abort_needs_a_reason(run, operator_file):
    code, _, err = run("study", "abort", "typed", "-o", operator_file)
    assert (code, "--reason" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "-c", "absent.yaml"), "absent.yaml: there is no such file; create it or give its path"),
        (("study", "status", "-o", "absent.yaml"), "absent.yaml: there is no such file"),
    ],
)
def test_a_missing_file_is_a_sentence(run, log_stays, arguments, sentence):
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.startswith(f"fedward-coordinator: {sentence}")
    assert err.count("\n") == 1


def test_a_study_file_that_is_missing(run, operator_file):
    code, _, err = run("study", "create", "absent.yaml", "-o", operator_file)
    assert (code, err.startswith("fedward-coordinator: absent.yaml: there is no such file")) == (1, True)


def test_a_study_that_cannot_be_accounted_for_is_refused_by_name_before_it_is_handed_in(run, operator_file, tmp_path):
    study_file = tmp_path / "study.yaml"
    study_file.write_text(yaml.safe_dump(tiny_document(name="coupled", encoder={"mmd": 0.1})))
    code, out, err = run("study", "create", study_file, "-o", operator_file)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("fedward-coordinator: batch_statistics: study.encoder.mmd: such a loss couples")


def test_what_the_coordinator_refuses_is_a_sentence(run, operator_file):
    code, _, err = run("study", "start", "nothing", "-o", operator_file)
    assert code == 1
    assert (
        err
        == "fedward-coordinator: 0 studies match 'nothing'; give the whole name, or at least 12 digits of the digest\n"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"insecure": True}, "field insecure: unknown field; remove it or fix its spelling"),
        ({"database": "nonsense://"}, "the database cannot be used: "),
        ({"certificate": "absent.pem"}, "absent.pem cannot be read (No such file or directory); fix its path"),
        ({"host": "192.0.2.1"}, "192.0.2.1:0 cannot be served; give another `host` or `port`"),
    ],
)
def test_a_coordinator_that_cannot_serve_says_why(run, log_stays, hub_file, changes, sentence):
    code, out, err = run("serve", "-c", hub_file(**changes))
    assert (code, out) == (1, "")
    assert sentence in err
    assert "Traceback" not in err


def test_a_coordinator_gives_back_what_it_has_freed(run, log_stays, hub_file, monkeypatch):
    """Before it has a thread or a socket: here it never gets one."""
    told = []
    monkeypatch.setattr("common.memory.give_back_freed", lambda: told.append(True))
    assert run("serve", "-c", hub_file(host="192.0.2.1"))[0] != 0
    assert told


def test_a_silo_s_certificate_does_not_serve(run, log_stays, authority, tmp_path):
    code, _, err = run("serve", "-c", coordinator_file(tmp_path, authority.credential("silo", "no-server")))
    assert code == 1
    assert "only a coordinator may serve, not fedward://silo/no-server" in err


def test_the_console_script_exits_with_1(tmp_path):
    absent = tmp_path / "absent.yaml"
    done = subprocess.run([*COMMAND, "serve", "-c", absent], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"fedward-coordinator: {absent}: there is no such file; create it or give its path\n"


def test_enrolment_makes_a_key_here_and_a_request(run, tmp_path):
    code, out, _ = run("enrol", tmp_path / "hub", "--role", "coordinator", "--name", "hub", "--host", "hub.example")
    assert code == 0
    assert out.startswith(f"Send {tmp_path}/hub/request.csr to the consortium's authority")
    assert (tmp_path / "hub" / "key.pem").stat().st_mode & 0o777 == 0o600
    code, _, err = run("enrol", tmp_path / "hub", "--role", "operator", "--name", "ops")
    assert code == 1, "a key is never overwritten"
    assert err.startswith("fedward-coordinator: ")


@pytest.mark.parametrize(
    "given",
    [
        ("--role", "coordinator"),
        ("--name", "hub"),
        ("--host", "hub.example"),
        ("--role", "coordinator", "--name", "hub", "--token", "t"),
        ("--role", "coordinator", "--name", "hub", "--token-file", "t"),
    ],
)
def test_who_this_is_stands_in_a_token_or_in_two_options_and_never_in_both(given, run, tmp_path):
    code, _, err = run("enrol", tmp_path / "hub", *given)
    told = "give a token, which says who this party is, or both --role and --name for a request\n"
    assert (code, err) == (1, f"fedward-coordinator: {told}")
    assert not (tmp_path / "hub").exists()
    code, _, err = run("enrol", tmp_path / "hub", "--token", "t")
    assert code == 1
    assert told not in err, "a token alone is read"


@pytest.mark.parametrize("role", ["coordinator", "operator", "author", "viewer"])
def test_whoever_was_certified_reads_what_to_write_next(role, run, tmp_path):
    online, home = Online(tmp_path / "online"), tmp_path / "home"
    with serving(online) as url:
        code, out, err = run("enrol", home, "--token", online.admit(role, "hub").text(), "--authority", url)
    assert (code, err) == (0, "")
    file = "coordinator.yaml" if role == "coordinator" else "operator.yaml"
    says = f"next: write {home}/{file} with `authority_url: {url}`, so that the certificate is renewed\n"
    assert out.startswith(f"certified as fedward://{role}/hub")
    assert out.endswith(says)


def test_a_silo_enrols_elsewhere():
    done = CliRunner().invoke(cli.app, ["enrol", "somewhere", "--role", "silo", "--name", "north"])
    assert done.exit_code == 2
    assert "fedward-silo enrol" in done.output
